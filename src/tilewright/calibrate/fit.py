"""Fitting one kernel: trees on the physics features, errors on held-out shapes, bounds by region.

The model is the log of time over the roofline (`base_s`), so that bytes, operations and waves are what extrapolates.
GEMMs of some thousand rows have a smooth part beside the trees (`smooth.py`).
Bounds are split-conformal: quantiles of the errors on held-out shapes, apart in regions that a small tree finds.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from tilewright.calibrate.rows import Group
from tilewright.calibrate.smooth import Smooth, smooth_part
from tilewright.cost.gemm_features import COLD_BYTES, GEMM_KEPT, WEIGHT_BYTES, GemmWork
from tilewright.cost.kernel_dtypes import kernel_dtype, kernel_rates
from tilewright.cost.kernel_models import FEATURES, SURFACE_FEATURE, FitError, IndexEntry, KernelFile
from tilewright.cost.kernel_work import group_work
from tilewright.cost.trees import LEAF, VALUE_UNIT, Trees
from tilewright.errors import MissingPartError
from tilewright.hardware.names import resolve_gpu

__all__ = ["Fitted", "fit_group"]

_SEED: Final = 7
_COVER: Final = 0.90
_FOLDS: Final = 5
_SHAPES_A_REGION: Final = 12
_LEAST: Final = 0.005
"""Least error, as a logarithm, that bounds allow for: half a percent."""
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


Recipe = tuple[tuple[float, dict[str, Any]], ...]
"""Boosters that are averaged: weight and what differs from `_settings`; "trees" is a share of the number asked for."""
_SHARP: Final[Recipe] = ((1.0, {}),)
_SMOOTH: Final[Recipe] = (
    (0.5, {"trees": 0.625, "learning_rate": 0.13}),
    (0.5, {"trees": 0.5, "learning_rate": 0.2, "extra_trees": True, "num_leaves": 48}),
)
"""Half of the sum from trees whose splits are drawn at random: smoother between shapes, which suits kernels that choose
their tiles by rule or tuning; cuBLAS's choices have edges that it blurs. Calibration keeps what holds better."""

_FINE: Final[Recipe] = ((1.0, {"trees": 2.0, "learning_rate": 0.05}),)
_ON_SURFACE: Final[tuple[tuple[float, Recipe], ...]] = (
    (1.0, ((1.0, {"learning_rate": 0.05, "rest": True}),)),
    (1.0, ((0.5, {"learning_rate": 0.05, "rest": True}),)),
    (
        0.0,
        ((0.5, {"trees": 1.25, "learning_rate": 0.07, "blind": True}), (0.5, {"trees": 1.25, "learning_rate": 0.07})),
    ),
)
"""With a smooth part: its share in the sum, and the trees beside it. Trees of the rest, all or half of what they say;
or trees that do not see it ("blind") and trees that have it as a feature, half of each, which suits cuBLAS."""


def _with(np: Any, x: Any, smooth: Any) -> Any:
    return x if smooth is None else np.column_stack([x, smooth])


def _train(
    np: Any, lgb: Any, x: Any, y: Any, trees: int, recipe: Recipe = _SHARP, smooth: Any = None
) -> list[tuple[float, Any]]:
    """The recipe's boosters on features `x` [rows, features] and, behind them, the smooth part."""
    boosters: list[tuple[float, Any]] = []
    for weight, changes in recipe:
        settings = _settings(len(y), max(1, round(trees * changes.get("trees", 1.0))))
        settings.update({key: value for key, value in changes.items() if key not in ("trees", "blind", "rest")})
        seen = x if changes.get("blind") else _with(np, x, smooth)
        label = y - smooth if changes.get("rest") else y
        data = lgb.Dataset(
            seen, label=label, params={"verbosity": -1, "min_data_in_leaf": settings["min_data_in_leaf"]}
        )
        boosters.append((weight, lgb.train(settings, data)))
    return boosters


