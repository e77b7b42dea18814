"""`tilewright probe`: the same configs as `fit`, compiled as real C++."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import msgspec

from tilewright.cli.compiler_options import compiler_options, cores, keep_folder
from tilewright.cli.config_options import config_options
from tilewright.cli.exit_status import EXIT_NO
from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.cutlass.budget import LineError
    from tilewright.errors import InputError
    from tilewright.probe.headers import Extensions, Headers
    from tilewright.probe.result import ProbeError, ProbeResult
    from tilewright.probe.rounds import Settings
    from tilewright.probe.run import Request


@click.command(
    epilog="Example: tilewright probe --root flashinfer_python-0.6.2-py3-none-any.whl --arch sm120 --kind grouped "
    "--a nvfp4 --tile 128x256x128 --fusion finalize"
)
@config_options
@compiler_options
@click.option(
    "--from", "source", type=PATH, metavar="FILE", help="Read one JSON config a line ('-': stdin), answer one a line."
)
@click.option(
    "--sample",
    type=click.IntRange(1, 100_000),
    metavar="N",
    help="Draw N random configs (of all architectures, or of --arch); config flags hold for all of them.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of --sample.")
@click.option("--ptxas", is_flag=True, help="Compile the whole kernel too: registers, spills, stack (30-75 s each).")
@click.option("--against-model", is_flag=True, help="Compare with what fit says, field by field.")
@click.option("--check", is_flag=True, help="Exit 1 when a config does not fit, or disagrees with the model.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.IntRange(1, 86_400),
    default=900,
    show_default=True,
    metavar="S",
    help="Time limit of one compile in seconds.",
)
@output_options
def command(
    given: dict[str, Any],
    roots: tuple[str, ...],
    extensions: str | None,
    nvcc: str | None,
    source: str | None,
    sample: int | None,
    seed: int,
    ptxas: bool,
    against_model: bool,
    check: bool,
    jobs: int | None,
    timeout_s: int,
    keep: str | None,
    no_cache: bool,
    as_json: bool,
    quiet: bool,
) -> int | None:
    """Compile the real CUTLASS types of a config and read their sizes, offsets, stages and threads. No GPU needed.

    A config needs at least --arch, --a and --tile, and --root a tree that has CUTLASS: a checkout, an installed
    package, or a wheel.
    """
    from tilewright.probe.compiler import find_nvcc
    from tilewright.probe.headers import open_headers
    from tilewright.probe.rounds import Settings

    out = Output(as_json, quiet)
    if not roots:
        raise click.UsageError("Missing option '--root': the CUTLASS tree (a folder or a wheel) to compile against.")
    if source is not None and (given or sample is not None):
        raise click.UsageError("--from takes the configs from the file; drop --sample and the config flags.")
    trees, scatter = open_headers(roots, extensions)
    settings = Settings(
        compiler=find_nvcc(nvcc),
        extensions=scatter,
        jobs=jobs or cores(),
        timeout_s=timeout_s,
        keep=keep_folder(keep),
        use_cache=not no_cache,
    )
    if source is not None:
        lines = _read(source, trees)
    elif sample is not None:
        lines = _draw(sample, seed, given, trees, scatter)
    else:
        lines = [_request(given, trees)]
    return _answer(
        lines, settings, out, single=source is None and sample is None, ptxas=ptxas, model=against_model, check=check
    )


def _request(raw: dict[str, Any], trees: list[Headers]) -> Request:
    """`raw` checked, and the tree of its version found; without one the config takes the first tree's."""
    from tilewright.cutlass.config import parse_config
    from tilewright.probe.headers import pick_headers
    from tilewright.probe.run import Request

    config = parse_config(raw)
    headers = pick_headers(trees, config.cutlass if raw.get("cutlass") is not None else None)
    return Request(msgspec.structs.replace(config, cutlass=headers.version), headers)


def _refuse(raw: Any, error: LineError | InputError) -> ProbeError:
    from tilewright.cli.jsonl import error_line
    from tilewright.probe.result import ProbeError

    line = error_line(raw, error)
    return ProbeError(id=line.id, error=line.error)


def _read(source: str, trees: list[Headers]) -> list[Request | ProbeError]:
    """The configs of a stream; a bad line is its own answer."""
    from tilewright.cli.jsonl import decode_object, open_stream, read_lines
    from tilewright.errors import InputError

    lines: list[Request | ProbeError] = []
    with open_stream(source) as stream:
        for number, data in read_lines(stream):
            raw = decode_object(number, data) if isinstance(data, bytes) else data
            if not isinstance(raw, dict):
                lines.append(_refuse(None, raw))
                continue
            try:
                lines.append(_request(raw, trees))
            except InputError as error:
                lines.append(_refuse(raw, error))
    return lines


def _draw(
    count: int, seed: int, given: dict[str, Any], trees: list[Headers], scatter: Extensions | None
) -> list[Request | ProbeError]:
    """`count` random configs that have what is `given` in common, spread over the trees."""
    from tilewright.probe.sampling import sample_configs

    versions = [headers.version for headers in trees]
    raws = sample_configs(count, seed, versions, finalize=scatter is not None, fixed=given)
    return [_request(raw, trees) for raw in raws]


def _answer(
    lines: list[Request | ProbeError] | list[Request],
    settings: Settings,
    out: Output,
    *,
    single: bool,
    ptxas: bool,
    model: bool,
    check: bool,
) -> int | None:
    from tilewright.probe.run import Request, probe
    from tilewright.report.probe_text import Progress, show_line, show_one

    requests = [line for line in lines if isinstance(line, Request)]
    progress = Progress(out)
    results = probe(requests, settings, progress.update, ptxas=ptxas)
    progress.end()
    answers = iter(results)
    merged: list[tuple[Request, ProbeResult] | ProbeError] = [
        (line, next(answers)) if isinstance(line, Request) else line for line in lines
    ]
    bad = sum(not isinstance(item, tuple) or item[1].status != "fits" for item in merged)
    if model:
        return _against_model(merged, out, single=single, check=check)
    if single:
        assert isinstance(merged[0], tuple)
        request, result = merged[0]
        if out.json:
            out.document(result)
        else:
            show_one(request.config, result, out)
    else:
        write = sys.stdout.buffer.write
        for item in merged:
            answer = item[1] if isinstance(item, tuple) else item
            if out.json:
                write(msgspec.json.encode(answer) + b"\n")
            else:
                show_line(answer, out)
        sys.stdout.buffer.flush()
        out.note(f"{len(merged)} configs: {bad} do not fit or have no answer.")
    return EXIT_NO if check and bad else None


def _against_model(
    merged: list[tuple[Request, ProbeResult] | ProbeError], out: Output, *, single: bool, check: bool
) -> int | None:
    """Hold what was compiled against what `fit` says."""
    from tilewright.cutlass.fit import fit
    from tilewright.probe.against import compare
    from tilewright.report.probe_text import show_comparison, show_line

    counts = {"agree": 0, "differ": 0, "not_compared": 0, "error": 0}
    for item in merged:
        if not isinstance(item, tuple):
            counts["error"] += 1
            if out.json:
                out.document(item)
            else:
                show_line(item, out)
            continue
        request, result = item
        comparison = compare(request.config, fit(request.config), result)
        counts[comparison.verdict] += 1
        if out.json:
            out.document(comparison)
        else:
            show_comparison(comparison, out, always=single)
    out.line(
        f"{len(merged)} configs: {counts['agree']} agree, {counts['differ']} differ, "
        f"{counts['not_compared']} not compared, {counts['error']} lines refused."
    )
    return EXIT_NO if check and (counts["differ"] or counts["error"]) else None
