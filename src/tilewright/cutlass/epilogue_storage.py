"""Shared memory of the TMA warp-specialised epilogue of SM90, which SM120 uses too: storage, policy, budget lines.

Mirrors `epilogue/collective/sm90_epilogue_tma_warpspecialized.hpp` and `sm90_epilogue_array_tma_warpspecialized.hpp`,
whose layout is the same in every release that was read. What tile, how many stages and which fusion go in is the
builder's choice: `epilogue` (SM120) and `sm90_epilogue`. Extents in elements, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from tilewright.cutlass.fusion import FusionStorage
from tilewright.cutlass.smem_atoms import ATOM_ROWS, Atom, pick_atom
from tilewright.cutlass.structs import TMA_DESCRIPTOR, Member, Struct, struct, union
from tilewright.cutlass.verdict import Broken, Entry
from tilewright.formats.elements import ELEMENTS

DENSE_HEADER: Final = "cutlass/epilogue/collective/sm90_epilogue_tma_warpspecialized.hpp"
ARRAY_HEADER: Final = "cutlass/epilogue/collective/sm90_epilogue_array_tma_warpspecialized.hpp"
SELECTOR: Final = "cutlass/gemm/collective/builders/sm90_common.inl"

BARRIER_PAIR: Final = 16
"""One stage of PipelineTransactionAsync: a full and an empty mbarrier (`pipeline/sm90_pipeline.hpp`)."""
ARRAY_ALIGN: Final = 16
"""alignof ArrayEngine for elements of a byte and more; arrays of sub-byte elements have alignment 1
(`cute/container/array_aligned.hpp`, `array_subbyte.hpp`)."""

FP6: Final = ("e2m3", "e3m2")
"""Formats that an epilogue keeps in 8-bit containers (`get_unpacked_element_type`, `cutlass/float_subbyte.h`)."""


class Staging(NamedTuple):
    """What a builder decides about an epilogue: the parameters of its dispatch policy and its tile."""

    tile: tuple[int, int]
    stages_c: int
    stages_d: int
    fragment_size: int
    reuse_smem_c: bool
    delay_tma_store: bool
    warp_groups: int | None
    """NumEpilogueWarpGroups of a ptr-array epilogue; None for the dense one, which has no such parameter."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A laid-out epilogue. `bytes` is sizeof(SharedStorage): what StageCountAutoCarveout takes off the capacity."""

    tile: tuple[int, int]
    stages_c: int
    stages_d: int
    reuse_smem_c: bool
    delay_tma_store: bool
    fragment_size: int
    warp_groups: int | None
    tensors: Struct
    collective: Struct
    thread: FusionStorage
    pipeline_bytes: int
    tensormap_bytes: int | None
    bytes: int
    policy: str
    output: str
    """Element format of the tile in shared memory (D, or what finalize scatters)."""
    source: str | None
    """Element format of C in shared memory, None when C is void."""


def smem_bits(name: str) -> int:
    """Bits an element of format `name` takes in the epilogue's shared memory (FP6 sits in 8-bit containers)."""
    plain = ELEMENTS[name].plain
    return 8 if plain in FP6 else ELEMENTS[name].bits


def _alignof(name: str) -> int:
    return ARRAY_ALIGN if smem_bits(name) >= 8 else 1


def swizzle_atom(name: str, layout: str, tile: tuple[int, int]) -> Atom | Broken:
    """Swizzle atom of a C or D tile: `ss_smem_selector` on the epilogue tile, K-major for row-major matrices."""
    contiguous, across = (tile[1], tile[0]) if layout == "row" else tile
    across_name, along_name = ("BLK_MN0", "BLK_K0") if layout == "row" else ("BLK_K0", "BLK_MN0")
    if across % ATOM_ROWS:
        return Broken(f"{across_name} must be a multiple of 8.", SELECTOR, "Use an epilogue tile of multiples of 8.")
    if contiguous % ATOM_ROWS:
        return Broken(f"{along_name} must be a multiple of 8.", SELECTOR, "Use an epilogue tile of multiples of 8.")
    atom = pick_atom(contiguous, smem_bits(name))
    if atom is None:
        major, index = ("K", 1) if layout == "row" else ("MN", 0)
        return Broken(
            f"{along_name} must be a multiple of size<{index}>(GMMA::Layout_{major}_INTER_Atom<ElementType>{{}})",
            SELECTOR,
            f"{contiguous} elements of {name} are not a multiple of 16 bytes: widen the epilogue tile.",
        )
    return atom


