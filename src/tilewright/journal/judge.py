"""What before and after say: how much it gave, and whether that is more than the noise of the measurement."""

from __future__ import annotations

from statistics import median

import msgspec

from tilewright.journal.experiment import Experiment, Verdict


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """`gain_pct` is positive where the change was for the better. `apart`: no sample of one side lies among the
    other's. `suggests` is the verdict that the figures alone would give."""

    before: float
    after: float
    gain_pct: float | None
    spread_pct: float | None
    """Half the range of the wider side, in per cent of its median: what one measurement alone is worth."""
    apart: bool
    suggests: Verdict


def _spread(samples: list[float]) -> float | None:
    middle = median(samples)
    return (max(samples) - min(samples)) / 2 / middle * 100 if len(samples) > 1 and middle else None


def judge(experiment: Experiment) -> Judgement:
    """What the samples say."""
    old, new = experiment.before, experiment.after
    before, after = median(old), median(new)
    gain: float | None = None
    if experiment.better == "higher" and before:
        gain = (after / before - 1) * 100
    elif experiment.better == "lower" and after:
        gain = (before / after - 1) * 100
    spreads = [value for value in (_spread(old), _spread(new)) if value is not None]
    apart = max(old) < min(new) or max(new) < min(old)
    better = after > before if experiment.better == "higher" else after < before
    # One sample a side has no spread to be held against, however far apart the two are.
    certain = apart and len(old) > 1 and len(new) > 1
    suggests: Verdict = "inconclusive" if not certain else "kept" if better else "reverted"
    return Judgement(
        before=before,
        after=after,
        gain_pct=gain,
        spread_pct=max(spreads) if spreads else None,
        apart=apart,
        suggests=suggests,
    )
