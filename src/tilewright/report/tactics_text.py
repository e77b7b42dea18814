"""Tactics for a reader: a table, what can never run and why, and the autotuner's ids for it."""

from __future__ import annotations

import textwrap
from typing import Any, Final

from tilewright.libraries.flashinfer.diff import describe
from tilewright.libraries.flashinfer.model import Difference, Place, Report, RuntimeMode, RuntimeTactic, Tactic
from tilewright.report.budget_text import change_text
from tilewright.report.output import Output, bar

WIDTH: Final = 100
BAR_WIDTH: Final = 12
MAX_FIXES: Final = 3
"""Fixes shown with one failure, best first."""
MAX_NAMES: Final = 8
"""Kernel names shown with one failure."""

NEVER: Final = ("overflow", "illegal")
"""Verdicts of a kernel that can never run."""


def never_runs(tactic: Tactic) -> bool:
    """Whether `tactic` can never run."""
    return tactic.verdict.status in NEVER


def show_report(report: Report, out: Output) -> None:
    """Print a whole report."""
    if report.op == "dsl":
        _dsl(report, out)
        return
    _head(report, out)
    _table(report.tactics, out)
    failing = [tactic for tactic in report.tactics if never_runs(tactic)]
    if failing:
        out.line()
        out.heading(f"Can never run on {report.arch}")
        show_failures(failing, out)
    unread = [tactic for tactic in report.tactics if tactic.verdict.status == "unsupported"]
    if unread:
        out.line()
        out.heading("No verdict")
        causes: dict[str, int] = {}
        for tactic in unread:
            cause = tactic.verdict.cause or "no reason is given"
            causes[cause] = causes.get(cause, 0) + 1
        for cause, count in causes.items():
            _paragraph(f"{count} of {report.summary.total}: {cause}", out)
    for mode in report.runtime:
        _mode(mode, out)
    for note in report.notes:
        out.line()
        _paragraph(note, out)


def _head(report: Report, out: Output) -> None:
    counts = report.summary
    never = counts.overflow + counts.illegal
    words = [f"{counts.fits} fit"]
    if never:
        words.append(f"{never} can never run")
    if counts.unsupported:
        words.append(f"{counts.unsupported} without a verdict")
    head = (
        f"FlashInfer {report.library_version} on CUTLASS {report.cutlass}, {report.op} kernels for {report.arch}: "
        f"{counts.total} tactics, {', '.join(words)}."
    )
    for line in textwrap.wrap(head, WIDTH):
        out.heading(line)


def _dsl(report: Report, out: Output) -> None:
    """CuTe DSL kernels: a line for each, then why none has a verdict."""
    out.heading(
        f"FlashInfer {report.library_version}: {len(report.dsl)} CuTe DSL kernels that name {report.arch} or no "
        "architecture."
    )
    rows: list[list[object]] = []
    for kernel in report.dsl:
        counted = f"line {kernel.counted_by[0].line}" if kernel.counted_by else ""
        tiles = "; ".join(kernel.tiles[:2])
        rows.append([kernel.name, ", ".join(kernel.archs) or "not said", tiles, counted, str(kernel.source)])
    if rows:
        out.table(("kernel", "architectures", "tiles written out", "counts stages", "defined at"), rows)
        _paragraph(f"No verdict: {report.dsl[0].reason}.", out)


def _output(config: dict[str, Any]) -> str:
    return str(config["final_output"] if config["fusion"] == "finalize" else config["d"])


def _table(tactics: list[Tactic], out: Output) -> None:
    """One line for tactics that differ in their output type alone."""
    rows: dict[tuple[Any, ...], list[Tactic]] = {}
    for tactic in tactics:
        config, verdict = tactic.config, tactic.verdict
        if config is None:
            continue
        extra = " ".join(
            str(part)
            for part in (
                "x".join(map(str, config["scale_granularity"])) if config["scale_granularity"] else "",
                config["scale_major"] or "",
                config["tile_scheduler"] or "",
            )
            if part
        )
        key = (
            config["kind"], f"{config['a']} x {config['b']}", "x".join(map(str, config["tile"])),
            "none" if config["fusion"] == "linear_combination" else config["fusion"],
            "yes" if config["swap_ab"] else "no", extra, verdict.stages, verdict.smem_bytes, verdict.limit_bytes,
            verdict.status, str(tactic.source),
        )  # fmt: skip
        rows.setdefault(key, []).append(tactic)
    if not rows:
        return
    by_operands: dict[tuple[str, str], dict[tuple[Any, ...], list[Tactic]]] = {}
    for key, group in rows.items():
        by_operands.setdefault((str(key[0]), str(key[1])), {})[key] = group
    several = len(by_operands) > 1
    for (kind, operands), part in by_operands.items():
        if several:
            out.line()
            out.heading(f"{operands}, {kind}")
        _operands_table(part, operands, several, out)
    out.line("Tiles are M x N x K in elements. A line stands for one kernel an output type.")


