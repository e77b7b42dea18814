"""Scales: from a figure to its place, linear or logarithmic, with round ticks; and labels that keep apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

_STEPS = (1, 2, 2.5, 5, 10)


class Scale(Protocol):
    """From a figure to a place, and the figures that get a tick."""

    def __call__(self, value: float) -> float: ...

    def ticks(self) -> list[float]: ...


@dataclass(frozen=True)
class Linear:
    """`low` is drawn at `start`, `high` at `end`."""

    low: float
    high: float
    start: float
    end: float
    about: int = 6

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        return self.start if not span else self.start + (value - self.low) / span * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round figures from low to high, about as many as were asked for."""
        span = self.high - self.low
        if span <= 0 or not math.isfinite(span):
            return [self.low]
        rough = span / self.about
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in _STEPS if power * factor >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [round(index * step, 12) for index in range(first, last + 1)]


@dataclass(frozen=True)
class Log:
    """As Linear for logarithms; `low` and `high` are positive."""

    low: float
    high: float
    start: float
    end: float
    base: int = 10

    def __call__(self, value: float) -> float:
        span = math.log(self.high / self.low)
        share = 0.0 if not span else math.log(max(value, self.low / 1e6) / self.low) / span
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Powers of the base; of ten also 2 and 5 times as much where there are few decades."""
        first, last = (math.log(value, self.base) for value in (self.low, self.high))
        powers = range(math.floor(first - 1e-9), math.ceil(last + 1e-9) + 1)
        factors = (1, 2, 5) if self.base == 10 and last - first <= 3.5 else (1,)
        found = [factor * float(self.base) ** power for power in powers for factor in factors]
        return [value for value in found if self.low * (1 - 1e-9) <= value <= self.high * (1 + 1e-9)]


def log_scale(values: Iterable[float], start: float, end: float, base: int = 10, room: float = 1.0) -> Log:
    """A logarithmic scale that holds all positive `values`, with a factor `room` to spare on both sides."""
    known = [value for value in values if value > 0 and math.isfinite(value)]
    low, high = min(known), max(known)
    if low == high:
        low, high = low / base, high * base
    return Log(low / room, high * room, start, end, base)


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """`places` moved as little as needed so that neighbours are `gap` apart, within [low, high] while there is room."""
    order = sorted(range(len(places)), key=lambda index: places[index])
    out = list(places)
    edge = low
    for index in order:
        out[index] = edge = max(out[index], edge)
        edge += gap
    edge = high
    for index in reversed(order):
        out[index] = edge = min(out[index], edge)
        edge -= gap
    return out
