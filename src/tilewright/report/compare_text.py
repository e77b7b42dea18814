"""A comparison of two CUTLASS releases as text."""

from __future__ import annotations

from typing import Any

from tilewright.cutlass.compare import Comparison, LibraryComparison
from tilewright.cutlass.config import KernelConfig
from tilewright.report.budget_text import title, wrapped
from tilewright.report.output import Output

_SAYS = {
    "same": "Nothing changes",
    "changed": "It runs (or fails) as before, with other figures",
    "gained": "It runs only on the new release",
    "lost": "It no longer runs on the new release",
}


def changes_line(comparison: Comparison) -> str:
    """The figures that differ, in one line."""
    return ", ".join(f"{change.key} {_figure(change.old)} -> {_figure(change.new)}" for change in comparison.changes)


def show_comparison(config: KernelConfig, comparison: Comparison, out: Output) -> None:
    """Print one comparison."""
    head, _, _ = title(config).rpartition(", CUTLASS")
    out.line(head)
    old, new = comparison.old_cutlass, comparison.new_cutlass
    out.heading(f"CUTLASS {old} -> {new}: {_SAYS[comparison.verdict]}.")
    if comparison.changes:
        rows = [(change.key, _figure(change.old), _figure(change.new)) for change in comparison.changes]
        out.table(("figure", old, new), rows, right=(1, 2))
    if comparison.cause:
        for line in wrapped(comparison.cause):
            out.line(line)


def show_library(found: LibraryComparison, out: Output) -> None:
    """Print what a release changes for a library: its kernels that differ, those that no longer run first."""
    out.heading(
        f"FlashInfer {found.library_version} on {found.arch}, CUTLASS {found.old_cutlass} -> {found.new_cutlass}: of "
        f"{found.kernels} kernels {found.same} stay the same, {found.changed} change in figures, {found.gained} start "
        f"to run, {found.lost} no longer run."
    )
    order = {"lost": 0, "gained": 1, "changed": 2}
    said: str | None = None
    for item in sorted(found.changes, key=lambda each: order[each.verdict]):
        out.line(f"{item.verdict:<8} {item.id}  {changes_line(item)}")
        if item.verdict == "lost" and item.cause and item.cause != said:  # many kernels share one cause
            said = item.cause
            for line in wrapped(said):
                out.line(f"         {line}")
    if found.unread:
        out.line(f"{found.unread} more kernels are not compared: the sources do not tell their config.")


def _figure(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple | list):
        return "x".join(str(item) for item in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return f"{value:,}" if isinstance(value, int) else str(value)
