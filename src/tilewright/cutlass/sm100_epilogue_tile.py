"""The tile that an SM100 epilogue takes at a time, and how it comes out of tensor memory.

Mirrors `sm100_{dense,sparse}_compute_tile_shape_or_override` and `sm100_get_tmem_load_op` of
`epilogue/collective/builders/sm100_builder.inl`. Extents in elements.
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass import sm100_sparse_epilogue
from tilewright.cutlass.sm100_epilogue_key import FP6_BITS, EpilogueKey, bits_of
from tilewright.cutlass.sm100_epilogue_tags import EpilogueTag
from tilewright.cutlass.sm100_versions import Sm100Rules
from tilewright.cutlass.verdict import Broken

BUILDER: Final = "cutlass/epilogue/collective/builders/sm100_builder.inl"
TMEM_LANES: Final = (16, 32)
"""Datapaths of a warp's part of tensor memory that TMEM_LOAD has variants for (`sm100_get_tmem_load_op`)."""
FULL_LANES: Final = 32
WIDEST: Final = 256
"""Columns of a CTA's tile at which block-scaled kernels take an epilogue tile of SCALED_COLUMNS."""
SCALED_COLUMNS: Final = 128
"""Columns of EpilogueTileAuto of block-scaled kernels with N = 256, whose accumulators overlap."""
ELEMENTS_A_STEP: Final = 4096
"""ComputeElts of an epilogue without a source."""
VECTOR_BITS: Final = 128
FP6_ALIGNMENT_BITS: Final = 96 * 8
"""get_output_alignment_bits of 6-bit elements (`detail/layout.hpp`)."""
FP6_COLUMNS: Final = 128
"""TMA stores 6-bit elements with the 128-byte swizzle only."""


class CtaShape:
    """The CTA's tile and how its four epilogue warps divide tensor memory."""

    __slots__ = ("k", "m", "n", "warps_m", "warps_n")

    def __init__(self, sm: int, tile: tuple[int, int, int]) -> None:
        self.m, self.n, self.k = -(-tile[0] // sm), tile[1], tile[2]  # M of 1 stays
        self.warps_m, self.warps_n = (2, 2) if sm == 2 and tile[0] == 128 else (4, 1)  # sm100_tmem_warps


def shape_div(extent: int, by: int) -> int | None:
    """cute::shape_div of static integers, whose weak divisibility condition it asserts."""
    if extent % by and by % extent:
        return None
    return -(-extent // by)


def indivisible(what: str) -> Broken:
    return Broken("Divisibility Condition", "cute/int_tuple.hpp", what)


def outputs(key: EpilogueKey) -> str | Broken:
    """Element format of the tile that is stored: D, or what finalize scatters where D is void."""
    if key.d != "void":
        return key.d
    if key.fusion == "finalize" and key.final_output is not None:
        return key.final_output
    if key.epilogue_tile is None and key.layout_d == "row":
        # N_min_D divides by the bits of D
        return Broken("division by zero", BUILDER, "Give d a type; only the finalize fusion leaves it void.")
    return Broken("Unsupported data types", BUILDER, "Give d a type; only the finalize fusion leaves it void.")


def load_op(key: EpilogueKey, shape: CtaShape, tile: tuple[int, int], d_bits: int) -> Broken | None:
    """`sm100_get_tmem_load_op`: how accumulators come out of tensor memory."""
    lanes = shape_div(tile[0], shape.warps_m)
    if lanes is None or shape_div(tile[1], shape.warps_n) is None:
        return indivisible("The epilogue tile does not divide over the four epilogue warps: make M a multiple of 64.")
    if lanes not in TMEM_LANES:
        return Broken(
            "Unsupported tmem datapath count",
            BUILDER,
            f"Each warp would read {lanes} lanes of tensor memory; it reads 16 or 32. Use an epilogue tile of "
            f"{16 * shape.warps_m} or {32 * shape.warps_m} rows that the tile's M has.",
        )
    accumulator = 16 if key.acc == "f16" else 32
    if (accumulator == 16 and d_bits != 16) or d_bits not in (4, FP6_BITS, 8, 16, 32):
        return Broken(
            "Unsupported data types",
            BUILDER,
            "No TMEM_LOAD goes from an f16 accumulator to this D: accumulate in f32, or store 16 bits."
            if accumulator == 16
            else "D must have a type of 4 to 32 bits.",
        )
    if d_bits in (4, FP6_BITS) and lanes != FULL_LANES:
        return Broken("num_dp == 32", BUILDER, "A 4- or 6-bit D needs tiles whose warps have 32 lanes: M of 128.")
    return None


def misaligned(key: EpilogueKey) -> bool:
    for name, alignment in ((key.c, key.align_c), (key.d, key.align_d)):
        bits = bits_of(name)
        if bits and bits * alignment % (FP6_ALIGNMENT_BITS if bits == FP6_BITS else VECTOR_BITS):
            return True
    return False


def _dense_tile(key: EpilogueKey, shape: CtaShape, d_bits: int, rules: Sm100Rules) -> tuple[int, int] | Broken:
    """`sm100_dense_compute_tile_shape_or_override`, auto."""
    m = min(shape.m, FULL_LANES * shape.warps_m)
    if key.op_class == "block_scaled" and shape.n == WIDEST:
        return m, SCALED_COLUMNS
    source = key.c != "void"
    c_bits = bits_of(key.c) if source else d_bits
    widest = max(c_bits, d_bits)
    if not source:
        best = ELEMENTS_A_STEP * (2 if widest == 4 else 1) // m
    elif widest == 32:
        best = 16 if shape.m > 64 and shape.n <= 128 else 32
    elif widest == 16:
        best = 32 if shape.n <= 128 else 64
    else:
        best = 64
    least_c = 8 if not source or key.layout_c == "col" else FP6_COLUMNS if c_bits == FP6_BITS else VECTOR_BITS // c_bits
    least_d = 8 if key.layout_d == "col" else FP6_COLUMNS if d_bits == FP6_BITS else VECTOR_BITS // d_bits
    least = max(least_c, least_d) * shape.warps_n
    n = min(shape.n, max(best, least))
    if rules.dividing_tile and shape.n % n:
        n = shape.n
    if shape.n < least:
        return Broken(
            "CTA tile too small", BUILDER, f"C and D need at least {least} columns in a tile: use N of {least} or more."
        )
    return m, n


def choose_tile(
    key: EpilogueKey, tag: EpilogueTag, shape: CtaShape, output: str, rules: Sm100Rules
) -> tuple[int, int] | Broken:
    sparse = key.op_class in ("sparse", "block_scaled_sparse")
    if key.epilogue_tile is not None:
        if not sparse and key.epilogue_tile[1] % 8:
            return Broken("Unsupported tile shape", BUILDER, "Make the epilogue tile's N a multiple of 8.")
        return key.epilogue_tile
    if sparse:
        cta = (shape.m, shape.n, shape.k)
        n = sm100_sparse_epilogue.columns(tag.family, tag.sm, cta, bits_of(key.c), bits_of(output))
        return shape.m, n // shape.warps_n * shape.warps_n
    return _dense_tile(key, shape, bits_of(output), rules)
