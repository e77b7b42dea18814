"""A comparison of two CUTLASS releases as text."""

from __future__ import annotations

from typing import Any

from tilewright.cutlass.compare import Comparison
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


def _figure(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, tuple | list):
        return "x".join(str(item) for item in value)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
