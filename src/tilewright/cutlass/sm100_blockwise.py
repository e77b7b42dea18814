"""The blockwise mainloop of SM100: FP8 with software scales, promoted outside the MMA, dense and grouped, 1sm and 2sm.

Mirrors `gemm/collective/builders/sm100_blockwise_umma_builder.inl` (what is chosen and asserted),
`gemm/collective/sm100_mma{,_array}_warpspecialized_blockwise_scaling.hpp` (how it is laid out) and
`detail/blockwise_scale_layout.hpp` (scales).
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass import sm100_carveout, sm100_mma
from tilewright.cutlass.sm100_carveout import BARRIER_PAIR
from tilewright.cutlass.sm100_collective import (
    ARRAY_ALIGN,
    Mainloop,
    MainloopKey,
    counted,
    finish,
    minimum,
    no_stage,
    operand_atoms,
    operand_member,
    sliceable,
    too_few_accumulators,
)
from tilewright.cutlass.sm100_dense import plain_accumulators, plain_mma, stored_bits
from tilewright.cutlass.sm100_tags import Tag
from tilewright.cutlass.sm100_versions import Sm100Rules
from tilewright.cutlass.structs import Member, round_up
from tilewright.cutlass.verdict import Broken
from tilewright.formats.elements import ELEMENTS

BUILDER: Final = "cutlass/gemm/collective/builders/sm100_blockwise_umma_builder.inl"
COLLECTIVE: Final = "cutlass/gemm/collective/sm100_mma{A}_warpspecialized_blockwise_scaling.hpp"
SF_COPY_THREADS: Final = 32
"""One warp loads the scales."""
SF_COPY_BYTES: Final = (4, 8, 16)
"""Bytes a thread that there is a cp.async for (`cute/arch/copy_sm80.hpp`)."""
SF_TYPE_BYTES: Final = (1, 2, 4, 8, 16)
"""Bytes that cute::uint_byte_t has a type for (`cute/numeric/int.hpp`)."""


def lay_out(key: MainloopKey, tag: Tag, rules: Sm100Rules) -> Mainloop | Broken:
    """`sm100_blockwise_umma_builder.inl`: software scales beside A and B, accumulators promoted outside the MMA."""
    sm = plain_mma(key, tag, rules)
    if isinstance(sm, Broken):
        return sm
    ops, (m, n, k) = key.ops, key.tile
    rows, columns, bits = m // sm, n // sm, (stored_bits(ops.a), stored_bits(ops.b))
    broken = operand_atoms(ops, rows, columns, k, bits)
    if broken:
        return broken
    accumulators = plain_accumulators(key, tag, sm)
    broken = too_few_accumulators(accumulators, BUILDER) or _granularity(key, sm)
    if broken:
        return broken
    assert key.scale_granularity is not None, "mainloop_key() fills it in"
    gm, gn, gk = key.scale_granularity
    scale = 2 if key.acc == "f16" else 4  # ElementAccumulator
    schedulers = 1 if key.grouped else accumulators + 1
    reserved = sm100_carveout.dense(accumulators, schedulers, tag.array, 2, rules)
    # the count takes the scales of the MMA's whole M, 2sm or not
    operand = rows * k * bits[0] // 8 + columns * k * bits[1] // 8
    scales = scale * (k // gk) * (m // gm + n // gn)
    terms = (
        ("A and B", operand),
        ("scales", scales),
        ("rounding to 128", round_up(operand + scales, 128) - operand - scales),
        ("pipelines", 2 * BARRIER_PAIR),
    )
    count = counted(key, reserved, sum(size for _, size in terms), terms)
    if count.stages <= 0:
        return no_stage("A, B, and scales", BUILDER)
    where = COLLECTIVE.format(A="_array" if tag.array else "")
    step = sm100_mma.instruction_k(ELEMENTS[ops.a].bits, sparse=False)
    broken = (
        _divisible(key, where)
        or minimum(count, where)
        or sliceable(key, rows, columns, bits, step, count.stages, rules)
    )
    if broken:
        return broken
    stages = count.stages
    sfa, sfb = -(-rows // gm) * -(-k // gk), -(-n // gn) * -(-k // gk)
    members = [
        operand_member("smem_A", rows, k, bits[0], stages),
        operand_member("smem_B", columns, k, bits[1], stages),
        Member("smem_SFA", round_up(sfa * scale * stages, ARRAY_ALIGN), 16, 16, f"{stages} stages x {sfa} scales of A"),
        Member("smem_SFB", round_up(sfb * scale * stages, ARRAY_ALIGN), 16, 16, f"{stages} stages x {sfb} scales of B"),
    ]
    pipeline = Member("pipeline", (2 * stages + accumulators) * BARRIER_PAIR, 16, 16)
    return finish(
        key,
        tag,
        sm,
        count,
        members,
        rules,
        schedulers=schedulers,
        accumulators=accumulators,
        maps=("A", "B"),
        pipeline=pipeline,
    )


def _granularity(key: MainloopKey, sm: int) -> Broken | None:
    """The builder's asserts on software scales, and the copies that load them."""
    assert key.scale_granularity is not None, "mainloop_key() fills it in"
    cta = (key.tile[0] // sm, key.tile[1], key.tile[2])
    for axis, extent, granularity in zip("MNK", cta, key.scale_granularity, strict=True):
        if granularity > extent:
            return Broken(
                "Scale Granularity must be smaller than or equal to the tile shape",
                BUILDER,
                f"A scale covers {granularity} along {axis}, the CTA's tile has {extent}: enlarge the tile.",
            )
    scale = 2 if key.acc == "f16" else 4
    for extent, granularity in zip(cta[:2], key.scale_granularity[:2], strict=True):
        leading = extent // granularity
        spread = key.scale_major == "mn" and leading >= SF_COPY_THREADS
        width = min(leading * scale // SF_COPY_THREADS, 16) if spread else scale
        if width not in SF_TYPE_BYTES:
            return Broken(
                f'incomplete type "cute::uint_bit<{width * 8}>" is not allowed',
                "cute/numeric/int.hpp",
                f"{leading} scales of a tile would be copied {width} bytes a thread, which is no load: change the "
                "tile or the granularity.",
            )
        if width not in SF_COPY_BYTES:
            return Broken(
                "cp.async sizeof(TS) is not supported",
                "cute/arch/copy_sm80.hpp",
                "Scales have the accumulator's type and are copied one a thread, 4 bytes or more: accumulate in f32.",
            )
    return None


def _divisible(key: MainloopKey, where: str) -> Broken | None:
    assert key.scale_granularity is not None, "mainloop_key() fills it in"
    for axis, extent, granularity in zip("MNK", key.tile, key.scale_granularity, strict=True):
        if extent % granularity:
            return Broken(
                f"Scale Granularity {axis} must divide Tile Shape",
                where,
                f"{granularity} does not divide the tile's {axis} of {extent}.",
            )
    step = sm100_mma.instruction_k(ELEMENTS[key.ops.a].bits, sparse=False)
    if key.scale_granularity[2] % step:
        return Broken(
            "Scale Granularity K must be divisible by MMA_K",
            where,
            f"One MMA takes K of {step}: make the granularity along K a multiple of it.",
        )
    return None
