"""Fitting one kernel: trees on the physics features, errors on held-out shapes, bounds by region.

The model is the log of time over the roofline (`base_s`), so that bytes, operations and waves are what extrapolates.
Bounds are split-conformal: quantiles of the errors on held-out shapes, apart in regions that a small tree finds.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tilewright.calibrate.rows import Group
from tilewright.cost.kernel_dtypes import kernel_dtype, kernel_rates
from tilewright.cost.kernel_models import FEATURES, FitError, IndexEntry, KernelFile
from tilewright.cost.kernel_work import group_work
from tilewright.cost.trees import LEAF, VALUE_UNIT, Trees
from tilewright.errors import MissingPartError
from tilewright.hardware.names import resolve_gpu

__all__ = ["Fitted", "fit_group"]

_SEED: Final = 7
_COVER: Final = 0.90
_FOLDS: Final = 5
_HELD_OUT_ROWS: Final = 12_000
"""Rows that a fold is fitted to, at most about twice that."""
_FEW: Final = 1000
"""Rows below which trees are kept small."""


_OBVIOUS: Final = {
    "gemm": ("log_m", "log_n", "log_k", "log_nk", "log_compute_s", "log_waves_128x128"),
    "moe": (
        "log_tokens", "log_rows", "log_hit", "log_hidden", "log_inter_local", "topk", "log_experts_local", "log_tp",
        "log_ep", "log_tiles_128", "log_waves_first",
    ),
}  # fmt: skip
"""The plain features of the trees that ours are compared with: tokens, rows, experts hit, sizes, tiles, waves."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A kernel's coefficients: the index entry, and its file's bytes."""

    entry: IndexEntry
    content: bytes


def _parts() -> tuple[Any, Any]:
    try:
        import lightgbm  # pyright: ignore[reportMissingImports]
        import numpy  # pyright: ignore[reportMissingImports]
    except ImportError:
        raise MissingPartError("The fitting library (numpy and lightgbm)", "calibrate") from None
    return numpy, lightgbm  # pyright: ignore[reportUnknownVariableType]


