"""What the hardware allows for the whole model, what is predicted, and how far a measured server is from both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.plan.finding import Fact, Outcome
from tilewright.plan.modelled import CONTEXT, requests, scenario
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

COUNTS = (1, 16, 64)
"""Requests at which the ceiling is stated where no server was seen: one user, a small group, a busy server."""


def run(target: Target) -> Iterator[Outcome]:
    from tilewright.serving.series import ceiling

    base = scenario(target)
    if base is None or target.memory.left <= 0:
        return
    seen = requests(target)
    measured = target.snapshot.metrics.generation_tok_s if target.snapshot and seen else None
    running = max(1, round(target.snapshot.metrics.running or 1)) if target.snapshot and seen else None
    counts = sorted({*COUNTS, *([running] if running else [])})
    rows = [ceiling(replace(base, concurrency=count), measured if count == running else None) for count in counts]
    if any(row.limit_tok_s is None for row in rows):
        return
    yield Fact(
        "ceiling",
        {
            "context": CONTEXT,
            "layout": target.layout,
            "rows": rows,
            "basis": "limit: bytes, operations and link traffic at published rates, no launch and no wait; predicted: "
            "modelled (`tilewright validate` shows its error)",
        },
    )
    row = next(item for item in rows if item.concurrency == (running or COUNTS[1]))
    assert row.limit_tok_s is not None
    assert row.reached is not None
    have = (
        f"measured {measured:,.0f} tok/s are {row.reached * 100:.0f} % of that"
        if measured
        else f"{row.predicted_tok_s:,.0f} are predicted for {target.layout}, {row.reached * 100:.0f} % of that"
    )
    text = f"At {row.concurrency} requests the hardware would allow {row.limit_tok_s:,.0f} tok/s (modelled); {have}."
    yield Fact("summary", [(32, text)])


RULE = Rule(id="ceiling", looks_at="how far the server is from what the hardware allows", run=run)
