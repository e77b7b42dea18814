"""The memory of one GPU of a server, part by part: what the engine holds, and what is left for the KV cache.

Weights and cache are exact arithmetic on the checkpoint's shapes (`tilewright.models.memory`). What engines take
beside them is modelled from published logs and rules; every constant stands in `data/serving_memory.json`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, cast

from tilewright.data.figures import read_packaged
from tilewright.errors import InputError, shown
from tilewright.models.kv import KvCache, kv_cache
from tilewright.models.memory import Parallel, WeightBytes, row_groups, shard, weight_bytes
from tilewright.models.records import GroupedOutput, Mla
from tilewright.serving.defaults import Declared, chunk_tokens, graph_batch, memory_share
from tilewright.serving.scenario import Scenario

__all__ = ["ServerMemory", "declared_memory", "server_memory"]

_MIB: Final = 1 << 20
_SMALL_BLOCK: Final = 1 * _MIB
_LARGE_BLOCK: Final = 10 * _MIB
_BF16: Final = 2
_EP_UNEVEN: Final = 2.0
"""Times its even share of a chunk that workspaces of expert-parallel ranks are made for."""


@lru_cache(maxsize=1)
def _constants() -> dict[str, int]:
    raw = cast("dict[str, dict[str, Any]]", read_packaged("serving_memory.json")["constants"])
    return {name: int(entry["value"]) for name, entry in raw.items()}


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """Bytes on the fullest GPU of a server.

    `weights` as tensors (exact); `loading` what the engine holds beside them once loaded (modelled): absorbed copies
    of MLA projections, the allocator's rounding, modules. `reported` is both: what an engine's log calls weights.
    `context`: CUDA context and communication buffers, taken before anything else. `kv` is left for the cache,
    `kv_tokens` the tokens that it holds, of one copy of the attention. `short`: bytes missing where it does not fit.
    """

    total: int
    fraction: float
    fraction_source: str
    context: int
    weights: WeightBytes
    loading: int
    activations: int
    graphs: int
    communication: int
    kv: int
    cache: KvCache | None
    kv_tokens: int
    short: int
    note: str = ""

    @property
    def reported(self) -> int:
        return self.weights.runtime + self.loading

    @property
    def fits(self) -> bool:
        return self.short == 0

    @property
    def free(self) -> int:
        """Bytes that nobody counts on: what the fraction leaves, less activations and graphs."""
        used = self.context + self.reported + self.activations + self.graphs + max(0, self.kv)
        return self.total - used

    def requests(self, tokens: int) -> int:
        """Requests of that many tokens whose caches fit at once, on one copy of the attention."""
        if self.cache is None:
            return 1 << 30 if self.fits else 0
        return self.kv // self.cache.bytes_for(max(1, tokens)) if self.kv > 0 else 0


def _loading(scenario: Scenario, *, mtp: bool) -> int:
    constants = _constants()
    unit, segment = constants["allocator_unit_bytes"], constants["allocator_small_segment_bytes"]
    parallel = scenario.parallel
    rounding = 0.0
    copies = 0
    for group in row_groups(scenario.model, scenario.checkpoint, mtp=mtp):
        count, n, k = shard(group.row, parallel)
        there = len(group.layers) / parallel.pp
        for size in (
            count * group.format.element_bytes(n, k), count * group.format.scale_count_bytes(n, k, padded=True),
        ):  # fmt: skip
            if size >= _LARGE_BLOCK:
                rounding += (-size % unit) * there
            elif size > _SMALL_BLOCK:
                rounding += (segment / (segment // size) - size) * there
        if group.row.name.endswith(".kv_b_proj"):
            # SGLang and vLLM keep both halves of kv_b_proj in BF16 for absorption, beside the projection itself.
            copies += round(count * n * k * _BF16 * there)
    return round(rounding) + copies + constants["load_rest_bytes"]


def _activations(scenario: Scenario, chunk: int, requests: int) -> int:
    """Bytes that a chunk of tokens needs while it passes a layer, and the logits of a full batch (modelled)."""
    model, parallel = scenario.model, scenario.parallel
    token = _constants()["activation_copies"] * model.hidden * _BF16
    if model.moe is not None:
        inter = -(-model.moe.inter // parallel.expert_tp)
        spread = model.moe.topk / parallel.ep * min(parallel.ep, _EP_UNEVEN)
        token += round(spread * (model.hidden + 3 * inter) * _BF16)
    elif model.dense is not None:
        token += 3 * -(-model.dense.inter // parallel.tp) * _BF16
    return chunk * token + requests * model.vocab * (_BF16 + 4)


@lru_cache(maxsize=8192)
def server_memory(
    scenario: Scenario, fraction: float | None = None, chunk: int | None = None, batch: int | None = None
) -> ServerMemory:
    """Memory of the fullest GPU in the scenario's layout; `scenario` stripped of its load (see `Scenario.at`).

    `fraction`: --mem-fraction-static, --gpu-memory-utilization or its kin; None: the engine's default. Raises
    InputError when the GPU's memory is unknown or the fraction is out of range.
    """
    gpu, parallel, engine = scenario.gpu, scenario.parallel, scenario.engine
    total = gpu.memory_bytes
    if total is None:
        raise InputError("gpu", f"How much memory a {gpu.name} has is unknown, so no layout can be made for it.")
    if fraction is None:
        fraction, source = memory_share(engine, total, parallel.tp)
    else:
        source = "given"
        if not 0 < fraction <= 1:
            raise InputError(
                "mem_fraction", f"The memory fraction must be above 0 and at most 1, not {shown(fraction)}."
            )
    constants = _constants()
    mtp = scenario.speculative_tokens > 0
    held = weight_bytes(scenario.model, scenario.checkpoint, parallel, mtp=mtp)
    loading = _loading(scenario, mtp=mtp)
    context = constants["context_bytes" if parallel.gpus > 1 else "single_context_bytes"]
    requests = batch or graph_batch(engine, total, parallel.tp)
    activations = _activations(scenario, chunk or chunk_tokens(engine, total), requests)
    graphs = requests * constants["graph_bytes_per_request"]
    graphs = graphs if scenario.cuda_graphs else 0
    if engine == "sglang":  # the fraction is of what is free before loading; activations and graphs live in the rest
        pool = int((total - context) * fraction)
        outside = total - context - pool
        kv = pool - held.runtime - loading
        missing = max(0, activations + graphs - outside) if fraction < 1 else activations + graphs
        note = (
            ""
            if missing == 0
            else f"activations and graphs are modelled to need {missing / (1 << 30):.1f} GiB more than the fraction "
            "leaves: lower it, the chunk or the captured batch"
        )
        short = max(0, -kv)
    elif engine == "vllm":  # the fraction is of the whole card, and everything lives in it
        kv = int(total * fraction) - context - held.runtime - loading - activations - graphs
        note, short = "", max(0, -kv)
    else:  # of what is free after loading
        free = total - context - held.runtime - loading - activations - graphs
        kv, note, short = int(free * fraction), "", max(0, -free)
    try:
        cache = kv_cache(
            scenario.model, scenario.kv_layout, parallel_ranks=parallel.attention_tp, dcp=parallel.dcp,
            pp=parallel.pp, mtp=mtp and engine == "vllm",
        )  # fmt: skip
    except InputError as error:
        cache, note = None, error.msg
    tokens = cache.tokens_in(kv) if cache is not None and kv > 0 else 0
    return ServerMemory(
        total, fraction, source, context, held, loading, activations, graphs,
        context - constants["single_context_bytes"] if parallel.gpus > 1 else 0, max(0, kv), cache, tokens,
        short, note,
    )  # fmt: skip


def declared_memory(scenario: Scenario, fraction: float | None, own: Declared) -> ServerMemory:
    """`server_memory` with what the version declares as its defaults; `fraction` where another share is asked."""
    batch = own.graphs
    if batch is not None and scenario.engine == "vllm":
        batch = max(1, batch // (1 + scenario.speculative_tokens))
    return server_memory(scenario.at(1, 0), own.share if fraction is None else fraction, own.chunk, batch)


def replicated(scenario: Scenario) -> bool:
    """Whether ranks that share the attention hold the same cache."""
    attention = scenario.model.attention
    if isinstance(attention, Mla | GroupedOutput):
        return scenario.parallel.attention_tp > 1
    return attention.kv_heads < scenario.parallel.attention_tp


def layout_name(parallel: Parallel, copies: int = 1) -> str:
    """A layout in short: `TP4 PP2 DCP2`."""
    parts = [f"TP{parallel.tp}"]
    parts += [f"PP{parallel.pp}"] if parallel.pp > 1 else []
    parts += [f"EP{parallel.ep}"] if parallel.ep > 1 else []
    parts += [f"attention-DP{parallel.attention_dp}"] if parallel.attention_dp > 1 else []
    parts += [f"DCP{parallel.dcp}"] if parallel.dcp > 1 else []
    parts += [f"DP{copies}"] if copies > 1 else []
    return " ".join(parts)
