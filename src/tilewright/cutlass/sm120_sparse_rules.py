"""What the builders of sparse SM120 mainloops assert before they lay anything out, in the compiler's order.

Mirrors `gemm/collective/builders/sm120_sparse_mma_builder.inl`, `sm120_blockscaled_sparse_mma_builder.inl` and the
alignment and K requirements of `builders/sm1xx_common.inl`. Extents and alignments in logical elements.
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass import sm120_tags
from tilewright.cutlass.operands import Operands
from tilewright.cutlass.sm120_collective import COMMON, F8F6F4, single_cta
from tilewright.cutlass.sm120_tags import Tag
from tilewright.cutlass.verdict import Broken, no_collective
from tilewright.formats.elements import ELEMENTS, Element

SPARSE_BUILDER: Final = "cutlass/gemm/collective/builders/sm120_sparse_mma_builder.inl"
SCALED_BUILDER: Final = "cutlass/gemm/collective/builders/sm120_blockscaled_sparse_mma_builder.inl"
SPARSE_MMA: Final = "cute/arch/mma_sm120_sparse.hpp"

SPARSITY: Final = 2
"""2:4 (and, for FP4 pairs, 4:8) sparsity: half of A's elements are stored; a scale covers twice as many of them."""


def no_tag(schedule: str, op_class: str) -> Broken:
    """The answer to a schedule that no sparse builder takes."""
    if op_class == "sparse":
        advice = f"The SM120 sparse builder does not take the schedule {schedule}; leave it at auto."
    else:
        advice = (
            f"The SM120 block-scaled sparse builder does not take the schedule {schedule}, and has no auto: use "
            "cooperative (KernelSparseTmaWarpSpecialized{Nvf4,Mxf4,Mxf8f6f4}Sm120)."
        )
    return no_collective(advice)


def plain(
    grouped: bool,
    ops: Operands,
    acc: str,
    tile: tuple[int, int, int],
    cluster: tuple[int, int, int],
    tag: Tag,
    pinned: bool,
) -> Broken | None:
    """The first rule that plain f8f6f4 operands (OpClassSparseTensorOp) break."""
    a, b = ELEMENTS[ops.a], ELEMENTS[ops.b]
    return (
        alignment(ops, a.bits < 8 or b.bits < 8)
        or plain_inputs(ops)
        or single_cta(cluster, SPARSE_BUILDER)
        or k_major(ops, grouped)
        or unpacked(ops, tile, SPARSE_BUILDER)
        or accumulator(acc, ("f32", "f16"), "SM120_SPARSE_16x8x64_TN")
        or instruction_tag(tag)
        or stage_count(pinned, SPARSE_BUILDER, "sm120_compute_stage_count_or_override_sparse")
    )


def block_scaled(
    grouped: bool,
    ops: Operands,
    acc: str,
    tile: tuple[int, int, int],
    cluster: tuple[int, int, int],
    tag: Tag,
    pinned: bool,
) -> Broken | None:
    """The first rule that NVFP4 and OCP MX operands (OpClassBlockScaledSparseTensorOp) break."""
    a, b = ELEMENTS[ops.a], ELEMENTS[ops.b]
    for fmt, key in ((a, "a"), (b, "b")):
        if not fmt.block_scaled:
            advice = f"{key} = {fmt.name} carries no scale factors; use an nvfp4 or mx format."
            return no_collective(advice)
    wide = in_bytes(tag, a, b, ops)
    return (
        alignment(ops, tag.instruction == "mxf8f6f4" and (a.bits < 8 or b.bits < 8))
        or same_scales(a, b)
        or packed_layouts(tag, a, b, ops)
        or sm120_tags.check_inputs(tag, a, b, SPARSITY)
        or single_cta(cluster, SCALED_BUILDER)
        or (unpacked(ops, tile, SCALED_BUILDER) if tag.instruction == "mxf8f6f4" else None)
        or accumulator(acc, ("f32",), f"SM120_SPARSE_16x8x{64 if wide else 128}_TN_VS")
        or stage_count(pinned, "cute/int_tuple.hpp", None)
        or (array_kernel() if grouped else None)
    )


def in_bytes(tag: Tag, a: Element, b: Element, ops: Operands) -> bool:
    """`select_instr`: whether the instruction reads its operands in 8-bit containers (mxf8f6f4) rather than packed FP4
    (mxf4nvf4). The tag that leaves the choice open takes mxf8f6f4 for FP4 pairs that are not both K-major."""
    if not (a.bits == 4 and b.bits == 4) or tag.instruction == "mxf8f6f4":
        return True
    return tag.instruction == "auto" and not _tn(ops)


def _tn(ops: Operands) -> bool:
    return (ops.layout_a, ops.layout_b) == ("row", "col")


def packed_layouts(tag: Tag, a: Element, b: Element, ops: Operands) -> Broken | None:
    """`check_input_datatypes`: packed FP4 is K-major. The block-scaled sparse builder asserts no layout beyond that."""
    if not (a.bits == 4 and b.bits == 4) or _tn(ops):
        return None
    text = "NV_F4 only supports RowMajor A, and ColMajorB"
    if tag.instruction == "mxnvf4":
        return Broken(f"MX/{text}", COMMON, _K_MAJOR_ADVICE)
    if tag.instruction == "auto" and a.scale == "ue4m3":
        return Broken(text, COMMON, _K_MAJOR_ADVICE)
    return None


