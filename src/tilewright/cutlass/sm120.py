"""SM120 and SM121: RTX PRO and GeForce Blackwell, GB10. Both use the tag arch::Sm120 and the SM90 kernels."""

from __future__ import annotations

from typing import Final

import msgspec

from tilewright.cutlass import epilogue as epilogue_model
from tilewright.cutlass import epilogue_storage, sm90_kernel, sm120_collective, sm120_mainloop, sm120_sparse_kernel
from tilewright.cutlass import sm120_kernel_rules as kernel_rules
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.epilogue_storage import Epilogue
from tilewright.cutlass.laid import Laid
from tilewright.cutlass.sm90_kernel import Kernel, Part
from tilewright.cutlass.sm120_collective import Mainloop
from tilewright.cutlass.verdict import Broken, Entry, no_collective
from tilewright.cutlass.versions import rules_for

SPARSE: Final = ("sparse", "block_scaled_sparse")


def covers(config: KernelConfig) -> str | None:  # noqa: ARG001 - the verb's signature is that of every module
    """Nothing is left out: what no SM120 builder makes is illegal."""
    return None


def lay_out(config: KernelConfig) -> Laid | list[Broken]:
    """Lay out the types of `config`, or name the rule that they break first."""
    if config.op_class == "mixed_input":
        if config.narrow is not None and config.scale is not None:
            advice = "SM120 converts no operand: use FP8, FP6 or FP4 in any mix (tensor_op), or block-scaled formats."
            return [no_collective(advice)]
        # without scales it is the plain builder (OpClassTensorOp) that gets the operands
        config = msgspec.structs.replace(config, op_class="tensor_op")
    epi = epilogue_model.epilogue(epilogue_model.epilogue_key(config))
    if isinstance(epi, Broken):
        # The mainloop may break rules besides, but its stage count means nothing without the epilogue.
        return [epi]
    if config.op_class in SPARSE:
        return sm120_sparse_kernel.lay_out(config, epi)
    main = sm120_mainloop.mainloop(config, epi.bytes)
    if isinstance(main, Broken):
        return [main]
    broken = _scheduler(config, main.pingpong)
    if broken:
        return [broken]
    kernel = _kernel(config, epi, main)

    def entries() -> list[Entry]:
        return [*sm90_kernel.entries(kernel), *sm120_collective.entries(main), *epilogue_storage.entries(epi)]

    return Laid(
        smem_bytes=kernel.storage.bytes,
        figures=_figures(config, epi, main),
        entries=entries,
        count=main.count,
        mainloop_tensor_bytes=main.tensors.bytes,
        epilogue_bytes=epi.bytes,
        besides=sm90_kernel.besides(kernel),
        kernel_broken=_kernel_rules(config, epi, main),
    )


def _kernel(config: KernelConfig, epi: Epilogue, main: Mainloop) -> Kernel:
    tensors = Part(main.tensors.bytes, main.tensors.align)
    staged = Part(epi.tensors.bytes, epi.tensors.align)
    epi_load = sm90_kernel.mbarriers(epi.pipeline_bytes)
    if config.kind == "grouped":
        assert main.tensormaps is not None
        assert epi.tensormap_bytes is not None
        epi_maps = sm90_kernel.descriptors(epi.tensormap_bytes)
        maps = main.tensormaps.bytes
        return sm90_kernel.grouped_kernel(tensors, main.pipeline_bytes, maps, staged, epi_load, epi_maps, main.pingpong)
    static = config.tile_scheduler == "static_persistent"
    scheduler = sm90_kernel.STATIC_SCHEDULER if static else sm90_kernel.clc_scheduler(main.scheduler_stages)
    return sm90_kernel.dense_kernel(tensors, main.pipeline_bytes, staged, epi_load, scheduler, main.pingpong)


def _scheduler(config: KernelConfig, pingpong: bool) -> Broken | None:
    """The stream-K scheduler keeps what the default one keeps (PersistentTileSchedulerSm100), where it is allowed; the
    static one is SM90's (PersistentTileSchedulerSm90, `gemm/kernel/tile_scheduler.hpp`) and keeps nothing."""
    if config.tile_scheduler is None:
        return None
    if config.kind == "grouped":
        kind = "Pingpong" if pingpong else "Cooperative"
        rules = rules_for(config.cutlass)
        derives = rules is not None and rules.grouped_f8f6f4  # 4.6.0 rewrote the kernel's assert together with it
        only = "group-compatible schedulers" if derives else "the default scheduler"
        return Broken(
            f"Ptr-Array {kind} and Grouped Gemm {kind} kernel only supports {only}",
            f"cutlass/gemm/kernel/sm90_gemm_array_tma_warpspecialized_{kind.lower()}.hpp",
            "Leave tile_scheduler at default for a grouped kernel.",
        )
    if pingpong and config.tile_scheduler == "stream_k":
        return Broken(
            "Ping-pong kernel does not currently support stream-K scheduler.",
            "cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_pingpong.hpp",
            "Use the cooperative schedule for stream-K.",
        )
    return None


def _figures(config: KernelConfig, epi: Epilogue, main: Mainloop) -> dict[str, object]:
    m, n, _ = config.tile
    grouped = config.kind == "grouped"
    rules = rules_for(config.cutlass)
    heavy_rule = rules is not None and rules.heavy_block_scaled and config.op_class == "block_scaled"
    accumulator_bits = 16 if config.acc == "f16" else 32
    load, mma = sm90_kernel.registers(m * n * accumulator_bits // 32, grouped, main.pingpong, heavy_rule)
    return {
        **epilogue_storage.figures(epi),
        "stages": main.stages,
        "mainloop_bytes": main.bytes,
        "mainloop_tensor_bytes": main.tensors.bytes,
        "mainloop_pipeline_bytes": main.pipeline_bytes,
        "mainloop_tensormap_bytes": main.tensormaps.bytes if main.tensormaps else None,
        "threads": sm90_kernel.THREADS,
        "min_blocks": 1,
        "load_registers": load,
        "mma_registers": mma,
        "scheduler_stages": main.scheduler_stages,
        "sf_short": main.sf_short,
        "mainloop_policy": main.policy,
        "kernel_schedule": main.schedule,
    }


def _kernel_rules(config: KernelConfig, epi: Epilogue, main: Mainloop) -> tuple[Broken, ...]:
    """Rules that compiling the types does not show but instantiating the whole kernel does."""
    rules = rules_for(config.cutlass)
    assert rules is not None, "callers check the release first"
    grouped = config.kind == "grouped"
    warps = kernel_rules.dense_warps(main.pingpong, config.op_class == "block_scaled", config.tile[1])
    return (
        *kernel_rules.scale_rules(config, main.sf_short, rules),
        *(() if main.pingpong else kernel_rules.cooperative_rule(config, grouped)),
        *kernel_rules.tile_rules(config, epi, warps, grouped, rules),
        *kernel_rules.copy_rule(config, warps),
    )
