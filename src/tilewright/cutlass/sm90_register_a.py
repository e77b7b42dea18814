"""SM90 mainloops that pass A through registers: to transpose it, or to convert a narrow operand (mixed input).

Mirrors the RS builder of `gemm/collective/builders/sm90_gmma_builder.inl`, `gemm/collective/
sm90_mma_tma_gmma_rs_warpspecialized.hpp`, `sm90_mma_{,array_}tma_gmma_rs_warpspecialized_mixed_input.hpp` and, for a B
that is transposed in shared memory, `transform/collective/sm90_wgmma_transpose.hpp`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from tilewright.cutlass.sm90_common import (
    ARRAY_ALIGN,
    COLLECTIVE,
    Mainloop,
    Problem,
    alignment,
    count_stages,
    divides,
    finish,
    multicast,
    one_stage,
    operand_member,
    operand_why,
    size_of,
    too_few,
)
from tilewright.cutlass.sm90_gmma import register_smem_atom, select
from tilewright.cutlass.sm90_tags import Tag
from tilewright.cutlass.sm90_versions import GMMA_BUILDER, Sm90Rules
from tilewright.cutlass.smem_atoms import ATOM_ROWS, Atom
from tilewright.cutlass.structs import TMA_DESCRIPTOR, Member, round_up, struct
from tilewright.cutlass.verdict import Broken
from tilewright.formats.elements import ELEMENTS

TRANSPOSE: Final = "cutlass/transform/collective/sm90_wgmma_transpose.hpp"
SCALE_ROW_BYTES: Final = 128
"""A stage's scales must be a multiple of it (compute_stage_count_or_override_single_affine_transformed_input)."""
SWIZZLE_UNIT: Final = 16
"""BytesPerSmemSwizzleUnit of the transposition."""
TRANSPOSED_ROW_BYTES: Final = 128
"""Bytes of K that a B must have to be transposed."""
MIXED_MAPS: Final = ("A", "B", "scale", "zero")


class Operand(NamedTuple):
    """One operand as the collective sees it, after it has put the one that goes through registers first."""

    name: str
    atom: Atom
    mn_major: bool


def mainloop(p: Problem, tag: Tag, rules: Sm90Rules) -> Mainloop | Broken:
    """Lay out a mainloop whose A comes from registers, or name the rule that it breaks first."""
    if tag.array and not p.widths_differ:
        return Broken(
            "Only mixed input grouped RS GEMM is supported.",
            GMMA_BUILDER,
            "A grouped kernel whose operands have one width needs both of them K-major, or 16-bit.",
        )
    if p.widths_differ:
        if p.tuple_a and p.tuple_b:
            return Broken(
                "Either A OR B must be a tuple or the widths of A and B must be different.",
                GMMA_BUILDER,
                "Give scales to one operand only.",
            )
        broken = alignment(p)
        return broken or _mixed(p, tag, rules)
    broken = alignment(p)
    return broken or _same_width(p, tag, rules)


def _pinned(p: Problem, rules: Sm90Rules) -> Broken | None:
    if p.stages is None or rules.pins_register_a:
        return None
    return Broken(
        f'class "cutlass::gemm::collective::StageCount<{p.stages}>" has no member "bytes"',
        GMMA_BUILDER,
        "Leave the stages at auto: before CUTLASS 4.3.0 this builder could not take a pinned count.",
    )


def transposes_b(p: Problem) -> bool:
    """Both operands MN-major and not 16-bit: B is transposed in shared memory (is_warpspecialized_transpose_B)."""
    return not (p.two_bytes or p.a_k_major or p.b_k_major)


def swaps(p: Problem) -> bool:
    """A K-major and B MN-major: the collective computes the transpose, so that B goes through registers
    (is_swapAB)."""
    return not p.two_bytes and p.a_k_major and not p.b_k_major


