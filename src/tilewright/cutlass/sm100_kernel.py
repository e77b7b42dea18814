"""Kernel-level shared memory of the SM100 and SM103 kernels.

Mirrors the `SharedStorage` of `gemm/kernel/sm100_gemm_{,array_}tma_warpspecialized.hpp`,
`sm100_gemm_{,array_}tma_warpspecialized_mma_transform.hpp` (blockwise),
`sm100_gemm_tma_warpspecialized_mixed_input_transform.hpp`, `sm100_sparse_gemm_tma_warpspecialized.hpp` and
`sm103_blockscaled_gemm_{,array_}tma_warpspecialized.hpp`. All assert that the storage fits the block's limit. Sizes in
bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.cutlass.laid import Anchor
from tilewright.cutlass.sm100_carveout import BARRIER, BARRIER_PAIR, DESCRIPTOR_SETS, LOAD_ORDER, RESPONSE, TMEM_POINTER
from tilewright.cutlass.structs import Member, Struct, struct
from tilewright.cutlass.verdict import Broken, Entry

WARP: Final = 32
WARP_GROUP: Final = 128
EMPTY: Final = 1
"""PipelineEmpty: a class without members."""
UPDATE_INFO: Final = 4
"""WithTensorMapUpdateInfo adds two uint16_t to a scheduler response."""

_HEADER: Final = {
    ("plain", False): "sm100_gemm_tma_warpspecialized",
    ("plain", True): "sm100_gemm_array_tma_warpspecialized",
    ("transform", False): "sm100_gemm_tma_warpspecialized_mma_transform",
    ("transform", True): "sm100_gemm_array_tma_warpspecialized_mma_transform",
    ("mixed", False): "sm100_gemm_tma_warpspecialized_mixed_input_transform",
    ("sparse", False): "sm100_sparse_gemm_tma_warpspecialized",
    ("sm103", False): "sm103_blockscaled_gemm_tma_warpspecialized",
    ("sm103", True): "sm103_blockscaled_gemm_array_tma_warpspecialized",
}


@dataclass(frozen=True, slots=True)
class Form:
    """Which kernel it is and how its release lays it out."""

    kind: str
    """plain, transform (blockwise), mixed, sparse, or sm103."""
    array: bool
    schedulers: int
    accumulators: int
    throttle: bool = True
    """Whether the kernel has a CLC throttle pipeline at all (an empty one where the scheduler is static)."""
    epilogue_throttle: bool = False
    ahead: bool = False
    """Whether descriptors are rewritten ahead of time by warps of their own."""
    responds: bool = True
    """Whether work tiles arrive in shared memory; else a response is an empty class (`sm90_tile_scheduler.hpp`)."""


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel's SharedStorage and its parts."""

    storage: Struct
    pipelines: Struct
    tensors: Struct
    tensormaps: Struct | None
    """One set of descriptors; None where the kernel holds none."""
    sets: int
    """How many sets of descriptors there are."""


def kernel(
    form: Form, main: Member, main_pipeline: Member, main_maps: int | None, epi: Member, epi_pipeline: Member,
    epi_maps: Member | None,
) -> Kernel:  # fmt: skip
    """Lay the kernel out. `main` and `epi` are TensorStorages, `*_maps` the TensorMapStorages of a ptr-array kernel."""
    pipelines = struct(_pipelines(form, main_pipeline, epi_pipeline), 16)
    tensors = struct(
        [Member("epilogue", epi.bytes, epi.align, epi.align), Member("mainloop", main.bytes, main.align, main.align)],
        128,
    )
    response = RESPONSE + (UPDATE_INFO if form.ahead else 0)
    responses = Member("clc_response", response * form.schedulers * (2 if form.ahead else 1), 16, 4)
    if not form.responds:
        responses = Member("clc_response", EMPTY * form.schedulers, 16, 1)
    parts = [
        Member("pipelines", pipelines.bytes, 16, 16),
        responses,
        Member("tmem_base_ptr", TMEM_POINTER, 4, 4),
    ]
    tensormaps, sets = None, DESCRIPTOR_SETS if form.ahead else 1
    if form.array:
        assert main_maps is not None
        assert epi_maps is not None
        tensormaps = struct(
            [Member("epilogue", epi_maps.bytes, 128, epi_maps.type_align), Member("mainloop", main_maps, 128, 128)], 128
        )
        parts.append(Member("tensormaps", tensormaps.bytes * sets, 128, 128))
    parts.append(Member("tensors", tensors.bytes, tensors.align, tensors.align))
    return Kernel(struct(parts), pipelines, tensors, tensormaps, sets)


def _pipelines(form: Form, main: Member, epi: Member) -> list[Member]:
    """PipelineStorage: a static scheduler (ptr-array kernels) hands tiles out through a plain pipeline, no throttle."""
    stages = BARRIER_PAIR * form.schedulers
    out = [
        Member("mainloop", main.bytes, 16, main.type_align),
        Member("epi_load", epi.bytes, 16, epi.type_align),
        Member("load_order", LOAD_ORDER, 16, 8),
        Member("clc", stages, 16, 8),
    ]
    if form.kind not in ("transform", "mixed"):  # there the accumulator pipeline belongs to the mainloop
        out.append(Member("accumulator", BARRIER_PAIR * form.accumulators, 16, 8))
    if form.array:
        out.append(Member("clc_throttle", EMPTY, 16, 1))
    elif form.throttle:
        out.append(Member("clc_throttle", stages, 16, 8))
    out.append(Member("tmem_dealloc", BARRIER, 8 if form.kind == "sm103" else 16, 8))
    if form.epilogue_throttle:
        out.append(Member("epilogue_throttle", BARRIER, 16, 8))
    if form.ahead:
        out.append(Member("tensor_map_ready", stages, 16, 8))
    return out


