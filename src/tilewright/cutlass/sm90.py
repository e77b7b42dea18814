"""SM90: H100, H200, H20, GH200."""

from __future__ import annotations

from typing import Final

from tilewright.cutlass import sm90_common, sm90_epilogue, sm90_kernel, sm90_mainloop
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.epilogue_storage import ARRAY_HEADER, DENSE_HEADER, Epilogue
from tilewright.cutlass.laid import Laid
from tilewright.cutlass.sm90_common import Mainloop
from tilewright.cutlass.sm90_epilogue import Direct
from tilewright.cutlass.sm90_gmma import ATOM_M, atom_n
from tilewright.cutlass.sm90_kernel import Kernel, Part
from tilewright.cutlass.structs import Struct
from tilewright.cutlass.verdict import Broken, Entry, no_collective
from tilewright.cutlass.versions import parse_version
from tilewright.formats.elements import ELEMENTS

FAMILIES: Final = ("tensor_op", "mixed_input", "blockwise", "sparse")
KERNEL: Final = "cutlass/gemm/kernel/sm90_gemm_{}.hpp"
COOPERATIVE_MIN_M: Final = 128
"""Smallest M of a cooperative TMA kernel: a static_assert inside its operator()."""
WARP_GROUP: Final = 128


def covers(config: KernelConfig) -> str | None:
    """Why the model has no answer. What SM90 has no hardware for is illegal, not uncovered; but a type with hardware
    scales (`nv_float4_t`) as the narrow operand is one that the builder takes for another than its element."""
    narrow = config.b if config.narrow == "b" else config.a
    if config.op_class == "mixed_input" and narrow in ELEMENTS and ELEMENTS[narrow].block_scaled:
        return (
            f"SM90's mixed-input builder has no hardware scales, and what it makes of {narrow} was not read: give the "
            "element itself (e2m1, e4m3, int4, ...) with --scale, or compile the types with `tilewright probe`."
        )
    return None


def lay_out(config: KernelConfig) -> Laid | list[Broken]:
    """Lay out the types of `config`, or name the rule that they break first."""
    if config.op_class not in FAMILIES:
        return [
            no_collective(
                f"SM90 has no {config.op_class} MMA: its wgmma scales nothing in hardware. Use {', '.join(FAMILIES)}."
            )
        ]
    epi = sm90_epilogue.epilogue(config)
    if isinstance(epi, Broken):
        # The mainloop may break rules besides, but its stage count means nothing without the epilogue.
        return [epi]
    main = sm90_mainloop.mainloop(sm90_mainloop.problem(config, epi.bytes))
    if isinstance(main, Broken):
        return [main]
    broken = _kernel_type(config, epi, main)
    if broken:
        return [broken]
    figures = _figures(config, epi, main)
    if main.tag.loads == "tma_unspecialised":
        return _unspecialised(config, epi, main, figures)
    kernel = _kernel(epi, main)

    def entries() -> list[Entry]:
        return [*sm90_kernel.entries(kernel), *sm90_common.entries(main), *sm90_epilogue.entries(epi)]

    return Laid(
        smem_bytes=kernel.storage.bytes,
        figures=figures,
        entries=entries,
        count=main.count,
        mainloop_tensor_bytes=main.tensors.bytes,
        epilogue_bytes=epi.tensors.bytes,
        besides=sm90_kernel.besides(kernel),
        kernel_broken=_device_rules(config, epi, main),
        epilogue_in_mainloop=_one_tile(main),
    )


def _one_tile(main: Mainloop) -> bool:
    """Whether a block computes one tile, so that the epilogue may take the mainloop's place."""
    return main.tag.loop == "basic"


def _unspecialised(config: KernelConfig, epi: Epilogue | Direct, main: Mainloop, figures: dict[str, object]) -> Laid:
    """KernelTma has no SharedStorage struct: as many bytes as the larger of its collectives', which take turns."""
    figures |= {"mainloop_tensor_bytes": -1, "mainloop_pipeline_bytes": -1}

    def nothing() -> list[Entry]:
        return []

    return Laid(
        smem_bytes=max(main.bytes, epi.bytes),
        figures=figures,
        entries=nothing,
        count=main.count,
        mainloop_tensor_bytes=main.tensors.bytes,
        epilogue_bytes=epi.tensors.bytes,
        besides=f"pipelines {main.pipeline_bytes}",
        kernel_broken=_device_rules(config, epi, main),
        epilogue_in_mainloop=True,
    )


