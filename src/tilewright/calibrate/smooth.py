"""The smooth part of a GEMM table: a Gaussian process over m, n, k and the weight's size, and its values at knots.

Kernels that choose their tiles by rule vary smoothly from shape to shape, in products of few sizes; trees, which cut at
thresholds, need many shapes to say so. The covariance is a sum of products of exp(-|difference of logarithms| / length)
over (m), (m, n), (m, k), (m, weight), (m, n, k) and (n, k). Such a process has corners, not waves, and between measured
sizes it is nearly linear: its values at knots are all that prediction needs (`cost/surface.py`).

Everything held out comes from one inverse: leaving rows out of a Gaussian process takes a solve of their own block.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from tilewright.cost.surface import SURFACE_UNIT, SurfaceTable

__all__ = ["Smooth", "smooth_part"]

_TERMS: Final = ((0,), (0, 1), (0, 2), (0, 3), (0, 1, 2), (1, 2))
"""What the terms depend on: 0 m, 1 n, 2 k, 3 the weight's bytes."""


@dataclass(frozen=True, slots=True)
class _Covariance:
    """Variances of the terms, lengths of each (in natural logarithms of a size), and the rows' own noise."""

    variances: tuple[float, ...]
    lengths: tuple[tuple[float, ...], ...]
    noise: float


_COVARIANCES: Final = (
    _Covariance(
        (0.0058, 0.0296, 0.0044, 0.0053, 0.041, 0.243),
        ((24.5,), (17.9, 9.1), (23.5, 12.2), (6.0, 9.75), (1.2, 2.5, 7.0), (14.6, 28.0)),
        3.2e-4,
    ),
    _Covariance(
        (0.0034, 0.0634, 0.0275, 0.0477, 0.0117, 0.0014),
        ((30.0,), (9.3, 7.2), (4.6, 9.1), (7.2, 2.9), (1.5, 1.0, 2.2), (8.1, 17.0)),
        1.34e-3,
    ),
)
"""Of largest likelihood for TensorRT-LLM's NVFP4 (CUTLASS: smooth) and FP8 (cuBLAS: rough) rows of RTX PRO 6000 Server.
Lengths, as the choice between the two, change errors by tenths of a percent: they are not fitted again."""
_ROWS: Final = 4000
"""Rows of the process, at most: its inverse takes (rows / 4000)^3 x 5 s on one core."""
_CHOICE_ROWS: Final = 1200
_LEAST_SHAPES: Final = 30
_GROUPS_A_FOLD: Final = 4
_KNOTS: Final = 24
_WEIGHT_KNOTS: Final = 48


@dataclass(frozen=True, slots=True)
class Smooth:
    """`table`: of the whole process. `own[i]`: row i by a process
    without its shape and some others; `held_out[i]`: by one without its fold; `inside[fold][i]`: row i without its
    shape and without that fold. All as logarithms."""

    table: SurfaceTable
    own: Any
    held_out: Any
    inside: list[Any]


def smooth_part(
    np: Any, sizes: Any, log_weight: Any, y: Any, folds: Any, count: int, shapes: list[tuple[int, ...]]
) -> Smooth | None:
    """The smooth part of `y` [rows] over `sizes` [rows, 3] (m, n, k) and the logarithm of the weight's bytes [rows];
    None for too few shapes."""
    distinct = sorted(set(shapes))
    if len(distinct) < _LEAST_SHAPES:
        return None
    x = np.column_stack([np.log(sizes), log_weight])
    few = _thinned(np, sizes, _CHOICE_ROWS)
    chosen = min(_COVARIANCES, key=lambda item: _Process(np, item, x[few], y[few]).error(folds[few], count))
    used = _thinned(np, sizes, _ROWS)
    process = _Process(np, chosen, x[used], y[used])
    # Groups: each fold's shapes in parts, so that a row can be predicted without its own part, and without a fold too.
    number = {shape: place for place, shape in enumerate(distinct)}
    spread = np.random.default_rng(1).permutation(len(distinct))
    part = np.array([spread[number[shape]] % _GROUPS_A_FOLD for shape in shapes])
    groups = folds * _GROUPS_A_FOLD + part
    own, held_out = np.zeros(len(y)), np.zeros(len(y))
    inside = [np.zeros(len(y)) for _ in range(count)]
    for fold in range(count):
        mine = folds == fold
        held_out[mine] = process.without(folds[used] == fold, x[mine])
    for group in np.unique(groups):
        mine = groups == group
        own[mine] = process.without(groups[used] == group, x[mine])
        for fold in range(count):
            if not (folds[mine] == fold).all():
                inside[fold][mine] = process.without((groups[used] == group) | (folds[used] == fold), x[mine])
    return Smooth(
        process.table(sizes, log_weight),
        _rounded(np, own),
        _rounded(np, held_out),
        [_rounded(np, v) for v in inside],
    )


def _rounded(np: Any, values: Any) -> Any:
    """As the file will hold them; and the last bits of a solve are not to decide where a tree splits."""
    return np.round(values / SURFACE_UNIT) * SURFACE_UNIT


