"""`fit`: shared memory, stages and legality of one kernel config, exact to the byte.

The model lays the real types out (epilogue, mainloop, kernel) in the order in which CUTLASS derives them: the
epilogue first, because its size is the carveout that the stage count takes off; then the mainloop; then the kernel.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from tilewright.cutlass import advice, sm90_kernel, sm120_mainloop
from tilewright.cutlass import epilogue as epilogue_model
from tilewright.cutlass import fixes as fixes_model
from tilewright.cutlass.budget import Budget, Field
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.epilogue import Epilogue
from tilewright.cutlass.sm90_kernel import Kernel
from tilewright.cutlass.sm120_mainloop import Mainloop
from tilewright.cutlass.verdict import Broken, Entry
from tilewright.cutlass.versions import nearest_known, rules_for

LIMITS: Final[dict[str, int]] = {
    "sm90": 232448,
    "sm100": 232448,
    "sm103": 232448,
    "sm120": 101376,
    "sm121": 101376,
}
"""Opt-in shared memory a block, bytes (`cutlass/arch/arch.h`: sm*_smem_capacity_bytes)."""

_FAMILIES: Final = ("block_scaled", "tensor_op", "blockwise")
COOPERATIVE_MIN_M: Final = 128
"""Smallest M of a cooperative kernel: a static_assert inside its operator()."""


class Layout:
    """The three laid-out types of a config that compiles as types."""

    __slots__ = ("epilogue", "kernel", "mainloop")

    def __init__(self, epi: Epilogue, main: Mainloop, kernel: Kernel) -> None:
        self.epilogue, self.mainloop, self.kernel = epi, main, kernel


def lay_out(config: KernelConfig) -> Layout | list[Broken]:
    """Lay out the types of `config`, or name the rules that it breaks, in the compiler's order."""
    epi = epilogue_model.epilogue(epilogue_model.epilogue_key(config))
    if isinstance(epi, Broken):
        # The epilogue fails on its own; the mainloop may break rules besides, but its stage count means nothing now.
        return [epi]
    main = sm120_mainloop.mainloop(config, epi.bytes)
    if isinstance(main, Broken):
        return [main]
    broken = _scheduler(config, main.pingpong)
    if broken:
        return [broken]
    grouped = config.kind == "grouped"
    tensors, thread = main.tensors, epi.tensors
    if grouped:
        assert main.tensormaps is not None
        assert epi.tensormap_bytes is not None
        kernel = sm90_kernel.grouped_kernel(
            (tensors.bytes, tensors.align),
            main.pipeline_bytes,
            main.tensormaps.bytes,
            (thread.bytes, thread.align),
            epi.pipeline_bytes,
            epi.tensormap_bytes,
            main.pingpong,
        )
    else:
        kernel = sm90_kernel.dense_kernel(
            (tensors.bytes, tensors.align),
            main.pipeline_bytes,
            (thread.bytes, thread.align),
            epi.pipeline_bytes,
            main.pingpong,
            main.scheduler_stages,
        )
    return Layout(epi, main, kernel)


def _scheduler(config: KernelConfig, pingpong: bool) -> Broken | None:
    """The stream-K scheduler keeps what the default one keeps (PersistentTileSchedulerSm100), where it is allowed."""
    if config.tile_scheduler is None:
        return None
    if config.kind == "grouped":
        return Broken(
            "Ptr-Array Cooperative and Grouped Gemm Cooperative kernel only supports the default scheduler.",
            "cutlass/gemm/kernel/sm90_gemm_array_tma_warpspecialized_cooperative.hpp",
            "Leave tile_scheduler at default for a grouped kernel.",
        )
    if pingpong:
        return Broken(
            "Ping-pong kernel does not currently support stream-K scheduler.",
            "cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_pingpong.hpp",
            "Use the cooperative schedule for stream-K.",
        )
    return None


def unsupported(config: KernelConfig) -> str | None:
    """Why the model has no answer for `config`, or None when it has one."""
    if rules_for(config.cutlass) is None:
        return (
            f"CUTLASS {config.cutlass} was not read; the nearest releases that were are "
            f"{' and '.join(nearest_known(config.cutlass))}."
        )
    if config.arch not in ("sm120", "sm121"):
        return f"The model covers sm120 and sm121 so far, not {config.arch}; `tilewright probe` compiles it."
    if config.op_class not in _FAMILIES:
        return (
            f"The model covers {', '.join(_FAMILIES)} on SM12x so far, not {config.op_class}; "
            "`tilewright probe` compiles it."
        )
    return None


def fit(config: KernelConfig, *, brief: bool = False) -> Budget:
    """Shared memory, stages and legality of `config`.

    Args:
        brief: leave out `fields`, `cause` and `fixes`, which is several times as fast.

    Returns:
        A Budget whose `type_status` is what compiling the three types says and whose `status` is what a user gets
        who builds and launches the whole kernel. Never raises for a config that cannot run: that is a verdict.
    """
    reason = unsupported(config)
    limit = LIMITS[config.arch]
    if reason is not None:
        return Budget(id=config.id, status="unsupported", limit_bytes=limit, cause=reason)
    layout = lay_out(config)
    if isinstance(layout, list):
        budget = Budget(
            id=config.id,
            status="illegal",
            type_status="illegal",
            limit_bytes=limit,
            rules=[str(broken) for broken in layout],
        )
    else:
        budget = _budget(config, layout, limit)
    if not brief:
        if isinstance(layout, Layout):
            budget.fields = fields(layout)
        budget.cause = advice.cause(config, budget, layout)
        budget.fixes = fixes_model.fixes(config, budget.status, budget.stages)
    return budget


