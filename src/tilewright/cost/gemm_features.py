"""What a dense GEMM asks of a GPU: bytes, operations, tiles and waves; the input of the fitted efficiency curves."""

from __future__ import annotations

from math import ceil, log
from typing import Final, NamedTuple

from tilewright.cost.kernel_dtypes import KernelDtype, KernelRates

__all__ = ["COLD_BYTES", "GEMM_FEATURES", "LAUNCH_S", "WEIGHT_BYTES", "GemmWork", "gemm_work"]

LAUNCH_S: Final = 3e-6
"""Time of the smallest kernel inside a CUDA graph, seconds: the fastest BF16 GEMMs of the tables take 2.2 us."""

_TILES: Final = ((128, 128), (256, 128), (128, 256), (64, 128), (128, 64), (64, 64))
"""Output tiles whose waves are looked at: those that CUTLASS, cuBLAS and Triton have for these operands."""

GEMM_FEATURES: Final = (
    "log_m", "log_n", "log_k", "log_nk", "log_compute_over_memory", "log_base", "log_weight_bytes", "log_memory_s",
    "log_compute_s",
    *(f"{name}_{m}x{n}" for m, n in _TILES for name in ("log_waves", "wave_use")),
    "twos_n", "odd_n", "twos_k", "odd_k",
    "kept", "log_cold_bytes",
)  # fmt: skip
WEIGHT_BYTES: Final = GEMM_FEATURES.index("log_weight_bytes")
COLD_BYTES: Final = GEMM_FEATURES.index("log_cold_bytes")
GEMM_KEPT: Final = 2
"""The last features, on what a repeated weight finds in L2: calibration drops them where they do not help."""

_KEPT_BYTES: Final = 1 << 27
"""Largest weight of a power of two of bytes that TensorRT-LLM's BF16 and FP8 tables read at L2 speed: 128 MiB."""
_KEPT_ANY_BYTES: Final = 29_200_000
"""Largest weight of any size that they read at L2 speed."""
_KEPT_SAVES: Final = 1 - 1 / 2.2
"""L2 reads such a weight about 2.2 times as fast as DRAM does (the times of 25 to 134 MB at 1 to 16 tokens)."""
_KEPT_AS: Final = log(6.0)
"""Such a weight is as fast as one of a sixth of its bytes whose size is no power of two. As the tables show; why is not
known."""


class GemmWork(NamedTuple):
    """Times in seconds at the GPU's published rates. `base_s` is the plain roofline that the curves multiply,
    `kept_base_s` the one with a repeated weight read at L2 speed where it is kept."""

    features: list[float]
    base_s: float
    memory_s: float
    compute_s: float
    kept_base_s: float


def gemm_work(m: int, n: int, k: int, dtype: KernelDtype, rates: KernelRates) -> GemmWork:
    """The work of [m, k] x [k, n]: every operand moved once, BF16 written."""
    weight = n * k * dtype.weight
    memory = (weight + m * k * dtype.activation + m * n * 2.0) / rates.bandwidth
    compute = 2.0 * m * n * k / rates.peak
    base = max(memory, compute) + LAUNCH_S
    sms = rates.sms
    log_n, log_k, log_memory, log_compute = log(n), log(k), log(memory), log(compute)
    features = [
        log(m), log_n, log_k, log_n + log_k, log_compute - log_memory, log(base), log(weight), log_memory, log_compute,
    ]  # fmt: skip
    for tile_m, tile_n in _TILES:
        waves = -(-m // tile_m) * -(-n // tile_n) / sms
        features.append(log(waves))
        features.append(waves / ceil(waves))
    # Sizes that are powers of two run apart from their neighbours: rows then fall on few memory channels.
    for size in (n, k):
        twos = (size & -size).bit_length() - 1
        features.append(float(twos))
        features.append(float(size >> twos))
    kept = n & (n - 1) == 0 and k & (k - 1) == 0 and weight <= _KEPT_BYTES
    features.append(1.0 if kept else 0.0)
    features.append(features[6] - _KEPT_AS if kept else features[6])
    held = kept or weight <= _KEPT_ANY_BYTES
    from_l2 = max(memory - weight / rates.bandwidth * _KEPT_SAVES, compute) + LAUNCH_S if held else base
    return GemmWork(features, base, memory, compute, from_l2)
