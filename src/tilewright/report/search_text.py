"""A search for a reader: the ranked tiles in at most 100 columns, what they rest on, and why the first is first."""

from __future__ import annotations

import textwrap
from typing import Any, Final, cast

from tilewright.report.output import Output
from tilewright.search.model import Candidate, SearchResult

WIDTH: Final = 100
MICRO: Final = 1e6
KIBI: Final = 1024

_SHORT: Final = {"memory": "memory", "bytes in flight": "in flight", "L2 reads": "L2", "tensor cores": "tensor"}


def show_search(result: SearchResult, out: Output) -> None:
    """Print `result`."""
    problem, counts = result.problem, result.counts
    rows = ", ".join(f"{count:,}" for count in problem.rows_per_group)
    if problem.kind == "grouped":
        what = f"{problem.groups:,} experts x {rows} rows x {problem.n:,} x {problem.k:,}"
    else:
        what = f"{problem.rows:,} x {problem.n:,} x {problem.k:,}"
    fixed = ", ".join(f"{key} {_value(value)}" for key, value in result.given.items() if key not in ("arch", "cutlass"))
    assumed = " (taken because no --gpu was given)" if result.gpu_assumed else ""
    _paragraph(f"{what}, {fixed}, for {result.gpu}{assumed}, CUTLASS {result.cutlass}", out, heading=True)
    out.line(
        f"{counts.tried:,} configs tried: {counts.legal:,} legal kernels, {counts.illegal:,} refused, "
        f"{counts.overflow:,} too large."
    )
    if result.candidates:
        out.line()
        _table(result.candidates, out)
        out.line("Times are modelled from resources: they rank, kernels take longer. Shares and counts are exact.")
        out.line("One line a tile, swap and cluster, with its best stages, schedule and epilogue.")
        _details(result.candidates[0], result.needed_in_flight_bytes, out)
    if result.why_first:
        out.line()
        out.heading("Why the first is first")
        _paragraph(result.why_first, out)
    if result.candidates:  # figures that ranked nothing would hide why there is nothing
        out.line()
        out.heading("What the ranking rests on")
        for figure in result.figures:
            value = "unknown" if figure.value is None else f"{figure.value:,} {figure.unit}".strip()
            kind = f" ({figure.kind})" if figure.kind else ""
            _paragraph(f"{figure.name}: {value}{kind}; {figure.source}", out)
    for note in result.notes:
        out.line()
        _paragraph(note, out)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "x".join(str(item) for item in cast("list[object] | tuple[object, ...]", value))
    return str(value)


def _terms(candidate: Candidate) -> dict[str, Any]:
    return {term.name: term.value for term in candidate.terms}


def _table(candidates: list[Candidate], out: Output) -> None:
    rows: list[list[object]] = []
    for item in candidates:
        config, terms = item.config, _terms(item)
        pinned = "" if config["stages"] == "auto" else "*"
        rows.append(
            [
                item.rank, _value(config["tile"]), "yes" if config["swap_ab"] else "no",
                _value(config["cluster"][:2]), _schedule(config), f"{item.stages}{pinned}", f"{item.smem_bytes:,}",
                terms["tiles"], f"{terms['waves']:.2f}", f"{terms['rows used']:.0%}", terms["busy SMs"],
                f"{terms['bytes in flight an SM'] / KIBI:.0f}K", f"{item.time_s * MICRO:,.1f}",
                _SHORT[item.bound],
            ]
        )  # fmt: skip
    columns = ("", "tile", "swap", "clust", "schedule", "st", "bytes", "tiles", "waves", "rows", "SMs", "flight", "us",
               "bound")  # fmt: skip
    out.table(columns, rows, right=(0, 5, 6, 7, 8, 9, 10, 11, 12))
    if any(item.config["stages"] != "auto" for item in candidates):
        out.line("* pinned: StageCount<n> instead of the automatic count.")


def _schedule(config: dict[str, Any]) -> str:
    name = str(config["schedule"]).removeprefix("KernelTmaWarpSpecialized")[:11]
    return f"{name}+sK" if config["tile_scheduler"] == "stream_k" else name


def _details(first: Candidate, needed: int | None, out: Output) -> None:
    """The terms of the first, and the flags by which `fit` explains it."""
    config, terms = first.config, _terms(first)
    out.line()
    out.heading(f"The first: {_value(config['tile'])}{' swapped' if config['swap_ab'] else ''}")
    flight = f"{terms['bytes in flight an SM']:,} bytes in flight an SM"
    if needed:
        flight += f"; {needed:,} are needed to reach the memory bandwidth"
    _paragraph(f"{flight}.", out)
    _paragraph(
        f"{terms['blocks an SM']} block{'' if terms['blocks an SM'] == 1 else 's'} an SM, limited by "
        f"{terms['what limits blocks an SM']}; {terms['idle in the last wave']:.0%} idle in the last wave; "
        f"{terms['L2 reads']:,} bytes read from L2, {terms['epilogue traffic']:,} bytes of C and D.",
        out,
    )
    keys = ("schedule", "epilogue_schedule", "epilogue_tile", "tile_scheduler", "stages")
    chosen = ", ".join(f"{key} {_value(config[key])}" for key in keys if config[key] not in (None, "auto"))
    _paragraph(f"Beside the tile: {chosen or 'everything auto'}; {first.variants} other variants of it are legal.", out)
    if first.collective:
        _paragraph(f"Run by {first.collective}.", out)


def _paragraph(text: str, out: Output, *, heading: bool = False) -> None:
    indent = "" if heading else "  "
    for line in textwrap.wrap(
        text, WIDTH, initial_indent=indent, subsequent_indent="  " if heading else "    ", break_long_words=False,
        break_on_hyphens=False,
    ):  # fmt: skip
        (out.heading if heading else out.line)(line)