def _array_epilogue(epi: Epilogue | Direct) -> bool:
    return epi.array if isinstance(epi, Direct) else epi.warp_groups is not None


def _kernel_type(config: KernelConfig, epi: Epilogue | Direct, main: Mainloop) -> Broken | None:
    """Rules of the kernel's class: its problem shape, its epilogue, its tile scheduler."""
    tag = main.tag
    grouped = config.kind == "grouped"
    name = _header(main)
    if tag.array != grouped:
        if grouped:
            text = "ProblemShape{} should be <M,N,K> or <M,N,K,L>"
            advice = f"{tag.name} builds a dense kernel: use cooperative or pingpong for kind grouped."
        else:
            text = 'class "cute::tuple<int, int, int, int>" has no member "UnderlyingProblemShape"'
            advice = f"{tag.name} builds a grouped kernel: use kind grouped, or the tag without PtrArray."
        return Broken(text, name, advice)
    if tag.array and not _array_epilogue(epi):
        return Broken(
            "the collective epilogue has no member InternalStrideC",
            name,
            "Use a ptr_array epilogue schedule with a grouped kernel.",
        )
    if tag.loads == "tma_unspecialised" and isinstance(epi, Epilogue):
        return Broken(
            "the collective epilogue has no member ElementAccumulator",
            name,
            "KernelTma stores from registers: use epilogue_schedule auto or no_smem_warp_specialized.",
        )
    return None if config.tile_scheduler is None else _scheduler(config.tile_scheduler, main, name)


_ONE_TILE_KERNEL: Final = {
    "tma": "TMA warp-specialized",
    "tma_unspecialised": "TMA",
    "cp_async": "Non-persistent warp-specialized",
}


def _scheduler(scheduler: str, main: Mainloop, name: str) -> Broken | None:
    """Which kernels take a tile scheduler of the caller's choice. Neither stream-K's nor the static one (which is the
    default's) keeps anything in shared memory."""
    tag = main.tag
    if tag.array:
        loop = "Cooperative" if tag.cooperative else "Pingpong"
        return Broken(
            f"Ptr-Array {loop} and Grouped Gemm {loop} kernel only supports the default scheduler.",
            name,
            "Leave tile_scheduler at default for a grouped kernel.",
        )
    if tag.loop == "pingpong" and scheduler == "stream_k":
        return Broken(
            "Ping-pong kernel does not currently support stream-K scheduler.",
            name,
            "Use the cooperative schedule for stream-K.",
        )
    if tag.loop == "basic":
        return Broken(
            f"{_ONE_TILE_KERNEL[tag.loads]} kernel does not support specializing the tile scheduler.",
            name,
            "Leave tile_scheduler at default, or use the cooperative schedule.",
        )
    return None


def _header(main: Mainloop) -> str:
    tag = main.tag
    if tag.loads == "tma_unspecialised":
        return KERNEL.format("tma")
    loads = {True: "array_tma_", False: "tma_" if tag.loads == "tma" else ""}[tag.array]
    loop = "" if tag.loop == "basic" else f"_{tag.loop}"
    return KERNEL.format(f"{loads}warpspecialized{loop}")


def _parts(epi: Epilogue | Direct) -> tuple[Part, Part, Part]:
    """(tensors, load pipeline, tensor maps) of an epilogue as the kernel stores them."""
    tensors = epi.tensors
    if isinstance(epi, Direct):
        nothing = "the epilogue stores from registers: an empty class"
        return Part(1, 1, nothing), Part(epi.pipeline_bytes, 1, nothing), Part(epi.tensormap_bytes, 1, nothing)
    staged = Part(tensors.bytes, tensors.align)
    return staged, sm90_kernel.mbarriers(epi.pipeline_bytes), sm90_kernel.descriptors(epi.tensormap_bytes or 0)


def _kernel(epi: Epilogue | Direct, main: Mainloop) -> Kernel:
    tag = main.tag
    tensors: Struct = main.tensors
    mainloop = Part(tensors.bytes, tensors.align)
    staged, epi_load, epi_maps = _parts(epi)
    if tag.array:
        maps = main.tensormap_bytes or 0
        pingpong = tag.loop == "pingpong"
        return sm90_kernel.grouped_kernel(mainloop, main.pipeline_bytes, maps, staged, epi_load, epi_maps, pingpong)
    if tag.loop == "basic":
        return sm90_kernel.one_tile_kernel(mainloop, main.pipeline_bytes, staged, epi_load)
    pingpong = tag.loop == "pingpong"
    if tag.loads == "cp_async":
        return sm90_kernel.cp_async_kernel(mainloop, main.pipeline_bytes, staged, epi_load, pingpong)
    scheduler = sm90_kernel.STATIC_SCHEDULER
    return sm90_kernel.dense_kernel(mainloop, main.pipeline_bytes, staged, epi_load, scheduler, pingpong)


