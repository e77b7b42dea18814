"""Tensor-core instructions of SM100: which tile, formats and layouts the fifth-generation MMAs take.

Mirrors `sm100_make_{1sm,2sm}_trivial_tiled_mma` and the block-scaled counterparts (`gemm/collective/builders/
sm100_common.inl`), the asserts of the atoms (`cute/arch/mma_sm100_umma.hpp`, `cute/atom/mma_traits_sm100.hpp`) and the
checks of `builders/sm1xx_common.inl` and `sm100_umma_builder.inl`. Extents in elements; K extents are logical ones for
2:4 sparse operands.
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass.operands import Operands
from tilewright.cutlass.sm100_tags import SPARSITY, Instruction, Tag
from tilewright.cutlass.sm100_versions import Sm100Rules
from tilewright.cutlass.verdict import Broken, no_collective
from tilewright.formats.elements import ELEMENTS

COMMON: Final = "cutlass/gemm/collective/builders/sm100_common.inl"
SHARED: Final = "cutlass/gemm/collective/builders/sm1xx_common.inl"
BUILDER: Final = "cutlass/gemm/collective/builders/sm100_umma_builder.inl"
UMMA: Final = "cute/arch/mma_sm100_umma.hpp"
TRAITS: Final = "cute/atom/mma_traits_sm100.hpp"

BYTE_BITS: Final = 8
MAX_N: Final = 256
INSTRUCTION_BITS: Final = 256
"""Bits of K that one dense instruction reads of each row."""
F8F6F4: Final = frozenset({"e4m3", "e5m2", "e2m3", "e3m2", "e2m1"})
_SAME: Final = frozenset({"tf32", "f32", "f16", "bf16", "int8", "uint8"})
SCALED_N: Final = (64, 128, 192, 256)
UNPACKED_K: Final = 128
"""Elements of the contiguous mode that TMA unpacks 4- and 6-bit operands to bytes in (Mix 8-bit requirement)."""

VECTOR_BITS: Final = 128
_UNPACKED_ALIGNMENT_BITS: Final = {4: 64 * 8, 6: 96 * 8}
"""get_input_alignment_bits of operands that TMA unpacks (`cutlass/detail/layout.hpp`)."""


def aligned(ops: Operands, unpacked: bool, sparse: bool) -> Broken | None:
    """`sm1xx_*_is_aligned`, part of the builders' enable_if. `unpacked`: 4- and 6-bit operands go through TMA's
    unpacking formats, which want 64 and 96 bytes."""
    for name, alignment, layout in ((ops.a, ops.align_a, ops.layout_a), (ops.b, ops.align_b, "")):
        bits = ELEMENTS[name].bits
        compressed = SPARSITY if sparse and layout == "row" else 1
        needed = _UNPACKED_ALIGNMENT_BITS.get(bits, VECTOR_BITS) if unpacked else VECTOR_BITS
        if bits * alignment // compressed % needed:
            return no_collective(
                f"TMA loads {name} in {needed // 8}-byte vectors: align it to {needed * compressed // bits} elements.",
            )
    return None


def plain_inputs(ops: Operands) -> Broken | None:
    """`check_input_datatypes` of the dense builder."""
    a, b = ELEMENTS[ops.a].plain, ELEMENTS[ops.b].plain
    if {a, b} <= F8F6F4 or (a == b and a in _SAME):
        return None
    return Broken(
        "Unsupported data type for ElementA",
        BUILDER,
        f"No SM100 MMA multiplies {ops.a} by {ops.b}: use equal types (tf32, f16, bf16, int8), or FP8, FP6 and FP4 in "
        "any mix.",
    )


def sparse_inputs(ops: Operands, sm: int) -> Broken | None:
    """Formats that the sparse MMAs take. `sm100_make_sparse_*_trivial_tiled_mma` wants equal 16- and 32-bit ones; of
    narrower ones the atom looks at widths only (`cute/atom/mma_traits_sm100.hpp`)."""
    a, b = ELEMENTS[ops.a], ELEMENTS[ops.b]
    if a.bits > BYTE_BITS:
        if a.plain == b.plain and a.plain in _SAME:
            return None
        return Broken(
            "ElementA and ElementBMma must match.",
            "cutlass/gemm/collective/builders/sm100_sparse_umma_builder.inl",
            f"No sparse MMA multiplies {ops.a} by {ops.b}: use equal types, or FP8, FP6 and FP4 in any mix.",
        )
    integer = a.plain not in F8F6F4
    if b.bits == BYTE_BITS or (b.bits < BYTE_BITS and not integer):
        return None
    name = f"SM100_MMA_{'S8' if integer else 'F8F6F4'}{'' if sm == 1 else '_2x1SM'}_SS_SPARSE"
    return Broken(
        f"{name} supports {'8bit types' if integer else 'types with leq 8bit types'}",
        TRAITS,
        f"No sparse MMA multiplies {ops.a} by {ops.b}: give both operands "
        + ("8 bits." if integer else "8 bits or less."),
    )


def is_unpacked(name: str) -> bool:
    """Whether an f8f6f4 operand is one that TMA unpacks to a byte an element."""
    return ELEMENTS[name].bits < 8


def mixed_widths(ops: Operands, tile: tuple[int, int, int], sm: int, sparse: bool) -> Broken | None:
    """`sm1xx_gemm_check_for_f8f6f4_mix8bit_requirement`. `sm` as the builder counts it, not as the MMA does."""
    m, n, k = tile[0] // sm, tile[1], tile[2]
    # an unpacked operand needs 128 physical elements along its contiguous mode in each SM
    a_k_major, b_k_major = ops.layout_a == "row", ops.layout_b == "col"
    valid_a = (
        not is_unpacked(ops.a) or (k % (UNPACKED_K * (SPARSITY if sparse else 1)) if a_k_major else m % UNPACKED_K) == 0
    )
    valid_b = not is_unpacked(ops.b) or (k % UNPACKED_K if b_k_major else n % (UNPACKED_K * sm)) == 0
    if valid_a and valid_b:
        return None
    return Broken(
        "TileSize and MNK Major does not met with MMA Mix 8-bit TMA load requirement",
        SHARED,
        "A 4- or 6-bit operand in an f8f6f4 MMA needs 128 elements along its contiguous mode in each SM (256 logical "
        "ones of a sparse K-major A): raise that extent of the tile.",
    )


def tile_shape(tile: tuple[int, int, int], sm: int, legal_n: tuple[int, ...] | None) -> Broken | None:
    """M and N of a trivial tiled MMA. `legal_n` None: multiples of 8 up to 256."""
    m, n, _ = tile
    legal_m = ((64, 128) if sm == 1 else (128, 256)) if legal_n is None else (128 * sm,)
    if m not in legal_m:
        return Broken(
            "Invalid TileShape_M.",
            COMMON,
            f"A {sm}sm MMA has M of {' or '.join(map(str, legal_m))}, not {m}: change the tile or the schedule.",
        )
    if n > MAX_N or (n % 8 if legal_n is None else n not in legal_n):
        legal = "a multiple of 8 up to 256" if legal_n is None else ", ".join(map(str, legal_n))
        return Broken("Invalid TileShape_N.", COMMON, f"N must be {legal}, not {n}.")
    return None


def atom(
    ops: Operands, acc: str, tile: tuple[int, int, int], sm: int, sparse: bool, rules: Sm100Rules
) -> Broken | None:
    """The asserts of the MMA atom that the operands select."""
    m, n, _ = tile
    a = ELEMENTS[ops.a].plain
    suffix = "_SPARSE" if sparse else ""
    if a in ("int8", "uint8"):
        if acc != "int32" and sm == 1:  # the 2sm atoms do not ask
            return Broken(f"SM100_MMA_S8_SS{suffix} result type can only be int32_t.", UMMA, "Accumulate in int32.")
        step = 32 if sm == 2 else 16
        if n % step == 0 or (sm == 1 and n == 8):
            return None
        name = f"SM100_MMA_S8_SS{suffix}" if sm == 1 else f"SM100_MMA_S8{'' if sparse else '_2x1SM_SS'}"
        eight = "8 or " if sm == 1 else ""
        return _columns(name, f"{eight}a multiple of {step} between {step} and 256.", UMMA, n, step)
    f8 = a in F8F6F4
    kind, where = ("F8F6F4", TRAITS) if f8 else ("F16BF16" if a in ("f16", "bf16") else "TF32", UMMA)
    # atoms that take finer columns where M is 64: all of them before 4.2.0, sparse FP8 ones still
    strict = not rules.wide_n or (f8 and sparse)
    if strict:
        step = 32 if sm == 2 else 16 if m > 64 else 8
    else:
        step = (8 if sm == 1 else 16) * (2 if f8 and ops.layout_b == "row" else 1)
    if n % step == 0:
        return None
    name = f"SM100_MMA_{kind}{'_2x1SM_SS' if sm == 2 else '_SS' if f8 or sparse else ''}{suffix}"
    if f8 and sparse:
        where = UMMA
    says = f"a multiple of {step} between {step} and 256"
    if strict and sm == 1:
        says = "a multiple of 8 between 8 and 256 for M=64, or a multiple of 16 between 16 and 256 for M=128"
    elif f8 and not strict:
        least = 8 * sm
        says = (
            f"a multiple of {least} between {least} and 256 when B is K major. {name} N-mode size should be a multiple "
            f"of {2 * least} between {2 * least} and 256 when B is MN major"
        )
    return _columns(name, f"{says}.", where, n, step)


def _columns(name: str, legal: str, where: str, n: int, step: int) -> Broken:
    return Broken(f"{name} N-mode size should be {legal}", where, f"N of {n} is none: make it a multiple of {step}.")


def instruction_k(bits: int, sparse: bool) -> int:
    """K of one instruction over operands of `bits` (bytes for FP8, FP6 and FP4)."""
    return INSTRUCTION_BITS // max(bits, 8) * (SPARSITY if sparse else 1)


def whole_instructions(k: int, step: int) -> Broken | None:
    """The tile's K in whole instructions: `evenly_divides(TileShape{}, tile_shape(TiledMma{}))`."""
    if k % step == 0:
        return None
    return Broken(
        "TileShape should be evenly divided by TiledMma",
        "cutlass/gemm/collective/sm100_mma_warpspecialized.hpp",
        f"One instruction takes K of {step}: make the tile's K a multiple of it, not {k}.",
    )


