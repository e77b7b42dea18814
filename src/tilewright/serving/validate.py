"""The serving model against published tables: every cell, worst first, with errors of each group and table.

In-sample: the tables took part in fitting the coefficients. The held-out error of a table, with coefficients fitted
on all the others, stands in the coefficients' file, where `tools/fit_serving.py` put it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import fmean
from typing import Any, cast

import msgspec

from tilewright.serving.coefficients import provenance
from tilewright.serving.decode import decode_step
from tilewright.serving.prefill import prefill_step
from tilewright.serving.published import Cell, cells, left_out
from tilewright.serving.questions import PrefillQuestion
from tilewright.serving.scenario import scenario_of

__all__ = ["Comparison", "GroupError", "TableError", "Validation", "compare", "validate"]

TARGETS: dict[str, float] = {"GLM-5 TP8 without speculation": 0.15, "other RTX PRO 6000 tables": 0.25}
"""Mean absolute errors that the groups must keep for `validate --check` to say yes."""
INSIDE = 0.05
OUTSIDE = 0.30
"""Error from which a cell is called out."""


class Comparison(msgspec.Struct, frozen=True):
    """One cell: tokens a second as published and as predicted. `error` = predicted / published - 1."""

    table: str
    group: str
    cell: str
    published: float
    predicted: float
    error: float
    low: float
    high: float
    inside: bool
    """Whether the published figure lies within the prediction's bounds."""
    excluded: str | None = None
    reason: str | None = None
    source: str = ""


class TableError(msgspec.Struct, frozen=True):
    """Errors of one published table. `held_out`: with coefficients fitted on the other tables only."""

    table: str
    cells: int
    mean_abs_error: float
    bias: float
    held_out: float | None


class GroupError(msgspec.Struct, frozen=True):
    """Errors of a group of tables. `target` None: no bar is set."""

    group: str
    tables: int
    cells: int
    mean_abs_error: float
    held_out: float | None
    target: float | None
    within_bounds: float
    """Share of the cells whose published figure lies within the bounds."""

    @property
    def passed(self) -> bool:
        return self.target is None or self.mean_abs_error <= self.target


class LeftOut(msgspec.Struct, frozen=True):
    measurement: str
    why: str


class Validation(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/validate/1"):
    """What `tilewright validate` answers. `cells` worst first, the excluded ones after them."""

    groups: list[GroupError]
    tables: list[TableError]
    cells: list[Comparison]
    left_out: list[LeftOut]
    fitted: str
    """When the coefficients were fitted."""
    passed: bool


def compare(cell: Cell) -> Comparison:
    """One published cell against the model."""
    scenario = scenario_of(cell.question)
    if isinstance(cell.question, PrefillQuestion):
        step = prefill_step(scenario, cell.question.prompt_tokens, cell.question.chunk_tokens)
        amount = float(cell.question.prompt_tokens)
    else:
        step = decode_step(scenario)
        amount = scenario.concurrency * step.tokens_each
    predicted, low, high = amount / step.time_s, amount / step.high_s, amount / step.low_s
    return Comparison(
        cell.table, cell.group, cell.label, cell.published, predicted, predicted / cell.published - 1, low, high,
        low <= cell.published <= high, cell.excluded or None, _reason(cell), cell.source,
    )  # fmt: skip


def _reason(cell: Cell) -> str | None:
    question = cell.question
    if cell.reason:
        return cell.reason
    if question.speculative_tokens and question.acceptance_length is None:
        return "how many drafts were accepted was not published: the mean of other tables is taken"
    return None


def _mean(values: Iterable[float]) -> float:
    held = list(values)
    return fmean(held) if held else 0.0


def validate(progress: Callable[[int, int], None] | None = None) -> Validation:
    """Every published cell against the model."""
    chosen = cells()
    made: list[Comparison] = []
    for i, cell in enumerate(chosen):
        made.append(compare(cell))
        if progress is not None:
            progress(i + 1, len(chosen))
    facts = provenance()
    held = cast("dict[str, float]", facts.get("held_out", {}))
    used = [item for item in made if item.excluded is None]
    groups: list[GroupError] = []
    for group in dict.fromkeys(item.group for item in used):
        mine = [item for item in used if item.group == group]
        names = list(dict.fromkeys(item.table for item in mine))
        known = [(held[name], sum(item.table == name for item in mine)) for name in names if name in held]
        weight = sum(count for _, count in known)
        groups.append(
            GroupError(
                group, len(names), len(mine), _mean(abs(item.error) for item in mine),
                sum(error * count for error, count in known) / weight if weight and _decode(group) else None,
                TARGETS.get(group), _mean(float(item.inside) for item in mine),
            )
        )  # fmt: skip
    tables: list[TableError] = []
    for name, group in dict.fromkeys((item.table, item.group) for item in used):
        mine = [item for item in used if (item.table, item.group) == (name, group)]
        title = name if _decode(group) else f"{name} ({group.partition(',')[0]})"
        tables.append(
            TableError(
                title, len(mine), _mean(abs(item.error) for item in mine), _mean(item.error for item in mine),
                held.get(name) if _decode(group) else None,
            )
        )  # fmt: skip
    tables.sort(key=lambda item: -item.mean_abs_error)
    made.sort(key=lambda item: (item.excluded is not None, -abs(item.error)))
    return Validation(
        groups=groups,
        tables=tables,
        cells=made,
        left_out=[LeftOut(name, why) for name, why in left_out()],
        fitted=str(facts.get("date", "unknown")),
        passed=all(group.passed for group in groups),
    )


def _decode(group: str) -> bool:
    """Whether the group took part in fitting table by table."""
    return group in TARGETS


def document(made: Validation) -> dict[str, Any]:
    return cast("dict[str, Any]", msgspec.to_builtins(made))
