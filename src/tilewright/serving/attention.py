"""What mixing tokens costs in one layer: bytes of cache or state that are read, and multiplications."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.hardware.gpu import GIGA, TERA
from tilewright.models.kv import cached_bytes, indexer_bytes, state_bytes
from tilewright.models.records import Gqa, GroupedOutput, Layer, Mla
from tilewright.serving.coefficients import Coefficients
from tilewright.serving.kernels import reached_bandwidth
from tilewright.serving.profile import LayerKind
from tilewright.serving.scenario import Scenario
from tilewright.versions import release_of

__all__ = ["Mixing", "mixing", "scans"]

_STATE_PASSES: Final = 2
"""A recurrent state is read and written once a step."""


@dataclass(frozen=True, slots=True)
class Mixing:
    """One layer's attention on one GPU. `time_s` of reading and multiplying, `index_s` of an indexer's scoring,
    `scan_s` of a walk over whole sequences by single blocks; `limit_s` None where a rate is unknown."""

    time_s: float
    index_s: float
    scan_s: float
    limit_s: float | None
    memory_bound: bool


# Engines whose verification of drafts over grouped-query attention walks a sequence in one block: read off published
# tables, in which the time of a step grows with the context and not with the requests
# (qwen35_397b_4xpro6000_sglang_mtp_on: SGLang 0.5.9, Triton attention; qwen35_397b_4xpro6000_decode_ctx: vLLM
# 0.17.1rc1). Another vLLM build does not (qwen35_397b_4xpro6000_vllm_mtp_on, 0.17.0rc1). Weight: its walk in units of
# `scan_token_s`.
_SCANNING: Final[tuple[tuple[str, tuple[int, ...], tuple[int, ...], float], ...]] = (
    ("sglang", (), (0, 5, 9), 1.0),
    ("vllm", (0, 17, 1), (0, 17, 1), 0.5),
)


def scans(scenario: Scenario) -> float:
    """Blocks' walks over the sequence in a layer's verification, in units of `scan_token_s`; 0: the cache is split.

    A version that is not given counts as the one that was published, for the engine whose every version up to it does.
    """
    if not scenario.speculative_tokens or not isinstance(scenario.model.attention, Gqa):
        return 0.0
    for engine, first, last, weight in _SCANNING:
        if scenario.engine != engine:
            continue
        if scenario.engine_version is None:
            return 0.0 if first else weight
        return weight if first <= release_of(scenario.engine_version, "engine_version") <= last else 0.0
    return 0.0


def _flops_per_pair(scenario: Scenario, layer: Layer, ranks: int, *, absorbed: bool) -> float:
    """Multiplications and additions of one query token against one cached token on one rank."""
    model = scenario.model
    own = model.sliding if layer.mixer == "sliding" and model.sliding else model.attention
    heads = max(1, -(-own.heads // ranks))
    if isinstance(own, Mla):
        if absorbed:
            return 2.0 * heads * (own.cached + own.kv_lora_rank)
        return 2.0 * heads * (own.qk_nope_head_dim + own.qk_rope_head_dim + own.v_head_dim)
    if isinstance(own, GroupedOutput):
        return 4.0 * heads * own.head_dim
    return 2.0 * heads * (own.head_dim + own.v_head_dim)


def mixing(
    scenario: Scenario,
    kind: LayerKind,
    sequences: int,
    new: int,
    context: int,
    coefs: Coefficients,
    *,
    prefill: bool = False,
) -> Mixing:
    """One layer of that kind, for `sequences` sequences on this copy of the attention, each with `new` tokens after
    `context` cached ones."""
    model, parallel, gpu = scenario.model, scenario.parallel, scenario.gpu
    layer = model.layers[kind.indices[0]]
    ranks = parallel.attention_tp
    bandwidth = reached_bandwidth(gpu)
    peak = gpu.peak("bf16").value
    published = gpu.bandwidth().value
    if layer.mixer in ("linear", "mamba"):
        moved = float(_STATE_PASSES * sequences * state_bytes(model, layer, ranks))
        time = moved / (bandwidth * coefs.attention_share)
        return Mixing(time, 0.0, 0.0, moved / (published * GIGA) if published else None, True)
    if layer.mixer == "none":
        return Mixing(0.0, 0.0, 0.0, 0.0, True)
    reach = float(context)
    if layer.mixer == "sliding" and model.window:
        reach = min(reach, float(model.window))
    sparse = scenario.sparse and model.indexer is not None
    if sparse and model.indexer is not None:
        reach = min(reach, float(model.indexer.topk))
    pairs = sequences * new * (reach + (new / 2 if prefill else new))
    read = sequences * reach
    if sparse and not prefill:  # each query reads the tokens that it picked itself
        read = sequences * min(float(context), reach * new)
    if parallel.dcp > 1:
        read, pairs = read / parallel.dcp, pairs / parallel.dcp
    moved = read * cached_bytes(model, layer, scenario.kv_layout, ranks)
    if isinstance(model.attention, GroupedOutput):
        moved = 0.0
    flops = pairs * _flops_per_pair(scenario, layer, ranks, absorbed=not prefill)
    memory_s = moved / (bandwidth * coefs.attention_share)
    compute_s = flops / (peak * TERA * coefs.attention_compute_share) if peak else 0.0
    index_s = index_limit = 0.0
    if sparse and layer.indexer and model.indexer is not None and context + new > model.indexer.topk:
        seen = sequences * (context + new) / parallel.dcp
        index_moved = seen * indexer_bytes(model, layer)
        index_flops = 2.0 * new * seen * model.indexer.heads * model.indexer.head_dim * (0.5 if prefill else 1.0)
        index_s = max(
            index_moved / (bandwidth * coefs.attention_share),
            index_flops / (peak * TERA * coefs.attention_compute_share) if peak else 0.0,
        )
        index_limit = index_moved / (published * GIGA) if published else 0.0
    scan_s = 0.0
    if not prefill and layer.mixer == "attention" and new > 1:
        scan_s = scans(scenario) * coefs.scan_token_s * context
    limit = None
    if published and peak:
        limit = max(moved / (published * GIGA), flops / (peak * TERA)) + index_limit
    return Mixing(max(memory_s, compute_s), index_s, scan_s, limit, memory_s >= compute_s)
