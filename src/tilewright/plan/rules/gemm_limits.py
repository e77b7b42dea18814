"""What memory and tensor cores allow each GEMM from 1 to 4,096 tokens, and how much of each tile the tokens fill.

Where the server's low share of peak comes from: at 16 to 64 tokens an expert the limit itself is a small share of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, cast

from tilewright.cost.limits import TOKEN_SWEEP, GemmLimit, MoeLimit, gemm_limit, moe_layer_limits
from tilewright.cost.routing import Routing, tokens_for_rows
from tilewright.data.measurements import Measurement, measurements
from tilewright.models.inventory import weights
from tilewright.models.memory import shard
from tilewright.plan.finding import Fact, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

BAND = (16, 64)
"""Tokens an expert between which decode of a loaded server falls (the driving case's own range)."""
TILES = (128, 64, 32)
"""Tile extents along the tokens: M of today's tiles, N of a swapped kernel; 64 and 32 need CUTLASS 4.5.0."""
_SHAPE = re.compile(r"hidden (\d+), inter (\d+), (\d+) experts, top-(\d+)")
_US = 1e6


def _us(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * _US, 1)


def _gemm(limit: GemmLimit) -> dict[str, Any]:
    share = limit.peak_share
    return {
        "n": limit.n,
        "k": limit.k,
        "mb": round(limit.bytes / 1e6, 2),
        "memory_us": _us(limit.memory_s),
        "memory_reached_us": _us(limit.memory_reached_s),
        "compute_us": _us(limit.compute_s),
        "bound": limit.bound,
        "peak_share_pct": None if share is None else round(share * 100, 2),
    }


def published_layer(target: Target) -> Measurement | None:
    """A published table of this layer's time on this GPU, in this format, this engine's first."""
    model, fmt = target.model, target.expert_format
    if model.moe is None or fmt is None:
        return None
    wanted = (model.hidden, model.moe.inter, model.moe.experts, model.moe.topk)
    found: list[Measurement] = []
    for item in measurements():
        shape = _SHAPE.search(str(item.get("model_shape", "")))
        if (
            item.category == "moe_kernel_latency"
            and shape
            and tuple(map(int, shape.groups())) == wanted
            and str(item.get("gpu", "")).replace("_", "-") == target.gpu.key
            and item.get("dtype") == fmt.name
        ):
            found.append(item)
    return min(found, key=lambda item: not str(item.get("engine", "")).startswith(target.engine), default=None)


def layer_us(item: Measurement | None, target: Target) -> dict[int, float]:
    """Tokens -> microseconds of one layer in the target's layout; empty where the table has no such layout."""
    if item is None:
        return {}
    parallel = target.parallel
    row = cast("dict[str, Any]", item.table).get(f"tp{parallel.expert_tp}_ep{parallel.ep}", {})
    return {int(tokens): float(value) for tokens, value in cast("dict[str, Any]", row).items()}


def _both_s(limit: MoeLimit) -> float | None:
    """Seconds that both GEMMs need at least: the reached bandwidth where it is known, else the published one."""
    reached = (limit.w13.memory_reached_s or limit.w13.memory_s, limit.w2.memory_reached_s or limit.w2.memory_s)
    compute = (limit.w13.compute_s, limit.w2.compute_s)
    pairs = [(memory, work) for memory, work in zip(reached, compute, strict=True) if memory is not None]
    return sum(max(memory, work or 0.0) for memory, work in pairs) if len(pairs) == len(reached) else None


def _row(limit: MoeLimit, even: MoeLimit, layer: dict[int, float]) -> dict[str, Any]:
    """One line of the table. Published layers were timed with even routing, so they are compared with `even`."""
    both, spread = _both_s(limit), _both_s(even)
    seen = layer.get(limit.tokens)
    return {
        "tokens": limit.tokens,
        "rows_per_expert": round(limit.rows_per_expert_of_all, 2),
        "experts_hit": round(limit.experts_hit, 1),
        "w13": _gemm(limit.w13),
        "w2": _gemm(limit.w2),
        "limit_us": _us(both),
        "published_layer_us": seen,
        "limit_of_published_pct": round(spread * _US / seen * 100) if spread and seen else None,
        "tile_used_pct": {str(size): round(limit.tile(size).used * 100, 1) for size in TILES},
    }


def _moe(target: Target) -> Iterator[Outcome]:
    model, parallel = target.model, target.parallel
    moe, fmt = model.moe, target.expert_format
    assert moe is not None
    assert fmt is not None
    item = published_layer(target)
    layer = layer_us(item, target)

    def at(tokens: int, routing: Routing = "uniform") -> MoeLimit:
        return moe_layer_limits(model, None, target.gpu, parallel.tp, parallel.ep, tokens, routing=routing)

    def row(tokens: int) -> dict[str, Any]:
        return _row(at(tokens), at(tokens, "balanced"), layer)

    first = at(1)
    rows = [row(tokens) for tokens in TOKEN_SWEEP]
    band = [row(tokens_for_rows(size, moe.topk, moe.experts)) for size in BAND]
    rates = first.w13.rates
    low, high = (item["w13"]["peak_share_pct"] for item in band)
    if low is not None and high is not None:
        span = f"At {BAND[0]} to {BAND[1]} tokens an expert"
        text = f"{span} the limit of the first MoE GEMM is {low:.0f} to {high:.0f} % of the tensor cores' peak."
        if band[-1]["w13"]["bound"] == "memory":
            text = (
                f"{span} memory allows the first MoE GEMM {low:.0f} to {high:.0f} % of the tensor cores' peak, at one "
                f"request {rows[0]['w13']['peak_share_pct']:.1f} %: a low share of peak is what decode looks like, "
                "and no "
                "tile lifts that limit."
            )
        yield Fact("summary", [(20, text)])
    yield Fact(
        "moe_gemms",
        {
            "format": fmt.name,
            "w13": {"n": first.w13.n, "k": first.w13.k},
            "w2": {"n": first.w2.n, "k": first.w2.k},
            "experts": first.experts,
            "topk": moe.topk,
            "bandwidth_gbs": rates.bandwidth.value,
            "bandwidth_reached_gbs": rates.reached.value,
            "peak_tflops": rates.peak.value,
            "ridge_flop_per_byte": round(rates.ridge) if rates.ridge else None,
            "note": rates.note,
            "routing": first.routing,
            "rows": rows,
            "band": band,
            "narrow_tiles_by_swap": target.sm12x and fmt.name in ("nvfp4", "mxfp4"),
            "published_source": f"packaged measurement {item.id}" if item and layer else None,
            "basis": "modelled: bytes and operations exact, rates published, uniform routing",
        },
    )


def _dense(target: Target) -> Iterator[Outcome]:
    rows = [row for row in weights(target.model) if row.component == "dense_mlp" and not row.mtp]
    first = [row for row in rows if row.layer == rows[0].layer] if rows else []
    if not first:
        return
    out: list[dict[str, Any]] = []
    for tokens in TOKEN_SWEEP:
        entry: dict[str, Any] = {"tokens": tokens}
        for row in first:
            _, n, k = shard(row, target.parallel)
            fmt = target.model.checkpoint.format_of(row, target.model.dtype)
            entry["up" if row.parts > 1 or row.cut == "out" else "down"] = _gemm(
                gemm_limit(target.gpu, tokens, n, k, fmt)
            )
        out.append(entry)
    yield Fact("mlp_gemms", {"rows": out, "basis": "modelled: bytes and operations exact, rates published"})


def run(target: Target) -> Iterator[Outcome]:
    yield from _moe(target) if target.model.moe is not None and target.expert_format else _dense(target)


RULE = Rule(id="gemm_limits", looks_at="limits of each GEMM", run=run)
