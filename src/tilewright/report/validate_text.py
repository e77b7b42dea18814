"""The answer of `validate` as text."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.report.output import Output
from tilewright.serving.validate import Comparison, Validation

SHOWN = 25
"""Cells that are shown unless all are asked for."""


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def _rows(cells: Sequence[Comparison]) -> list[list[str]]:
    return [
        [
            item.table,
            item.cell,
            f"{item.published:,.1f}",
            f"{item.predicted:,.1f}",
            f"{item.error:+.0%}",
            "" if item.inside else "outside",
            item.excluded or item.reason or "",
        ]
        for item in cells
    ]


def print_validation(out: Output, made: Validation, tables: Sequence[str] = (), *, everything: bool = False) -> None:
    """Groups, tables, then cells worst first."""
    out.heading(f"Serving model against published tables (coefficients of {made.fitted})")
    out.table(
        ["group", "tables", "cells", "mean |error|", "bar", "held out", "inside bounds"],
        [
            [
                group.group,
                str(group.tables),
                str(group.cells),
                f"{group.mean_abs_error:.1%}",
                _share(group.target),
                _share(group.held_out),
                f"{group.within_bounds:.0%}",
            ]
            for group in made.groups
        ],
        right=[1, 2, 3, 4, 5, 6],
    )
    out.line("Errors are in-sample; held out: the table's own error with coefficients fitted on the other tables.")
    out.line()
    out.table(
        ["table", "cells", "mean |error|", "bias", "held out"],
        [
            [item.table, str(item.cells), f"{item.mean_abs_error:.1%}", f"{item.bias:+.1%}", _share(item.held_out)]
            for item in made.tables
        ],
        right=[1, 2, 3, 4],
    )
    out.line()
    chosen = [item for item in made.cells if not tables or item.table in tables]
    used = [item for item in chosen if item.excluded is None]
    excluded = [item for item in chosen if item.excluded is not None]
    shown = used if everything or tables else used[:SHOWN]
    out.heading("Cells, worst first (tok/s)")
    columns = ["table", "cell", "published", "predicted", "error", "bounds", "known reason"]
    out.table(columns, _rows(shown), right=[2, 3, 4])
    if len(shown) < len(used):
        out.line(f"and {len(used) - len(shown)} more (--all shows them)")
    if excluded:
        out.line()
        out.heading("Not counted")
        if everything or tables:
            out.table(columns, _rows(excluded), right=[2, 3, 4])
        else:
            for why in dict.fromkeys(item.excluded for item in excluded):
                mine = [item for item in excluded if item.excluded == why]
                names = ", ".join(dict.fromkeys(item.table for item in mine))
                out.line(f"  {len(mine)} cells of {names}: {why}")
    if made.left_out and not tables:
        if not excluded:
            out.line()
            out.heading("Not counted")
        for item in made.left_out:
            out.line(f"  {item.measurement}: {item.why}")
