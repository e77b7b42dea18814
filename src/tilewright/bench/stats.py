"""How long something takes, from samples: median, spread, and whether more samples would say more. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

LEAST: Final = 9
"""Samples that are always taken: fewer give a median no interval at all."""
MOST: Final = 401
TARGET: Final = 0.005
"""Relative half-width of the median's 95 % interval at which sampling stops: half of the 1 % that two kernels have to
differ by before anybody should care."""
_Z: Final = 1.96
"""Standard normal deviate of a two-sided 95 % interval."""


@dataclass(frozen=True, slots=True)
class Summary:
    """Seconds: median, 10th and 90th percentile. `half_width` of the median's 95 % interval, relative to it."""

    median_s: float
    low_s: float
    high_s: float
    samples: int
    half_width: float


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the ordered samples lie, interpolated."""
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def half_width(samples: Sequence[float]) -> float:
    """Relative half-width of the median's 95 % interval by order statistics: no distribution is assumed."""
    ordered = sorted(samples)
    count = len(ordered)
    reach = _Z * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach) - 1)
    high = min(count - 1, math.ceil(count / 2 + reach))
    middle = median(ordered)
    return (ordered[high] - ordered[low]) / 2 / middle if middle else math.inf


def summarise(samples: Sequence[float]) -> Summary:
    """What `samples` (at least one) say."""
    ordered = sorted(samples)
    return Summary(
        median(ordered), percentile(ordered, 0.1), percentile(ordered, 0.9), len(ordered), half_width(ordered)
    )


def sample(
    once: Callable[[], float],
    *,
    budget_s: float,
    now: Callable[[], float],
    target: float = TARGET,
    least: int = LEAST,
    most: int = MOST,
) -> list[float]:
    """Call `once` (seconds of one measurement) until its median is known to `target`, or time or patience is up."""
    end = now() + budget_s
    samples: list[float] = []
    while len(samples) < most:
        samples.append(once())
        if len(samples) >= least and (now() >= end or half_width(samples) <= target):
            break
    return samples
