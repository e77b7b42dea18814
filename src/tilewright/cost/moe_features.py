"""What a mixture-of-experts layer asks of a GPU: experts read, rows, padded tiles; the input of its fitted curves."""

from __future__ import annotations

from math import ceil, log
from typing import Final, NamedTuple

from tilewright.cost.kernel_dtypes import KernelDtype, KernelRates
from tilewright.cost.moe_load import TILE_ROWS, MoeLoad

__all__ = ["MOE_FEATURES", "MoeWork", "moe_work"]

LAUNCH_S: Final = 20e-6
"""Routing, permutation, two grouped GEMMs and the final sum, seconds: the fastest layers of the tables take 15 to
30 us whatever their size."""

MOE_FEATURES: Final = (
    "log_tokens", "log_hidden", "log_inter_local", "topk", "log_experts_local", "log_tp", "log_ep",
    "log_rows", "log_hit", "hit_share", "log_rows_per_hit", "log_largest",
    "log_weight_s", "log_activation_s", "log_compute_s", "log_padded_compute_s", "log_compute_over_memory", "log_base",
    *(f"use_{rows}" for rows in TILE_ROWS), *(f"log_tiles_{rows}" for rows in TILE_ROWS),
    "log_waves_first", "wave_use_first", "log_waves_second", "wave_use_second", "log_expert_bytes",
)  # fmt: skip


class MoeWork(NamedTuple):
    """Times in seconds at the GPU's published rates. `base_s` is the plain roofline that the curves multiply."""

    features: list[float]
    base_s: float
    weight_s: float
    activation_s: float
    compute_s: float
    padded_s: float


def moe_work(
    load: MoeLoad,
    tokens: int,
    hidden: int,
    inter: int,
    topk: int,
    tp: int,
    ep: int,
    gated: bool,
    dtype: KernelDtype,
    rates: KernelRates,
) -> MoeWork:
    """The work of one GPU's shard: weights of the experts hit once, rows in and out of both GEMMs."""
    local = inter / tp
    first = 2.0 * local if gated else local
    expert = (first + local) * hidden * dtype.weight
    rows = load.rows
    weight = load.hit * expert / rates.bandwidth
    moved = tokens * hidden * 4.0 + rows * (hidden * (dtype.activation + 2.0) + first * 2.0 + local * dtype.activation)
    activation = moved / rates.bandwidth
    flops_a_row = 2.0 * hidden * (first + local)
    compute = rows * flops_a_row / rates.peak
    padded = load.tiles[-1] * TILE_ROWS[-1] * flops_a_row / rates.peak
    base = max(weight + activation, compute) + LAUNCH_S
    small = 1e-3
    hit = max(load.hit, small)
    rows = max(rows, small)
    tiles = load.tiles
    waves_first = max(tiles[-1], small) * -(-first // 128) / rates.sms
    waves_second = max(tiles[-1], small) * -(-hidden // 128) / rates.sms
    features = [
        log(tokens), log(hidden), log(local), float(topk), log(load.experts), log(tp), log(ep),
        log(rows), log(hit), load.hit / load.experts, log(rows / hit), log(max(load.largest, small)),
        log(max(weight, 1e-9)), log(activation), log(max(compute, 1e-10)), log(max(padded, 1e-10)),
        log(max(compute, 1e-10) / max(weight + activation, 1e-9)), log(base),
    ]  # fmt: skip
    features.extend(rows / max(count * size, rows) for count, size in zip(tiles, TILE_ROWS, strict=True))
    features.extend(log(max(count, small)) for count in tiles)
    features.extend(
        (
            log(waves_first),
            waves_first / ceil(waves_first),
            log(waves_second),
            waves_second / ceil(waves_second),
            log(expert),
        )
    )
    return MoeWork(features, base, weight, activation, compute, padded)
