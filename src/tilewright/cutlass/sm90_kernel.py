"""Kernel-level shared memory of the SM90 kernels, of which SM120 runs the cooperative and pingpong ones too.

Mirrors `gemm/kernel/sm90_gemm_tma_warpspecialized_{cooperative,pingpong}.hpp` (dense),
`sm90_gemm_array_tma_warpspecialized_{cooperative,pingpong}.hpp` (grouped), `sm90_gemm_tma_warpspecialized.hpp` (one
tile a block) and `sm90_gemm_warpspecialized*.hpp` (cp.async). None asserts that the storage fits: an overflow
compiles, and fails when the launch asks the driver for it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.cutlass.structs import Member, Struct, struct, union
from tilewright.cutlass.verdict import Entry

MMA_THREADS_COOPERATIVE: Final = 256
"""Two warp groups share a tile: TiledMma of 4x2 warps."""
WARP_GROUP: Final = 128
"""Threads of a warp group."""
THREADS: Final = 384
"""Two MMA warp groups and one for loads."""
SCHEDULER_STAGES_GROUPED: Final = 8
"""TileSchedulerStages of the array kernels ("will benefit from a larger number of stages")."""
RESPONSE_BYTES: Final = 16
"""sizeof a scheduler response: CLCResponse of PersistentTileSchedulerSm100, or the group scheduler's work tile."""
BARRIER_PAIR: Final = 16
"""A full and an empty mbarrier."""
LOAD_ORDER: Final = 16
"""OrderedSequenceBarrier<1, 2>: two mbarriers."""
MATH_ORDER: Final = 32
"""OrderedSequenceBarrier<2, 2> of pingpong kernels: four mbarriers."""
CLC_STAGE_DENSE: Final = 16 + 16 + 16
"""A stage of the dense tile scheduler: CLC pipeline, throttle pipeline, response
(`gemm/kernel/sm100_tile_scheduler.hpp`)."""

PLAIN_REGISTERS: Final = (40, 232)
HEAVY_REGISTERS: Final = (24, 240)
"""Registers a thread of the load and MMA warp groups (Load/MmaRegisterRequirement)."""
HEAVY_ACCUMULATORS: Final = 208
"""Accumulators a thread from which a dense kernel counts as heavy."""
HEAVY_ACCUMULATORS_BLOCK_SCALED: Final = 128
"""The same for dense cooperative block-scaled kernels from CUTLASS 4.3.0 on."""


class Part(NamedTuple):
    """A member whose own layout is another module's business: its size, the alignment of its type, and the reason
    where it is not the usual one."""

    bytes: int
    align: int
    why: str = ""


class Kernel(NamedTuple):
    """The kernel's SharedStorage and its parts, in the form in which the budget lines need them."""

    storage: Struct
    pipelines: Struct
    tensors: Struct
    tensormaps: Struct | None


def mbarriers(size: int) -> Part:
    """PipelineStorage of `size` bytes of mbarriers."""
    return Part(size, 8)


def descriptors(size: int) -> Part:
    """TensorMapStorage of `size` bytes of TMA descriptors."""
    return Part(size, 128)


def clc_scheduler(stages: int) -> Member:
    """The dynamic tile scheduler of SM100 and later: CLC pipeline, throttle pipeline and responses."""
    why = "tile scheduler: CLC pipeline, throttle pipeline and responses"
    return Member("scheduler", CLC_STAGE_DENSE * stages, 16, 16, why)


STATIC_SCHEDULER: Final = Member("scheduler", 1, 16, 1, "static tile scheduler: an empty class, which takes a byte")
"""PersistentTileSchedulerSm90 and its stream-K form: nothing in shared memory."""


def _tensors(first: Member, second: Member) -> Struct:
    return struct([first, second], 128)


def _part(name: str, part: Part) -> Member:
    return Member(name, part.bytes, part.align, part.align, part.why)


def _aligned(name: str, part: Part) -> Member:
    """A member of a PipelineStorage: `alignas(16)`."""
    return Member(name, part.bytes, 16, part.align, part.why)


def dense_kernel(
    main: Part, main_pipeline: int, epi: Part, epi_load: Part, scheduler: Member, pingpong: bool
) -> Kernel:
    """Dense: pipelines, scheduler, tensors (epilogue first). `main` and `epi` are their TensorStorage."""
    order = [Member("math_wg_order", MATH_ORDER, 16, 8)] if pingpong else []
    pipelines = struct(
        [
            Member("mainloop", main_pipeline, 16, 8),
            _aligned("epi_load", epi_load),
            *order,
            Member("load_order", LOAD_ORDER, 16, 8),
        ],
        16,
    )
    tensors = _tensors(_part("epilogue", epi), _part("mainloop", main))
    storage = struct(
        [
            Member("pipelines", pipelines.bytes, 16, 16),
            scheduler,
            Member("tensors", tensors.bytes, tensors.align, tensors.align),
        ]
    )
    return Kernel(storage, pipelines, tensors, None)


def grouped_kernel(
    main: Part, main_pipeline: int, main_maps: int, epi: Part, epi_load: Part, epi_maps: Part, pingpong: bool
) -> Kernel:
    """Grouped: tensors (mainloop first), pipelines, scheduler responses, tensor maps."""
    order = [Member("math_wg_order", MATH_ORDER, 16, 8)] if pingpong else []
    tensors = _tensors(_part("mainloop", main), _part("epilogue", epi))
    pipelines = struct(
        [
            Member("scheduler", SCHEDULER_STAGES_GROUPED * BARRIER_PAIR, 16, 8),
            Member("mainloop", main_pipeline, 16, 8),
            _aligned("epi_load", epi_load),
            Member("load_order", LOAD_ORDER, 16, 8),
            *order,
        ],
        16,
    )
    maps = struct(
        [
            Member("mainloop", main_maps, 128, 128),
            Member("epilogue", epi_maps.bytes, 128, epi_maps.align, epi_maps.why),
        ],
        128,
    )
    storage = struct(
        [
            Member("tensors", tensors.bytes, tensors.align, tensors.align),
            Member("pipelines", pipelines.bytes, 16, 16),
            Member("scheduler_response", SCHEDULER_STAGES_GROUPED * RESPONSE_BYTES, 16, 4),
            Member("tensormaps", maps.bytes, 128, 128),
        ]
    )
    return Kernel(storage, pipelines, tensors, maps)


