"""Kernel-level shared memory of the sparse SM120 kernel, which loads A and B through pipelines of their own.

Mirrors `gemm/kernel/sm120_gemm_tma_warpspecialized_cooperative_asymmetric_dma.hpp`. Unlike the SM90 kernels that the
other SM120 families use, it asserts that its storage fits: an overflow does not compile.
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass import compiled_kernels, epilogue_storage, sm90_kernel, sm120_sparse
from tilewright.cutlass import sm120_kernel_rules as kernel_rules
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.epilogue_storage import Epilogue
from tilewright.cutlass.laid import SF_SHORT_AT, SF_SHORT_TEXT, Laid
from tilewright.cutlass.sm90_kernel import LOAD_ORDER, STATIC_SCHEDULER, Kernel, clc_scheduler
from tilewright.cutlass.sm120_sparse import SCHEDULER_STAGES, SparseMainloop
from tilewright.cutlass.structs import Member, struct
from tilewright.cutlass.verdict import Broken, Entry
from tilewright.cutlass.versions import rules_for

HEADER: Final = "cutlass/gemm/kernel/sm120_gemm_tma_warpspecialized_cooperative_asymmetric_dma.hpp"

REGISTERS: Final = (40, 232)
"""Load/MmaRegisterRequirement: constants of this kernel."""

NO_SINGLE_PIPELINE: Final = -1
"""mainloop_pipeline_bytes of a mainloop that has two pipelines and no PipelineStorage of its own (budget.Field)."""

CAPACITY_ASSERT: Final = Broken(
    "SMEM usage exceeded capacity.", HEADER, "Use a smaller tile or epilogue: the stage count cannot be pinned."
)


def _kernel(main: SparseMainloop, epi: Epilogue, static: bool) -> Kernel:
    """Pipelines (A's, B's, C's, load order), scheduler, tensors (epilogue first)."""
    pipelines = struct(
        [
            Member("mainloop_mk", main.pipeline_mk, 16, 8),
            Member("mainloop_nk", main.pipeline_nk, 16, 8),
            Member("epi_load", epi.pipeline_bytes, 16, 8),
            Member("load_order", LOAD_ORDER, 16, 8),
        ],
        16,
    )
    tensors = struct(
        [
            Member("epilogue", epi.tensors.bytes, epi.tensors.align, epi.tensors.align),
            Member("mainloop", main.tensors.bytes, main.tensors.align, main.tensors.align),
        ],
        128,
    )
    storage = struct(
        [
            Member("pipelines", pipelines.bytes, 16, 16),
            STATIC_SCHEDULER if static else clc_scheduler(SCHEDULER_STAGES),
            Member("tensors", tensors.bytes, tensors.align, tensors.align),
        ]
    )
    return Kernel(storage, pipelines, tensors, None)


def lay_out(config: KernelConfig, epi: Epilogue) -> Laid | list[Broken]:
    """Lay out the types of a sparse `config` whose epilogue is `epi`, or name the rule that they break first."""
    main = sm120_sparse.mainloop(config, epi.bytes)
    if isinstance(main, Broken):
        return [main]
    laid = _kernel(main, epi, config.tile_scheduler == "static_persistent")

    def entries() -> list[Entry]:
        return [*sm90_kernel.entries(laid), *sm120_sparse.entries(main), *epilogue_storage.entries(epi)]

    load, mma = REGISTERS
    return Laid(
        smem_bytes=laid.storage.bytes,
        figures={
            **epilogue_storage.figures(epi),
            "stages": main.stages_a,
            "stages_a": main.stages_a,
            "stages_b": main.stages_b,
            "stages_e": main.stages_e,
            "mainloop_bytes": main.bytes,
            "mainloop_tensor_bytes": main.tensors.bytes,
            "mainloop_pipeline_bytes": NO_SINGLE_PIPELINE,
            "threads": sm90_kernel.THREADS,
            "min_blocks": 1,
            "load_registers": load,
            "mma_registers": mma,
            "scheduler_stages": SCHEDULER_STAGES,
            "sf_short": main.sf_short,
            "mainloop_policy": main.policy,
            "kernel_schedule": main.schedule,
        },
        entries=entries,
        count=main.count,
        mainloop_tensor_bytes=main.tensors.bytes,
        epilogue_bytes=epi.bytes,
        besides=sm90_kernel.besides(laid),
        kernel_broken=_kernel_rules(config, epi, main),
        asserted=CAPACITY_ASSERT,
    )


def _kernel_rules(config: KernelConfig, epi: Epilogue, main: SparseMainloop) -> tuple[Broken, ...]:
    """Rules that compiling the types does not show but instantiating the whole kernel does."""
    rules = rules_for(config.cutlass)
    assert rules is not None, "callers check the release first"
    short: list[Broken] = []
    if main.sf_short:
        advice = "The scale factors in shared memory do not cover the tile: use K in multiples of 256."
        rule = compiled_kernels.SCALE_FACTORS_SHORT
        known = compiled_kernels.basis(rule, config.op_class, config.kind, rules.version)
        short.append(Broken(SF_SHORT_TEXT, SF_SHORT_AT, advice, known))
    warps = kernel_rules.ACC_2X4 if main.acc2x4 else kernel_rules.COOPERATIVE
    return (*short, *kernel_rules.tile_rules(config, epi, warps, False, rules))
