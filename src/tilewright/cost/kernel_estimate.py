"""Times of GEMMs and expert layers: coefficients on physics, measured rows where there are any, bounds, and a why."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import exp, log
from typing import Final, NamedTuple

from tilewright.cost.backends import Backend, backends, families_of, usual_backend
from tilewright.cost.estimate import Basis, Bound, Estimate, Term
from tilewright.cost.gemm_features import LAUNCH_S as GEMM_LAUNCH_S
from tilewright.cost.gemm_features import GemmWork
from tilewright.cost.kernel_dtypes import KernelDtype, KernelRates, kernel_dtype, kernel_rates
from tilewright.cost.kernel_models import Coefficients, KernelModel, model_of
from tilewright.cost.kernel_work import group_work
from tilewright.cost.moe_features import LAUNCH_S as MOE_LAUNCH_S
from tilewright.cost.moe_features import MoeWork
from tilewright.cost.moe_load import check_distribution
from tilewright.cost.questions import GemmQuestion, MoeQuestion
from tilewright.cost.tables import Neighbours, Table, read_table
from tilewright.errors import UnknownNameError
from tilewright.hardware.gpu import Gpu
from tilewright.hardware.names import resolve_gpu

__all__ = ["estimate_kernel"]

REFERENCE_GPU: Final = "rtx-pro-6000-server"
"""The GPU whose kernels were measured in every shape: others are carried over from it by their rates."""
_TRANSFER: Final = 2.0
"""Factor by which bounds widen for a GPU without rows of its own: its kernels, clocks and caches may differ."""
_UNCOVERED: Final = 3.0
_PLAIN: Final = 1.6
"""Time over roofline where no backend of that format was measured: the median of those that were is 1.1 to 2."""
_OCTAVE: Final = 1.25
"""Widening for each factor of two beyond the calibrated range of a size."""
_SIZES: Final = {"gemm": ("m", "n", "k"), "moe": ("tokens", "hidden", "inter", "topk", "experts", "tp", "ep")}
_MEASURED_SPREAD: Final = 1.03
_BETWEEN_SPREAD: Final = {"gemm": 1.07, "moe": 1.05}
"""Leaving out 4,000 rows each and interpolating them: 9 of 10 fall within 7% and 5%."""
_BESIDE: Final = {"gemm": 4, "moe": 0}
"""Near shapes that tell what happens to a GEMM at an m between two rows: kernels and tiles change there for all of
them. Expert layers do without: they are interpolated to 1.9%."""


_FAR: Final = 1.0
_FAR_AS_ASKED: Final = 3.0
"""Octaves outside its rows, all sizes together, from which on a backend gives way to one that was measured nearer: the
usual one, and one that was asked for. vLLM's FP8 block GEMM was measured to 128 x 128 only; carried to 4,096 x 6,144
its coefficients are 20 times off."""


class _Choice(NamedTuple):
    """Whose coefficients answer a question, and what is to be said of them."""

    model: KernelModel | None
    relative: Backend | None
    gpu: Gpu
    dtype: KernelDtype
    rates: KernelRates
    backend: str
    widen: float
    notes: tuple[str, ...]
    stated: str = ""
    own: bool = False
    """Whether the rows are of that very GPU, backend and format."""
    smaller_cache: bool = False
    """Whether they are of a GPU with a larger L2 cache."""


@lru_cache(maxsize=4096)
def _gpu(name: str) -> Gpu:
    return resolve_gpu(name)


def _l2_bytes(gpu: Gpu) -> float:
    """Bytes of a GPU's L2 cache; 0 where that is not known."""
    return float(gpu.value("l2_bytes") or 0.0)


def _choose(
    coefficients: Coefficients, op: str, gpu_name: str, dtype_name: str, backend: str | None, sizes: tuple[int, ...]
) -> _Choice:
    """The usual backend, or the one that was asked for. Of a GEMM another one where its rows are far from `sizes` and
    that one's are nearer: coefficients say nothing many octaves away from what they were fitted on. Expert layers keep
    theirs: kernels of one format differ more there than their coefficients drift."""
    choice = _cached(coefficients, op, gpu_name, dtype_name, backend, frozenset())
    if choice.model is None or op != "gemm":
        return choice
    best, least = choice, _outside(choice.model, op, sizes)[0]
    if least <= (_FAR if backend is None else _FAR_AS_ASKED):
        return choice
    far: frozenset[str] = frozenset()
    while choice.model is not None and choice.backend not in far:
        octaves = _outside(choice.model, op, sizes)[0]
        if octaves < least:
            best, least = choice, octaves
        far |= {choice.backend}
        choice = _cached(coefficients, op, gpu_name, dtype_name, backend, far)
    return best


