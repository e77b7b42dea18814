"""The shared memory of the tiles at the limit, byte by byte, before and after each fix: what a report draws."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilewright.cutlass.budget import Budget
from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.cutlass.segments import segments
from tilewright.libraries.flashinfer.model import Tactic
from tilewright.plan.finding import Fact, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.rules.tactics import one_a_tile, serving, which
from tilewright.plan.target import Target

MOST_TILES = 4
"""Tiles that are shown; a library with more that overflow has its list in `tactics`."""


def _shown(budget: Budget) -> dict[str, Any]:
    return {
        "status": budget.status,
        "stages": budget.stages,
        "smem_bytes": budget.smem_bytes,
        "excess_bytes": budget.excess_bytes,
        "segments": [{"field": item.field, "offset": item.offset, "bytes": item.bytes} for item in segments(budget)],
    }


def _after(tactic: Tactic) -> Iterator[dict[str, Any]]:
    for fix in tactic.verdict.fixes:
        budget = fit(parse_config({**(tactic.config or {}), **fix.change}))
        if budget.status == "fits":
            yield {"change": fix.change, "note": fix.note, **_shown(budget)}


def _one(tactic: Tactic) -> dict[str, Any]:
    # A tactic's verdict may be kept without its fields: they are derived again from its config.
    budget = fit(parse_config(dict(tactic.config or {})))
    return {
        "tactic": which(tactic),
        "limit_bytes": budget.limit_bytes,
        "before": _shown(budget),
        "after": list(_after(tactic)),
    }


def run(target: Target) -> Iterator[Outcome]:
    library = target.library
    assert library is not None
    report = library.moe if target.sm12x else None
    tactics = [item for item in serving(report, target.expert_family) if item.verdict.smem_bytes] if report else []
    if not tactics:
        return
    over = one_a_tile([item for item in tactics if item.verdict.status == "overflow"])
    # Where nothing overflows, the one that comes nearest to the limit.
    shown = over[:MOST_TILES] or [max(tactics, key=lambda item: (item.verdict.smem_bytes or 0, item.name))]
    yield Fact("tile_budgets", [_one(item) for item in shown])


RULE = Rule(
    id="tile_budgets", looks_at="the shared memory of the tiles at the limit, to scale", run=run, needs=("library",)
)
