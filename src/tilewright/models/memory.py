"""Bytes of weights and KV cache that one GPU holds, and what is left.

Everything here is arithmetic on the model's shapes and on how its checkpoint quantises them: exact for the weights as
stored, and for the cache layouts that are named. What engines take besides (CUDA context, collectives, activations,
graphs) is not modelled; it is an argument, and zero unless somebody states it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.errors import InputError, shown
from tilewright.hardware.gpu import Gpu
from tilewright.models.checkpoint import COMPONENTS, Checkpoint
from tilewright.models.formats import FORMATS, WeightFormat
from tilewright.models.inventory import Weight, weights
from tilewright.models.kv import KV_LAYOUTS, KvCache, kv_cache
from tilewright.models.records import Model
from tilewright.models.stages import stage_bounds

__all__ = [
    "KV_LAYOUTS",
    "GpuMemory",
    "KvCache",
    "Parallel",
    "RowGroup",
    "WeightBytes",
    "component_bytes",
    "component_formats",
    "disk_bytes",
    "gpu_memory",
    "kv_cache",
    "row_groups",
    "shard",
    "weight_bytes",
]

GIB = 1 << 30
MAX_RANKS = 1 << 16


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Parallel:
    """How a model is spread over GPUs.

    `tp` ranks share each layer; of them, groups of tp / ep hold the same experts (`ep` 1: every rank holds a slice of
    every expert; ep = tp: whole experts). `pp` stages hold the layers in turn. `attention_dp` copies of the attention
    run side by side, each over tp / attention_dp ranks. `dcp` ranks of a tensor-parallel group share its KV cache
    (decode context parallel). `replicate_dense`: all but routed experts is whole on every rank, which is what vLLM's
    data parallelism does (there tp here is its TP x DP, and attention_dp its DP).
    """

    tp: int = 1
    ep: int = 1
    pp: int = 1
    dcp: int = 1
    attention_dp: int = 1
    replicate_dense: bool = False

    def __post_init__(self) -> None:
        for name in ("tp", "ep", "pp", "dcp", "attention_dp"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_RANKS:
                raise InputError(name, f"{name} must be a whole number from 1 to {MAX_RANKS:,}, not {shown(value)}.")
        for name in ("ep", "attention_dp"):
            if self.tp % getattr(self, name):
                raise InputError(name, f"{name} must divide tp ({self.tp}), and {getattr(self, name)} does not.")
        if self.attention_tp % self.dcp:
            raise InputError(
                "dcp", f"dcp must divide the attention ranks ({self.attention_tp}), and {self.dcp} does not."
            )

    @property
    def gpus(self) -> int:
        return self.tp * self.pp

    @property
    def attention_tp(self) -> int:
        """Ranks that share one copy of the attention."""
        return self.tp // self.attention_dp

    @property
    def expert_tp(self) -> int:
        """Ranks that share each expert's matrices."""
        return self.tp // self.ep


