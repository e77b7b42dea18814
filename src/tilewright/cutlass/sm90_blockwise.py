"""SM90 mainloops for FP8 with software (blockwise) scales.

Mirrors the builder's blockwise specialisation in `gemm/collective/builders/sm90_gmma_builder.inl` and
`gemm/collective/sm90_mma_{,array_}tma_gmma_ss_warpspecialized_fp8_blockwise_scaling.hpp`.
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass.sm90_common import (
    ARRAY_ALIGN,
    COLLECTIVE,
    TENSOR_ALIGN,
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
    too_few,
)
from tilewright.cutlass.sm90_gmma import atom_k, select, smem_atom
from tilewright.cutlass.sm90_tags import Tag
from tilewright.cutlass.sm90_versions import GMMA_BUILDER, Sm90Rules
from tilewright.cutlass.structs import Member, round_up, struct
from tilewright.cutlass.verdict import Broken, no_collective
from tilewright.formats.elements import ELEMENTS

PROMOTION: Final = 4
"""ScalePromotionInterval is a multiple of it: wgmmas that accumulate before the scales are applied."""
SLICE_M: Final = 128
"""M of a slice (NumSplitsM)."""
UNNAMED: Final = "static assertion failed"
"""Text of a static_assert without a message."""


def mainloop(p: Problem, tag: Tag, rules: Sm90Rules) -> Mainloop | Broken:
    """Lay out a blockwise mainloop, or name the rule that it breaks first."""
    if tag.family != "blockwise":
        return no_collective(
            f"{tag.name} takes no scales: use the cooperative or pingpong schedule of blockwise kernels."
        )
    if p.scale_k_major and not rules.blockwise_name:
        return Broken(
            'too many arguments for alias template "cutlass::detail::Sm90BlockwiseScaleConfig"',
            "cutlass/detail/blockwise_scale_layout.hpp",
            "Before CUTLASS 4.2.0 scales of SM90 are MN-major: set scale_major to mn.",
        )
    if p.register_a:
        return no_collective("Blockwise kernels read A and B from shared memory: store both K-major.")
    broken = alignment(p)
    if broken:
        return broken
    if not p.fp8:
        name = "Blockwise (Software) Scaling" if rules.blockwise_name else "BlockScaled Accumulator"
        what = "FP8 inputs" if rules.blockwise_name else "FP8 Blocked Scaled"
        return Broken(
            f"Warp Specialized gemm with FP8 {name} is only compatible with {what} version right now.",
            GMMA_BUILDER,
            f"{p.a} x {p.b} is not FP8 x FP8.",
        )
    return _lay_out(p, tag, rules)


def _lay_out(p: Problem, tag: Tag, rules: Sm90Rules) -> Mainloop | Broken:
    m, n, k = p.tile
    gm, gn, gk = p.granularity
    broken = select(p.a, p.b, p.acc, p.tile)
    if broken:
        return broken
    atom_a = smem_atom(p.a, m, k, mn_major=False)
    if isinstance(atom_a, Broken):
        return atom_a
    atom_b = smem_atom(p.b, n, k, mn_major=False)
    if isinstance(atom_b, Broken):
        return atom_b
    for extent, grain, axis in ((m, gm, "M"), (n, gn, "N")):
        if extent % grain:
            return Broken(
                f"FP8 scaling granularity must evenly divide tile shape along {axis}.",
                GMMA_BUILDER,
                f"{axis} = {extent} is not a multiple of its scale granularity {grain}.",
            )
    if p.stages is not None:
        return Broken(
            'no instance of function template "compute_stage_count_with_blockwise_scale" matches the argument list',
            GMMA_BUILDER,
            "Leave the stages at auto: this builder takes no pinned count.",
        )
    scale = ELEMENTS[p.acc].bits // 8
    rows_a, rows_b = m // gm, n // gn
    terms = (*p.operand_terms, ("scales of A", scale * rows_a), ("scales of B", scale * rows_b))
    count = count_stages(p, terms, reserves_maps=2 if tag.array else 0, always_reserves_scheduler=True)
    where = COLLECTIVE.format(("array_" if tag.array else "") + "tma_gmma_ss_warpspecialized_fp8_blockwise_scaling")
    broken = (
        divides(p)
        or _promotion(k, gk, p.a, rules, where)
        or too_few(count, where, says=2 if tag.array else 1)
        or _slices(m, tag, rules, where)
    )
    if broken:
        return broken
    s = count.stages
    groups = k // gk
    members = [
        operand_member("smem_A", m, k, p.bits_a, s),
        operand_member("smem_B", n, k, p.bits_b, s),
        _scales("smem_SFA", rows_a * groups * s, scale, tag, rules),
        _scales("smem_SFB", rows_b * groups * s, scale, tag, rules),
    ]
    whys = (
        operand_why(p.a, "M", m, k, s),
        operand_why(p.b, "N", n, k, s),
        f"{s} stages x {rows_a * groups} scales of A ({p.acc}, one a {gm}x{gk})",
        f"{s} stages x {rows_b * groups} scales of B ({p.acc}, one a {gn}x{gk})",
    )
    family = "Blockwise" if rules.blockwise_name else "BlockScaling"
    array = "Array" if tag.array else ""
    policy = f"MainloopSm90{array}TmaGmmaWarpSpecialized{family}{'' if tag.array else 'FP8'}"
    maps = ("A", "B") if tag.array else ()
    device_rule = (
        one_stage(p, p.a, atom_a, m, False, s) or one_stage(p, p.b, atom_b, n, False, s) or multicast(p, False, False)
    )
    return finish(p, tag, count, struct(members, TENSOR_ALIGN), whys, policy, maps=maps, device_rule=device_rule)


def _scales(name: str, count: int, scale: int, tag: Tag, rules: Sm90Rules) -> Member:
    """Dense kernels load scales by TMA into arrays that the struct aligns; the others keep aligned arrays."""
    if not tag.array and rules.blockwise_aligned_scales:
        return Member(name, count * scale, TENSOR_ALIGN, scale)
    return Member(name, round_up(count * scale, ARRAY_ALIGN), ARRAY_ALIGN, ARRAY_ALIGN)


def _promotion(k: int, gk: int, operand: str, rules: Sm90Rules, where: str) -> Broken | None:
    """How K of the tile, of the scales and of the wgmma go together."""
    step = atom_k(operand)
    if k % gk:
        return Broken(UNNAMED, where, f"The tile's K of {k} must be a multiple of the scale granularity {gk} along K.")
    if gk % step:
        return Broken(UNNAMED, where, f"The scale granularity along K must be a multiple of {step}, K of a wgmma.")
    interval = gk // step
    if interval % PROMOTION:
        return Broken(
            f"ScalePromotionInterval must be a multiple of {PROMOTION}.",
            where,
            f"The scale granularity along K must be a multiple of {step * PROMOTION}, not {gk}.",
        )
    if rules.blockwise_one_promotion and interval < k // step:
        return Broken(
            "ScalePromotionInterval must be greater than or equal to the number of stages of the MMA atom.",
            where,
            f"The tile's K must be the scale granularity along K, {gk}, not {k}.",
        )
    return None


def _slices(m: int, tag: Tag, rules: Sm90Rules, where: str) -> Broken | None:
    """`static_assert(NumSplitsM{} == 1 || NumSplitsM{} == 2)`."""
    small = tag.array and rules.blockwise_small_m_array and m < SLICE_M
    if not rules.blockwise_splits_m or small or m // SLICE_M in (1, 2):
        return None
    return Broken(
        UNNAMED, where, f"From CUTLASS 4.3.0 on M is computed in one or two slices of 128: use 128 to 383, not {m}."
    )