def _cached(
    coefficients: Coefficients, op: str, gpu_name: str, dtype_name: str, backend: str | None, far: frozenset[str]
) -> _Choice:
    key = (op, gpu_name, dtype_name, backend, far)
    cache = coefficients.choices
    found = cache.get(key)
    if found is None:
        if len(cache) > 1 << 14:
            cache.clear()
        found = cache[key] = _chosen(coefficients, op, gpu_name, dtype_name, backend, far)
    return found


def _chosen(
    coefficients: Coefficients, op: str, gpu_name: str, dtype_name: str, backend: str | None, far: frozenset[str]
) -> _Choice:
    gpu = _gpu(gpu_name)
    dtype = kernel_dtype(dtype_name)
    rates = kernel_rates(gpu, dtype.name)
    notes = [f"assumed, because not published: {', '.join(rates.assumed)}"] if rates.assumed else []
    widen = 1.25 if rates.assumed else 1.0
    registered = {name for kind, name in backends() if kind == op}
    every = sorted({item.backend for item in coefficients.index.entries if item.op == op} | registered)
    family = families_of(backend) if backend else None
    if backend is not None and family is None and backend not in every:
        raise UnknownNameError("backend", backend, every)
    relative = backends().get((op, backend)) if backend else None
    if relative is not None and relative.relative_to is not None:
        if relative.dtypes and dtype.name not in relative.dtypes:
            raise UnknownNameError("dtype", dtype_name, relative.dtypes, f"The backend {backend} runs no other.")
        dtype = kernel_dtype(relative.relative_dtype or dtype.name)
        rates = kernel_rates(gpu, dtype.name)
        backend = relative.relative_to
    else:
        relative = None
    home = gpu.key
    known = _known(coefficients, op, home, dtype.name)
    if not known or (backend is not None and family is None and backend not in known):
        other = _known(coefficients, op, REFERENCE_GPU, dtype.name)
        if home != REFERENCE_GPU and other and (not known or backend in other):
            known, home = other, REFERENCE_GPU
            widen *= _TRANSFER
            notes.append(
                f"no rows of a {gpu.name}: kernels of {_gpu(REFERENCE_GPU).name}, carried over by both GPUs' rates"
            )
    if not known:
        notes.append(f"no {op} of {dtype.name} was measured: the roofline times {_PLAIN}")
        return _Choice(None, relative, gpu, dtype, rates, backend or "any", widen * _UNCOVERED, tuple(notes))
    asked = backend
    if backend in far:
        backend = None
    known = [name for name in known if name not in far] or known
    if backend is not None and family is None and backend in known:
        name = backend
    else:
        try:
            name = usual_backend(op, dtype.name, known, family)
        except UnknownNameError:
            name = usual_backend(op, dtype.name, known)
        if backend is not None and not far and (family is None or _family(op, name) != family):
            widen *= _UNCOVERED
            notes.append(f"{backend} was not measured with {dtype.name}: the efficiency of {name} is taken")
    model = model_of(coefficients, op, home, name, dtype.name)
    assert model is not None  # `name` is one of the index's own
    error = model.entry.error
    same = asked is None or asked == name or _family(op, name) == family
    own = home == gpu.key and same
    if far:
        widen *= 1.0 if same else _UNCOVERED
        notes.append(
            f"{', '.join(sorted(far))}: measured far from this shape only, so the efficiency of {name} is taken"
        )
    stated = f"{name}, {model.entry.framework}: {error.mean:.1%} mean error on shapes held out"
    smaller = home != gpu.key and _l2_bytes(gpu) < _l2_bytes(_gpu(home))
    return _Choice(model, relative, gpu, dtype, rates, name, widen, tuple(notes), stated, own, smaller)


def _family(op: str, name: str) -> str | None:
    item = backends().get((op, name))
    return item.family if item is not None else None


def _known(coefficients: Coefficients, op: str, gpu: str, dtype: str) -> list[str]:
    return [
        item.backend for item in coefficients.index.entries if item.op == op and item.gpu == gpu and item.dtype == dtype
    ]