def shard(row: Weight, parallel: Parallel) -> tuple[int, int, int]:
    """(matrices, rows, columns) of `row` that the fullest rank holds."""
    dense = 1 if parallel.replicate_dense else parallel.tp
    attention = parallel.attention_tp
    match row.cut:
        case "out" | "vocab":
            return row.count, _ceil(row.out, dense), row.inn
        case "in":
            return row.count, row.out, _ceil(row.inn, dense)
        case "heads_out":
            heads = row.heads or 1
            return row.count, _ceil(heads, attention) * _ceil(row.out, heads), row.inn
        case "heads_in":
            heads = row.heads or 1
            return row.count, row.out, _ceil(heads, attention) * _ceil(row.inn, heads)
        case "kv_heads":
            heads = row.heads or 1
            return row.count, max(1, _ceil(heads, attention)) * (row.out // heads), row.inn
        case "expert_out":
            return _ceil(row.count, parallel.ep), _ceil(row.out, parallel.expert_tp), row.inn
        case "expert_in":
            return _ceil(row.count, parallel.ep), row.out, _ceil(row.inn, parallel.expert_tp)
        case "expert":
            return _ceil(row.count, parallel.ep), row.out, row.inn
        case "whole":
            return row.count, row.out, row.inn


def _bias_bytes(row: Weight, count: int, rows: int, base: WeightFormat) -> int:
    if not row.bias:
        return 0
    share = row.bias if row.cut in ("whole", "in", "heads_in", "expert_in") else _ceil(row.bias * rows, row.out)
    return count * share * base.bits // 8


def _matrix_bytes(fmt: WeightFormat, row: Weight, rows: int, columns: int, *, runtime: bool) -> int:
    """Bytes of one matrix. On disk each of its parts is a tensor of its own; engines fuse them into one, whose scales
    are padded together, and keep each part's scalars."""
    if runtime:
        return fmt.runtime_bytes(rows, columns) + (row.parts - 1) * fmt.scalar_bytes
    if rows % row.parts:
        return fmt.disk_bytes(rows, columns) + (row.parts - 1) * fmt.scalar_bytes
    return row.parts * fmt.disk_bytes(rows // row.parts, columns)


@dataclass(frozen=True, slots=True)
class WeightBytes:
    """Bytes of weights on the fullest GPU.

    `stored` as the checkpoint stores them, cut into shards; `runtime` with scales padded to the 128x4 tiles that
    block-scaled kernels read. `components` splits `runtime` by part of the model; `stage` is the pipeline stage that
    is fullest.
    """

    stored: int
    runtime: int
    components: Mapping[str, int]
    stage: int = 0
    stages: tuple[int, ...] = ()
    """Runtime bytes of each pipeline stage."""

    @property
    def padding(self) -> int:
        return self.runtime - self.stored


def _stage_counts(group: RowGroup, bounds: list[int], *, tied: bool) -> list[tuple[int, int]]:
    """(stage, weights) of a group over the pipeline stages: a tied embedding is on the first and on the last."""
    last, row, count = len(bounds) - 1, group.row, len(group.layers)
    if row.mtp or row.component == "lm_head" or (row.layer is None and row.component != "embedding"):
        return [(last, count)]
    if row.component == "embedding":
        return [(stage, count) for stage in sorted({0, last} if tied else {0})]
    if last == 0:
        return [(0, count)]
    # `layers` ascend, so each stage takes a run of them.
    layers = [layer for layer in group.layers if layer is not None]
    cuts = [0, *(bisect_left(layers, bound) for bound in bounds[:-1]), count]
    return [(stage, cuts[stage + 1] - cuts[stage]) for stage in range(len(bounds))]


@lru_cache(maxsize=32)
def _as_stored(model: Model, experts: int) -> Model:
    """The model with as many routed experts as a pruned checkpoint keeps."""
    return model if model.moe is None else replace(model, moe=replace(model.moe, experts=experts))


def _rows(model: Model, checkpoint: Checkpoint, *, mtp: bool) -> Iterator[Weight]:
    """The weights that the checkpoint holds of the model."""
    held = _as_stored(model, checkpoint.experts) if checkpoint.experts else model
    return (row for row in weights(held) if not row.mtp or (mtp and checkpoint.has_mtp))


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Equal weights of several layers, stored in one format. `layers` are the numbers of those layers, ascending (None:
    outside of layers), one entry a weight."""

    row: Weight
    format: WeightFormat
    layers: tuple[int | None, ...]


@lru_cache(maxsize=64)
def row_groups(model: Model, checkpoint: Checkpoint, *, mtp: bool = False) -> tuple[RowGroup, ...]:
    """The checkpoint's weights, equal ones of different layers together: some dozens instead of thousands."""
    groups: dict[object, tuple[Weight, WeightFormat, list[int | None]]] = {}
    for row in _rows(model, checkpoint, mtp=mtp):
        fmt = checkpoint.format_of(row, model.dtype)
        key = (
            row.component, row.out, row.inn, row.cut, row.count, row.heads, row.bias, row.parts, row.mtp, fmt,
            row.layer is None,
        )  # fmt: skip
        groups.setdefault(key, (row, fmt, []))[2].append(row.layer)
    return tuple(RowGroup(row, fmt, tuple(layers)) for row, fmt, layers in groups.values())


def weight_bytes(
    model: Model, checkpoint: Checkpoint | None = None, parallel: Parallel | None = None, *, mtp: bool = False
) -> WeightBytes:
    """Bytes of weights on the fullest GPU. With `mtp`, multi-token-prediction layers are loaded as well (on the last
    pipeline stage); engines do so only for speculative decoding."""
    checkpoint, parallel = checkpoint or model.checkpoint, parallel or Parallel()
    bounds = stage_bounds(len(model.main_layers), parallel.pp)
    stored = [0] * parallel.pp
    parts: list[dict[str, int]] = [dict.fromkeys(COMPONENTS, 0) for _ in bounds]
    for group in row_groups(model, checkpoint, mtp=mtp):
        row, fmt = group.row, group.format
        count, rows, columns = shard(row, parallel)
        bias = _bias_bytes(row, count, rows, FORMATS[model.dtype])
        on_disk = count * _matrix_bytes(fmt, row, rows, columns, runtime=False) + bias
        held = count * _matrix_bytes(fmt, row, rows, columns, runtime=True) + bias
        name = "mtp" if row.mtp else row.component
        for stage, weights_there in _stage_counts(group, bounds, tied=model.tied):
            stored[stage] += weights_there * on_disk
            parts[stage][name] += weights_there * held
    totals = [sum(part.values()) for part in parts]
    fullest = totals.index(max(totals))
    components = {name: size for name, size in parts[fullest].items() if size}
    return WeightBytes(stored[fullest], totals[fullest], components, fullest, tuple(totals))


def component_bytes(model: Model, checkpoint: Checkpoint | None = None, *, mtp: bool = True) -> dict[str, int]:
    """Bytes of each part of the model as the checkpoint stores it, whole."""
    checkpoint = checkpoint or model.checkpoint
    out = dict.fromkeys(COMPONENTS, 0)
    for row in _rows(model, checkpoint, mtp=mtp):
        fmt = checkpoint.format_of(row, model.dtype)
        bias = row.bias * FORMATS[model.dtype].bits // 8
        out["mtp" if row.mtp else row.component] += row.count * (
            _matrix_bytes(fmt, row, row.out, row.inn, runtime=False) + bias
        )
    return {name: size for name, size in out.items() if size}


def disk_bytes(model: Model, checkpoint: Checkpoint | None = None, *, mtp: bool = True) -> int:
    """Bytes of the checkpoint's tensors; with `mtp` those of multi-token-prediction layers that it has."""
    return sum(component_bytes(model, checkpoint, mtp=mtp).values())


def component_formats(model: Model, checkpoint: Checkpoint | None = None) -> dict[str, dict[str, int]]:
    """Component -> format -> parameters stored in it."""
    checkpoint = checkpoint or model.checkpoint
    out: dict[str, dict[str, int]] = {name: {} for name in COMPONENTS}
    for row in _rows(model, checkpoint, mtp=True):
        formats = out["mtp" if row.mtp else row.component]
        name = checkpoint.format_of(row, model.dtype).name
        formats[name] = formats.get(name, 0) + row.elements
    return {name: formats for name, formats in out.items() if formats}


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """What one GPU holds, in bytes. `left` is negative when the weights alone do not fit.

    `usable` = fraction x total - reserved. `tokens` is the number of tokens whose cache fits in what is left, an
    upper bound: activations and graphs come out of the same bytes unless `reserved` counts them.
    """

    total: int
    usable: int
    weights: WeightBytes
    left: int
    kv: KvCache | None
    tokens: int
    note: str = ""

    @property
    def fits(self) -> bool:
        return self.left >= 0

    def sequences(self, tokens: int) -> int:
        """Sequences of that many tokens whose caches fit."""
        if self.kv is None or tokens <= 0 or self.left <= 0:
            return 0
        return self.left // self.kv.bytes_for(tokens)


def gpu_memory(
    model: Model,
    gpu: Gpu,
    checkpoint: Checkpoint | None = None,
    parallel: Parallel | None = None,
    *,
    fraction: float = 0.9,
    kv_layout: str = "",
    reserved: int = 0,
    mtp: bool = False,
    total: int | None = None,
) -> GpuMemory:
    """Weights, KV cache and what is left on the fullest GPU.

    `fraction` of the device's memory is for weights and cache (SGLang's --mem-fraction-static, vLLM's
    --gpu-memory-utilization), `reserved` bytes of that are for other things. `kv_layout` is one of KV_LAYOUTS; empty:
    what the checkpoint asks for, else the model's dtype. `total` replaces the catalogue's bytes (a live reading).
    Raises InputError when the GPU's memory is unknown or an argument is out of range.
    """
    checkpoint, parallel = checkpoint or model.checkpoint, parallel or Parallel()
    size = total if total is not None else gpu.memory_bytes
    if size is None:
        raise InputError("gpu", f"How much memory a {gpu.name} has is unknown; give it as total.")
    if not 0 < fraction <= 1:
        raise InputError("fraction", f"The memory fraction must be above 0 and at most 1, not {shown(fraction)}.")
    held = weight_bytes(model, checkpoint, parallel, mtp=mtp)
    usable = int(size * fraction) - reserved
    layout = kv_layout or ("fp8" if checkpoint.kv_cache == "fp8" else "bf16")
    try:
        cache, note = (
            kv_cache(model, layout, parallel_ranks=parallel.attention_tp, dcp=parallel.dcp, pp=parallel.pp, mtp=mtp),
            "",
        )
    except InputError as error:
        cache, note = None, error.msg
    left = usable - held.runtime
    tokens = 0 if cache is None or left <= 0 else cache.tokens_in(left)
    return GpuMemory(size, usable, held, left, cache, tokens, note)
