"""One pass of tokens through a model on one GPU, term by term: what decode, verification, drafts and prefill share."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from tilewright.hardware.gpu import GIGA, Gpu
from tilewright.models.memory import Parallel, shard
from tilewright.models.records import Mla, Model
from tilewright.serving.attention import mixing
from tilewright.serving.coefficients import Coefficients
from tilewright.serving.kernels import (
    WAIT_HIGH,
    WAIT_LOW,
    Basis,
    Kernel,
    MoeShape,
    collective_time,
    gemm_time,
    has_nvlink,
    moe_time,
    reached_bandwidth,
)
from tilewright.serving.profile import LayerKind, Profile, Row
from tilewright.serving.scenario import Scenario

__all__ = ["TERMS", "Sum", "add_head", "add_layers", "moe_shape"]

TERMS: Final[dict[str, str]] = {
    "experts": "routed experts",
    "attention": "attention, reading the cache",
    "scan": "attention, one block a sequence",
    "index": "sparse-attention indexer",
    "projections": "attention projections",
    "shared": "shared experts",
    "dense": "dense MLP",
    "router": "router",
    "small": "norms, activations and other small kernels",
    "allreduce": "all-reduces",
    "gather": "gathering tokens for the experts",
    "dcp": "context-parallel exchanges",
    "wait": "collectives, waiting for the slowest GPU",
    "head": "output head",
    "sampling": "logits and sampling",
    "handoff": "pipeline hand-overs",
    "bubble": "pipeline bubble",
    "launch": "kernel launches without a graph",
    "chunks": "waiting between chunks",
    "idle": "idle between steps",
}
"""Terms of a step: their keys and how they are called, in the order in which they are shown."""

_SMALL_MIXER: Final[dict[str, int]] = {"mla": 9, "gqa": 6, "linear": 7, "mamba": 6, "none": 0}
"""Kernels of a layer that are neither a GEMM nor a collective, by what mixes its tokens: norm with residual, norms of
queries and keys, rotation, cache write, attention and its reduction, gate; MLA adds its latent norms and copies, a
recurrent layer its convolution, gates and gated norm."""
_SMALL_MLP: Final[dict[str, int]] = {"moe": 5, "dense": 2, "none": 0}
"""The same of the other half: norm with residual, activation; with experts the choice of experts and adding up."""
_SMALL_INDEXER: Final = 4
_FUSED_NORMS: Final = 2
"""Norms of a layer that join the all-reduce before them over NVLink: FlashInfer's fused all-reduce, SGLang's default on
SM90 and SM100 (`server_args.py`: "TRTLLM AllReduce Fusion supports SM90/100"); not over PCIe."""
_FUSED_ROUTING: Final = 2
_FUSED_ROUTING_ON: Final = ("10.0", "10.3")
"""Choice of experts and adding up, which are part of TensorRT-LLM's expert kernels, those that engines take there."""
_WIDE_PASSES: Final = 10
"""Times that small kernels read or write a whole hidden state in a layer: two norms with residual (two read, two
written each) and adding up the experts. The others work on one rank's heads."""
_DUAL_STREAM_TOKENS: Final = 1024
"""Tokens up to which shared experts run beside the routed ones on a second stream: SGLang's
`DUAL_STREAM_TOKEN_THRESHOLD`; vLLM has such a stream too."""
_SMALL_SAMPLING: Final = 12
_MOE_KERNELS: Final = 8
_RESIDUE: Final = 1e-9
"""Share of a time below which what a subtraction leaves is rounding, and no time."""
_BF16: Final = 2
_F32: Final = 4
_LOGIT_PASSES: Final = 3
"""Times that sampling reads or writes all logits of a token (scale, softmax, draw)."""
_COMPONENT_TERM: Final[dict[str, str]] = {
    "attention": "projections", "linear_attention": "projections", "mamba": "projections", "indexer": "index",
    "shared_experts": "shared", "dense_mlp": "dense", "router": "router", "latent": "shared", "mtp": "projections",
}  # fmt: skip