def array_kernel() -> Broken:
    """Neither sparse builder has a ptr-array kernel behind it."""
    return Broken(
        "ProblemShape{} should be <M,N,K> or <M,N,K,L>",
        "cutlass/gemm/kernel/sm120_gemm_tma_warpspecialized_cooperative_asymmetric_dma.hpp",
        _DENSE_ADVICE,
    )


_K_MAJOR_ADVICE: Final = "Store A row-major (K contiguous) and B column-major."
_DENSE_ADVICE: Final = "Sparse SM120 kernels are dense GEMMs only (no ptr-array builder): use kind dense."


def alignment(ops: Operands, f8f6f4_subbyte: bool) -> Broken | None:
    """`sm1xx_sparse_gemm_is_aligned`: A's alignment counts logical elements, half of which are stored (K-major)."""
    factor = SPARSITY if ops.layout_a == "row" else 1
    for name, align, key, stored in ((ops.a, ops.align_a, "A", factor), (ops.b, ops.align_b, "B", 1)):
        fmt = ELEMENTS[name]
        need = 128 * fmt.bits if f8f6f4_subbyte and fmt.bits < 8 else 128
        if fmt.bits * align // stored % need:
            elements = -(-need // fmt.bits) * stored
            advice = f"Alignment {align} of {key} ({name}) is below what its TMA load needs; use {elements} elements."
            return no_collective(advice)
    return None


def plain_inputs(ops: Operands) -> Broken | None:
    if ops.a in F8F6F4 and ops.b in F8F6F4:
        return None
    return Broken(
        "SM120 Sparse TmaWarpSpecialized builder currently only supports F8F6F4 MMA.",
        SPARSE_BUILDER,
        f"{ops.a} x {ops.b} has no sparse SM120 builder; use FP8, FP6 or FP4 operands.",
    )


def same_scales(a: Element, b: Element) -> Broken | None:
    if a.scale == b.scale:
        return None
    return Broken(
        "Scale factor types for A and B should be the same.",
        COMMON,
        f"{a.name} scales with {a.scale}, {b.name} with {b.scale}: NVFP4 pairs with NVFP4 only.",
    )


def k_major(ops: Operands, grouped: bool) -> Broken | None:
    """The plain builder's asserts; a ptr-array layout tag is no RowMajor either."""
    if grouped:
        return Broken("LayoutA must be K major.", SPARSE_BUILDER, _DENSE_ADVICE)
    for layout, wanted, key in ((ops.layout_a, "row", "A"), (ops.layout_b, "col", "B")):
        if layout != wanted:
            return Broken(f"Layout{key} must be K major.", SPARSE_BUILDER, _K_MAJOR_ADVICE)
    return None


def unpacked(ops: Operands, tile: tuple[int, int, int], where: str) -> Broken | None:
    """`sm1xx_gemm_check_for_f8f6f4_mix8bit_requirement`: TMA unpacks FP4/FP6 in rows of 128 stored elements."""
    m, n, k = tile
    need_a = (k, "K", 128 * SPARSITY) if ops.layout_a == "row" else (m, "M", 128)
    need_b = (k, "K", 128) if ops.layout_b == "col" else (n, "N", 128)
    for name, (extent, axis, multiple), key in ((ops.a, need_a, "A"), (ops.b, need_b, "B")):
        if ELEMENTS[name].bits < 8 and extent % multiple:
            return Broken(
                "TileSize and MNK Major does not met with MMA Mix 8-bit TMA load requirement",
                where,
                f"{name} of {key} is unpacked 128 stored elements at a time: {axis} must be a multiple of {multiple}, "
                f"not {extent}.",
            )
    return None


def accumulator(acc: str, legal: tuple[str, ...], instruction: str) -> Broken | None:
    if acc in legal:
        return None
    text = f"No MMA matches {instruction} for given data types."
    return Broken(text, SPARSE_MMA, f"This instruction accumulates in {' or '.join(legal)}.")


def instruction_tag(tag: Tag) -> Broken | None:
    if tag.name != "KernelScheduleSparseGemmSm120":
        return None
    text = "Non-blockscaled collective builder only supports F8F6F4 MMA."
    return Broken(text, SPARSE_BUILDER, "Use KernelScheduleSparseF8f6f4Sm120 or auto.")


def stage_count(pinned: bool, where: str, function: str | None) -> Broken | None:
    """A pinned StageCount<n> picks no overload (plain), or one that returns no pair (block-scaled)."""
    if not pinned:
        return None
    text = (
        f'no instance of overloaded function "cutlass::gemm::collective::detail::{function}" matches the argument list'
    )
    return Broken(
        text if function else "Index out of range",
        where,
        "Sparse SM120 builders cannot pin a stage count: leave stages at auto.",
    )
