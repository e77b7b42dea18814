"""Whether one candidate is really better than another: Welch's test on repeats, with restarts taken into account.

Repeats under one start of a server may agree with each other better than with those of the next start (what was
captured, allocated and cached differs). Where a side was started more than once, an F test says whether its starts
differ by more than its repeats do; if so, the starts are the samples and not the repeats. Pure functions, standard
library only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, variance
from typing import Final

import msgspec

__all__ = ["ALPHA", "Comparison", "compare", "holm", "p_value"]

ALPHA: Final = 0.05
POOL: Final = 0.25
"""Starts are taken for alike above this p of the F test: far above 0.05, since pooling wrongly claims too much
(Bancroft 1964, on tests that decide about pooling)."""
_TINY: Final = 1e-300
_ITERATIONS: Final = 300


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The leader's metric against another's. Per cent of the other's mean; the interval is of 95 %. `p` None: one
    sample on a side shows no spread. `significant` after Holm's correction for all comparisons of the sweep."""

    with_candidate: int
    difference_pct: float | None
    low_pct: float | None
    high_pct: float | None
    p: float | None
    significant: bool


def _beta_fraction(a: float, b: float, x: float) -> float:
    """The continued fraction of the incomplete beta function (Lentz; Numerical Recipes in C, 2nd ed., 6.4)."""
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    result = d
    for m in range(1, _ITERATIONS):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + numerator * d
            d = 1 / (d if abs(d) > _TINY else _TINY)
            c = 1 + numerator / c
            c = c if abs(c) > _TINY else _TINY
            result *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return result


def _beta(a: float, b: float, x: float) -> float:
    """The regularised incomplete beta function."""
    if x <= 0:
        return 0.0
    if x >= 1:
        return 1.0
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    if x < (a + 1) / (a + b + 2):
        return front * _beta_fraction(a, b, x) / a
    return 1 - front * _beta_fraction(b, a, 1 - x) / b


def p_value(t: float, freedom: float) -> float:
    """Two-sided p of Student's t."""
    return _beta(freedom / 2, 0.5, freedom / (freedom + t * t))


def quantile(p: float, freedom: float) -> float:
    """The t whose two-sided p it is."""
    low, high = 0.0, 1.0
    while p_value(high, freedom) > p and high < 1e9:
        high *= 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if p_value(middle, freedom) > p else (low, middle)
    return (low + high) / 2


def _starts_differ(groups: Sequence[Sequence[float]]) -> bool:
    """Whether starts differ by more than their repeats explain (one-way analysis of variance)."""
    count = sum(len(group) for group in groups)
    inside = sum((value - fmean(group)) ** 2 for group in groups for value in group)
    one, two = len(groups) - 1, count - len(groups)
    if two == 0:
        return True  # one repeat a start: the starts are all there is
    grand = fmean([value for group in groups for value in group])
    between = sum(len(group) * (fmean(group) - grand) ** 2 for group in groups)
    if inside == 0:
        return between > 0
    ratio = (between / one) / (inside / two)
    return _beta(two / 2, one / 2, two / (two + one * ratio)) < POOL


def _uncertainty(starts: Sequence[Sequence[float]]) -> tuple[float, float, float] | None:
    """(mean, its variance, degrees of freedom) of one side; None where nothing shows its spread."""
    values = [value for start in starts for value in start]
    if len(values) < 2:
        return None
    found = (variance(values) / len(values), len(values) - 1.0)
    groups = [start for start in starts if start]
    if len(groups) > 1 and _starts_differ(groups):
        means = [fmean(start) for start in groups]
        found = (variance(means) / len(means), len(means) - 1.0)
    return fmean(values), *found


def compare(other: int, mine: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> Comparison:
    """`mine` against the samples `theirs` of candidate `other`, each a list of starts; not yet corrected."""
    ours, rival = [v for start in mine for v in start], [v for start in theirs for v in start]
    base = fmean(rival)
    difference = fmean(ours) - base
    scale = 100 / abs(base) if base else None
    told = difference * scale if scale is not None else None
    one, two = _uncertainty(mine), _uncertainty(theirs)
    if one is None or two is None:
        return Comparison(
            with_candidate=other, difference_pct=told, low_pct=None, high_pct=None, p=None, significant=False
        )
    both = one[1] + two[1]
    if both == 0:
        p = 1.0 if difference == 0 else 0.0
        return Comparison(
            with_candidate=other, difference_pct=told, low_pct=told, high_pct=told, p=p, significant=p < ALPHA
        )
    # Welch and Satterthwaite.
    freedom = both * both / (one[1] ** 2 / one[2] + two[1] ** 2 / two[2])
    p = p_value(difference / math.sqrt(both), freedom)
    reach = quantile(ALPHA, freedom) * math.sqrt(both)
    return Comparison(
        with_candidate=other,
        difference_pct=told,
        low_pct=(difference - reach) * scale if scale is not None else None,
        high_pct=(difference + reach) * scale if scale is not None else None,
        p=p,
        significant=p < ALPHA,
    )


def holm(found: Sequence[Comparison]) -> list[Comparison]:
    """The same comparisons, significant only where they are when all are looked at together (Holm 1979)."""
    order = sorted((item.p, index) for index, item in enumerate(found) if item.p is not None)
    passed: set[int] = set()
    for rank, (p, index) in enumerate(order):
        if p >= ALPHA / (len(order) - rank):
            break
        passed.add(index)
    return [msgspec.structs.replace(item, significant=index in passed) for index, item in enumerate(found)]
