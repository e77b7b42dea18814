"""The blockwise mainloop of SM120: FP8 with software scales, dense and grouped.

Mirrors `gemm/collective/builders/sm120_blockwise_mma_builder.inl` (what is chosen and asserted) and
`gemm/collective/sm120_mma{,_array}_tma_blockwise_scaling.hpp` (how it is laid out).
"""

from __future__ import annotations

from tilewright.cutlass.operands import Operands
from tilewright.cutlass.sm120_collective import (
    ARRAY_ALIGN,
    BLOCKWISE_BUILDER,
    COLLECTIVE,
    MMA,
    SCALE_BYTES,
    Mainloop,
    aligned,
    count_stages,
    finish,
    k_major_only,
    mixed_k,
    operand_atoms,
    operand_member,
    operand_why,
    plain_inputs,
    too_few,
)
from tilewright.cutlass.sm120_tags import Tag
from tilewright.cutlass.structs import Member, round_up
from tilewright.cutlass.verdict import Broken
from tilewright.cutlass.versions import BARRIER_PAIR_BYTES
from tilewright.formats.elements import ELEMENTS


def lay_out(
    grouped: bool,
    ops: Operands,
    acc: str,
    tile: tuple[int, int, int],
    cluster: tuple[int, int, int],
    tag: Tag,
    stages: int | None,
    granularity: tuple[int, int, int],
    carveout: int,
) -> Mainloop | Broken:
    m, n, k = tile
    a, b = ELEMENTS[ops.a], ELEMENTS[ops.b]
    broken = (
        aligned(ops, a.bits < 8 or b.bits < 8)
        or plain_inputs(ops, BLOCKWISE_BUILDER, "TmaWarpSpecialized blockwise scaling")
        or k_major_only(ops, BLOCKWISE_BUILDER)
        or mixed_k(a, b, k, BLOCKWISE_BUILDER)
    )
    if broken:
        return broken
    if acc != "f32":
        return Broken(
            "No MMA matches SM120_16x8x32_TN for given data types.", MMA, "SM120 accumulates f8f6f4 MMAs in f32."
        )
    gm, gn, gk = granularity
    for extent, grain, axis in ((m, gm, "M"), (n, gn, "N")):
        if extent % grain:
            return Broken(
                f"Scale Granularity {axis} must evenly divide the tile shape {axis}.",
                BLOCKWISE_BUILDER,
                f"{axis} = {extent} is not a multiple of its scale granularity {grain}.",
            )
    if k != gk:
        return Broken(
            "Scale Granularity K must be equal to the tile shape K.",
            BLOCKWISE_BUILDER,
            f"K must be {gk}, the scale granularity along K, not {k}.",
        )
    broken = operand_atoms(tile, 8, 8, COLLECTIVE["blockwise", grouped])
    if broken:
        return broken
    scales_a, scales_b = m // gm, n // gn
    terms = (
        ("A", m * k),
        ("B", n * k),
        ("scales of A", SCALE_BYTES * scales_a),
        ("scales of B", SCALE_BYTES * scales_b),
        ("pipeline", BARRIER_PAIR_BYTES),
    )
    count = count_stages(stages, carveout, terms)
    broken = too_few(count, "blockwise", grouped)
    if broken:
        return broken
    s = count.stages
    members = [
        operand_member("smem_A", m, k, 8, s),
        operand_member("smem_B", n, k, 8, s),
        Member("smem_scale_A", round_up(SCALE_BYTES * scales_a * s, ARRAY_ALIGN), ARRAY_ALIGN, ARRAY_ALIGN),
        Member("smem_scale_B", round_up(SCALE_BYTES * scales_b * s, ARRAY_ALIGN), ARRAY_ALIGN, ARRAY_ALIGN),
    ]
    whys = [
        operand_why(ops.a, "M", m, k, 8, s),
        operand_why(ops.b, "N", n, k, 8, s),
        f"{s} stages x {scales_a} float scales of A (one a {gm}x{gk}), in whole 16 bytes",
        f"{s} stages x {scales_b} float scales of B (one a {gn}x{gk}), in whole 16 bytes",
    ]
    return finish("blockwise", grouped, tag.pingpong, count, members, ("A", "B"), 2, None, whys, cluster)
