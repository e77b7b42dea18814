"""`tilewright results`: what the result store holds - listed, compared, exported, brought in from elsewhere."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tilewright.cli.paths import PATH
from tilewright.cli.results_trials import trials
from tilewright.errors import InputError, shown
from tilewright.report.output import Output, output_options, tell

if TYPE_CHECKING:
    from tilewright.store import Query, Store, Stored

F = TypeVar("F", bound=Callable[..., Any])

SHOWN = 50
"""Results that `list` shows unless told otherwise: two screens."""
BATCH = 1000
"""Results an import commits at a time."""


def _select(function: F) -> F:
    """The options that say which results are meant."""
    options = [
        click.option(
            "--store", type=PATH, metavar="FILE", help="The store; default $TILEWRIGHT_STORE, else your data folder."
        ),
        click.option("--kind", metavar="KIND", help="gemm, moe, copy, read, allreduce or serve."),
        click.option("--backend", metavar="NAME", help="Only what this backend ran."),
        click.option("--gpu", metavar="GPU", help="Only results of this GPU (its catalogue name)."),
        click.option("--status", metavar="STATUS", help="ok, wrong, failed, timeout or refused."),
        click.option("--since", metavar="DATE", help="Only from this day or moment on (UTC, ISO 8601)."),
        click.option("--where", metavar="KEY=VALUE", multiple=True, help="A field of the problem; may be repeated."),
        click.option("--config", metavar="KEY=VALUE", multiple=True, help="A field of the config; may be repeated."),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def _fields(name: str, pairs: tuple[str, ...]) -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = {}
    for pair in pairs:
        key, found, text = pair.partition("=")
        if not found or not key:
            raise InputError(name, f"--{name} {shown(pair)} is no KEY=VALUE; write for example --{name} tokens=16.")
        try:
            fields[key] = msgspec.json.decode(text)
        except (msgspec.DecodeError, ValueError):
            fields[key] = text  # a bare word
    return fields


def gpu_key(name: str | None) -> str | None:
    """The name by which results of this GPU are kept: the catalogue's, or the driver's where it is not in there."""
    from tilewright.errors import AmbiguousNameError, UnknownNameError
    from tilewright.hardware.names import resolve_gpu

    try:
        return None if name is None else resolve_gpu(name).key
    except (AmbiguousNameError, UnknownNameError):
        return name


def _query(chosen: dict[str, Any], last: int | None = None) -> tuple[Path, Query]:
    """(the store's path, what is asked of it)."""
    from datetime import UTC, datetime

    from tilewright.store import Query, default_path
    from tilewright.store.result import STATUSES

    status, since = chosen["status"], chosen["since"]
    if status is not None and status not in STATUSES:
        raise InputError("status", f"--status {shown(status)} is none; the statuses are {', '.join(STATUSES)}.")
    if since is not None:
        try:
            moment = datetime.fromisoformat(since)
        except ValueError:
            raise InputError("since", f"--since {shown(since)} is no date; write 2026-12-31.") from None
        moment = moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        since = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    query = Query(
        kind=chosen["kind"],
        backend=chosen["backend"],
        gpu=gpu_key(chosen["gpu"]),
        status=status,
        since=since,
        problem=_fields("where", chosen["where"]),
        config=_fields("config", chosen["config"]),
        last=last,
    )
    return Path(chosen["store"]) if chosen["store"] else default_path(), query


def _find(store: Store, query: Query) -> Iterator[Stored]:
    """The results that `query` means. A kind that neither Tilewright nor this store knows is a slip."""
    from tilewright.store.result import KINDS

    if query.kind is not None and query.kind not in KINDS and query.kind not in (kinds := store.kinds()):
        known = ", ".join(dict.fromkeys((*KINDS, *kinds)))
        raise InputError("kind", f"--kind {shown(query.kind)} is none; the kinds are {known}.")
    return store.find(query)


@click.group(
    epilog="Example: tilewright results list --kind moe --where tokens=16", context_settings={"max_content_width": 100}
)
def command() -> None:
    """What was measured on your GPUs, as the result store keeps it: nothing in it is ever changed or dropped."""


command.add_command(trials)


def _words(value: dict[str, Any]) -> str:
    return " ".join(f"{key}={item}" for key, item in value.items())


def _microseconds(value: float | None) -> str:
    return "" if value is None else f"{value * 1e6:,.2f}"


@command.command("list", epilog="Example: tilewright results list --kind moe --where tokens=16 --last 20")
@_select
@click.option("--last", type=click.IntRange(1), default=SHOWN, show_default=True, help="Only so many, the newest.")
@output_options
def list_(last: int, as_json: bool, quiet: bool, **chosen: Any) -> None:
    """The results, newest last."""
    from tilewright.store import Store
    from tilewright.store.documents import ResultsDocument

    path, query = _query(chosen, last)
    with Store.read(path) as store:
        found = list(_find(store, query))
    output = Output(as_json, quiet)
    if as_json:
        output.document(ResultsDocument(store=str(path), results=found))
        return
    output.table(
        ["id", "when (UTC)", "gpu", "kind", "problem", "backend", "status", "us", "+-%", "marks"],
        [_line(item) for item in found],
        right=[0, 7, 8],
    )
    if not found:
        output.line("No result answers to that.")


def _line(item: Stored) -> list[str]:
    result = item.result
    spread = ""
    if result.time_s and result.low_s is not None and result.high_s is not None:
        spread = f"{(result.high_s - result.low_s) / 2 / result.time_s * 100:.1f}"
    return [
        str(item.id),
        result.at[:16].replace("T", " "),
        str(result.environment.get("gpu", "")),
        result.kind,
        _words(result.problem),
        result.backend,
        result.status,
        _microseconds(result.time_s),
        spread,
        ", ".join(result.marks) or result.note,
    ]


@command.command(
    "compare",
    short_help="Results of the same problem beside each other.",
    epilog="Example: tilewright results compare --by backend --kind moe --baseline torch",
)
@_select
@click.option(
    "--by",
    type=click.Choice(["backend", "gpu", "driver", "config", "version", "day"]),
    default="backend",
    show_default=True,
    help="What is set beside each other.",
)
@click.option("--baseline", metavar="NAME", help="The group that the others are compared with (its key, of configs).")
@output_options
def compare_(by: Any, baseline: str | None, as_json: bool, quiet: bool, **chosen: Any) -> None:
    """Results of the same problem beside each other: each group's best config, and whether they differ for certain."""
    from tilewright.report.results_text import configs_told
    from tilewright.store import Store, compare

    path, query = _query(chosen)
    with Store.read(path) as store:
        comparison = compare(_find(store, query), by, baseline)
    output = Output(as_json, quiet)
    if as_json:
        output.document(comparison)
        return
    if not comparison.rows:
        output.line(f"No problem was measured by more than one {by} among these results.")
    for row in comparison.rows:
        held = ", ".join(name for name in (row.backend, row.gpu) if name)
        output.heading(f"{row.kind}: {_words(row.problem)}" + (f" ({held})" if held else ""))
        rows = [
            [
                cell.group,
                _microseconds(cell.time_s),
                f"{_microseconds(cell.low_s)} to {_microseconds(cell.high_s)}",
                str(cell.results),
                _verdict(row.ratio.get(cell.group), row.apart.get(cell.group)),
                ", ".join(cell.marks),
            ]
            for cell in row.cells
        ]
        columns = [by, "us", "spread", "runs", f"against {row.reference}", "marks"]
        if by == "config":  # a group's name is then a hash, which --baseline takes and which says nothing
            told = configs_told([cell.config for cell in row.cells])
            columns = ["key", "us", "spread", "runs", "against the first", "marks", "config, as far as they differ"]
            rows = [[*line, config] for line, config in zip(rows, told, strict=True)]
        output.table(columns, rows, right=[1, 2, 3])
        output.line()
    if comparison.left_out:
        output.note(f"{comparison.left_out} results without a time or with a wrong answer were left out.")


def _verdict(ratio: float | None, apart: bool | None) -> str:
    if ratio is None:
        return ""
    text = f"{ratio:.3f}x the time"
    return text if apart else f"{text}, within the spread"


COLUMNS = (
    "id", "at", "kind", "backend", "status", "time_s", "low_s", "high_s", "samples", "error", "marks", "note",
    "problem", "config", "environment", "figures",
)  # fmt: skip


def _csv(found: list[Stored]) -> bytes:
    import msgspec

    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for item in found:
        raw = msgspec.to_builtins(item.result) | {"id": item.id}
        writer.writerow(
            [
                msgspec.json.encode(raw[name]).decode() if isinstance(raw[name], dict | list) else raw[name]
                for name in COLUMNS
            ]
        )
    return text.getvalue().encode()


@command.command(
    "export",
    short_help="Results as JSON Lines or CSV.",
    epilog="Example: tilewright results export --kind moe --out results.jsonl",
)
@_select
@click.option("--format", "form", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True)
@click.option("--out", type=PATH, metavar="FILE", help="Where to write; without it stdout.")
@click.option("--force", is_flag=True, help="Replace --out where it exists.")
def export(form: str, out: str | None, force: bool, **chosen: Any) -> None:
    """The results as JSON Lines (which `import` reads) or CSV."""
    import msgspec

    from tilewright.report.write_file import check_new, write_new
    from tilewright.store import Store

    if out is not None:
        check_new(out, force=force)
    path, query = _query(chosen)
    with Store.read(path) as store:
        found = list(_find(store, query))
    content = _csv(found) if form == "csv" else b"".join(msgspec.json.encode(item.result) + b"\n" for item in found)
    if out is None:
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
        return
    write_new(out, content, force=force)
    tell(f"{len(found)} results written: {out}")


@command.command(
    "import",
    short_help="Bring exported results into the store.",
    epilog="Example: tilewright results import results.jsonl",
)
@click.argument("file", type=PATH, metavar="FILE")
@click.option("--store", type=PATH, metavar="FILE", help="The store; default $TILEWRIGHT_STORE, else your data folder.")
@output_options
def import_(file: str, store: str | None, as_json: bool, quiet: bool) -> None:
    """Bring exported results (JSON Lines) into the store; what it has already is kept once.

    Every line is checked before the first is stored: one bad line and nothing is.
    """
    import msgspec

    from tilewright.cli.jsonl import open_stream, read_lines
    from tilewright.store import Result, Store, default_path
    from tilewright.store.result import STATUSES, check

    decoder = msgspec.json.Decoder(Result)
    results = list[Result]()
    with open_stream(file, "FILE") as stream:
        for number, data in read_lines(stream):
            if not isinstance(data, bytes):
                raise InputError(data.field, data.message)
            try:
                results.append(check(decoder.decode(data)))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                legal = f" (status is one of {', '.join(STATUSES)})" if "`$.status`" in str(error) else ""
                raise InputError("FILE", f"Line {number} is no result: {error}{legal}; nothing was stored.") from None
            except InputError as error:
                raise InputError(error.field, f"Line {number}: {error.msg} Nothing was stored.") from None
    path = Path(store) if store else default_path()
    with Store.append_to(path) as target:
        new = sum(target.append(results[at : at + BATCH]) for at in range(0, len(results), BATCH))
    output = Output(as_json, quiet)
    if as_json:
        from tilewright.store.documents import ImportDocument

        output.document(ImportDocument(store=str(path), read=len(results), new=new))
        return
    output.line(f"{len(results)} results read, {new} of them new: {path}")