def _thinned(np: Any, sizes: Any, most: int) -> Any:
    """Indices of at most about `most` rows: fewer m, evenly along the axis, then fewer shapes."""
    values = np.unique(sizes[:, 0])
    keep = max(3, int(len(values) * most / len(sizes)))
    if keep < len(values):
        values = values[np.unique(np.round(np.linspace(0, len(values) - 1, keep)).astype(int))]
    rows = np.flatnonzero(np.isin(sizes[:, 0], values))
    if len(rows) <= 1.1 * most:
        return rows
    pairs = np.unique(sizes[:, 1:], axis=0)
    step = len(rows) / most
    pairs = pairs[np.unique((np.arange(int(len(pairs) / step)) * step).astype(int))]
    kept = {(n, k) for n, k in pairs.tolist()}
    return np.array([row for row in rows if (sizes[row, 1], sizes[row, 2]) in kept])


class _Process:
    """A Gaussian process on rows `x` [rows, 4] with values `y`, inverted once."""

    def __init__(self, np: Any, covariance: _Covariance, x: Any, y: Any) -> None:
        self.np, self.covariance, self.x = np, covariance, x
        self.mean = float(y.mean())
        matrix = self._covariances(x, x)
        matrix[np.diag_indices(len(x))] += covariance.noise
        self.inverse = np.linalg.inv(matrix)
        self.weights = self.inverse @ (y - self.mean)

    def _covariances(self, first: Any, second: Any) -> Any:
        np = self.np
        apart = [np.abs(first[:, axis][:, None] - second[:, axis][None, :]) for axis in range(4)]
        out = np.zeros((len(first), len(second)))
        for axes, variance, lengths in zip(_TERMS, self.covariance.variances, self.covariance.lengths, strict=True):
            exponent = apart[axes[0]] / -lengths[0]
            for axis, length in zip(axes[1:], lengths[1:], strict=True):
                exponent -= apart[axis] / length
            out += variance * np.exp(exponent, out=exponent)
        return out

    def _left(self, out: Any) -> Any:
        """The weights of the process without the rows `out` (a mask); theirs become zero."""
        np = self.np
        block = np.flatnonzero(out)
        if not len(block):
            return self.weights
        solved = np.linalg.solve(self.inverse[np.ix_(block, block)], self.weights[block])
        weights = self.weights - self.inverse[:, block] @ solved
        weights[block] = 0.0
        return weights

    def without(self, out: Any, at: Any) -> Any:
        """Values at `at` by the process without the rows `out`."""
        return self._covariances(at, self.x) @ self._left(out) + self.mean

    def error(self, folds: Any, count: int) -> float:
        """Mean absolute error on folds left out."""
        np = self.np
        total = 0.0
        for fold in range(count):
            block = np.flatnonzero(folds == fold)
            if len(block):
                gap = np.linalg.solve(self.inverse[np.ix_(block, block)], self.weights[block])
                total += float(np.abs(gap).sum())
        return total

    def table(self, sizes: Any, log_weight: Any) -> SurfaceTable:
        """The values at knots: at every size of an axis, or at `_KNOTS` of them."""
        np = self.np
        axes = [_knots(np, sizes[:, axis], _KNOTS) for axis in range(3)]
        held = _knots(np, np.exp(log_weight), _WEIGHT_KNOTS)
        body: list[int] = []
        by_weight: list[int] = []
        for m in axes[0]:
            n, k = (value.ravel() for value in np.meshgrid(axes[1], axes[2], indexing="ij"))
            values = (
                self._terms(np.log(np.column_stack([np.full(len(n), m), n, k, np.ones(len(n))])), weight=False)
                + self.mean
            )
            body += _steps(np, values.reshape(len(axes[1]), len(axes[2])))
            ones = np.ones(len(held))
            values = self._terms(np.log(np.column_stack([m * ones, ones, ones, held])), weight=True)
            by_weight += _steps(np, values[None, :])
        m, n, k, held = ([float(value) for value in axis] for axis in (*axes, held))
        return SurfaceTable(m, n, k, held, body, by_weight)

    def _terms(self, at: Any, *, weight: bool) -> Any:
        """The part of the values that depends on the weight's size, or the rest."""
        np = self.np
        out = np.zeros(len(at))
        for axes, variance, lengths in zip(_TERMS, self.covariance.variances, self.covariance.lengths, strict=True):
            if (3 in axes) == weight:
                exponent = sum(
                    np.abs(at[:, axis][:, None] - self.x[:, axis][None, :]) / -length
                    for axis, length in zip(axes, lengths, strict=True)
                )
                out += variance * np.exp(exponent) @ self.weights
        return out


def _knots(np: Any, values: Any, most: int) -> Any:
    distinct = np.unique(values)
    if len(distinct) <= most:
        return distinct
    at = np.linspace(np.log(distinct[0]), np.log(distinct[-1]), most)
    near = [int(np.argmin(np.abs(np.log(distinct) - value))) for value in at]
    return distinct[np.unique(near)]


def _steps(np: Any, values: Any) -> list[int]:
    """Rows of values as whole units, each but the first of a row as the difference from the one before."""
    whole = np.round(values / SURFACE_UNIT).astype(int)
    return np.concatenate([whole[:, :1], np.diff(whole, axis=1)], axis=1).ravel().tolist()