def _settings(rows: int, trees: int) -> dict[str, Any]:
    few = rows < _FEW
    return {
        "objective": "regression",
        "num_iterations": trees if rows >= _FEW else max(1, trees // 2),
        "learning_rate": 0.1,
        "num_leaves": 8 if few else 31,
        "min_data_in_leaf": 4 if few else 6,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "feature_fraction": 0.8,
        "seed": _SEED,
        "deterministic": True,
        "force_row_wise": True,
        "num_threads": 1,
        "verbosity": -1,
    }


def _train(lgb: Any, x: Any, y: Any, trees: int) -> Any:
    settings = _settings(len(y), trees)
    return lgb.train(
        settings, lgb.Dataset(x, label=y, params={"verbosity": -1, "min_data_in_leaf": settings["min_data_in_leaf"]})
    )


def _folds(np: Any, shapes: list[tuple[int, ...]]) -> Any:
    """A fold for every row; rows of one shape share it. Reproducible: shapes are dealt out in a fixed shuffle."""
    distinct = sorted(set(shapes))
    count = max(2, min(_FOLDS, len(distinct)))
    order = np.random.default_rng(_SEED).permutation(len(distinct))
    fold_of: dict[tuple[int, ...], int] = {distinct[index]: position % count for position, index in enumerate(order)}
    return np.array([fold_of[shape] for shape in shapes]), count


def _held_out(np: Any, lgb: Any, x: Any, y: Any, folds: Any, count: int, trees: int) -> Any:
    out = np.zeros(len(y))
    for fold in range(count):
        test = folds == fold
        if test.all() or not test.any():
            continue
        rest = np.flatnonzero(~test)
        # Large tables are thinned here, evenly, and only here: it makes the stated error a little worse, not better.
        rest = rest[:: max(1, len(rest) // _HELD_OUT_ROWS)]
        out[test] = _train(lgb, x[rest], y[rest], trees).predict(x[test])
    return out


def _packed(booster: Any, features: int, leaf_ids: bool = False) -> Trees:
    """The booster's trees in preorder, with one list of thresholds a feature."""
    dump: dict[str, Any] = booster.dump_model()
    used: dict[int, set[float]] = {feature: set() for feature in range(features)}
    flat: list[tuple[int, float]] = []

    def walk(node: dict[str, Any]) -> None:
        if "split_feature" not in node:
            value = node.get("leaf_index", 0) if leaf_ids else round(node["leaf_value"] / VALUE_UNIT)
            flat.append((LEAF, value))
            return
        threshold = float(node["threshold"])
        used[node["split_feature"]].add(threshold)
        flat.append((node["split_feature"], threshold))
        walk(node["left_child"])
        walk(node["right_child"])

    for tree in dump["tree_info"]:
        walk(tree["tree_structure"])
    cuts = [sorted(values) for values in used.values()]
    places = [{value: index for index, value in enumerate(values)} for values in cuts]
    return Trees(
        [feature for feature, _ in flat],
        [int(value) if feature == LEAF else places[feature][value] for feature, value in flat],
        cuts,
    )


def _regions(np: Any, lgb: Any, x: Any, errors: Any) -> tuple[Trees, list[float], list[float], float]:
    """Regions whose errors differ, and in each the factors between which 90% of its rows lie."""
    rows = len(errors)
    tail = (1 - _COVER) / 2
    settings = {
        **_settings(rows, 1),
        "num_leaves": max(2, min(16, rows // 80)),
        "min_data_in_leaf": max(20, min(rows // 3, max(40, rows // 40))),
        "learning_rate": 1.0,
        "bagging_fraction": 1.0,
        "feature_fraction": 1.0,
    }
    data = lgb.Dataset(x, label=np.minimum(np.abs(errors), 0.5), params={"verbosity": -1})
    booster = lgb.train(settings, data)
    leaves = booster.predict(x, pred_leaf=True).reshape(rows, -1)[:, 0].astype(int)
    low: list[float] = []
    high: list[float] = []
    for leaf in range(int(leaves.max()) + 1):
        inside = np.sort(errors[leaves == leaf])
        many = len(inside)
        # One row more than counted: the finite-sample correction of conformal prediction.
        first = max(0, int(np.floor(tail * (many + 1))) - 1)
        last = min(many - 1, int(np.ceil((1 - tail) * (many + 1))) - 1)
        low.append(round(float(np.exp(min(inside[first], -0.005))), 4))
        high.append(round(float(np.exp(max(inside[last], 0.005))), 4))
    covered = np.array([low[i] <= np.exp(e) <= high[i] for i, e in zip(leaves, errors, strict=True)]).mean()
    return _packed(booster, x.shape[1], leaf_ids=True), low, high, float(covered)


def fit_group(group: Group, date: str, trees: int = 160, source: str = "", *, compare: bool = False) -> Fitted:
    """Fit one kernel. `compare` also fits trees on plain features on the same folds.

    Raises MissingPartError without numpy and lightgbm."""
    np, lgb = _parts()
    dtype = kernel_dtype(group.dtype)
    rates = kernel_rates(resolve_gpu(group.gpu), dtype.name)
    work = [
        group_work(group.op, group.backend, sample.sizes, sample.distribution, dtype, rates) for sample in group.samples
    ]
    x = np.array([item.features for item in work])
    base = np.log(np.array([item.base_s for item in work]))
    y = np.log(np.array([sample.time_s for sample in group.samples])) - base
    folds, count = _folds(np, [sample.shape(group.op) for sample in group.samples])
    out = _held_out(np, lgb, x, y, folds, count, trees)
    errors = y - out
    relative = np.abs(np.exp(-errors) - 1)
    regions, low, high, covered = _regions(np, lgb, x, errors)
    plain_error: tuple[float, float] | None = None
    if compare:
        names = _OBVIOUS[group.op]
        columns = [FEATURES[group.op].index(name) for name in names]
        other = _held_out(np, lgb, x[:, columns], y + base, folds, count, trees)
        gap = np.abs(np.exp(other - y - base) - 1)
        plain_error = (round(float(gap.mean()), 4), round(float(np.quantile(gap, 0.95)), 4))
    names = FEATURES[group.op]
    content = KernelFile(
        features=list(names),
        trees=_packed(_train(lgb, x, y, trees), len(names)),
        regions=regions,
        low=low,
        high=high,
    )
    gz = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = gz.compress(msgspec.json.encode(content)) + gz.flush()
    columns = ("m", "n", "k") if group.op == "gemm" else ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep")
    ranges = {
        name: (float(min(s.sizes[i] for s in group.samples)), float(max(s.sizes[i] for s in group.samples)))
        for i, name in enumerate(columns)
    }
    file = f"{group.op}-{group.gpu}-{group.backend}-{group.dtype}".replace("/", "_")[:150] + ".json.gz"
    entry = IndexEntry(
        op="gemm" if group.op == "gemm" else "moe", gpu=group.gpu, backend=group.backend, dtype=group.dtype,
        framework=group.framework, file=file, rows=len(work), shapes=len({s.shape(group.op) for s in group.samples}),
        date=date, ranges=ranges, source=source,
        error=FitError(
            mean=round(float(relative.mean()), 4), p95=round(float(np.quantile(relative, 0.95)), 4),
            covered=round(covered, 4), folds=count, plain_mean=plain_error[0] if plain_error else None,
            plain_p95=plain_error[1] if plain_error else None,
        ),
    )  # fmt: skip
    return Fitted(entry, packed)