def atoms(p: Problem, transposed: bool) -> tuple[Operand, Operand] | Broken:
    """Layouts of A and B as the builder picks them."""
    m, n, k = p.tile
    atom_a = register_smem_atom(p.a, m, k, not p.a_k_major, transposed)
    if isinstance(atom_a, Broken):
        return atom_a
    atom_b = register_smem_atom(p.b, n, k, not p.b_k_major, transposed)
    if isinstance(atom_b, Broken):
        return atom_b
    return Operand(p.a, atom_a, not p.a_k_major), Operand(p.b, atom_b, not p.b_k_major)


def fills(operand: Operand, mn: int, k: int, where: str) -> Broken | None:
    """The layout was picked for the operand's own extents; a collective that exchanges the operands tiles it over the
    other's."""
    across, contiguous = (k, mn) if operand.mn_major else (mn, k)
    row = operand.atom.row_bytes * 8 // ELEMENTS[operand.name].bits
    if across % ATOM_ROWS == 0 and contiguous % row == 0:
        return None
    return Broken(
        "SmemLayoutAtom must evenly divide tile shape.",
        where,
        f"The collective exchanges A and B; {operand.name} lies in rows of {row}, which must divide {contiguous}.",
    )


def transposition(p: Problem, mma_warp_groups: int) -> Broken | None:
    """What AsyncTranspositionOperandB asserts of a B that it transposes."""
    _, n, k = p.tile
    size = size_of(p.b)
    threads_n = SWIZZLE_UNIT // size
    threads_k = 32 // threads_n
    warps = 4 * (2 if size == 1 else 1)
    if mma_warp_groups > 2:
        return Broken("Wrong math warp group number for TransposeB", TRANSPOSE, "Use a cooperative schedule of two.")
    if k // warps < max(threads_n, threads_k):
        return Broken("Invalid warp thread shape.", TRANSPOSE, f"K must be {TRANSPOSED_ROW_BYTES // size}, not {k}.")
    if n % k:
        return Broken(
            "Copy size must evenly divide SMEM tile.", TRANSPOSE, f"N must be a multiple of K to transpose B: {n}, {k}."
        )
    return None


def _picked(
    p: Problem, formats: tuple[str, str], rules: Sm90Rules, *, transposed: bool
) -> tuple[Operand, Operand] | Broken:
    """The operands' layouts, or the first rule that their MMA, their atoms or a pinned stage count break."""
    broken = select(*formats, p.acc, p.tile)
    if broken:
        return broken
    picked = atoms(p, transposed)
    return picked if isinstance(picked, Broken) else _pinned(p, rules) or picked


def _same_width(p: Problem, tag: Tag, rules: Sm90Rules) -> Mainloop | Broken:
    m, n, k = p.tile
    swap, transposed = swaps(p), transposes_b(p)
    first, second = (p.b, p.a) if swap else (p.a, p.b)
    picked = _picked(p, (first, second), rules, transposed=transposed)
    if isinstance(picked, Broken):
        return picked
    align = max(operand.atom.align for operand in picked)
    count = count_stages(p, p.operand_terms, align=align)
    where = COLLECTIVE.format("tma_gmma_rs_warpspecialized")
    inner_a, inner_b = (picked[1], picked[0]) if swap else picked
    broken = (
        divides(p)
        or fills(inner_a, m, k, where)
        or fills(inner_b, n, k, where)
        or (transposition(p, 2 if tag.cooperative else 1) if transposed else None)
        or too_few(count, where)
        or (row_to_transpose(p, where) if transposed else None)
    )
    if broken:
        return broken
    s = count.stages
    align_a, align_b = inner_a.atom.align, inner_b.atom.align
    members = [
        operand_member("smem_A", m, k, p.bits_a, s, align=align_a, type_align=align_a),
        operand_member("smem_B", n, k, p.bits_b, s, align=align_b, type_align=align_b),
    ]
    swapped = " (exchanged: B)" if swap else ""
    whys = (
        operand_why(inner_a.name, "M", m, k, s) + swapped,
        operand_why(inner_b.name, "N", n, k, s) + (" (exchanged: A)" if swap else ""),
    )
    policy = "MainloopSm90TmaGmmaRmemAWarpSpecialized"
    device_rule = _scaled(p, where) or _one_stage(p, inner_a, m, s) or _one_stage(p, inner_b, n, s)
    device_rule = device_rule or multicast(p, inner_a.mn_major, inner_b.mn_major)
    return finish(p, tag, count, struct(members, align), whys, policy, device_rule=device_rule)


