"""What before and after say: how much it gave, and whether that is more than the noise of the measurement."""

from __future__ import annotations

from math import inf, isfinite
from statistics import median

import msgspec

from tilewright.journal.experiment import Better, Experiment, Verdict


class Judgement(msgspec.Struct, frozen=True, kw_only=True):
    """`change_pct` is what the metric did, `gain_pct` is positive where that was for the better. `apart`: no sample of
    one side lies among the other's. `suggests` is the verdict that the figures alone would give."""

    before: float
    after: float
    change_pct: float | None
    """Of the metric itself: a latency that doubles changes by +100 %. None where it was 0."""
    gain_pct: float | None
    """Of the metric, or of its inverse where lower is better: a latency that doubles gives -50 % (of the speed)."""
    spread_pct: float | None
    """Half the range of the wider side, in per cent of its median: what one measurement alone is worth."""
    apart: bool
    suggests: Verdict


def _spread(samples: list[float]) -> float | None:
    middle = median(samples)
    return (max(samples) - min(samples)) / 2 / middle * 100 if len(samples) > 1 and middle else None


def _more(base: float, other: float) -> float | None:
    """By how many per cent `other` exceeds `base`; None where that is no number."""
    more = (other / base - 1) * 100 if base else inf
    return more if isfinite(more) else None


def judge(experiment: Experiment) -> Judgement:
    """What the samples say."""
    old, new = experiment.before, experiment.after
    before, after = median(old), median(new)
    change = _more(before, after)
    spreads = [value for value in (_spread(old), _spread(new)) if value is not None]
    apart = max(old) < min(new) or max(new) < min(old)
    better = after > before if experiment.better == "higher" else after < before
    # One sample a side has no spread to be held against, however far apart the two are.
    certain = apart and len(old) > 1 and len(new) > 1
    suggests: Verdict = "inconclusive" if not certain else "kept" if better else "reverted"
    return Judgement(
        before=before,
        after=after,
        change_pct=change,
        gain_pct=change if experiment.better == "higher" else _more(after, before),
        spread_pct=max(spreads) if spreads else None,
        apart=apart,
        suggests=suggests,
    )


def gave(said: Judgement, better: Better, noise: str = "") -> str:
    """What the metric did, in per cent (`noise` behind it) and, where lower is better, whether that is good; empty
    where it cannot be told."""
    if said.change_pct is None:
        return ""
    change = f"{said.change_pct:+.1f} %{noise}"
    if better == "higher" or said.after == said.before:
        return change
    return f"{change}, {'better' if said.after < said.before else 'worse'}: lower is better"
