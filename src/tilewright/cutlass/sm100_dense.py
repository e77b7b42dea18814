"""The plain mainloop of SM100: tf32, f16, bf16, int8, and FP8, FP6 and FP4 in any mix, dense and grouped, 1sm and 2sm.

Mirrors `gemm/collective/builders/sm100_umma_builder.inl` (what is chosen and asserted) and
`gemm/collective/sm100_mma{,_array}_warpspecialized.hpp` (how it is laid out).
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass import sm100_carveout, sm100_mma
from tilewright.cutlass.sm100_carveout import BARRIER_PAIR
from tilewright.cutlass.sm100_collective import (
    GROUPED_SCHEDULERS,
    TMEM_COLUMNS,
    Mainloop,
    MainloopKey,
    counted,
    finish,
    is_pair,
    minimum,
    no_stage,
    odd_cluster,
    operand_atoms,
    operand_member,
    sliceable,
    too_few_accumulators,
)
from tilewright.cutlass.sm100_tags import Tag
from tilewright.cutlass.sm100_versions import Sm100Rules
from tilewright.cutlass.verdict import Broken
from tilewright.formats.elements import ELEMENTS

BUILDER: Final = "cutlass/gemm/collective/builders/sm100_umma_builder.inl"
COLLECTIVE: Final = "cutlass/gemm/collective/sm100_mma{A}_warpspecialized.hpp"
TMEM_ROWS: Final = 128
"""Lanes of tensor memory (`TotalTmemRows`)."""
MAX_ACCUMULATORS: Final = 4
"""Accumulator stages that the builder caps at."""


def plain_mma(key: MainloopKey, tag: Tag, rules: Sm100Rules) -> int | Broken:
    """Checks that the plain and the blockwise builder share, up to the operands' layouts; the answer is 1sm or 2sm."""
    ops, tile = key.ops, key.tile
    unpacked = any(ELEMENTS[name].bits < 8 for name in (ops.a, ops.b))
    broken = sm100_mma.aligned(ops, unpacked, sparse=False) or sm100_mma.plain_inputs(ops)
    if broken:
        return broken
    if {ELEMENTS[ops.a].plain, ELEMENTS[ops.b].plain} <= sm100_mma.F8F6F4:
        broken = sm100_mma.mixed_widths(ops, tile, 2 if is_pair(key, tag) else 1, sparse=False)
        if broken:
            return broken
    # a builder left to choose takes 2sm MMAs where M allows, whatever it counts the kernel as
    sm = tag.sm or (2 if key.cluster[0] % 2 == 0 and tile[0] % 128 == 0 else 1)
    step = sm100_mma.instruction_k(ELEMENTS[ops.a].bits, sparse=False)
    return (
        sm100_mma.tile_shape(tile, sm, None)
        or sm100_mma.atom(ops, key.acc, tile, sm, sparse=False, rules=rules)
        or sm100_mma.whole_instructions(tile[2], step)
        or odd_cluster(key, sm)
        or sm
    )


def stored_bits(name: str) -> int:
    return max(8, ELEMENTS[name].bits)


def plain_accumulators(key: MainloopKey, tag: Tag, sm: int) -> int:
    """Accumulators that tensor memory holds, by the builder's formula (M = 64 of a 1sm MMA uses half of the lanes)."""
    m, n, _ = key.tile
    if is_pair(key, tag) or m // sm > 64:
        return TMEM_ROWS * TMEM_COLUMNS // (m // sm * n)
    return TMEM_COLUMNS // n * 2


def lay_out(key: MainloopKey, tag: Tag, rules: Sm100Rules) -> Mainloop | Broken:
    """`sm100_umma_builder.inl`."""
    sm = plain_mma(key, tag, rules)
    if isinstance(sm, Broken):
        return sm
    ops, (m, n, k) = key.ops, key.tile
    rows, columns, bits = m // sm, n // sm, (stored_bits(ops.a), stored_bits(ops.b))
    broken = operand_atoms(ops, rows, columns, k, bits)
    if broken:
        return broken
    accumulators = min(MAX_ACCUMULATORS, plain_accumulators(key, tag, sm))
    broken = too_few_accumulators(accumulators, BUILDER)
    if broken:
        return broken
    schedulers = GROUPED_SCHEDULERS if key.grouped else rules.dense_scheduler_stages
    reserved = sm100_carveout.dense(accumulators, schedulers, tag.array, 2, rules)
    terms = (("A", rows * k * bits[0] // 8), ("B", columns * k * bits[1] // 8), ("pipeline", BARRIER_PAIR))
    count = counted(key, reserved, sum(size for _, size in terms), terms)
    if count.stages <= 0:
        return no_stage("A, and B", BUILDER)
    step = sm100_mma.instruction_k(ELEMENTS[ops.a].bits, sparse=False)
    broken = minimum(count, COLLECTIVE.format(A="_array" if tag.array else "")) or sliceable(
        key, rows, columns, bits, step, count.stages, rules
    )
    if broken:
        return broken
    members = [
        operand_member("smem_A", rows, k, bits[0], count.stages),
        operand_member("smem_B", columns, k, bits[1], count.stages),
    ]
    return finish(
        key, tag, sm, count, members, rules, schedulers=schedulers, accumulators=accumulators, maps=("A", "B")
    )  # fmt: skip