@dataclass(slots=True)
class Sum:
    """Terms gathered so far: key -> seconds; beside them bounds, the hardware's limit and the part that was measured.

    `kernels` counts launches. `why` keeps what kernel estimates had to say about themselves.
    """

    times: dict[str, float] = field(default_factory=dict[str, float])
    low_s: float = 0.0
    high_s: float = 0.0
    limit_s: float = 0.0
    limit_known: bool = True
    measured: dict[str, float] = field(default_factory=dict[str, float])
    bounds: dict[str, float] = field(default_factory=dict[str, float])
    kernels: int = 0
    why: set[str] = field(default_factory=set[str])
    limit_of: dict[str, float] = field(default_factory=dict[str, float])
    """The hardware's limit by term, where it is known."""

    @property
    def time_s(self) -> float:
        return sum(self.times.values())

    def add(
        self, term: str, time_s: float, *, bound: str, limit_s: float | None = 0.0, low: float = 1.0,
        high: float = 1.0, measured: bool = False, count: int = 1,
    ) -> None:  # fmt: skip
        if time_s <= 0:
            return
        self.times[term] = self.times.get(term, 0.0) + time_s
        self.low_s += time_s * low
        self.high_s += time_s * high
        self.bounds[bound] = self.bounds.get(bound, 0.0) + time_s
        if limit_s is None:
            self.limit_known = False
        else:
            self.limit_s += limit_s
            self.limit_of[term] = self.limit_of.get(term, 0.0) + limit_s
        if measured:
            self.measured[term] = self.measured.get(term, 0.0) + time_s
        self.kernels += count

    def cut(self, term: str, time_s: float) -> None:
        """Take away `time_s` of a term: it runs beside another."""
        left = self.times[term] - time_s
        self.times[term] = left if left > time_s * _RESIDUE else 0.0
        if term in self.measured:
            self.measured[term] = min(self.measured[term], self.times[term])
        self.low_s -= time_s
        self.high_s -= time_s

    def kernel(self, term: str, kernel: Kernel, count: float) -> None:
        if count <= 0 or kernel.time_s <= 0:
            return
        wait, own = kernel.wait_s, kernel.time_s - kernel.wait_s
        self.add(
            term,
            own * count,
            bound=kernel.bound,
            limit_s=None if kernel.limit_s is None else kernel.limit_s * count,
            low=(kernel.low_s - wait * WAIT_LOW) / own,
            high=(kernel.high_s - wait * WAIT_HIGH) / own,
            measured=kernel.measured,
            count=round(count),
        )
        self.add("wait", wait * count, bound=kernel.bound, low=WAIT_LOW, high=WAIT_HIGH, count=0)
        if kernel.why and not kernel.measured:
            self.why.add(kernel.why)

    def merge(self, other: Sum, count: int = 1) -> None:
        """Add everything of `other`, `count` times."""
        for mine, theirs in ((self.times, other.times), (self.measured, other.measured), (self.bounds, other.bounds)):
            for key, value in theirs.items():
                mine[key] = mine.get(key, 0.0) + value * count
        self.low_s += other.low_s * count
        self.high_s += other.high_s * count
        self.limit_s += other.limit_s * count
        self.limit_known = self.limit_known and other.limit_known
        self.kernels += other.kernels * count
        self.why |= other.why


@lru_cache(maxsize=256)
def moe_shape(kind: LayerKind, topk: int) -> MoeShape | None:
    """The routed experts of a kind of layer; None where it has none."""
    first = kind.component("experts_w13")
    second = kind.component("experts_w2")
    if not first or not second:
        return None
    w13, w2 = first[0].weight, second[0].weight
    return MoeShape(w13.inn, w2.inn, topk, w13.count, w13.parts > 1, first[0].format)


def _mixer(model: Model, kind: LayerKind) -> str:
    if kind.mixer in ("attention", "sliding"):
        return "mla" if isinstance(model.attention, Mla) else "gqa"
    return kind.mixer