def _outside(model: KernelModel, op: str, sizes: tuple[int, ...]) -> tuple[float, str]:
    """How many octaves outside the calibrated ranges, and which sizes."""
    octaves, parts = 0.0, ""
    for name, size in zip(_SIZES[op], sizes, strict=True):
        low, high = model.entry.ranges.get(name, (size, size))
        if size > high or size < low:
            octaves += log(size / high if size > high else low / size) / log(2.0)
            parts += f"{', ' if parts else ''}{name} {size:,} (calibrated {low:,.0f} to {high:,.0f})"
    return octaves, parts


def _sizes(question: GemmQuestion | MoeQuestion) -> tuple[str, tuple[int, ...], str]:
    if type(question) is GemmQuestion:
        return "gemm", (question.m, question.n, question.k), ""
    assert type(question) is MoeQuestion
    check_distribution(question.distribution)
    q = question
    return "moe", (q.tokens, q.hidden, q.inter, q.topk, q.experts, q.tp, q.ep), q.distribution


def _modelled(choice: _Choice, work: GemmWork | MoeWork, sizes: tuple[int, ...]) -> float:
    """The time by the coefficients alone."""
    model = choice.model
    if model is None:
        return work.base_s * _PLAIN
    base = work.kept_base_s if model.kept and type(work) is GemmWork else work.base_s
    return base * exp(model.log_factor(model.features(work.features, sizes)))


def estimate_kernel(question: GemmQuestion | MoeQuestion, coefficients: Coefficients, *, tables: bool) -> Estimate:
    """The estimate of one GEMM or expert layer. `tables`: whether measured rows may answer."""
    op, sizes, distribution = _sizes(question)
    choice = _choose(coefficients, op, question.gpu, question.dtype, question.backend, sizes)
    model = choice.model
    work = group_work(op, choice.backend, sizes, distribution, choice.dtype, choice.rates)
    memory = work.memory_s if type(work) is GemmWork else work[2] + work[3]  # weights and activations
    compute = work.compute_s
    basis: Basis = "modelled"
    widen = choice.widen
    notes = list(choice.notes)
    low, high = 1.0, 1.0
    near = _near(choice, coefficients, op, sizes, distribution) if tables and choice.own else None
    if near is not None:
        time, low, high, note = _measured(near, choice, coefficients, op, sizes, distribution, work)
        basis = "measured"
        notes.append(note)
    else:
        time = _modelled(choice, work, sizes)
    if near is None and model is not None:
        region = round(model.regions.value(model.features(work.features, sizes)) * 1e4)
        low, high = model.low[region], model.high[region]
        octaves, parts = _outside(model, op, sizes)
        if octaves:
            widen *= _OCTAVE ** min(octaves, 20.0)
            notes.append(f"outside the calibrated range: {parts}")
        notes.append(choice.stated)
    if choice.relative is not None:
        basis = "modelled"
        factor = _relative(choice, coefficients, sizes)
        time *= factor
        widen *= choice.relative.spread
        notes.append(f"{choice.relative.name}: {factor:.2f} x {choice.backend}, from served tokens a second")
    launch = GEMM_LAUNCH_S if op == "gemm" else MOE_LAUNCH_S
    limit, warm = _limit(choice, memory, compute, time)
    if warm:
        notes.append("the table's rows repeat one weight, which stays in the L2 cache: a cold read takes longer")
    if time < limit:
        time = limit + launch
    bound: Bound = "latency" if launch > max(memory, compute) else "memory" if memory >= compute else "compute"
    return Estimate(
        id=question.id, time_s=time, low_s=time * low / widen, high_s=time * high * widen, limit_s=limit, bound=bound,
        terms=_terms(time, memory, compute, launch), basis=basis, why="; ".join(notes),
    )  # fmt: skip


def _near(
    choice: _Choice, coefficients: Coefficients, op: str, sizes: tuple[int, ...], distribution: str
) -> Neighbours | None:
    assert choice.model is not None
    name = choice.model.entry.file
    tables: dict[str, Table | None] = coefficients.tables
    if name not in tables:
        tables[name] = read_table(name.replace(".json.gz", ".table.gz"), coefficients.folder)
    table = tables[name]
    return None if table is None else table.near(sizes[0], sizes[1:], distribution, _BESIDE[op])