class Verdict(NamedTuple):
    """Status, stages and bytes of a config, without the rest of a Budget."""

    status: str
    stages: int
    smem_bytes: int


def verdict(config: KernelConfig) -> Verdict | None:
    """The verdict on `config` alone; None when it is illegal as a type or the model does not cover it."""
    if unsupported(config) is not None:
        return None
    layout = lay_out(config)
    if isinstance(layout, list):
        return None
    smem = layout.kernel.storage.bytes
    status = "illegal" if kernel_rules(config, layout.mainloop) else "fits"
    if status == "fits" and smem > LIMITS[config.arch]:
        status = "overflow"
    return Verdict(status, layout.mainloop.stages, smem)


def _budget(config: KernelConfig, layout: Layout, limit: int) -> Budget:
    epi, main = layout.epilogue, layout.mainloop
    smem = layout.kernel.storage.bytes
    m, n, _ = config.tile
    grouped = config.kind == "grouped"
    rules = rules_for(config.cutlass)
    heavy_rule = rules is not None and rules.heavy_block_scaled and config.op_class == "block_scaled"
    accumulator_bits = 16 if config.acc == "f16" else 32
    load, mma = sm90_kernel.registers(m * n * accumulator_bits // 32, grouped, main.pingpong, heavy_rule)
    type_status: Literal["fits", "overflow"] = "overflow" if smem > limit else "fits"
    broken = kernel_rules(config, main)
    return Budget(
        id=config.id,
        status="illegal" if broken else type_status,
        type_status=type_status,
        stages=main.stages,
        smem_bytes=smem,
        mainloop_bytes=main.bytes,
        epilogue_bytes=epi.bytes,
        limit_bytes=limit,
        excess_bytes=max(0, smem - limit),
        slack_bytes=limit - smem,
        mainloop_tensor_bytes=main.tensors.bytes,
        mainloop_pipeline_bytes=main.pipeline_bytes,
        mainloop_tensormap_bytes=main.tensormaps.bytes if main.tensormaps else None,
        epilogue_tensor_bytes=epi.tensors.bytes,
        epilogue_pipeline_bytes=epi.pipeline_bytes,
        epilogue_tensormap_bytes=epi.tensormap_bytes,
        epilogue_fusion_bytes=epi.thread.bytes,
        epilogue_tile=epi.tile,
        stages_c=epi.stages_c,
        stages_d=epi.stages_d,
        reuse_smem_c=epi.reuse_smem_c,
        delay_tma_store=epi.delay_tma_store,
        fragment_size=epilogue_model.FRAGMENT_SIZE,
        epilogue_warp_groups=epilogue_model.WARP_GROUPS if grouped else None,
        threads=sm90_kernel.THREADS,
        min_blocks=1,
        load_registers=load,
        mma_registers=mma,
        scheduler_stages=main.scheduler_stages,
        sf_short=main.sf_short,
        mainloop_policy=main.policy,
        epilogue_policy=epi.policy,
        kernel_schedule=main.schedule,
        status_basis="inferred" if broken else "derived",
        rules=[str(rule) for rule in broken],
    )


def kernel_rules(config: KernelConfig, main: Mainloop) -> list[Broken]:
    """Rules that compiling the types does not show but instantiating the whole kernel does."""
    out: list[Broken] = []
    m = config.tile[0]
    if main.sf_short:
        out.append(
            Broken(
                "TMA requires CTA_Tile and SLayout top-level size equivalence.",
                "cute/atom/copy_traits_sm90_tma.hpp",
                "The scale factors in shared memory do not cover the tile: use M in multiples of 128, K of at least "
                "four scale vectors, and N of 128 or more (from CUTLASS 4.5.0 on N of 32 and 64 too).",
            )
        )
    if not main.pingpong and m < COOPERATIVE_MIN_M:
        header = "sm90_gemm_array_tma_warpspecialized_cooperative.hpp"
        if config.kind == "dense":
            header = "sm90_gemm_tma_warpspecialized_cooperative.hpp"
        out.append(
            Broken(
                "Cooperative kernel requires Tile Size to be greater than or equal to 128 along the M-dimension.",
                f"cutlass/gemm/kernel/{header}",
                "Use M of 128 or more, or the pingpong schedule.",
            )
        )
    return out


_PARENTS: Final = {
    "mainloop.tensors.": "kernel.tensors.mainloop",
    "mainloop.tensormaps.": "kernel.tensormaps.mainloop",
    "epilogue.tensors.collective.": "epilogue.tensors.collective",
    "epilogue.tensors.": "kernel.tensors.epilogue",
}
"""Which line's absolute offset the offsets of a group of lines count from."""


def fields(layout: Layout) -> list[Field]:
    """Every member of the kernel's shared memory, with offsets from its parent and from the kernel's base."""
    absolute: dict[str, int] = {}
    out: list[Field] = []
    lines: list[Entry] = [
        *sm90_kernel.entries(layout.kernel),
        *sm120_mainloop.entries(layout.mainloop),
        *epilogue_model.entries(layout.epilogue),
    ]
    for path, offset, size, align, why in lines:
        if path.startswith("kernel."):
            base = absolute.get(path.rpartition(".")[0], 0)
        else:
            parent = next(parent for prefix, parent in _PARENTS.items() if path.startswith(prefix))
            base = absolute[parent]
        absolute[path] = base + offset
        out.append(Field(path, offset, base + offset, size, align, why))
    return out