def lay_out(
    staging: Staging,
    output: str,
    source: str | None,
    atom_d: Atom,
    atom_c: Atom,
    thread: FusionStorage,
    *,
    stores_d: bool,
) -> Epilogue:
    """The epilogue's SharedStorage. `stores_d` is false when D is void: then C and D never share their place."""
    stages_c, stages_d = staging.stages_c, staging.stages_d
    reuse = staging.reuse_smem_c and stores_d
    area = staging.tile[0] * staging.tile[1]
    bytes_d = area * smem_bits(output) // 8 * (stages_c if reuse else stages_d)
    member_d = Member("smem_D", bytes_d, atom_d.align, _alignof(output))
    if source is None:
        # CollectiveStorageWithoutC: a union with an array of no elements, which takes a byte.
        collective = union([Member("smem_C", 1, 1, 1), member_d])
    else:
        bytes_c = area * smem_bits(source) // 8 * stages_c
        if reuse:
            align = max(atom_c.align, atom_d.align)
            collective = union(
                [
                    Member("smem_C", bytes_c, align, _alignof(source)),
                    Member("smem_D", bytes_d, align, _alignof(output)),
                ]
            )
        else:
            collective = struct([Member("smem_C", bytes_c, atom_c.align, _alignof(source)), member_d])

    tensors = struct(
        [
            Member("collective", collective.bytes, collective.align, collective.align),
            Member("thread", thread.bytes, thread.align, thread.align),
        ]
    )
    pipeline_bytes = BARRIER_PAIR * stages_c
    parts = [Member("tensors", tensors.bytes, tensors.align, tensors.align)]
    tensormap_bytes = None
    flags = (
        f"{stages_c}, {stages_d}, {staging.fragment_size}, {str(staging.reuse_smem_c).lower()}, "
        f"{str(staging.delay_tma_store).lower()}"
    )
    if staging.warp_groups is None:
        policy = f"cutlass::epilogue::Sm90TmaWarpSpecialized<{flags}>"
    else:
        # One descriptor for C and one for each epilogue warp group's D.
        tensormap_bytes = TMA_DESCRIPTOR * (1 + staging.warp_groups)
        parts.append(Member("tensormaps", tensormap_bytes, TMA_DESCRIPTOR, TMA_DESCRIPTOR))
        policy = f"cutlass::epilogue::Sm90PtrArrayTmaWarpSpecialized<{flags}, {staging.warp_groups}>"
    parts.append(Member("pipeline", pipeline_bytes, 8, 8))
    return Epilogue(
        tile=staging.tile,
        stages_c=stages_c,
        stages_d=stages_d,
        reuse_smem_c=staging.reuse_smem_c,
        delay_tma_store=staging.delay_tma_store,
        fragment_size=staging.fragment_size,
        warp_groups=staging.warp_groups,
        tensors=tensors,
        collective=collective,
        thread=thread,
        pipeline_bytes=pipeline_bytes,
        tensormap_bytes=tensormap_bytes,
        bytes=struct(parts).bytes,
        policy=policy,
        output=output,
        source=source,
    )


def figures(epi: Epilogue) -> dict[str, object]:
    """The Budget's keys that describe an epilogue."""
    return {
        "epilogue_bytes": epi.bytes,
        "epilogue_tensor_bytes": epi.tensors.bytes,
        "epilogue_pipeline_bytes": epi.pipeline_bytes,
        "epilogue_tensormap_bytes": epi.tensormap_bytes,
        "epilogue_fusion_bytes": epi.thread.bytes,
        "epilogue_tile": epi.tile,
        "stages_c": epi.stages_c,
        "stages_d": epi.stages_d,
        "reuse_smem_c": epi.reuse_smem_c,
        "delay_tma_store": epi.delay_tma_store,
        "fragment_size": epi.fragment_size,
        "epilogue_warp_groups": epi.warp_groups,
        "epilogue_policy": epi.policy,
    }


def entries(epi: Epilogue) -> list[Entry]:
    """Budget lines inside the epilogue's TensorStorage (paths `epilogue.tensors.*`)."""
    m, n = epi.tile
    out = [
        Entry(
            "epilogue.tensors.collective",
            epi.tensors.offsets[0],
            epi.tensors.members[0].bytes,
            epi.collective.align,
            f"C and D tiles of {m}x{n}, aligned to their swizzle ({epi.collective.align} bytes)",
        ),
        Entry("epilogue.tensors.thread", epi.tensors.offsets[1], epi.thread.bytes, epi.thread.align, epi.thread.why),
    ]
    smem_c, smem_d = epi.collective.members
    if epi.source is None:
        why_c = "C is void: an empty array, which takes a byte of the union"
    else:
        why_c = f"{epi.stages_c} stages x {m}x{n} x {smem_bits(epi.source)} bits ({epi.source})"
    reuse = epi.collective.offsets[1] == 0 and epi.source is not None
    shared = "; same place as C (equal widths: D overwrites C)" if reuse else ""
    stages = epi.stages_c if reuse else epi.stages_d
    why_d = f"{stages} stages x {m}x{n} x {smem_bits(epi.output)} bits ({epi.output}){shared}"
    base = "epilogue.tensors.collective."
    out.append(Entry(base + "smem_C", epi.collective.offsets[0], smem_c.bytes, smem_c.type_align, why_c))
    out.append(Entry(base + "smem_D", epi.collective.offsets[1], smem_d.bytes, smem_d.type_align, why_d))
    return out