def _scaled(p: Problem, where: str) -> Broken | None:
    """Scales beside operands of one width: the types take the tuple, and nothing converts it."""
    if not (p.tuple_a or p.tuple_b):
        return None
    return Broken(
        "a scaled operand of the width of the other has no conversion",
        where,
        "Scales belong to mixed widths: drop them, or use operands of different widths.",
    )


def _one_stage(p: Problem, operand: Operand, mn: int, stages: int) -> Broken | None:
    return one_stage(p, operand.name, operand.atom, mn, operand.mn_major, stages)


def row_to_transpose(p: Problem, where: str) -> Broken | None:
    """A transposed B is exactly one 128-byte row of K."""
    k = p.tile[2]
    if k * size_of(p.b) == TRANSPOSED_ROW_BYTES:
        return None
    need = TRANSPOSED_ROW_BYTES // size_of(p.b)
    return Broken("SmemLayoutB K must be 128bytes to be transposed.", where, f"K must be {need}, not {k}.")


def _mixed(p: Problem, tag: Tag, rules: Sm90Rules) -> Mainloop | Broken:
    """Mixed input: the transformed operand (the one with scales, else the narrower) is converted in registers."""
    m, n, k = p.tile
    a_transformed = p.tuple_a if p.tuple_a or p.tuple_b else p.bits_a < p.bits_b
    # A ptr-array tag is no base that the transposition asks for (is_warpspecialized_transpose_B).
    transposed = transposes_b(p) and not tag.array
    if transposed:
        return Broken(
            "Mixed input GEMM does not support WS transpose B.", GMMA_BUILDER, "Store at least one operand K-major."
        )
    narrow, wide = (p.a, p.b) if a_transformed else (p.b, p.a)
    narrow_k_major, wide_k_major = (p.a_k_major, p.b_k_major) if a_transformed else (p.b_k_major, p.a_k_major)
    if not wide_k_major and ELEMENTS[wide].bits != 16:
        return Broken(
            "Mixed input GEMM does not support MN major layout except for 16bit",
            GMMA_BUILDER,
            f"Store {wide} K-major.",
        )
    picked = _picked(p, (wide, wide), rules, transposed=transposed)
    if isinstance(picked, Broken):
        return picked
    converted, kept = picked if a_transformed else (picked[1], picked[0])
    scale_bits = ELEMENTS[p.scale].bits if p.scale else 0
    zero_bits = ELEMENTS[p.zero].bits if p.scale and p.zero else 0
    if p.stages is None:
        broken = _scale_rows(m, scale_bits, "Scale") or _scale_rows(m, zero_bits, "Zero")
        if broken:
            return broken
    bits_narrow, bits_wide = ELEMENTS[narrow].bits, ELEMENTS[wide].bits
    terms = (
        ("A", m * k * bits_narrow // 8),
        ("B", n * k * bits_wide // 8),
        *((("scales", m * scale_bits // 8),) if scale_bits else ()),
        *((("zero points", m * zero_bits // 8),) if zero_bits else ()),
    )
    align = max(converted.atom.align, kept.atom.align)
    reserves = len(MIXED_MAPS) if tag.array else 0
    count = count_stages(p, terms, align=align, reserves_maps=reserves)
    where = COLLECTIVE.format(("array_" if tag.array else "") + "tma_gmma_rs_warpspecialized_mixed_input")
    broken = _mixed_layouts(narrow_k_major, wide, wide_k_major, where)
    broken = broken or divides(p) or fills(converted, m, k, where) or fills(kept, n, k, where) or too_few(count, where)
    if broken:
        return broken
    s = count.stages
    scales = m * s if scale_bits else 0
    zeros = m * s if zero_bits else 0
    members = [
        operand_member("smem_A", m, k, bits_narrow, s, align=converted.atom.align),
        operand_member("smem_B", n, k, bits_wide, s, align=kept.atom.align),
        _vector("smem_scale", scales, scale_bits),
        _vector("smem_zero", zeros, zero_bits),
    ]
    exchanged = "" if a_transformed else " (exchanged: it goes through registers)"
    whys = (
        operand_why(narrow, "M", m, k, s) + exchanged,
        operand_why(wide, "N", n, k, s),
        f"{s} stages x {m} scales ({p.scale})" if scale_bits else "no scales: an empty array takes 16 bytes",
        f"{s} stages x {m} zero points ({p.zero})" if zero_bits else "no zero points: an empty array takes 16 bytes",
    )
    name = "MainloopSm90Array" if tag.array else "MainloopSm90"
    loop = "TmaGmmaWarpSpecializedMixedInput" if tag.array else "TmaGmmaRmemAWarpSpecializedMixedInput"
    device_rule = _one_stage(p, converted, m, s) or _one_stage(p, kept, n, s)
    device_rule = device_rule or multicast(p, converted.mn_major, kept.mn_major) or _k_major_mma(wide, wide_k_major)
    device_rule = device_rule or _k_blocks(k, wide, where)
    main = finish(p, tag, count, struct(members), whys, name + loop, device_rule=device_rule)
    if not tag.array:
        return main
    # The grouped collective declares its TensorMapStorage and keeps none itself: the kernel does.
    return replace(main, tensormap_bytes=len(MIXED_MAPS) * TMA_DESCRIPTOR)


def _k_major_mma(wide: str, wide_k_major: bool) -> Broken | None:
    """The builder lets a 16-bit operand be MN-major and lays it out so, but asks `rs_op_selector` for an MMA of two
    K-major operands all the same, in every release."""
    if wide_k_major:
        return None
    return Broken(
        "Not a canonical GMMA_K Layout: Expected K-size 2 for dense or 4 for sparse (in units of uint128_t).",
        "cute/atom/mma_traits_sm90_gmma.hpp",
        f"The MMA is made for K-major operands: store {wide} K-major.",
        "compiled",
    )


MMA_K_BITS: Final = 256
"""K of every WGMMA, in bits of the operand that stays in shared memory."""
MIN_K_BLOCKS: Final = 4


def _k_blocks(k: int, wide: str, where: str) -> Broken | None:
    """`mma` converts one K block while others are multiplied, and asserts that there are enough of them."""
    each = MMA_K_BITS // ELEMENTS[wide].bits
    if k // each >= MIN_K_BLOCKS:
        return None
    return Broken(
        "Consider increasing TileShapeK",
        where,
        f"An MMA takes {each} of K ({wide}), and the tile needs {MIN_K_BLOCKS} of them: use K of {MIN_K_BLOCKS * each} "
        "or more.",
        "compiled",
    )


def _scale_rows(m: int, bits: int, what: str) -> Broken | None:
    size = m * bits // 8
    if size % SCALE_ROW_BYTES == 0:
        return None
    return Broken(
        f"{what} bytes must be a multiple of 128",
        GMMA_BUILDER,
        f"{m} of {bits} bits are {size} bytes; use 16-bit scales or a larger M.",
    )


def _mixed_layouts(narrow_k_major: bool, wide: str, wide_k_major: bool, where: str) -> Broken | None:
    if not narrow_k_major:
        return Broken("The transformed type must be K-major.", where, "Store the narrow operand K-major.")
    if size_of(wide) != 2 and not wide_k_major:
        return Broken(
            "The unscaled element must be 2 bytes OR both inputs must be K-major", where, "Store both operands K-major."
        )
    return None


def _vector(name: str, count: int, bits: int) -> Member:
    """An ArrayEngine of scales or zero points: whole 16 bytes, and 16 bytes when it has no element."""
    size = max(ARRAY_ALIGN, round_up(count * bits // 8, ARRAY_ALIGN))
    return Member(name, size, ARRAY_ALIGN, ARRAY_ALIGN)
