"""Another layout of the same GPUs that serves more at the number of requests that matters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Outcome
from tilewright.plan.modelled import CONTEXT, RATIO_ERROR, layouts, ratio_gain, requests
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

if TYPE_CHECKING:
    from tilewright.serving.layout import Layout, LayoutAnswer

SHOWN = 6
"""Layouts in the report's table."""
WORTH = 0.10
"""A predicted gain below this is within what the prediction is wrong by (RATIO_ERROR), and no reason to restart."""


def _mine(target: Target, answer: LayoutAnswer) -> Layout | None:
    parallel = target.parallel
    return next(
        (
            item
            for item in answer.layouts
            if (item.tp, item.pp, item.ep, item.dcp, item.attention_dp) == (parallel.tp, parallel.pp, parallel.ep, 1, 1)
            and item.copies == 1
        ),
        None,
    )


def _tok_s(layout: Layout, count: int) -> float:
    return next((speed.tok_s for speed in layout.speeds if speed.concurrency == count), 0.0)


def run(target: Target) -> Iterator[Outcome]:
    answer = layouts(target)
    if answer is None or target.gpus < 2:
        return
    fitting = [item for item in answer.layouts if item.status == "fits"]
    mine = _mine(target, answer)
    if not fitting:
        return
    counts = [speed.concurrency for speed in fitting[0].speeds]
    shown = fitting[:SHOWN]
    if mine is not None and mine.status == "fits" and mine not in shown:
        shown = [*shown, mine]
    yield Fact(
        "layouts",
        {
            "counts": counts,
            "context": CONTEXT,
            "rows": [
                {
                    "name": item.name,
                    "yours": item is mine,
                    "tok_s": [round(_tok_s(item, count), 1) for count in counts],
                    "kv_tokens": item.kv_tokens,
                    "ttft_s": item.ttft_s,
                    "why": item.why,
                }
                for item in shown
            ],
            "best": answer.best,
            "basis": "modelled",
        },
    )
    if mine is None or mine.status != "fits":
        return
    at = requests(target) or answer.at
    best = max(fitting, key=lambda item: _tok_s(item, at))
    now, then = _tok_s(mine, at), _tok_s(best, at)
    if not now or then / now - 1 < WORTH or best.launch is None:
        return
    one, best_one = _tok_s(mine, 1), _tok_s(best, 1)
    cost = (
        f"; at one request it gives {best_one:,.0f} tok/s instead of {one:,.0f}" if best_one < one * (1 - WORTH) else ""
    )
    yield Draft(
        id="layout",
        title=f"{best.name} instead of {mine.name} for {at} requests and more",
        layer="runtime",
        evidence=[
            Evidence(
                "modelled",
                f"Predicted at {at} requests of {CONTEXT:,} tokens: {then:,.0f} tok/s with {best.name}, {now:,.0f} "
                f"with {mine.name}{cost}. A ratio of two predictions is wrong by about {RATIO_ERROR * 100:.0f} %.",
                "tilewright layout",
            ),
            *_room(best, mine),
        ],
        cause=mine.why or f"{best.name} spends less of a step on what {mine.name} waits for.",
        fix=Fix("Start a second server this way and compare at your own load; keep the one that wins.", [best.launch]),
        gain=ratio_gain(f"decode tok/s at {at} requests, %", then / now),
        confidence=0.35,
        effort_h=1.0,
        risk="few requests at a time get slower"
        if cost
        else "prefill can change in the other direction: measure it too",
        confirm=f"tok/s and time to first token at {at} requests, both layouts on the same prompts.",
        undo=f"Start with {mine.name} again.",
    )


def _room(best: Layout, mine: Layout) -> list[Evidence]:
    if best.kv_tokens is None or mine.kv_tokens is None:
        return []
    text = f"Room for {best.kv_tokens:,} tokens of cache instead of {mine.kv_tokens:,}."
    return [Evidence("exact", text, "weights of the checkpoint and bytes a token of its cache")]


RULE = Rule(id="layouts", looks_at="layouts of the same GPUs", run=run)
