"""The TMA warp-specialised epilogue of SM90, which the SM120 builder reuses: tile, stages, reuse, storage.

Mirrors `epilogue/collective/builders/sm120_builder.inl` (what is chosen) and
`epilogue/collective/sm90_epilogue_tma_warpspecialized.hpp` / `sm90_epilogue_array_tma_warpspecialized.hpp` (how it is
laid out). All functions are pure; extents are in elements, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.fusion import FusionStorage, fusion_storage
from tilewright.cutlass.smem_atoms import ATOM_ROWS, Atom, pick_atom
from tilewright.cutlass.structs import Member, Struct, struct, union
from tilewright.cutlass.verdict import Broken, Entry
from tilewright.cutlass.versions import Rules, rules_for
from tilewright.formats.elements import ELEMENTS

BUILDER: Final = "cutlass/epilogue/collective/builders/sm120_builder.inl"
DENSE_HEADER: Final = "cutlass/epilogue/collective/sm90_epilogue_tma_warpspecialized.hpp"
ARRAY_HEADER: Final = "cutlass/epilogue/collective/sm90_epilogue_array_tma_warpspecialized.hpp"

FRAGMENT_SIZE: Final = 4
"""Accumulators a thread holds of one MMA output: `FragmentSize` in sm120_get_tma_dispatch_policy."""
WARP_GROUPS: Final = 2
"""`GetNumEpilogueWarpGroups`: 2 unless the schedule tag says otherwise; the tags that SM120 takes say 2 too."""
BARRIER_PAIR: Final = 16
"""One stage of PipelineTransactionAsync: a full and an empty mbarrier (`pipeline/sm90_pipeline.hpp`)."""
TMA_DESCRIPTOR: Final = 128
"""sizeof and alignof cute::TmaDescriptor (CUtensorMap)."""
ARRAY_ALIGN: Final = 16
"""alignof ArrayEngine for elements of a byte and more; arrays of sub-byte elements have alignment 1
(`cute/container/array_aligned.hpp`, `array_subbyte.hpp`)."""

SCHEDULES: Final = (
    "auto",
    "tma_warp_specialized",
    "tma_warp_specialized_cooperative",
    "ptr_array_tma_warp_specialized_pingpong",
    "ptr_array_tma_warp_specialized_cooperative",
    "sparse_tma_warp_specialized_cooperative_sm120",
)
"""Epilogue tags that the SM120 builder's enable_if accepts."""

_FP6: Final = ("e2m3", "e3m2")


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A laid-out epilogue. `bytes` is sizeof(SharedStorage): what StageCountAutoCarveout takes off the capacity."""

    tile: tuple[int, int]
    stages_c: int
    stages_d: int
    reuse_smem_c: bool
    delay_tma_store: bool
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


@dataclass(frozen=True, slots=True)
class EpilogueKey:
    """What an epilogue depends on, and nothing else, so that equal ones are laid out once."""

    version: str
    grouped: bool
    m: int
    n: int
    c: str
    d: str
    layout_c: str
    layout_d: str
    schedule: str
    fusion: str
    activation: str | None
    final_output: str | None
    layout_sfd: str
    swap_ab: bool
    epilogue_tile: tuple[int, int] | None


def epilogue_key(config: KernelConfig) -> EpilogueKey:
    """The part of `config` that fixes its epilogue; layouts as compiled (swap_ab transposes C and D)."""
    layout_c, layout_d = config.layout_c, config.layout_d
    if config.swap_ab:
        layout_c, layout_d = _TRANSPOSED[layout_c], _TRANSPOSED[layout_d]
    return EpilogueKey(
        config.cutlass,
        config.kind == "grouped",
        config.tile[0],
        config.tile[1],
        config.c,
        config.d,
        layout_c,
        layout_d,
        config.epilogue_schedule,
        config.fusion,
        config.activation,
        config.final_output,
        config.layout_sfd or layout_d,
        config.swap_ab,
        None if config.epilogue_tile == "auto" else config.epilogue_tile,
    )


_TRANSPOSED: Final = {"row": "col", "col": "row"}


def smem_bits(name: str) -> int:
    """Bits an element of format `name` takes in the epilogue's shared memory (FP6 sits in 8-bit containers)."""
    plain = ELEMENTS[name].plain
    return 8 if plain in _FP6 else ELEMENTS[name].bits


