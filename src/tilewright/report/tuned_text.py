"""Tuned tiles for a reader: what a layer gets, what can never run and why, which files nothing reads."""

from __future__ import annotations

import posixpath
import textwrap
from typing import Any, Final

from tilewright.libraries.flashinfer.model import Place
from tilewright.libraries.tuned.model import Lookup, TunedReport, TunedTactic
from tilewright.report.budget_text import change_text
from tilewright.report.output import Output, bar
from tilewright.triton_.model import TritonVerdict

WIDTH: Final = 100
BAR_WIDTH: Final = 12
NEVER: Final = ("overflow", "illegal")
MAX_FILES: Final = 12
MAX_UNREAD: Final = 8


def failing_of(report: TunedReport, known: dict[str, str] | None) -> list[TunedTactic]:
    """What can never run where it would be read: on its own device, or (with a GPU) in a file that the GPU reads.

    `known` holds the verdicts of a baseline by name; what failed there already is left out."""
    failing = [item for item in report.tactics if item.verdict.status in NEVER and item.read is not False]
    return failing if known is None else [item for item in failing if known.get(item.name) not in NEVER]


def show_tuned(label: str, report: TunedReport, failing: list[TunedTactic], new_only: bool, out: Output) -> None:
    """Print the report."""
    _head(label, report, failing, new_only, out)
    if report.lookup is not None and not new_only:
        _lookup(report.lookup, label, out)
    if failing:
        out.line()
        where = f"on {report.gpu}" if report.gpu else "on its own device"
        out.heading(f"Can never run {where}")
        _failures(failing, out)
    if new_only:
        return
    _defaults(report, out)
    _unread(report, out)
    for note in report.notes:
        out.line()
        _paragraph(note, out)


def _head(label: str, report: TunedReport, failing: list[TunedTactic], new_only: bool, out: Output) -> None:
    if new_only:
        _paragraph(f"{label} {report.library_version}: {len(failing):,} tiles that can never run are new.", out, "")
        return
    entries = [item for item in report.tactics if item.device is not None]
    counts = {status: sum(item.verdict.status == status for item in entries) for status in (*NEVER, "unsupported")}
    never = counts["overflow"] + counts["illegal"]
    text = f"{label} {report.library_version}: {report.files:,} tuned files, {len(entries):,} tiles"
    if report.gpu is None:
        text += f"; {never:,} can never run on their own device, {counts['unsupported']:,} without a verdict."
    else:
        read = [item for item in entries if item.read]
        files = len({item.source.file for item in read})
        bad = sum(item.verdict.status in NEVER for item in read)
        text += (
            f". {report.gpu} reads {files:,} of the files ({len(read):,} tiles, {bad:,} of which can never run); of "
            f"the tiles tuned for other GPUs, {never - bad:,} could not run there."
        )
    for line in textwrap.wrap(text, WIDTH):
        out.heading(line)


def _tile(config: dict[str, Any] | None) -> str:
    if config is None:
        return "-"
    return f"{config['block_m']}x{config['block_n']}x{config['block_k']}"


def _bytes(verdict: TritonVerdict) -> str:
    if verdict.smem_bytes is None:
        return "-"
    return ("<= " if verdict.basis == "bound" and verdict.status != "overflow" else "") + f"{verdict.smem_bytes:,}"


def _meter(verdict: TritonVerdict) -> str:
    if verdict.smem_bytes is None or not verdict.limit_bytes:
        return ""
    return f"{bar(verdict.smem_bytes, verdict.limit_bytes, BAR_WIDTH)} {verdict.smem_bytes / verdict.limit_bytes:.0%}"


