"""The limits of the GPU that the rest of the plan rests on, and who need not worry about SM120's."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.hardware.gpu import PEAK_FIELD
from tilewright.plan.finding import Evidence, Fact, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

SM120_LIMIT = 101376
"""CUTLASS sm120_smem_capacity_bytes."""


def run(target: Target) -> Iterator[Outcome]:
    gpu = target.gpu
    rates = {name: gpu.peak(name).value for name in PEAK_FIELD if name in ("nvfp4", "fp8", "bf16")}
    yield Fact(
        "hardware",
        {
            "arch": gpu.arch,
            "smem_per_block_bytes": gpu.smem_optin_bytes,
            "smem_per_sm_bytes": gpu.value("smem_per_sm_bytes"),
            "smem_source": gpu.get("smem_optin_max_per_block_bytes").source,
            "sm_count": gpu.sm_count,
            "memory_bytes": gpu.memory_bytes,
            "bandwidth_gbs": gpu.bandwidth().value,
            "bandwidth_reached_gbs": gpu.bandwidth("measured").value,
            "peak_tflops": rates,
            "tdp_w": gpu.tdp_w,
            "links": "PCIe" if target.pcie else "network" if gpu.key == "gb10" else "NVLink",
            "native_fp4": target.fp4_cores,
        },
    )
    if target.fp4_cores and not target.sm12x and target.families & {"nvfp4", "mxfp4"}:
        yield Rejected(
            "Look for the SM120 shared-memory overflows that are reported",
            f"{gpu.arch.upper()} runs other kernels: a block gets {gpu.smem_optin_bytes:,} bytes instead of "
            f"{SM120_LIMIT:,}, and "
            "CUTLASS's kernels for it assert their size at compile time, so one that is built fits.",
            [
                Evidence(
                    "exact",
                    "SharedStorageSize <= sm100_smem_capacity_bytes is a static_assert of every SM100 and SM103 "
                    "kernel.",
                    "CUTLASS gemm/kernel/sm100_*.hpp",
                )
            ],
        )


RULE = Rule(id="hardware", looks_at="limits of the GPU", run=run)
