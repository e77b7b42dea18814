"""The series behind the plots: roofline of each GEMM, the decode step by terms, throughput by layout."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.finding import Fact, Outcome
from tilewright.plan.modelled import SWEEP, layouts, scenario
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

MOST_LAYOUTS = 8
"""Layouts that a plot of throughput can still show apart."""


def run(target: Target) -> Iterator[Outcome]:
    from tilewright.serving.series import decode_series, roofline, throughput_series

    base = scenario(target)
    if base is None:
        return
    answer = layouts(target)
    yield Fact(
        "series",
        {
            "roofline": roofline(base, SWEEP),
            "decode_step": decode_series(base, SWEEP),
            "throughput": throughput_series(answer, MOST_LAYOUTS) if answer else [],
            "basis": "modelled",
        },
    )


RULE = Rule(id="series", looks_at="the series for plots", run=run)
