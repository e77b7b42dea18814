"""What the best candidate is: `max output_tok_s s.t. p95_ttft_s < 2 and error_rate <= 0.01`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from tilewright.errors import InputError, nearest, shown
from tilewright.sweep.metrics import METRICS

__all__ = ["Constraint", "Goal", "parse_goal"]

Operator = Literal["<", "<=", ">", ">="]
MAX_GOAL: Final = 1000
"""Characters; every metric bounded twice takes fewer."""
_TOKEN: Final = re.compile(r"\s*(?:(<=|>=|<|>)|([A-Za-z][\w.]*\.?)|([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)|(\S))")
_FORM: Final = 'write "max|min METRIC [s.t. METRIC <|<=|>|>= NUMBER [and ...]]"'


class Constraint(msgspec.Struct, frozen=True):
    """`metric` has to be on the right side of `bound`."""

    metric: str
    op: Operator
    bound: float

    def violation(self, value: float) -> float:
        """By how much of the bound `value` misses it; 0 or less where it is kept."""
        over = value - self.bound if self.op in ("<", "<=") else self.bound - value
        scale = abs(self.bound) or 1.0
        # A strict bound that is met exactly is missed, if by nothing.
        return over / scale if over or self.op in ("<=", ">=") else 1e-12

    def __str__(self) -> str:
        return f"{self.metric} {self.op} {self.bound:g}"


class Goal(msgspec.Struct, frozen=True):
    """One metric to make largest or smallest, and bounds to keep."""

    direction: Literal["max", "min"]
    metric: str
    constraints: tuple[Constraint, ...] = ()

    def better(self, one: float, other: float) -> bool:
        """Whether `one` is better than `other`."""
        return one > other if self.direction == "max" else one < other

    def violations(self, values: Mapping[str, float]) -> list[float]:
        """One number a constraint, above 0 where it is missed; infinite where the metric was not measured."""
        return [item.violation(values[item.metric]) if item.metric in values else math.inf for item in self.constraints]

    def feasible(self, values: Mapping[str, float]) -> bool:
        """Whether all constraints are kept and the metric was measured."""
        return self.metric in values and all(item <= 0 for item in self.violations(values))

    def __str__(self) -> str:
        bounds = " and ".join(str(item) for item in self.constraints)
        return f"{self.direction} {self.metric}" + (f" s.t. {bounds}" if bounds else "")


def _refuse(why: str) -> InputError:
    return InputError("goal", f"--goal: {why}; {_FORM}.")


def _metric(word: str) -> str:
    if word in METRICS:
        return word
    near = nearest(word, METRICS)
    close = f" (near: {', '.join(near)})" if near else ""
    return _raise(f"no metric is called {shown(word)}{close}; they are {', '.join(METRICS)}")


def _raise(why: str) -> str:
    raise InputError("goal", f"--goal: {why}.")


def _tokens(text: str) -> list[str]:
    found: list[str] = []
    for hit in _TOKEN.finditer(text.rstrip()):
        if hit[4]:
            raise _refuse(f"{shown(hit[4])} is not expected")
        found.append(next(part for part in hit.groups() if part))
    return found


def parse_goal(text: str) -> Goal:
    """The goal that `text` states.

    Raises:
        InputError: it cannot be parsed, names no metric of `METRICS`, or bounds one by something that is no number.
    """
    if len(text) > MAX_GOAL:
        raise _refuse(f"it is longer than {MAX_GOAL:,} characters")
    words = _tokens(text)
    if len(words) < 2 or words[0].lower() not in ("max", "min", "maximize", "minimize", "maximise", "minimise"):
        raise _refuse(f"{shown(text)} does not begin with max or min and a metric")
    direction: Literal["max", "min"] = "max" if words[0].lower().startswith("max") else "min"
    metric = _metric(words[1])
    rest = words[2:]
    if not rest:
        return Goal(direction, metric)
    if rest[0].lower().rstrip(".") not in ("s.t", "st", "subject"):
        raise _refuse(f"after the metric comes s.t., not {shown(rest[0])}")
    rest = rest[2:] if [word.lower() for word in rest[:2]] == ["subject", "to"] else rest[1:]
    bounds: list[Constraint] = []
    while True:
        if len(rest) < 3:
            raise _refuse("a constraint is a metric, one of < <= > >=, and a number")
        name, sign, number = rest[:3]
        if sign not in ("<", "<=", ">", ">="):
            raise _refuse(f"{shown(sign)} is none of < <= > >=")
        try:
            bound = float(number)
        except ValueError:
            raise _refuse(f"{shown(number)} is no number") from None
        if not math.isfinite(bound):
            raise _refuse(f"{shown(number)} is no finite number")
        bounds.append(Constraint(_metric(name), sign, bound))
        rest = rest[3:]
        if not rest:
            return Goal(direction, metric, tuple(bounds))
        if rest[0].lower() != "and":
            raise _refuse(f"constraints are joined by and, not {shown(rest[0])}")
        rest = rest[1:]
