"""`tilewright tactics flashinfer --cache FILE`: a cache of FlashInfer's autotuner read against a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tilewright.cli.exit_status import EXIT_NO
from tilewright.cli.paths import PATH
from tilewright.errors import InputError, shown
from tilewright.number_lists import whole_numbers
from tilewright.report.output import Output

if TYPE_CHECKING:
    from tilewright.libraries.flashinfer.cache_report import CacheReport

F = TypeVar("F", bound=Callable[..., Any])
_SHOWN: Final = 3
"""Kernels of one entry that the table names."""


def cache_options(function: F) -> F:
    """The options of --cache; the command gets them as `cache`, `chunk`, `graph_sizes` and `running`."""
    options = [
        click.option(
            "--cache", type=PATH, metavar="FILE", help="flashinfer: an autotuner cache: is it taken, what is in it."
        ),
        click.option("--chunk", type=click.IntRange(1, 1 << 24), help="With --cache: the server's chunk size."),
        click.option("--graph-sizes", metavar="N,...", help="With --cache: the server's CUDA graph sizes."),
        click.option("--running", multiple=True, metavar="FIELD=VALUE", help="With --cache: cuda_version=13.0 ..."),
    ]  # fmt: skip
    for option in reversed(options):
        function = option(function)
    return function


def _running(items: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.isidentifier() or not value:
            raise InputError("running", f"--running takes FIELD=VALUE, such as cuda_version=13.0, not {shown(item)}.")
        found[name] = value
    return found


def _sizes(text: str | None) -> list[int]:
    if text is None:
        return []
    found = whole_numbers(text, digits=8)
    if found is None or min(found) < 1:
        raise InputError("graph-sizes", f"--graph-sizes takes numbers like 1,2,4,8, not {shown(text)}.")
    return sorted(set(found))


def run_cache(
    file: str, root: str, arch: str, gpu: str | None, chunk: int | None, sizes: str | None, items: Sequence[str],
    check: bool, out: Output,
) -> int | None:  # fmt: skip
    """Read, report and check; the exit status."""
    import gc

    from tilewright.cli.tactics_compiled import known_arch
    from tilewright.collectives.tree import open_tree
    from tilewright.libraries.flashinfer.autotune_cache import read_cache
    from tilewright.libraries.flashinfer.cache_report import MOE_OPS, cache_report

    running: Mapping[str, str] = _running(items)
    extra: list[int] = [chunk] if chunk else []
    wanted: list[int] = sorted({*_sizes(sizes), *extra})
    collecting = gc.isenabled()
    # A large file is hundreds of thousands of small values that all stay to the end: looking through them for garbage
    # again and again takes as long as reading them.
    gc.disable()
    try:
        cache = read_cache(file)
        if gpu is not None:
            from tilewright.libraries.tuned.devices import device_of_gpu

            running = {"gpu": device_of_gpu(gpu).name, **running}
        with open_tree(root) as tree:
            tactics: Any = []
            if any(entry.op in MOE_OPS for entry in cache.entries):
                from tilewright.libraries.flashinfer.tactics import read_report

                tactics = read_report(tree, "moe", known_arch(arch)).tactics
            report = cache_report(tree, cache, file, tactics, running, wanted)
        if out.json:
            out.document(report)
        else:
            _show(report, out)
    finally:
        if collecting:
            gc.enable()
    return EXIT_NO if check and report.accepted.verdict == "no" else None


def _show(report: CacheReport, out: Output) -> None:
    accepted = report.accepted
    word = {"yes": "is taken", "no": "is NOT taken", "unknown": "cannot be told"}[accepted.verdict]
    out.heading(f"{report.file}: {report.entries:,} entries; by FlashInfer {report.library_version} it {word}")
    out.line(f"  {accepted.why}")
    for item in accepted.mismatches:
        out.line(f"  {item.field}: the file says {item.saved}, running is {item.running}")
    lines: list[str] = []
    for group in report.coverage:
        lines += ["", f"{group.op} ({group.runner}): buckets {', '.join(map(str, group.buckets)) or 'none'}"]
        if group.missing:
            told = ", ".join(f"{tokens} (bucket {place})" for tokens, place in group.missing.items())
            lines.append(f"  not covered: {told}")
    out.lines(lines)
    rows: list[list[object]] = []
    for item in report.chosen:
        tiles = [
            f"{'x'.join(str(part) for part in kernel.tile)} {kernel.fusion}{' swap_ab' if kernel.swap_ab else ''} "
            f"({kernel.a}, {kernel.verdict})"
            for kernel in item.kernels[:_SHOWN]
        ]
        rows.append([item.op, item.rows, item.tactic, "; ".join(tiles) or item.problem])
    out.line()
    if rows:
        out.table(("op", "M", "tactic", "kernel"), rows, right=(1,))
    for note in report.notes:
        out.line(note)
    if report.unread:
        out.line(f"{len(report.unread)} keys are none of FlashInfer's, such as {shown(report.unread[0])}.")