def threads(form: Form, direct: bool) -> int:
    """MaxThreadsPerBlock: a warp each for scheduling, MMA and loads, the epilogue's warp group, and what comes on top.
    `direct`: the epilogue stores without shared memory."""
    if form.kind == "transform":
        return 3 * WARP_GROUP  # five warps and the epilogue's four, rounded up to warp groups
    if form.kind == "mixed":
        return 5 * WARP + 2 * WARP_GROUP  # scheduler, MMA, three loads; the epilogue's and the converting warps
    if form.kind == "sm103":
        # scheduler, MMA, A/B load, scale load; an epilogue load warp and three idle ones unless D is stored directly
        extra = 0 if direct and not form.array else 4
        return (4 + extra) * WARP + WARP_GROUP
    return (4 + (4 if form.ahead else 0)) * WARP + WARP_GROUP


def capacity_assert(form: Form) -> Broken:
    """The assert that fires where the storage is too large."""
    return Broken(
        "SMEM usage exceeded capacity.",
        f"cutlass/gemm/kernel/{_HEADER[form.kind, form.array]}.hpp",
        "Use fewer stages, a smaller tile or a smaller epilogue.",
    )


def besides(made: Kernel) -> str:
    """What the kernel keeps beside the tensors of mainloop and epilogue, with its bytes."""
    named = [f"pipelines {made.pipelines.bytes}"]
    for member in made.storage.members:
        if member.name == "clc_response":
            named.append(f"scheduler responses {member.bytes}")
        elif member.name == "tensormaps":
            named.append(f"TMA descriptors {member.bytes}")
    return ", ".join([*named, "the pointer to tensor memory 4", f"rounding to {made.storage.align:,}"])


_WHY: Final = {
    "kernel.tensors": "tiles of the epilogue and the mainloop",
    "kernel.pipelines": "mbarriers of all pipelines, in the lower 8 KB",
    "kernel.clc_response": "work tiles that the scheduler hands out",
    "kernel.tensors.mainloop": "mainloop TensorStorage: the operands of all stages",
    "kernel.tensors.epilogue": "epilogue TensorStorage: C and D tiles and the fusion's vectors",
    "kernel.tensormaps.mainloop": "descriptors of the operands",
    "kernel.tensormaps.epilogue": "descriptors of C and D",
    "kernel.pipelines.mainloop": "a full and an empty mbarrier a stage",
    "kernel.pipelines.epi_load": "a full and an empty mbarrier a stage of C",
    "kernel.pipelines.load_order": "mainloop and epilogue loads take turns",
    "kernel.pipelines.clc": "a full and an empty mbarrier a scheduler stage",
    "kernel.pipelines.accumulator": "a full and an empty mbarrier an accumulator in tensor memory",
    "kernel.pipelines.clc_throttle": "keeps the scheduler from running ahead (an empty class where it is static)",
    "kernel.pipelines.tmem_dealloc": "tells the peer CTA that tensor memory may be freed",
    "kernel.pipelines.epilogue_throttle": "keeps the epilogue's loads behind the mainloop's prologue",
}
_ORDER: Final = ("tensors", "tensormaps", "pipelines", "clc_response", "tmem_base_ptr")
_UNREAD: Final = ("tensor_map_ready",)
"""Members that are no budget line of their own: they stay inside their parent's."""


def entries(made: Kernel, accumulators: int, tile: tuple[int, int]) -> list[Entry]:
    """Budget lines of the kernel's own struct (paths `kernel.*`); `accumulators` of `tile` lie in tensor memory."""
    out: list[Entry] = []
    top = {member.name: (member, offset) for member, offset in zip(*made.storage[:2], strict=True)}
    for name in _ORDER:
        if name in top:
            member, offset = top[name]
            path = f"kernel.{name}"
            why = _WHY.get(path, "")
            if name == "tensormaps":
                sets = f"{made.sets} sets of " if made.sets > 1 else ""
                why = f"{sets}TMA descriptors that are rewritten for each group"
            elif name == "tmem_base_ptr":
                held = f"{accumulators} accumulators" if accumulators > 1 else "an accumulator"
                why = f"address of tensor memory, 512 columns that hold {held} of {tile[0]}x{tile[1]}"
            out.append(Entry(path, offset, member.bytes, member.type_align, why))
    for name, part in (("tensors", made.tensors), ("tensormaps", made.tensormaps), ("pipelines", made.pipelines)):
        if part is None:
            continue
        # an array of sets has no members by name: only the first set's places are known
        line = Anchor if name == "tensormaps" and made.sets > 1 else Entry
        for member, offset in zip(part.members, part.offsets, strict=True):
            if member.name not in _UNREAD:
                path = f"kernel.{name}.{member.name}"
                out.append(line(path, offset, member.bytes, member.type_align, _WHY[path]))
    return out
