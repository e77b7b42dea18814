"""Every (M, N, K) that a model's layers run on one GPU, with format, count and what the hardware allows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from tilewright.cost.limits import ACTIVATION_BYTES, rates
from tilewright.cost.routing import expected_experts_hit
from tilewright.errors import InputError, shown
from tilewright.hardware.gpu import GIGA, TERA, Gpu
from tilewright.models.checkpoint import Checkpoint
from tilewright.models.legality import tp_verdict
from tilewright.models.memory import Parallel, shard
from tilewright.models.records import Model
from tilewright.number_lists import whole_numbers
from tilewright.serving.profile import Gemm, profile
from tilewright.serving.series import Band, rows_band

__all__ = ["TOKENS", "GemmLine", "GemmPoint", "GemmsDocument", "model_gemms", "token_counts"]

TOKENS: Final = (1, 16, 64, 256, 8192)
"""Token counts that are listed when none are named: decode of few and many requests, and a prefill chunk."""
MAX_TOKENS: Final = 1 << 22


class GemmPoint(msgspec.Struct, frozen=True):
    """A GEMM at one number of tokens. `m` rows each matrix gets: all tokens, or of a routed expert the mean over those
    that are hit (`band` from the 10th to the 90th percentile, uniform routing). `matrices` are applied: the experts
    hit on this GPU. `intensity`: FLOP a byte; `attainable_tflops` and `limit_s` by the GPU's published rates."""

    tokens: int
    m: float
    matrices: float
    band: Band | None = None
    intensity: float | None = None
    limit_s: float | None = None
    attainable_tflops: float | None = None
    bound: str | None = None


class GemmLine(msgspec.Struct, frozen=True):
    """One GEMM of a kind of layer: `n` x `k` of the shard that one GPU holds. `layers` of the model run it, once each
    a pass; `whole`: every rank computes all of it. `heads`: applied to that many heads apart (absorbed MLA)."""

    component: str
    name: str
    layers: int
    n: int
    k: int
    format: str
    matrices: int
    whole: bool
    heads: int
    mtp: bool
    points: list[GemmPoint]


class GemmsDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/gemms/1"):
    """What `models NAME --gemms` answers: the GEMMs of one GPU of the layout."""

    model: str
    checkpoint: str
    tp: int
    ep: int
    attention_dp: int
    gpu: str | None
    gemms: list[GemmLine]


MAX_COUNTS: Final = 64


def token_counts(text: str) -> list[int]:
    """The token counts of a comma-separated list. Raises InputError."""
    found = whole_numbers(text)
    if found is None or len(found) > MAX_COUNTS:
        raise InputError(
            "tokens", f"--tokens takes whole numbers like 1,16,64 (at most {MAX_COUNTS}), not {shown(text)}."
        )
    return found


def _point(gemm: Gemm, tokens: int, local_tokens: int, topk: int, experts: int, ep: int, gpu: Gpu | None) -> GemmPoint:
    expert = gemm.component.startswith("experts")
    if expert:
        hit = expected_experts_hit(tokens, topk, experts) / ep
        rows = tokens * topk / ep
        m, matrices, band = rows / hit, hit, rows_band(tokens, topk, experts)
    else:
        rows = float(local_tokens)
        m, matrices, band = rows, 1.0, None
    if gpu is None:
        return GemmPoint(tokens, m, matrices, band)
    limits = rates(gpu, gemm.format)
    flops = 2.0 * rows * gemm.n * gemm.k
    width = ACTIVATION_BYTES[limits.activation]
    moved = matrices * gemm.format.runtime_bytes(gemm.n, gemm.k) + rows * (gemm.k * width + gemm.n * 2.0)
    intensity = flops / moved
    bandwidth, peak = limits.bandwidth.value, limits.peak.value
    if not bandwidth or not peak:
        return GemmPoint(tokens, m, matrices, band, intensity)
    memory_s, compute_s = moved / (bandwidth * GIGA), flops / (peak * TERA)
    limit = max(memory_s, compute_s)
    bound = "memory" if memory_s >= compute_s else "compute"
    return GemmPoint(tokens, m, matrices, band, intensity, limit, flops / limit / TERA, bound)


def model_gemms(
    model: Model,
    checkpoint: Checkpoint | None = None,
    parallel: Parallel | None = None,
    tokens: Sequence[int] = TOKENS,
    gpu: Gpu | None = None,
) -> list[GemmLine]:
    """The GEMMs of every kind of layer on one GPU, prediction layers and the output head after them.

    With `gpu`, each point has its roofline. Raises InputError for a layout that the checkpoint cannot be cut into, or
    token counts out of range.
    """
    checkpoint, parallel = checkpoint or model.checkpoint, parallel or Parallel()
    for count in tokens:
        if type(count) is not int or not 1 <= count <= MAX_TOKENS:
            raise InputError("tokens", f"tokens must be whole numbers from 1 to {MAX_TOKENS:,}, not {shown(count)}.")
    problems = tp_verdict(model, parallel, checkpoint).problems
    if problems:
        raise InputError("tp", f"{model.name} cannot be cut this way: {problems[0]}; choose another tp or ep.")
    made = profile(model, checkpoint)
    topk = model.moe.topk if model.moe else 1
    experts = checkpoint.experts or (model.moe.experts if model.moe else 1)
    out: list[GemmLine] = []
    for kind in (*made.kinds, *made.mtp):
        for gemm in kind.gemms(parallel):
            whole_batch = gemm.component in ("shared_experts", "dense_mlp", "router", "latent")
            points = [
                _point(
                    gemm, count, count if whole_batch else -(-count // parallel.attention_dp), topk, experts,
                    parallel.ep, gpu,
                )
                for count in tokens
            ]  # fmt: skip
            out.append(
                GemmLine(
                    gemm.component, gemm.name, kind.count, gemm.n, gemm.k, gemm.format.name, gemm.groups, gemm.whole,
                    gemm.batched_heads, kind.mtp, points,
                )
            )  # fmt: skip
    head = next((row for row in made.outside if row.weight.component == "lm_head"), None)
    head = head or next((row for row in made.outside if row.weight.component == "embedding"), None)
    if head is not None:
        _, n, k = shard(head.weight, parallel)
        gemm = Gemm("lm_head", "lm_head", n, k, head.format)
        points = [_point(gemm, count, count, 1, 1, 1, gpu) for count in tokens]
        out.append(GemmLine("lm_head", "lm_head", 1, n, k, head.format.name, 1, False, 0, False, points))
    return _merged(out)


def _merged(lines: list[GemmLine]) -> list[GemmLine]:
    """Equal GEMMs of different kinds of layers as one line."""
    found: dict[object, GemmLine] = {}
    for line in lines:
        key = (
            line.component, line.name, line.n, line.k, line.format, line.matrices, line.whole, line.heads, line.mtp
        )  # fmt: skip
        before = found.get(key)
        found[key] = line if before is None else msgspec.structs.replace(before, layers=before.layers + line.layers)
    return list(found.values())
