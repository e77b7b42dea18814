"""The order of a plan: expected gain x confidence / effort, what blocks everything first. Pure functions.

A gain is a percentage of some metric. A percent of decode speed is not a percent of KV capacity, so each metric has
a weight that says what one percent of it is worth beside one percent of decode speed; it is stated here and nowhere
else.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.plan.finding import Draft, Finding, Metric

WEIGHT: dict[Metric, float] = {
    "runs": 0.0,  # not compared: such findings come first, see `rank`
    "health": 0.0,  # nor these: a fault of the machine is mended before anything is tuned on it
    "decode": 1.0,
    "prefill": 0.5,  # chat traffic spends most of its GPU time in decode; prefill sets the time to first token
    "capacity": 0.1,  # more KV cache helps only where it is what limits concurrency
    "startup": 0.02,  # a quieter or faster start is welcome, and speeds up no token
}

MIN_EFFORT_H = 0.25
"""No change with a restart and a measurement takes less than a quarter of an hour; also keeps the score finite."""


def score(draft: Draft) -> float:
    """Expected gain (percent, weighted by metric) x confidence / effort in hours; 0 where no gain is stated."""
    expected = draft.gain.expected
    if expected is None:
        return 0.0
    return expected * WEIGHT[draft.metric] * draft.confidence / max(draft.effort_h, MIN_EFFORT_H)


_CLASS: dict[Metric, int] = {"runs": 0, "health": 1}
"""What comes before every gain, in this order."""


def _order(draft: Draft) -> tuple[int, float, float, str]:
    return (_CLASS.get(draft.metric, len(_CLASS)), -score(draft), -draft.confidence, draft.id)


def rank(drafts: Iterable[Draft]) -> list[Finding]:
    """Findings in the order to try them, ranks from 1. The order does not depend on the order of `drafts`."""
    ordered = sorted(drafts, key=_order)
    return [
        Finding(
            rank=place,
            id=draft.id,
            title=draft.title,
            layer=draft.layer,
            evidence=draft.evidence,
            cause=draft.cause,
            fix=draft.fix,
            gain=draft.gain,
            confidence=draft.confidence,
            effort_h=draft.effort_h,
            risk=draft.risk,
            numerics=draft.numerics,
            confirm=draft.confirm,
            undo=draft.undo,
        )
        for place, draft in enumerate(ordered, start=1)
    ]