def _add_mixer(
    out: Sum, scenario: Scenario, kind: LayerKind, count: int, sequences: int, new: int, context: int,
    coefs: Coefficients, basis: Basis, *, prefill: bool,
) -> None:  # fmt: skip
    parallel = scenario.parallel
    mixed = mixing(scenario, kind, sequences, new, context, coefs, prefill=prefill)
    out.add(
        "attention", mixed.time_s * count, bound="memory" if mixed.memory_bound else "compute",
        limit_s=None if mixed.limit_s is None else mixed.limit_s * count, low=0.8, high=1.4, count=count,
    )  # fmt: skip
    out.add("index", mixed.index_s * count, bound="memory", low=0.7, high=1.5, count=count)
    out.add("scan", mixed.scan_s * count, bound="latency", low=0.5, high=1.7, count=0)
    if parallel.dcp > 1 and kind.mixer == "attention":
        tokens = sequences * new
        own = scenario.model.attention
        width = getattr(own, "kv_lora_rank", 0) or own.heads * getattr(own, "head_dim", 128)
        heads = max(1, own.heads // parallel.attention_tp)
        query = tokens * heads * parallel.dcp * (getattr(own, "cached", 0) or 128) * _BF16
        result = tokens * heads * parallel.dcp * (width if hasattr(own, "cached") else 128) * _BF16
        for op, size in (("all_gather", query), ("all_gather", tokens * own.heads * _F32), ("reduce_scatter", result)):
            out.kernel(
                "dcp", collective_time(scenario.gpu.key, parallel.dcp, max(1, size), op, None, coefs, basis), count
            )
        out.add("small", 3 * coefs.small_kernel_s * count, bound="latency", count=3 * count)


@dataclass(frozen=True, slots=True)
class _Place:
    """What the context-free part of a layer's time depends on: compared by identity of model and GPU."""

    model: Model
    gpu: Gpu
    tp: int
    ep: int
    attention_dp: int
    replicate_dense: bool
    sparse: bool
    engine: str
    moe_backend: str
    allreduce_backend: str | None


def _width(model: Model, mixer: str, parallel: Parallel) -> int:
    """Elements of a token that kernels between a layer's projections work on, on one rank: its heads."""
    own = model.attention
    if mixer not in ("mla", "gqa"):
        return -(-2 * model.hidden // parallel.attention_tp)
    return -(-own.heads * getattr(own, "head_dim", 256) // parallel.attention_tp)


def _overlap(out: Sum, gpu: Gpu) -> None:
    """Shared experts beside the routed ones: together they take what the longer takes, or what both read."""
    shared, routed = out.times.get("shared", 0.0), out.times.get("experts", 0.0)
    if not shared or not routed:
        return
    published = gpu.bandwidth().value
    if not published:
        return
    reading = out.limit_of.get("shared", 0.0) + out.limit_of.get("experts", 0.0)
    reading *= float(published) * GIGA / reached_bandwidth(gpu)
    saved = max(0.0, shared + routed - max(shared, routed, reading))
    out.cut("shared", min(saved, shared))


@lru_cache(maxsize=1 << 14)
def _layer(
    kind: LayerKind, place: _Place, tokens: int, own_tokens: int, coefs: Coefficients, basis: Basis
) -> Sum:  # fmt: skip
    """One layer without what depends on the context: GEMMs, experts, small kernels, collectives. Never changed."""
    out = Sum()
    model, gpu = place.model, place.gpu
    parallel = Parallel(
        tp=place.tp, ep=place.ep, attention_dp=place.attention_dp, replicate_dense=place.replicate_dense
    )  # fmt: skip
    for gemm in kind.gemms(parallel):
        if gemm.component.startswith("experts") or (gemm.component == "indexer" and not place.sparse):
            continue
        term = _COMPONENT_TERM.get(gemm.component, "projections")
        m = own_tokens if term in ("projections", "index") or place.replicate_dense else tokens
        out.kernel(term, gemm_time(gpu.key, gemm.format, m, gemm.n, gemm.k, basis), 1)
        if gemm.batched_heads:
            # Two batched products over the heads (absorption): one launch more.
            out.add(term, coefs.small_kernel_s, bound="latency")
    shape = moe_shape(kind, model.moe.topk if model.moe else 1)
    if shape is not None:
        out.kernel(
            "experts",
            moe_time(
                gpu.key, shape, tokens, parallel.expert_tp, place.ep, place.engine, place.moe_backend, coefs, basis
            ),
            1,
        )  # fmt: skip
        out.kernels += _MOE_KERNELS - 1
        if tokens <= _DUAL_STREAM_TOKENS:
            _overlap(out, gpu)
    mixer = _mixer(model, kind)
    small = _SMALL_MIXER[mixer] + _SMALL_MLP[kind.mlp] + (_SMALL_INDEXER if kind.indexer and place.sparse else 0)
    if parallel.attention_tp > 1 and has_nvlink(gpu) and place.allreduce_backend is None:
        small -= _FUSED_NORMS
    if shape is not None and gpu.compute_capability in _FUSED_ROUTING_ON:
        small -= _FUSED_ROUTING
    wide = min(small, _WIDE_PASSES // 2)
    moved = 2.0 * (wide * model.hidden * tokens + (small - wide) * _width(model, mixer, parallel) * own_tokens) * _BF16
    out.add("small", small * coefs.small_kernel_s + moved / reached_bandwidth(gpu), bound="latency", count=small)
    size, own = tokens * model.hidden * _BF16, own_tokens * model.hidden * _BF16
    if place.attention_dp == 1:
        halves = (kind.mixer != "none") + (kind.mlp != "none")
        kernel = collective_time(
            gpu.key, place.tp, size, "all_reduce", place.allreduce_backend, coefs, basis, place.engine
        )
        out.kernel("allreduce", kernel, halves)
        return out
    if kind.mixer != "none":
        ranks = parallel.attention_tp
        kernel = collective_time(gpu.key, ranks, own, "all_reduce", place.allreduce_backend, coefs, basis, place.engine)
        out.kernel("allreduce", kernel, 1)
    if kind.mlp != "none" and not (place.replicate_dense and kind.mlp == "dense"):
        # Tokens of all copies of the attention come together for the MLP and go back.
        for op in ("all_gather", "reduce_scatter"):
            out.kernel("gather", collective_time(gpu.key, place.tp, size, op, None, coefs, basis), 1)
    return out


def add_layers(
    out: Sum,
    scenario: Scenario,
    layers: tuple[tuple[LayerKind, int], ...],
    sequences: int,
    new: int,
    context: int,
    coefs: Coefficients,
    basis: Basis,
    *,
    prefill: bool = False,
) -> None:
    """The layers of one pipeline stage, for `sequences` sequences of one copy of the model, `new` tokens each."""
    parallel = scenario.parallel
    own_sequences = -(-sequences // parallel.attention_dp)
    place = _Place(
        scenario.model, scenario.gpu, parallel.tp, parallel.ep, parallel.attention_dp, parallel.replicate_dense,
        scenario.sparse, scenario.engine, scenario.moe_backend, scenario.allreduce_backend,
    )  # fmt: skip
    for kind, count in layers:
        out.merge(_layer(kind, place, sequences * new, own_sequences * new, coefs, basis), count=count)
        _add_mixer(out, scenario, kind, count, own_sequences, new, context, coefs, basis, prefill=prefill)


def _row(made: Profile, component: str) -> Row | None:
    return next((row for row in made.outside if row.weight.component == component), None)


def add_head(out: Sum, scenario: Scenario, made: Profile, tokens: int, coefs: Coefficients, basis: Basis) -> None:
    """The output head for `tokens` positions, their logits gathered from all ranks, and sampling."""
    parallel, gpu = scenario.parallel, scenario.gpu
    row = _row(made, "lm_head") or _row(made, "embedding")
    if row is None:
        return
    _, n, k = shard(row.weight, parallel)
    out.kernel("head", gemm_time(gpu.key, row.format, tokens, n, k, basis), 1)
    vocab = scenario.model.vocab
    if parallel.tp > 1:
        size = tokens * vocab * _BF16
        out.kernel("sampling", collective_time(gpu.key, parallel.tp, size, "all_gather", None, coefs, basis), 1)
    passes = _LOGIT_PASSES * tokens * vocab * _F32
    bandwidth = gpu.bandwidth().value
    out.add(
        "sampling", _SMALL_SAMPLING * coefs.small_kernel_s + passes / reached_bandwidth(gpu), bound="latency",
        limit_s=passes / (bandwidth * GIGA) / _LOGIT_PASSES if bandwidth else None, count=_SMALL_SAMPLING,
    )  # fmt: skip
