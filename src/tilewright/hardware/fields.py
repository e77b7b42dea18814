"""The figures of a GPU record: their keys, how they are called and their units, in the order they are shown.

The catalogue and the live query use the same keys, so that they can be compared figure by figure.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FIELDS", "GROUPS", "Field", "format_value"]


class Field(NamedTuple):
    label: str
    unit: str
    group: str


GROUPS = ("Shared memory and registers", "Chip", "Memory", "Rates", "Links", "Power and clocks")

_SMEM, _CHIP, _MEMORY, _RATES, _LINKS, _POWER = GROUPS

FIELDS: dict[str, Field] = {
    "smem_optin_max_per_block_bytes": Field("shared memory a block, opt-in limit", "B", _SMEM),
    "smem_per_sm_bytes": Field("shared memory an SM", "B", _SMEM),
    "smem_reserved_per_block_bytes": Field("shared memory reserved a block", "B", _SMEM),
    "smem_per_sm_queried_bytes": Field("shared memory an SM, as queried", "B", _SMEM),
    "max_registers_per_sm": Field("registers an SM", "", _SMEM),
    "max_registers_per_thread": Field("registers a thread", "", _SMEM),
    "max_threads_per_sm": Field("threads an SM", "", _SMEM),
    "max_threads_per_block": Field("threads a block", "", _SMEM),
    "max_blocks_per_sm": Field("blocks an SM", "", _SMEM),
    "warp_size": Field("warp size", "", _SMEM),
    "compute_capability": Field("compute capability", "", _CHIP),
    "sm_count": Field("SMs", "", _CHIP),
    "l2_bytes": Field("L2 cache", "B", _CHIP),
    "tensor_memory": Field("tensor memory (TMEM)", "", _CHIP),
    "wgmma": Field("wgmma", "", _CHIP),
    "tcgen05": Field("tcgen05", "", _CHIP),
    "tma_multicast": Field("TMA multicast in CUTLASS's collectives", "", _CHIP),
    "memory_gb": Field("memory, nameplate", "GB", _MEMORY),
    "memory_mib_reported": Field("memory, as the driver reports it", "MiB", _MEMORY),
    "memory_bytes": Field("memory, used in calculations", "B", _MEMORY),
    "memory_type": Field("memory type", "", _MEMORY),
    "memory_bandwidth_gbs": Field("memory bandwidth", "GB/s", _MEMORY),
    "memory_bandwidth_measured_gbs": Field("memory bandwidth, reached", "GB/s", _MEMORY),
    "tflops_fp4_dense": Field("FP4, dense", "TFLOPS", _RATES),
    "tflops_fp4_sparse": Field("FP4, sparse", "TFLOPS", _RATES),
    "tflops_mxfp8_blockscaled_dense": Field("MXFP8 block-scaled, dense", "TFLOPS", _RATES),
    "tflops_fp8_fp32acc_dense": Field("FP8, FP32 accumulate, dense", "TFLOPS", _RATES),
    "tflops_fp8_fp16acc_dense": Field("FP8, FP16 accumulate, dense", "TFLOPS", _RATES),
    "tflops_bf16_fp32acc_dense": Field("BF16, FP32 accumulate, dense", "TFLOPS", _RATES),
    "tflops_fp16_fp16acc_dense": Field("FP16, FP16 accumulate, dense", "TFLOPS", _RATES),
    "int8_tops_dense": Field("INT8, dense", "TOPS", _RATES),
    "fp32acc_half_rate": Field("half rate with FP32 accumulate", "", _RATES),
    "tflops_bf16_measured": Field("BF16, reached", "TFLOPS", _RATES),
    "measured_best_gemm_tflops": Field("best GEMMs measured", "TFLOPS", _RATES),
    "pcie_gen": Field("PCIe generation", "", _LINKS),
    "pcie_lanes": Field("PCIe lanes", "", _LINKS),
    "pcie_gbs_per_direction": Field("PCIe, a direction", "GB/s", _LINKS),
    "pcie_p2p_measured_gbs": Field("PCIe peer to peer, reached", "GB/s", _LINKS),
    "interconnect_nvlink_gbs_bidir": Field("NVLink, both directions", "GB/s", _LINKS),
    "tdp_w": Field("power limit, default", "W", _POWER),
    "power_limit_min_w": Field("power limit, lowest", "W", _POWER),
    "power_limit_max_w": Field("power limit, highest", "W", _POWER),
    "boost_clock_mhz": Field("SM clock, highest", "MHz", _POWER),
    "memory_clock_mhz": Field("memory clock", "MHz", _POWER),
    "sustained_clock_mhz": Field("SM clock under tensor load", "MHz", _POWER),
}


def format_value(key: str, value: object) -> str:
    """`value` of the figure `key` with its unit, or "unknown"."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        items: dict[object, object] = value  # pyright: ignore[reportUnknownVariableType]
        return ", ".join(
            f"{name} {item:,}" if isinstance(item, int | float) else f"{name} {item}" for name, item in items.items()
        )
    if isinstance(value, list | tuple):
        parts: list[object] = list(value)  # pyright: ignore[reportUnknownArgumentType]
        text = " to ".join(f"{part}" for part in parts)
    elif isinstance(value, int | float):
        text = f"{value:,}"
    else:
        text = str(value)
    unit = FIELDS[key].unit if key in FIELDS else ""
    return f"{text} {unit}" if unit else text