def _lookup(lookup: Lookup, label: str, out: Output) -> None:
    out.line()
    block = f", block {lookup.block_shape[0]},{lookup.block_shape[1]}" if lookup.block_shape else ""
    out.heading(f"E {lookup.experts}, N {lookup.inter}, {lookup.dtype}{block} on {lookup.device}")
    if lookup.wanted:
        _paragraph(f"{label} looks for: {lookup.wanted}", out)
    if lookup.file is not None:
        _paragraph(f"and reads: {lookup.file}", out)
    elif lookup.problem is None:
        _paragraph(f"There is no such file: the built-in default is used ({lookup.default_at}).", out)
    if lookup.problem is not None:
        _paragraph(f"Not followed: {lookup.problem}", out)
    rows: list[list[object]] = []
    for step in lookup.steps:
        for kind, config, verdict in (("", step.config, step.verdict), (" down", step.down_config, step.down_verdict)):
            if verdict is None:
                continue
            warps, stages = (config["num_warps"], config["num_stages"]) if config else ("", "")
            rows.append([f"{step.tokens:,}{kind}", _tile(config), warps, stages, _bytes(verdict), _meter(verdict),
                         verdict.status])  # fmt: skip
    columns = ["tokens", "tile", "warps", "stages", "bytes", "of the limit", "verdict"]
    out.table(columns, rows, right=(0, 2, 3, 4))
    shown: set[str] = set()
    for step in lookup.steps:
        verdict = step.verdict
        if verdict.status in (*NEVER, "unsupported") and verdict.cause and verdict.cause not in shown:
            shown.add(verdict.cause)
            _why(verdict, out)
            if verdict.status == "overflow" and lookup.file is None and lookup.wanted and len(shown) == 1:
                _paragraph(f"Give the layer a file of its own, {lookup.wanted}, with such a tile.", out)


def _failures(failing: list[TunedTactic], out: Output) -> None:
    groups: dict[str, list[TunedTactic]] = {}
    for item in failing:
        groups.setdefault(item.source.file, []).append(item)
    for file, items in list(groups.items())[:MAX_FILES]:
        _paragraph(f"{file}", out, "")
        rows: dict[tuple[str, int, int, str], list[TunedTactic]] = {}
        for item in items:
            config = item.config or {}
            key = (_tile(item.config), config.get("num_warps", 0), config.get("num_stages", 0), _bytes(item.verdict))
            rows.setdefault(key, []).append(item)
        for (tile, warps, stages, size), same in rows.items():
            verdict = same[0].verdict
            tokens = ", ".join(f"{item.tokens}" for item in same)
            need = f"{size} of {verdict.limit_bytes:,} bytes" if verdict.smem_bytes and verdict.limit_bytes else ""
            at = Place("line", same[0].source.line)
            _paragraph(
                f"{verdict.status} {tile}, {warps} warps, {stages} stages: {need} (tokens {tokens}; "
                f"{str(at).replace(':', ' ')})", out,
            )  # fmt: skip
        _why(items[0].verdict, out)
    if len(groups) > MAX_FILES:
        out.line(f"  and {len(groups) - MAX_FILES} more files; --json has them all")


def _why(verdict: TritonVerdict, out: Output) -> None:
    if verdict.cause:
        _paragraph(f"Why: {verdict.cause}", out)
    for index, fix in enumerate(verdict.fixes[:2]):
        change = change_text(fix.change)
        note = f": {fix.note}" if fix.note else ""
        _paragraph(f"{'Fix:' if index == 0 else 'or: '} {change} ({fix.smem_bytes:,} bytes){note}.", out)


def _defaults(report: TunedReport, out: Output) -> None:
    rows: list[list[object]] = []
    for item in report.tactics:
        if item.device is not None:
            continue
        config = item.config
        kind = posixpath.basename(item.name).removeprefix("default:").partition("#")[0]
        kind = kind.replace("dtype=", "").replace(",block_shape=", " block ")
        warps, stages = (config["num_warps"], config["num_stages"]) if config else ("", "")
        rows.append([kind, f"{item.tokens:,}", _tile(config), warps, stages, _bytes(item.verdict),
                     _meter(item.verdict), item.verdict.status])  # fmt: skip
    if not rows:
        return
    out.line()
    out.heading("Built-in tiles where there is no file (tokens: the least asked for that takes the tile)")
    columns = ["dtype", "tokens", "tile", "warps", "stages", "bytes", "of the limit", "verdict"]
    out.table(columns, rows, right=(1, 3, 4, 5))


def _unread(report: TunedReport, out: Output) -> None:
    if not report.unread:
        return
    out.line()
    out.heading(f"{len(report.unread):,} files or entries that no lookup reads")
    for item in report.unread[:MAX_UNREAD]:
        _paragraph(f"{posixpath.basename(item.file)}: {item.why}", out)
    if len(report.unread) > MAX_UNREAD:
        out.line(f"  and {len(report.unread) - MAX_UNREAD} more; --json has them all")


def _paragraph(text: str, out: Output, indent: str = "  ") -> None:
    for line in textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ",
                              break_long_words=True, break_on_hyphens=False):  # fmt: skip
        out.line(line)