def _alignof(name: str) -> int:
    return ARRAY_ALIGN if ELEMENTS[name].bits >= 8 else 1


def choose_tile(key: EpilogueKey, rules: Rules) -> tuple[int, int] | Broken:
    """EpilogueTileAuto or the override: `sm120_compute_tile_shape_or_override`."""
    fp6 = key.d in _FP6
    row_major = key.layout_d == "row"
    if fp6 and (key.n if row_major else key.m) % 128:
        return Broken(
            "CTA tile for FP6 ElementD must have a contiguous extent that is a multiple of 128.",
            BUILDER,
            "Make the tile's contiguous extent of D a multiple of 128, or store D as FP8.",
        )
    if key.epilogue_tile is None:
        if fp6:
            return (64, 128) if row_major else (128, 32)
        if key.schedule == "sparse_tma_warp_specialized_cooperative_sm120":
            return _sparse_tile(key, row_major)
        if rules.small_n:
            return (128 if key.n < 16 else 64, min(key.n, 32))
        return (64, 32)
    m, n = key.epilogue_tile
    if fp6 and (n if row_major else m) % 128:
        return Broken(
            "EpilogueTile for narrow ElementD must have a contiguous extent that is a multiple of 128.",
            BUILDER,
            "Leave the epilogue tile at auto for an FP6 D.",
        )
    if key.m % m or key.n % n:
        return Broken(
            "EpilogueTile must evenly divide CTA tile",
            BUILDER,
            f"Choose an epilogue tile that divides {key.m}x{key.n}, or leave it at auto.",
        )
    return m, n


def _sparse_tile(key: EpilogueKey, row_major: bool) -> tuple[int, int]:
    """Sparse kernels get a smaller epilogue tile to leave the mainloop more: same function, sparse branch."""
    vector = ELEMENTS[key.d].scale_vector * 2 if key.fusion == "block_scale_out" and key.d != "void" else 0
    if vector == 64 and row_major:
        return 32, 64
    if key.c == "void":
        narrow = key.d != "void" and ELEMENTS[key.d].bits == 32
        return 64, 16 if narrow else 32
    return 64, 32 if ELEMENTS[key.c].bits <= 16 else 16