def _mma_warp_groups(config: KernelConfig, main: Mainloop) -> int:
    tag = main.tag
    if tag.loop == "basic":
        return 1
    if tag.loads == "cp_async" and tag.cooperative and config.tile[0] < 2 * ATOM_M:
        return 1
    return 2


def _figures(config: KernelConfig, epi: Epilogue | Direct, main: Mainloop) -> dict[str, object]:
    m, n, _ = config.tile
    tag = main.tag
    groups = _mma_warp_groups(config, main) + main.load_warp_groups
    out: dict[str, object] = {
        **sm90_epilogue.figures(epi),
        "stages": main.stages,
        "mainloop_bytes": main.bytes,
        "mainloop_tensor_bytes": main.tensors.bytes,
        "mainloop_pipeline_bytes": main.pipeline_bytes,
        "mainloop_tensormap_bytes": main.tensormap_bytes,
        "threads": WARP_GROUP * groups,
        "min_blocks": 1,
        "mainloop_policy": main.policy,
        "kernel_schedule": tag.qualified,
    }
    if tag.loads == "tma" and tag.loop != "basic":
        words = m * n * (16 if config.acc == "f16" else 32) // 32
        out["load_registers"], out["mma_registers"] = sm90_kernel.registers(
            words, tag.array, tag.loop == "pingpong", block_scaled_rule=False
        )
        if not tag.array:
            out["scheduler_stages"] = 0
    return out


def _device_rules(config: KernelConfig, epi: Epilogue | Direct, main: Mainloop) -> tuple[Broken, ...]:
    """Rules that compiling the types does not show but instantiating the whole kernel does."""
    out: list[Broken] = []
    tag = main.tag
    if tag.cooperative and tag.loads == "tma" and config.tile[0] < COOPERATIVE_MIN_M:
        out.append(
            Broken(
                "Cooperative kernel requires Tile Size to be greater than or equal to 128 along the M-dimension.",
                _header(main),
                "Use M of 128 or more, or the pingpong schedule.",
            )
        )
    if main.device_rule:
        out.append(main.device_rule)
    if _array_epilogue(epi) and not tag.array:
        out.append(
            Broken(
                'no instance of function template "get_workspace_size" of the collective epilogue',
                _header(main),
                "A ptr-array epilogue asks for the number of multiprocessors, which dense kernels do not give it: use "
                "the epilogue schedule without ptr_array.",
                "compiled",
            )
        )
    elif isinstance(epi, Epilogue):
        out += _staged_rules(config, epi, main)
    return tuple(out)


def _staged_rules(config: KernelConfig, epi: Epilogue, main: Mainloop) -> list[Broken]:
    """What the TMA epilogue's store() asserts of the MMA's tile."""
    array = epi.warp_groups is not None
    header = ARRAY_HEADER if array else DENSE_HEADER
    if main.tag.array and epi.warp_groups != 2:
        return [
            Broken(
                "Tiled MmA does not match expected warp groups performing the epilogue",
                _header(main),
                "Use the ptr_array_tma epilogue of the same name as the schedule.",
            )
        ]
    covered = ATOM_M * (2 if main.tag.cooperative else 1)
    mma_m = config.tile[0] // -(-config.tile[0] // covered)
    mma_n = atom_n(config.tile[1])
    m, n = epi.tile
    if m % mma_m:
        return [
            Broken(
                "MMA_TILE_M must divide EPI_TILE_M",
                header,
                f"The MMAs compute {mma_m} rows at a time and the epilogue stores {m}: use the epilogue schedule of "
                "the same kind, cooperative or not.",
            )
        ]
    # From 4.6.0 the ptr-array epilogue compares columns; the others compare areas.
    columns_only = array and parse_version(config.cutlass) >= (4, 6, 0)
    larger = n > mma_n if columns_only else m * n > mma_m * mma_n
    whole, part, text = (
        (n, mma_n, "MMA_TILE_N must divide EPI_TILE_N") if larger else (mma_n, n, "EPI_TILE_N must divide MMA_TILE_N")
    )
    if whole % part:
        return [Broken(text, header, f"The MMAs compute {mma_n} columns at a time and the epilogue stores {n}.")]
    return []
