"""What the mainloops of SM120 have in common: their parts, the stage count, storage and names.

Mirrors what `gemm/collective/builders/sm120_*_builder.inl` and `gemm/collective/sm120_*_tma*.hpp` share. The MMAs read
both operands from registers, so shared memory holds A, B and scales a stage, nothing else. Sizes in bytes, extents in
elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.cutlass.laid import StageCount
from tilewright.cutlass.operands import Operands
from tilewright.cutlass.smem_atoms import ATOM_ROWS, pick_atom
from tilewright.cutlass.structs import Member, Struct, round_up, struct, tensor_maps
from tilewright.cutlass.verdict import Broken, Entry, no_collective
from tilewright.cutlass.versions import BARRIER_PAIR_BYTES
from tilewright.formats.elements import ELEMENTS, Element

CAPACITY: Final = 101376
"""sm120_smem_capacity_bytes (`cutlass/arch/arch.h`): the opt-in limit of a block, 99 KiB."""
TENSOR_ALIGN: Final = 1024
"""`alignas(1024)` on smem_A and smem_B in every SM120 collective."""
ARRAY_ALIGN: Final = 16
"""alignof array_aligned and of arrays of whole bytes."""
SCALE_BYTES: Final = 4
"""Software scales are FP32 (ElementAccumulator)."""
SF_ROWS: Final = 128
"""Rows (or columns) of one block of scale factors: Blk_MN of Sm1xxBlockScaledConfig."""
SF_GROUP: Final = 4
"""Scale factors along K of one block: Blk_SF of Sm1xxBlockScaledConfig."""
MIN_STAGES: Final = 2
"""`static_assert(DispatchPolicy::Stages >= 2)` in every SM120 collective."""

BLOCKSCALED_BUILDER: Final = "cutlass/gemm/collective/builders/sm120_blockscaled_mma_builder.inl"
TENSOR_BUILDER: Final = "cutlass/gemm/collective/builders/sm120_mma_builder.inl"
ARRAY_BUILDER: Final = "cutlass/gemm/collective/builders/sm120_array_mma_builder.inl"
BLOCKWISE_BUILDER: Final = "cutlass/gemm/collective/builders/sm120_blockwise_mma_builder.inl"
COMMON: Final = "cutlass/gemm/collective/builders/sm1xx_common.inl"
MMA: Final = "cute/arch/mma_sm120.hpp"

COLLECTIVE: Final = {
    ("block_scaled", False): "cutlass/gemm/collective/sm120_blockscaled_mma_tma.hpp",
    ("block_scaled", True): "cutlass/gemm/collective/sm120_blockscaled_mma_array_tma.hpp",
    ("tensor_op", False): "cutlass/gemm/collective/sm120_mma_tma.hpp",
    ("tensor_op", True): "cutlass/gemm/collective/sm120_mma_array_tma.hpp",
    ("blockwise", False): "cutlass/gemm/collective/sm120_mma_tma_blockwise_scaling.hpp",
    ("blockwise", True): "cutlass/gemm/collective/sm120_mma_array_tma_blockwise_scaling.hpp",
}

F8F6F4: Final = frozenset({"e4m3", "e5m2", "e2m3", "e3m2", "e2m1"})


@dataclass(frozen=True, slots=True)
class Mainloop:
    """A laid-out mainloop. `bytes` is sizeof(SharedStorage)."""

    stages: int
    count: StageCount
    pingpong: bool
    tensors: Struct
    tensormaps: Struct | None
    pipeline_bytes: int
    bytes: int
    scheduler_stages: int
    sf_short: bool | None
    policy: str
    schedule: str
    members_why: tuple[str, ...]


def k_major_only(ops: Operands, where: str) -> Broken | None:
    if (ops.layout_a, ops.layout_b) == ("row", "col"):
        return None
    return Broken("Only TN layout is supported.", where, "Store A row-major (K contiguous) and B column-major.")


def single_cta(cluster: tuple[int, int, int], where: str) -> Broken | None:
    """The assert of every builder but the blockwise one that a cluster is one CTA."""
    if cluster == (1, 1, 1):
        return None
    return Broken(
        "no programmatic multicast on this arch",
        where,
        "This collective demands cluster 1x1x1 (SM120 has clusters, but its TMA cannot multicast).",
    )


def operand_atoms(tile: tuple[int, int, int], bits_a: int, bits_b: int, where: str) -> Broken | None:
    """`sm120_rr_smem_selector` and the divisibility asserts of the collective."""
    m, n, k = tile
    if pick_atom(k, bits_a) is None or pick_atom(k, bits_b) is None:
        return Broken(
            "No shared memory copy atom can be selected.",
            "cutlass/gemm/collective/builders/sm120_common.inl",
            f"The tile's K of {k} is not a whole number of 16-byte rows; use a multiple of 32.",
        )
    if m % ATOM_ROWS or n % ATOM_ROWS:
        return Broken("SmemLayoutAtom must evenly divide tile shape.", where, "Make the tile's M and N multiples of 8.")
    return None


def _is_aligned(fmt: Element, align: int, f8f6f4_subbyte: bool) -> bool:
    """`get_input_alignment_bits` (`cutlass/detail/collective.hpp`): 16 bytes; for FP4/FP6 in f8f6f4 128 elements."""
    need = 128 * fmt.bits if f8f6f4_subbyte and fmt.bits < 8 else 128
    return fmt.bits * align % need == 0


def aligned(ops: Operands, f8f6f4_subbyte: bool) -> Broken | None:
    for name, align, key in ((ops.a, ops.align_a, "A"), (ops.b, ops.align_b, "B")):
        fmt = ELEMENTS[name]
        if not _is_aligned(fmt, align, f8f6f4_subbyte):
            need = 128 if f8f6f4_subbyte and fmt.bits < 8 else -(-128 // fmt.bits)
            return no_collective(
                f"Alignment {align} of {key} ({name}) is below what its TMA load needs; use {need} elements.",
            )
    return None


def count_stages(
    stages: int | None,
    carveout: int,
    terms: tuple[tuple[str, int], ...],
    reserved: tuple[tuple[str, int], ...] = (),
) -> StageCount:
    stage_bytes = sum(size for _, size in terms)
    capacity = CAPACITY - sum(size for _, size in reserved)
    # C++ integer division truncates towards zero; a negative rest only ever means "no stage".
    counted = max(0, capacity - carveout) // stage_bytes if stage_bytes else 0
    return StageCount(
        stages if stages is not None else counted,
        stages is not None,
        capacity,
        carveout,
        stage_bytes,
        terms,
        reserved,
    )


def too_few(count: StageCount, op_class: str, grouped: bool) -> Broken | None:
    if count.stages >= MIN_STAGES:
        return None
    if count.pinned:
        advice = "Ask for 2 stages or more."
    else:
        room = max(0, count.capacity - count.carveout)
        advice = (
            f"A stage takes {count.stage_bytes:,} bytes and {room:,} are left beside the epilogue: "
            f"room for {count.stages}. Use a smaller tile or epilogue."
        )
    return Broken("Specialization requires Stages set to value 2 or more.", COLLECTIVE[op_class, grouped], advice)


def finish(
    op_class: str,
    grouped: bool,
    pingpong: bool,
    count: StageCount,
    members: list[Member],
    maps: tuple[str, ...],
    scheduler_stages: int,
    sf_short: bool | None,
    whys: list[str],
    cluster: tuple[int, int, int] = (1, 1, 1),
) -> Mainloop:
    tensors = struct(members, TENSOR_ALIGN)
    pipeline = BARRIER_PAIR_BYTES * count.stages
    parts = [Member("tensors", tensors.bytes, tensors.align, tensors.align)]
    tensormaps = tensor_maps(maps) if grouped else None
    if tensormaps is not None:
        parts.append(Member("tensormaps", tensormaps.bytes, tensormaps.align, tensormaps.align))
    parts.append(Member("pipeline_storage", pipeline, 16, 8))
    family = {"block_scaled": "BlockScaled", "tensor_op": "", "blockwise": "BlockwiseScaling"}[op_class]
    array, ptr = ("Array", "PtrArray") if grouped else ("", "")
    kind = "Pingpong" if pingpong else "Cooperative"
    schedule = f"cutlass::gemm::Kernel{ptr}TmaWarpSpecialized{kind}{family}Sm120<{scheduler_stages}>"
    extents = ", ".join(f"cute::C<{extent}>" for extent in cluster)
    policy = (
        f"cutlass::gemm::MainloopSm120{array}TmaWarpSpecialized{family}"
        f"<{count.stages}, {scheduler_stages}, cute::tuple<{extents} >, {schedule} >"
    )
    return Mainloop(
        stages=count.stages,
        count=count,
        pingpong=pingpong,
        tensors=tensors,
        tensormaps=tensormaps,
        pipeline_bytes=pipeline,
        bytes=struct(parts).bytes,
        scheduler_stages=scheduler_stages,
        sf_short=sf_short,
        policy=policy,
        schedule=schedule,
        members_why=tuple(whys),
    )


def operand_member(name: str, rows: int, k: int, bits: int, stages: int) -> Member:
    size = rows * k * bits // 8 * stages
    return Member(name, size, TENSOR_ALIGN, ARRAY_ALIGN if bits >= 8 else 1)


def operand_why(name: str, axis: str, rows: int, k: int, bits: int, stages: int) -> str:
    container = f"{name} in 8-bit containers" if bits == 8 and ELEMENTS[name].bits < 8 else f"{name}, {bits} bits"
    return f"{stages} stages x {axis} {rows} x K {k} ({container})"


def scale_member(name: str, size: int) -> Member:
    """An ArrayEngine of 8-bit scales: whole 16 bytes, and 16 bytes when it has no element."""
    return Member(name, max(ARRAY_ALIGN, round_up(size, ARRAY_ALIGN)), ARRAY_ALIGN, ARRAY_ALIGN)


def mixed_k(a: Element, b: Element, k: int, where: str, met: str = "met with") -> Broken | None:
    """`sm1xx_gemm_check_for_f8f6f4_mix8bit_requirement`: TMA unpacks FP4/FP6 in rows of 128 elements."""
    if k % 128 and (a.bits < 8 or b.bits < 8):
        return Broken(
            f"TileSize and MNK Major does not {met} MMA Mix 8-bit TMA load requirement",
            where,
            f"FP4 and FP6 operands are unpacked 128 elements at a time: K must be a multiple of 128, not {k}.",
        )
    return None


def plain_inputs(ops: Operands, where: str, what: str) -> Broken | None:
    if ops.a not in F8F6F4 or ops.b not in F8F6F4:
        return Broken(
            f"SM120 {what} builder currently only supports F8F6F4 MMA.",
            where,
            f"{ops.a} x {ops.b} has no SM120 builder; use FP8, FP6 or FP4 operands.",
        )
    return None


def entries(main: Mainloop) -> list[Entry]:
    """Budget lines inside the mainloop (paths `mainloop.tensors.*` and `mainloop.tensormaps.*`)."""
    out = [
        Entry(f"mainloop.tensors.{member.name}", offset, member.bytes, member.type_align, why)
        for member, offset, why in zip(main.tensors.members, main.tensors.offsets, main.members_why, strict=True)
    ]
    if main.tensormaps:
        for member, offset in zip(main.tensormaps.members, main.tensormaps.offsets, strict=True):
            operand = member.name.rsplit("_", 1)[1]
            out.append(
                Entry(
                    f"mainloop.tensormaps.{member.name}",
                    offset,
                    member.bytes,
                    member.type_align,
                    f"TMA descriptor of {operand}, rewritten for each group",
                )
            )
    return out