def _summed(boosters: list[tuple[float, Any]], x: Any) -> Any:
    """What the boosters say of `x`, whose last columns those that were trained without them do not see."""
    return sum(weight * booster.predict(x[:, : booster.num_feature()]) for weight, booster in boosters)


def _folds(np: Any, shapes: list[tuple[int, ...]]) -> Any:
    """A fold for every row; rows of one shape share it. Reproducible: shapes are dealt out in a fixed shuffle."""
    distinct = sorted(set(shapes))
    count = max(2, min(_FOLDS, len(distinct)))
    order = np.random.default_rng(_SEED).permutation(len(distinct))
    fold_of: dict[tuple[int, ...], int] = {distinct[index]: position % count for position, index in enumerate(order)}
    return np.array([fold_of[shape] for shape in shapes]), count


def _held_out(
    np: Any, lgb: Any, x: Any, y: Any, folds: Any, count: int, trees: int, recipe: Recipe = _SHARP,
    smooth: Smooth | None = None, share: float = 0.0,
) -> Any:  # fmt: skip
    out = np.zeros(len(y))
    for fold in range(count):
        test = folds == fold
        if test.all() or not test.any():
            continue
        rest = np.flatnonzero(~test)
        # Large tables are thinned here, evenly, and only here: it makes the stated error a little worse, not better.
        rest = rest[:: max(1, len(rest) // _HELD_OUT_ROWS)]
        # What trees see of the smooth part was itself made without the rows' own shapes, and without the fold.
        inside = None if smooth is None else smooth.inside[fold][rest]
        held = None if smooth is None else smooth.held_out[test]
        boosters = _train(np, lgb, x[rest], y[rest], trees, recipe, inside)
        out[test] = _summed(boosters, _with(np, x[test], held)) + (0.0 if held is None else share * held)
    return out


def _packed(boosters: list[tuple[float, Any]], features: int, leaf_ids: bool = False) -> Trees:
    """The boosters' trees in preorder, with one list of thresholds a feature; leaf values times the weights."""
    used: dict[int, set[float]] = {feature: set() for feature in range(features)}
    flat: list[tuple[int, float]] = []

    def walk(node: dict[str, Any], weight: float) -> None:
        if "split_feature" not in node:
            value = node.get("leaf_index", 0) if leaf_ids else round(weight * node["leaf_value"] / VALUE_UNIT)
            flat.append((LEAF, value))
            return
        threshold = float(node["threshold"])
        used[node["split_feature"]].add(threshold)
        flat.append((node["split_feature"], threshold))
        walk(node["left_child"], weight)
        walk(node["right_child"], weight)

    for weight, booster in boosters:
        dump: dict[str, Any] = booster.dump_model()
        for tree in dump["tree_info"]:
            walk(tree["tree_structure"], weight)
    cuts = [sorted(values) for values in used.values()]
    places = [{value: index for index, value in enumerate(values)} for values in cuts]
    return Trees(
        [feature for feature, _ in flat],
        [int(value) if feature == LEAF else places[feature][value] for feature, value in flat],
        cuts,
    )


def _regions(np: Any, lgb: Any, x: Any, errors: Any, shapes: int) -> tuple[Any, Any, Any]:
    """Regions whose errors differ, as one tree, and in each the errors between which 90% of its rows lie."""
    rows = len(errors)
    tail = (1 - _COVER) / 2
    settings = {
        **_settings(rows, 1),
        "num_leaves": max(2, min(16, rows // 80, shapes // _SHAPES_A_REGION)),
        "min_data_in_leaf": max(20, min(rows // 3, max(40, rows // 40))),
        "learning_rate": 1.0,
        "bagging_fraction": 1.0,
        "feature_fraction": 1.0,
    }
    data = lgb.Dataset(x, label=np.minimum(np.abs(errors), 0.5), params={"verbosity": -1})
    booster = lgb.train(settings, data)
    # A region of few shapes looks better than it is: none is believed to be twice as good as the whole.
    least = max(_LEAST, float(np.quantile(np.abs(errors), _COVER)) / 2)
    leaves = _leaves(booster, x)
    low: list[float] = []
    high: list[float] = []
    for leaf in range(int(leaves.max()) + 1):
        inside = np.sort(errors[leaves == leaf])
        many = len(inside)
        # One row more than counted: the finite-sample correction of conformal prediction.
        first = max(0, int(np.floor(tail * (many + 1))) - 1)
        last = min(many - 1, int(np.ceil((1 - tail) * (many + 1))) - 1)
        low.append(min(float(inside[first]), -least))
        high.append(max(float(inside[last]), least))
    return booster, np.array(low), np.array(high)


def _leaves(booster: Any, x: Any) -> Any:
    return booster.predict(x, pred_leaf=True).reshape(len(x), -1)[:, 0].astype(int)


def _bounds(
    np: Any, lgb: Any, x: Any, errors: Any, folds: Any, count: int, shapes: int
) -> tuple[Trees, list[float], list[float], float]:
    """Regions and their factors, and the share of held-out rows inside.

    Errors within a shape go together, so bounds made from some shapes are too narrow for others. Regions are made
    without each fold in turn and tried on it; all bounds are then stretched until 90% of those rows lie inside."""
    needed = np.zeros(len(errors))
    for fold in range(count):
        test = folds == fold
        booster, low, high = _regions(np, lgb, x[~test], errors[~test], shapes)
        leaves = _leaves(booster, x[test])
        gap = errors[test]
        needed[test] = np.where(gap > 0, gap / high[leaves], gap / low[leaves])
    stretch = max(1.0, float(np.quantile(needed, _COVER)))
    booster, low, high = _regions(np, lgb, x, errors, shapes)
    factors = [[round(float(np.exp(stretch * value)), 4) for value in side] for side in (low, high)]
    covered = float((needed <= stretch).mean())
    return _packed([(1.0, booster)], x.shape[1], leaf_ids=True), factors[0], factors[1], covered


@dataclass(frozen=True, slots=True)
class _Choice:
    """A way to fit: recipe, number of features, whether the roofline reads kept weights from L2, the smooth part and
    its share; and what that predicts of shapes held out, as logarithms over that roofline."""

    recipe: Recipe
    columns: int
    kept: bool
    out: Any
    smooth: Smooth | None = None
    share: float = 0.0


def _candidates(np: Any, lgb: Any, data: _Data, trees: int) -> Iterator[_Choice]:
    """The ways tried: for GEMMs without and with what is known of the cache, as features and as roofline."""
    rows, every = data.x.shape
    small = _FEW <= rows <= _HELD_OUT_ROWS
    ways = [(every, False)]
    if data.op == "gemm":
        narrow = every - GEMM_KEPT
        # Large tables hold enough shapes to show it without: the gain there is 0.2 of 5%, not worth its time.
        ways = [(narrow, False), (every, False), (every, True)] if small else [(narrow, False)]

    def out(recipe: Recipe, columns: int, kept: bool, smooth: Smooth | None = None, share: float = 0.0) -> Any:
        y = data.target(kept)
        return _held_out(np, lgb, data.x[:, :columns], y, data.folds, data.count, trees, recipe, smooth, share)

    if data.op != "gemm" or not small:
        for columns, kept in ways:
            for recipe in (_SHARP, _SMOOTH) if small else (_SHARP,):
                yield _Choice(recipe, columns, kept, out(recipe, columns, kept))
        return
    plain = [_Choice(_FINE, columns, kept, out(_FINE, columns, kept)) for columns, kept in ways]
    yield from plain
    kept = min(plain, key=lambda choice: _badness(np, data, choice)).kept
    weight = data.x[:, COLD_BYTES if kept else WEIGHT_BYTES]
    smooth = smooth_part(np, data.sizes, weight, data.target(kept), data.folds, data.count, data.shapes)
    if smooth is not None:
        for share, recipe in _ON_SURFACE:
            yield _Choice(recipe, every, kept, out(recipe, every, kept, smooth, share), smooth, share)


def _badness(np: Any, data: _Data, choice: _Choice) -> float:
    """The tail counts as much as the mean: a 95th percentile of 12% weighs what a mean of 4% does."""
    gap = np.abs(np.exp(choice.out - data.target(choice.kept)) - 1)
    return float(3 * gap.mean() + np.quantile(gap, 0.95))


def _best(np: Any, lgb: Any, data: _Data, trees: int) -> _Choice:
    """The way with the lowest error on held-out shapes."""
    return min(_candidates(np, lgb, data, trees), key=lambda choice: _badness(np, data, choice))


@dataclass(frozen=True, slots=True)
class _Data:
    """A kernel's rows as numbers: sizes, features x [rows, features], log times, log rooflines, and each row's fold."""

    op: str
    shapes: list[tuple[int, ...]]
    sizes: Any
    x: Any
    log_time: Any
    log_base: Any
    log_kept_base: Any
    folds: Any
    count: int

    def target(self, kept: bool) -> Any:
        return self.log_time - (self.log_kept_base if kept else self.log_base)


def fit_group(group: Group, date: str, trees: int = 160, source: str = "", *, compare: bool = False) -> Fitted:
    """Fit one kernel. `compare` also fits trees on plain features on the same folds.

    Raises MissingPartError without numpy and lightgbm."""
    np, lgb = _parts()
    dtype = kernel_dtype(group.dtype)
    rates = kernel_rates(resolve_gpu(group.gpu), dtype.name)
    work = [
        group_work(group.op, group.backend, sample.sizes, sample.distribution, dtype, rates) for sample in group.samples
    ]
    shapes = [sample.shape(group.op) for sample in group.samples]
    folds, count = _folds(np, shapes)
    data = _Data(
        op=group.op,
        shapes=shapes,
        sizes=np.array([sample.sizes for sample in group.samples], dtype=float),
        x=np.array([item.features for item in work]),
        log_time=np.log(np.array([sample.time_s for sample in group.samples])),
        log_base=np.log(np.array([item.base_s for item in work])),
        log_kept_base=np.log(
            np.array([item.kept_base_s if isinstance(item, GemmWork) else item.base_s for item in work])
        ),
        folds=folds,
        count=count,
    )
    best = _best(np, lgb, data, trees)
    x, y = data.x[:, : best.columns], data.target(best.kept)
    errors = y - best.out
    relative = np.abs(np.exp(-errors) - 1)
    own = None if best.smooth is None else best.smooth.own
    seen = _with(np, x, own)
    regions, low, high, covered = _bounds(np, lgb, seen, errors, folds, count, len(set(shapes)))
    plain_error: tuple[float, float] | None = None
    if compare:
        names = _OBVIOUS[group.op]
        columns = [FEATURES[group.op].index(name) for name in names]
        other = _held_out(np, lgb, x[:, columns], data.log_time, folds, count, trees)
        gap = np.abs(np.exp(other - data.log_time) - 1)
        plain_error = (round(float(gap.mean()), 4), round(float(np.quantile(gap, 0.95)), 4))
    names = [*FEATURES[group.op][: best.columns], *([SURFACE_FEATURE] if best.smooth else [])]
    content = KernelFile(
        features=names,
        trees=_packed(_train(np, lgb, x, y, trees, best.recipe, own), len(names)),
        regions=regions,
        low=low,
        high=high,
        kept=best.kept,
        surface=best.smooth.table if best.smooth else None,
        share=best.share,
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
        framework=group.framework, file=file, rows=len(work), shapes=len(set(shapes)),
        date=date, ranges=ranges, source=source,
        error=FitError(
            mean=round(float(relative.mean()), 4), p95=round(float(np.quantile(relative, 0.95)), 4),
            covered=round(covered, 4), folds=count, plain_mean=plain_error[0] if plain_error else None,
            plain_p95=plain_error[1] if plain_error else None,
        ),
    )  # fmt: skip
    return Fitted(entry, packed)