def _operands_table(rows: dict[tuple[Any, ...], list[Tactic]], operands: str, several: bool, out: Output) -> None:
    """The kernels of one pair of operands; a column that says nothing is left out."""
    with_extra = any(key[5] for key in rows)
    with_fusion = any(key[3] != "none" for key in rows)
    shown = {"operands": not several, "fusion": with_fusion, "scales, scheduler": with_extra}
    names = ("tile", "operands", "fusion", "output", "swap", "scales, scheduler", "stages", "bytes", "of the limit",
             "verdict")  # fmt: skip
    columns = [name for name in names if shown.get(name, True)]
    table: list[list[object]] = []
    for key, group in rows.items():
        _, _, tile, fusion, swap, extra, stages, smem, limit, status, _ = key
        outputs = ", ".join(dict.fromkeys(_output(tactic.config) for tactic in group if tactic.config))
        meter = f"{bar(smem, limit, BAR_WIDTH)} {smem / limit:.0%}" if smem is not None and limit else ""
        table.append(
            [tile, *([] if several else [operands]), *([fusion] if with_fusion else []), outputs, swap,
             *([extra] if with_extra else []), "" if stages is None else stages, "" if smem is None else f"{smem:,}",
             meter, status]
        )  # fmt: skip
    out.table(columns, table, right=(columns.index("stages"), columns.index("bytes")))


def show_failures(failing: list[Tactic], out: Output) -> None:
    """Each kernel that can never run, those with one cause together: where it is listed, why, and what to do."""
    groups: dict[str | None, list[Tactic]] = {}
    for tactic in failing:
        groups.setdefault(tactic.verdict.cause, []).append(tactic)
    for cause, group in groups.items():
        for line in _failure_lines(group):
            for part in textwrap.wrap(line, WIDTH, subsequent_indent="  ", break_long_words=False):
                out.line(part)
        if cause:
            _paragraph(f"Why: {cause}", out)
        for index, fix in enumerate(group[0].verdict.fixes[:MAX_FIXES]):
            change = change_text(fix.change)
            label = "Fix:" if index == 0 else "or: "
            _paragraph(f"{label} {change} ({fix.smem_bytes:,} bytes): {fix.note}", out)
        for launcher in dict.fromkeys(tactic.launcher for tactic in group):
            _paragraph(f"The types of these kernels are spelled at {launcher}.", out)
        for tactic in group[:MAX_NAMES]:
            out.line(f"    {tactic.name}")
        if len(group) > MAX_NAMES:
            out.line(f"    and {len(group) - MAX_NAMES} more")


def _failure_lines(group: list[Tactic]) -> list[str]:
    """One line for kernels that differ in their output type alone."""
    lines: dict[tuple[Place, str, str], list[str]] = {}
    for tactic in group:
        verdict, config = tactic.verdict, tactic.config
        need = ""
        if verdict.status == "overflow":
            need = f" needs {verdict.smem_bytes:,} of {verdict.limit_bytes:,} bytes, {verdict.excess_bytes:,} too many"
        output = _output(config) if config else ""
        what = describe(tactic).replace(f" to {output}", " to {}") if output else describe(tactic)
        lines.setdefault((tactic.source, f"{verdict.status}: {what}", need), []).append(output)
    return [
        f"{source}: {what.replace('{}', ', '.join(dict.fromkeys(outputs)))}{need}"
        for (source, what, need), outputs in lines.items()
    ]


def _paragraph(text: str, out: Output) -> None:
    for line in textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False,
                              break_on_hyphens=False):  # fmt: skip
        out.line(line)


def _mode(mode: RuntimeMode, out: Output) -> None:
    """The ids of one pair of operands that the autotuner tries in vain."""
    out.line()
    out.heading(
        f"Autotuner, {mode.a} x {mode.b}: {mode.total} tactic ids (gemm1 0 to {mode.gemm1 - 1}, gemm2 {mode.gemm1} to "
        f"{mode.total - 1}), {len(mode.never) or 'none'} can never run"
    )
    groups: dict[tuple[str, str, Place], list[RuntimeTactic]] = {}
    for entry in mode.never:
        groups.setdefault((entry.tile, entry.reason, entry.source), []).append(entry)
    for (tile, reason, source), entries in groups.items():
        ids = ", ".join(str(entry.id) for entry in entries)
        _paragraph(f"{ids}: {tile}, {reason}. {source}", out)


def show_difference(change: Difference, out: Output) -> None:
    """Print what changed between two versions."""
    counts: dict[str, int] = {}
    for entry in change.changes:
        counts[entry.what] = counts.get(entry.what, 0) + 1
    words = [f"{count} {what}" for what, count in counts.items()]
    head = (
        f"FlashInfer {change.before} (CUTLASS {change.cutlass_before}) to {change.after} (CUTLASS "
        f"{change.cutlass_after}), {change.op} kernels for {change.arch}: {', '.join(words) or 'no change'}; "
        f"{change.same} the same."
    )
    for line in textwrap.wrap(head, WIDTH):
        out.heading(line)
    groups: dict[tuple[str, Place], list[tuple[str, str, str]]] = {}
    for entry in change.changes:
        groups.setdefault((entry.what, entry.source), []).append((entry.name, entry.before or "", entry.after or ""))
    for (what, source), entries in groups.items():
        out.line()
        _paragraph(f"{what}, listed at {source}", out)
        both = any(before and after for _, before, after in entries)
        rows = [(name, after or before) for name, before, after in entries]
        if not both:
            out.table(("tactic", "before" if what == "removed" else "now"), rows)
            continue
        for name, before, after in entries:
            _paragraph(f"{name}: {before or 'not there'}; now {after or 'gone'}", out)
    for entry in change.runtime:
        _paragraph(
            f"Autotuner, {entry.a} x {entry.b}: {entry.total_before} tactic ids became {entry.total_after}; "
            f"{entry.never_before} could never run, now {entry.never_after or 'none'}. Ids in logs and blocklists of "
            "one version mean other kernels in the other.",
            out,
        )