def one_tile_kernel(main: Part, main_pipeline: int, epi: Part, epi_load: Part) -> Kernel:
    """`sm90_gemm_tma_warpspecialized.hpp` and `sm90_gemm_warpspecialized.hpp`: a block computes one tile, so that the
    epilogue takes the mainloop's place (a union)."""
    tensors = union([_part("mainloop", main), _part("epilogue", epi)])
    pipelines = struct([Member("mainloop", main_pipeline, 16, 8), _aligned("epi_load", epi_load)], 16)
    return _tensors_first(tensors, pipelines)


def cp_async_kernel(main: Part, main_pipeline: int, epi: Part, epi_load: Part, pingpong: bool) -> Kernel:
    """`sm90_gemm_warpspecialized_{cooperative,pingpong}.hpp`: loads by cp.async, no order among them."""
    order = [Member("math_wg_order", MATH_ORDER, 16, 8)] if pingpong else []
    tensors = _tensors(_part("mainloop", main), _part("epilogue", epi))
    pipelines = struct([Member("mainloop", main_pipeline, 16, 8), _aligned("epi_load", epi_load), *order], 16)
    return _tensors_first(tensors, pipelines)


def _tensors_first(tensors: Struct, pipelines: Struct) -> Kernel:
    storage = struct(
        [
            Member("tensors", tensors.bytes, tensors.align, tensors.align),
            Member("pipelines", pipelines.bytes, 16, 16),
        ]
    )
    return Kernel(storage, pipelines, tensors, None)


def registers(words: int, grouped: bool, pingpong: bool, block_scaled_rule: bool) -> tuple[int, int]:
    """(load, MMA) registers a thread that the kernel asks for with setmaxnreg; `words` 32-bit words of accumulators
    a tile has."""
    if grouped:
        return PLAIN_REGISTERS
    threads = WARP_GROUP if pingpong else MMA_THREADS_COOPERATIVE
    limit = HEAVY_ACCUMULATORS_BLOCK_SCALED if block_scaled_rule and not pingpong else HEAVY_ACCUMULATORS
    return HEAVY_REGISTERS if words // threads >= limit else PLAIN_REGISTERS


def besides(kernel: Kernel) -> str:
    """What the kernel keeps beside the tensors of mainloop and epilogue, with its bytes."""
    named = [f"pipelines {kernel.pipelines.bytes}"]
    for member in kernel.storage.members:
        if member.name in ("scheduler", "scheduler_response"):
            named.append(f"scheduler {member.bytes}")
        elif member.name == "tensormaps":
            named.append(f"TMA descriptors {member.bytes}")
    return ", ".join(named) + f", rounding to {kernel.storage.align:,}"


_WHY: Final = {
    "kernel.tensors": "tiles of the mainloop and the epilogue",
    "kernel.pipelines": "mbarriers of all pipelines",
    "kernel.scheduler_response": "eight work tiles that the group scheduler hands out",
    "kernel.tensormaps": "TMA descriptors that are rewritten for each group",
    "kernel.tensors.mainloop": "mainloop TensorStorage: A, B and scales of all stages",
    "kernel.tensors.epilogue": "epilogue TensorStorage: C and D tiles and the fusion's vectors",
    "kernel.tensormaps.mainloop": "descriptors of the operands",
    "kernel.tensormaps.epilogue": "descriptors of C and of each epilogue warp group's D",
    "kernel.pipelines.mainloop": "a full and an empty mbarrier a stage",
    "kernel.pipelines.mainloop_mk": "a full and an empty mbarrier a stage of A, its scales and metadata",
    "kernel.pipelines.mainloop_nk": "a full and an empty mbarrier a stage of B",
    "kernel.pipelines.epi_load": "a full and an empty mbarrier a stage of C",
    "kernel.pipelines.load_order": "mainloop and epilogue loads take turns",
    "kernel.pipelines.math_wg_order": "the two MMA warp groups take turns (pingpong)",
    "kernel.pipelines.scheduler": "eight stages of scheduler mbarriers",
}
_ORDER: Final = ("tensors", "tensormaps", "pipelines", "scheduler", "scheduler_response")


def entries(kernel: Kernel) -> list[Entry]:
    """Budget lines of the kernel's own struct (paths `kernel.*`)."""
    out: list[Entry] = []
    top = {member.name: (member, offset) for member, offset in zip(*kernel.storage[:2], strict=True)}
    for name in _ORDER:
        if name in top:
            member, offset = top[name]
            path = f"kernel.{name}"
            out.append(Entry(path, offset, member.bytes, member.type_align, member.why or _WHY[path]))
    for name, part in (
        ("tensors", kernel.tensors),
        ("tensormaps", kernel.tensormaps),
        ("pipelines", kernel.pipelines),
    ):
        if part is None:
            continue
        for member, offset in zip(part.members, part.offsets, strict=True):
            path = f"kernel.{name}.{member.name}"
            out.append(Entry(path, offset, member.bytes, member.type_align, member.why or _WHY[path]))
    return out
