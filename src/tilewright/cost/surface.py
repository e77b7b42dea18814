"""A smooth function of a GEMM's sizes, kept as values at knots and read between them in plain Python.

What calibration finds to vary smoothly with m, n, k and the weight's size (`calibrate/smooth.py`) is kept as two tables
of knots: over (m, n, k) and over (m, bytes of the weight). Between knots it is linear in the logarithms, beyond them
it stays at the edge.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from math import log
from typing import Final

import msgspec

from tilewright.errors import InputError

__all__ = ["SURFACE_UNIT", "Surface", "SurfaceTable"]

SURFACE_UNIT: Final = 1e-3
"""Values are stored as whole multiples of this: 0.1% of a time."""
_MAX_VALUES: Final = 1 << 18


class SurfaceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Knots as sizes, ascending; `body[(i * len(n) + j) * len(k) + l]` at (m[i], n[j], k[l]) and
    `weight[i * len(held) + j]` at (m[i], held[j] bytes of weight), both in units of 0.001, each value but the first
    of a run along the last axis as the difference from the one before."""

    m: list[float]
    n: list[float]
    k: list[float]
    held: list[float]
    body: list[int]
    weight: list[int]


def _axis(knots: list[float]) -> list[float]:
    if not knots or any(not 0 < a < 1e18 for a in knots) or any(a >= b for a, b in pairwise(knots)):
        raise InputError("coefficients", "A coefficient file holds knots that do not ascend; run calibrate again.")
    return [log(value) for value in knots]


def _summed(values: list[int], run: int) -> list[float]:
    out: list[float] = []
    total = 0
    for place, value in enumerate(values):
        total = value if place % run == 0 else total + value
        out.append(total * SURFACE_UNIT)
    return out


def _place(axis: list[float], x: float) -> tuple[int, int, float]:
    """The knots below and above `x`, and how far between them it lies."""
    last = len(axis) - 1
    if x <= axis[0] or last == 0:
        return 0, 0, 0.0
    if x >= axis[last]:
        return last, last, 0.0
    above = bisect_right(axis, x)
    low = axis[above - 1]
    return above - 1, above, (x - low) / (axis[above] - low)


class Surface:
    """A table made ready: `value(m, n, k, log_weight)` is the logarithm of a factor."""

    __slots__ = ("_body", "_held", "_k", "_m", "_n", "_weight")

    def __init__(self, table: SurfaceTable) -> None:
        """Raises InputError when the table does not fit its knots."""
        self._m, self._n, self._k, self._held = (_axis(axis) for axis in (table.m, table.n, table.k, table.held))
        body, weight = len(self._m) * len(self._n) * len(self._k), len(self._m) * len(self._held)
        if len(table.body) != body or len(table.weight) != weight or body > _MAX_VALUES or weight > _MAX_VALUES:
            raise InputError("coefficients", "A coefficient file holds a table that does not fit its knots.")
        self._body = _summed(table.body, len(self._k))
        self._weight = _summed(table.weight, len(self._held))

    def value(self, m: int, n: int, k: int, log_weight: float) -> float:
        """The function at these sizes; `log_weight`: logarithm of the weight's bytes."""
        body, weight = self._body, self._weight
        m0, m1, u = _place(self._m, log(m))
        n0, n1, v = _place(self._n, log(n))
        k0, k1, w = _place(self._k, log(k))
        j0, j1, s = _place(self._held, log_weight)
        ns, ks, js = len(self._n), len(self._k), len(self._held)
        out = 0.0
        for i, share in ((m0, 1.0 - u), (m1, u)):
            if not share:
                continue
            low, high = (i * ns + n0) * ks, (i * ns + n1) * ks
            first = body[low + k0] + w * (body[low + k1] - body[low + k0])
            second = body[high + k0] + w * (body[high + k1] - body[high + k0])
            row = i * js
            by_weight = weight[row + j0] + s * (weight[row + j1] - weight[row + j0])
            out += share * (first + v * (second - first) + by_weight)
        return out