def scaled_vector(name: str, sparse: bool) -> int:
    """Logical elements that share a scale (`blockscaled_type::SfVectorSize`)."""
    return ELEMENTS[name].scale_vector * (SPARSITY if sparse else 1)


def scaled_inputs(tag: Tag, ops: Operands, sparse: bool) -> Broken | None:
    """`blockscaled::check_input_datatypes` and the asserts of `select_instr`."""
    a, b = ELEMENTS[ops.a], ELEMENTS[ops.b]
    if not (a.block_scaled and b.block_scaled):
        return no_collective("Both operands need a block-scaled format (nvfp4, mxfp4, mxfp8...).")
    if a.scale != b.scale:
        return Broken(
            "Scale factor types for A and B should be the same.",
            SHARED,
            f"{a.name} and {b.name} have different scales.",
        )
    k_major = (ops.layout_a, ops.layout_b) == ("row", "col")
    if not (a.bits == 4 and b.bits == 4):
        if tag.instruction == "mxnvf4":
            return Broken(
                "Incorrect Kernel Schedule Policy for Mx_F4F6F8 type inputs.",
                SHARED,
                f"{tag.name} takes two FP4 operands: use the Mxf8f6f4 tag, or schedule 1sm or 2sm.",
            )
        return None
    if tag.instruction == "mxf8f6f4" and a.scale != "ue8m0":
        return Broken("MX_F4F6F8 only supports ue8m0 SF type", SHARED, "NVFP4 has no mxf8f6f4 instruction; use Nvf4.")
    vector = scaled_vector(a.name, sparse)
    if tag.instruction == "mxnvf4" and not k_major:
        return Broken("MX/NV_F4 only supports RowMajor A, and ColMajorB", SHARED, "Use layout_a row and layout_b col.")
    if tag.instruction is not None and tag.vector != vector:
        return Broken(
            "Kernel Schedule policy doesn't match the scale factor vector size.",
            SHARED,
            f"{tag.name} means {tag.vector} elements a scale, {a.name} has {vector}: use the tag of its format.",
        )
    if tag.instruction is None and not k_major and a.scale == "ue4m3":
        return Broken("NV_F4 only supports RowMajor A, and ColMajorB", SHARED, "Use layout_a row and layout_b col.")
    return None


def scaled_instruction(tag: Tag, ops: Operands) -> Instruction:
    """`blockscaled::select_instr`."""
    if tag.instruction is not None:
        return tag.instruction
    fp4 = ELEMENTS[ops.a].bits == 4 and ELEMENTS[ops.b].bits == 4
    return "mxnvf4" if fp4 and (ops.layout_a, ops.layout_b) == ("row", "col") else "mxf8f6f4"