def _measured(
    near: Neighbours,
    choice: _Choice,
    coefficients: Coefficients,
    op: str,
    sizes: tuple[int, ...],
    distribution: str,
    work: GemmWork | MoeWork,
) -> tuple[float, float, float, str]:
    """(time, low, high factor, note) from measured rows; between two, the model gives the curve's form, and near shapes
    that were measured at that very size how far the curve is from it there."""
    axis = _SIZES[op][0]
    if len(near.rows) == 1:
        return near.rows[0][1], 1 / _MEASURED_SPREAD, _MEASURED_SPREAD, f"measured with {choice.backend}"
    (below, low_s), (above, high_s) = near.rows
    share = log(sizes[0] / below) / log(above / below)

    def ratio(at: int, shape: tuple[int, ...], seen: float) -> float:
        return _ratio(choice, coefficients, op, (at, *shape), distribution, seen)

    def between(shape: tuple[int, ...], low_s: float, high_s: float) -> float:
        return (1 - share) * ratio(below, shape, low_s) + share * ratio(above, shape, high_s)

    value = between(sizes[1:], low_s, high_s)
    note = f"measured with {choice.backend} at {axis} {below:,} and {above:,}, interpolated"
    if near.beside:
        total = weights = 0.0
        for shape, (first, same, last) in near.beside:
            weight = exp(-sum(abs(log(mine / theirs)) for mine, theirs in zip(sizes[1:], shape, strict=True)))
            total += weight * (ratio(sizes[0], shape, same) - between(shape, first, last))
            weights += weight
        value += total / weights if weights else 0.0
        note += f", with {len(near.beside)} near shapes measured at {sizes[0]:,}"
    spread = _BETWEEN_SPREAD[op]
    return _modelled(choice, work, sizes) * exp(value), 1 / spread, spread, note


def _ratio(
    choice: _Choice, coefficients: Coefficients, op: str, sizes: tuple[int, ...], distribution: str, seen: float
) -> float:
    """Logarithm of a measured row over its modelled time; rows are met again and again, so it is kept."""
    key = (choice.backend, choice.dtype.name, sizes, distribution)
    found = coefficients.ratios.get(key)
    if found is None:
        work = group_work(op, choice.backend, sizes, distribution, choice.dtype, choice.rates)
        if len(coefficients.ratios) > 1 << 16:
            coefficients.ratios.clear()
        found = coefficients.ratios[key] = log(seen / _modelled(choice, work, sizes))
    return found


def _limit(choice: _Choice, memory: float, compute: float, time: float) -> tuple[float, bool]:
    """What the hardware allows, and whether the time is one that only a warm L2 cache allows. What a larger cache held
    while rows were measured is not held here: such a time is never below a cold read."""
    cold = max(memory, compute)
    if cold <= time or choice.smaller_cache:
        return cold, False
    l2 = _l2_bytes(choice.gpu)
    return min(max(compute, memory - l2 / choice.rates.bandwidth), time), memory > compute


def _terms(time: float, memory: float, compute: float, launch: float) -> tuple[Term, ...]:
    """How the time is made up; modelled even where the whole was measured."""
    launch = min(launch, time / 2)
    moved = min(memory, time - launch)
    counted = min(max(compute - moved, 0.0), time - launch - moved)
    return (
        Term("bytes moved", moved),
        Term("tensor cores beyond that", counted),
        Term("launches", launch),
        Term("tiles, waves and waiting", time - launch - moved - counted),
    )


def _relative(choice: _Choice, coefficients: Coefficients, sizes: tuple[int, ...]) -> float:
    """Factor of a backend that is known by served tokens a second only: the difference of a step's time, spread over
    the expert layers, against the reference's time of the same layer; between batches by the logarithm of rows."""
    relative = choice.relative
    assert relative is not None
    points = coefficients.relative.get(relative.name)
    if points is None:
        points = coefficients.relative[relative.name] = _points(choice, relative)
    rows = log(max(1, sizes[0] * sizes[3]))
    if rows <= points[0][0]:
        return points[0][1]
    for (x0, y0), (x1, y1) in pairwise(points):
        if rows <= x1:
            return y0 + (y1 - y0) * (rows - x0) / (x1 - x0)
    return points[-1][1]


def _points(choice: _Choice, relative: Backend) -> list[tuple[float, float]]:
    published = relative.published
    if published is None:
        return [(0.0, 1.0)]
    shape = published.shape
    out: list[tuple[float, float]] = []
    for tokens, mine, theirs in zip(published.tokens, published.tok_s, published.reference_tok_s, strict=True):
        sizes = (tokens, *(shape[name] for name in _SIZES["moe"][1:]))
        work = group_work("moe", choice.backend, sizes, "uniform", choice.dtype, choice.rates)
        time = _modelled(choice, work, sizes)
        gap = (tokens / mine - tokens / theirs) / published.layers
        out.append((log(tokens * shape["topk"]), max(0.2, 1.0 + gap / time)))
    return out