@lru_cache(maxsize=65536)
def epilogue(key: EpilogueKey) -> Epilogue | Broken:
    """Lay out the epilogue that `key` names, or say which rule it breaks first."""
    rules = rules_for(key.version)
    assert rules is not None, "callers check the release first"
    if key.schedule not in SCHEDULES:
        return Broken(
            "Could not build a collective epilogue for given parameters.",
            "cutlass/epilogue/collective/collective_builder.hpp",
            f"The SM120 epilogue builder takes none but {', '.join(SCHEDULES)}.",
        )
    tile = choose_tile(key, rules)
    if isinstance(tile, Broken):
        return tile
    output = (key.final_output if key.fusion == "finalize" else None) or key.d
    if output == "void":
        return Broken(
            "SmemElementD is void",
            ARRAY_HEADER if key.grouped else DENSE_HEADER,
            "Give d a type; only the finalize fusion stores through itself and leaves d void.",
        )
    header = ARRAY_HEADER if key.grouped else DENSE_HEADER
    for extent, cta, axis in ((tile[0], key.m, "M"), (tile[1], key.n, "N")):
        if cta % extent:
            return Broken(
                f"EPI_TILE_{axis} must divide CTA_{axis}",
                header,
                f"The epilogue tile is {tile[0]}x{tile[1]}: make the tile's {axis} a multiple of {extent}"
                + (", or use CUTLASS 4.6.0 or later for N below 32." if axis == "N" and not rules.small_n else "."),
            )

    source = None if key.c == "void" else key.c
    atom_d = _atom(output, key.layout_d, tile)
    atom_c = _atom(source, key.layout_c, tile) if source else atom_d
    if isinstance(atom_c, Broken):
        return atom_c
    if isinstance(atom_d, Broken):
        return atom_d

    tiles = (key.m // tile[0]) * (key.n // tile[1])
    bits_d = 0 if key.d == "void" else ELEMENTS[key.d].bits
    bits_c = 0 if source is None else ELEMENTS[source].bits
    # Same width means that D may overwrite C in place; 8-bit residuals load fast and stay separate.
    reuse = bits_c == bits_d and bits_d > 8
    stages_d = 1 if key.d in _FP6 and key.layout_d == "row" else min(tiles, 2)
    stages_c = max(min(tiles, 2), stages_d + 1) if reuse else stages_d

    thread = fusion_storage(
        key.fusion,
        key.grouped,
        rules,
        tile_n=key.n,
        epilogue_tile=tile,
        stages_d=stages_d,
        output=output,
        activation=key.activation,
        swap_ab=key.swap_ab,
        layout_sfd=key.layout_sfd,
        layout_d=key.layout_d,
    )
    if isinstance(thread, Broken):
        return thread

    area = tile[0] * tile[1]
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
    if key.grouped:
        # One descriptor for C and one for each epilogue warp group's D.
        tensormap_bytes = TMA_DESCRIPTOR * (1 + WARP_GROUPS)
        parts.append(Member("tensormaps", tensormap_bytes, TMA_DESCRIPTOR, TMA_DESCRIPTOR))
    parts.append(Member("pipeline", pipeline_bytes, 8, 8))
    delay = source is None
    flags = f"{stages_c}, {stages_d}, {FRAGMENT_SIZE}, {str(reuse).lower()}, {str(delay).lower()}"
    policy = (
        f"cutlass::epilogue::Sm90PtrArrayTmaWarpSpecialized<{flags}, {WARP_GROUPS}>"
        if key.grouped
        else f"cutlass::epilogue::Sm90TmaWarpSpecialized<{flags}>"
    )
    return Epilogue(
        tile=tile,
        stages_c=stages_c,
        stages_d=stages_d,
        reuse_smem_c=reuse,
        delay_tma_store=delay,
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


def _atom(name: str, layout: str, tile: tuple[int, int]) -> Atom | Broken:
    """Swizzle atom of a C or D tile: `ss_smem_selector` on the epilogue tile, K-major for row-major matrices."""
    contiguous, across = (tile[1], tile[0]) if layout == "row" else tile
    across_name, along_name = ("BLK_MN0", "BLK_K0") if layout == "row" else ("BLK_K0", "BLK_MN0")
    where = "cutlass/gemm/collective/builders/sm90_common.inl"
    if across % ATOM_ROWS:
        return Broken(f"{across_name} must be a multiple of 8.", where, "Use an epilogue tile of multiples of 8.")
    if contiguous % ATOM_ROWS:
        return Broken(f"{along_name} must be a multiple of 8.", where, "Use an epilogue tile of multiples of 8.")
    atom = pick_atom(contiguous, smem_bits(name))
    if atom is None:
        major, index = ("K", 1) if layout == "row" else ("MN", 0)
        return Broken(
            f"{along_name} must be a multiple of size<{index}>(GMMA::Layout_{major}_INTER_Atom<ElementType>{{}})",
            where,
            f"{contiguous} elements of {name} are not a multiple of 16 bytes: widen the epilogue tile.",
        )
    return atom


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
        "fragment_size": FRAGMENT_SIZE,
        "epilogue_warp_groups": None if epi.tensormap_bytes is None else WARP_GROUPS,
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
    shared = "; same place as C (equal widths: D overwrites C)" if epi.reuse_smem_c else ""
    stages = epi.stages_c if epi.reuse_smem_c else epi.stages_d
    why_d = f"{stages} stages x {m}x{n} x {smem_bits(epi.output)} bits ({epi.output}){shared}"
    base = "epilogue.tensors.collective."
    out.append(Entry(base + "smem_C", epi.collective.offsets[0], smem_c.bytes, smem_c.type_align, why_c))
    out.append(Entry(base + "smem_D", epi.collective.offsets[1], smem_d.bytes, smem_d.type_align, why_d))
    return out
