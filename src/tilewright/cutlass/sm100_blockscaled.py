"""The block-scaled mainloop of SM100: NVFP4, MXFP4, MXFP6 and MXFP8, dense and grouped, 1sm and 2sm.

Mirrors `gemm/collective/builders/sm100_blockscaled_umma_builder.inl` (what is chosen and asserted),
`gemm/collective/sm100_blockscaled_mma{,_array}_warpspecialized.hpp` (how it is laid out) and
`detail/sm100_blockscaled_layout.hpp` (scale factors).
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass import sm100_carveout, sm100_mma
from tilewright.cutlass.sm100_collective import (
    ARRAY_ALIGN,
    GROUPED_SCHEDULERS,
    Mainloop,
    MainloopKey,
    counted,
    finish,
    no_stage,
    odd_cluster,
    operand_atoms,
    operand_member,
)
from tilewright.cutlass.sm100_tags import Tag
from tilewright.cutlass.sm100_versions import Sm100Rules
from tilewright.cutlass.structs import Member
from tilewright.cutlass.verdict import Broken
from tilewright.formats.elements import ELEMENTS

BUILDER: Final = "cutlass/gemm/collective/builders/sm100_blockscaled_umma_builder.inl"
SF_ROWS: Final = 128
SF_GROUP: Final = 4
"""A block of scale factors: 128 rows x 4 along K (Sm1xxBlockScaledBasicChunk)."""


def scaled_pair(key: MainloopKey, tag: Tag) -> int | Broken:
    """`blockscaled::is_2sm`: by the tag, else M = 256 of an even cluster."""
    if tag.sm:
        return tag.sm
    if key.cluster[0] % 2:
        return 1
    if key.tile[0] not in (128, 256):
        return Broken(
            "Unsupported M dimension for TileShape_MNK.",
            sm100_mma.SHARED,
            f"M must be 128 or 256, not {key.tile[0]}.",
        )
    return key.tile[0] // 128


def scale_bytes(rows: int, k: int, vector: int) -> int:
    """Scale factors of one stage: blocks of 128 rows x 4 scales along K (`Sm1xxBlockScaledConfig`)."""
    return -(-rows // SF_ROWS) * SF_ROWS * SF_GROUP * (k // vector // SF_GROUP)


def scale_member(name: str, size: int, stages: int) -> Member:
    """smem_SFA or smem_SFB."""
    why = f"{stages} stages x {size} scale factors"
    return Member(name, max(size * stages, ARRAY_ALIGN), ARRAY_ALIGN, ARRAY_ALIGN, why)


def lay_out(key: MainloopKey, tag: Tag, rules: Sm100Rules) -> Mainloop | Broken:
    """`sm100_blockscaled_umma_builder.inl`."""
    ops, tile = key.ops, key.tile
    m, n, k = tile
    unpacked = tag.instruction == "mxf8f6f4" and not tag.array and min(ELEMENTS[ops.a].bits, ELEMENTS[ops.b].bits) < 8
    broken = sm100_mma.aligned(ops, unpacked, sparse=False) or sm100_mma.scaled_inputs(tag, ops, sparse=False)
    if broken:
        return broken
    sm = scaled_pair(key, tag)
    if isinstance(sm, Broken):
        return sm
    fp4 = sm100_mma.scaled_instruction(tag, ops) == "mxnvf4"
    step = sm100_mma.INSTRUCTION_BITS // (4 if fp4 else 8)
    broken = (
        sm100_mma.tile_shape(tile, sm, sm100_mma.SCALED_N)
        or (None if fp4 else sm100_mma.mixed_widths(ops, tile, sm, sparse=False))
        or sm100_mma.whole_instructions(k, step)
        or odd_cluster(key, sm)
    )
    if broken:
        return broken
    rows, columns, bits = m // sm, n // sm, 4 if fp4 else 8
    broken = operand_atoms(ops, rows, columns, k, (bits, bits))
    if broken:
        return broken
    vector = sm100_mma.scaled_vector(ops.a, sparse=False)
    sfa, sfb = scale_bytes(rows, k, vector), scale_bytes(n, k, vector)
    accumulators = 1 if n == 256 else 2
    schedulers = GROUPED_SCHEDULERS if key.grouped else rules.dense_scheduler_stages
    reserved = sm100_carveout.dense(accumulators, schedulers, tag.array, 4, rules)
    terms = (
        ("A", rows * k * bits // 8),
        ("B", columns * k * bits // 8),
        ("SFA", sfa),
        ("SFB", sfb),
        ("pipeline", rules.stage_pipeline_bytes),
    )
    count = counted(key, reserved, sum(size for _, size in terms), terms)
    if count.stages <= 0:
        return no_stage("A, B, SFA, and SFB", BUILDER)
    if k % (vector * SF_GROUP):
        # A tile of several blocks fails where their layout is divided, one of less where the TMA descriptor is made.
        several = k > vector * SF_GROUP
        return Broken(
            "Shape Divisibility Condition"
            if several
            else "TMA requires CTA_Tile and SLayout top-level size equivalence.",
            "cute/layout.hpp" if several else "cute/atom/copy_traits_sm90_tma.hpp",
            f"Scale factors come in blocks that cover K of {vector * SF_GROUP}: make the tile's K a multiple of it.",
        )
    members = [
        operand_member("smem_A", rows, k, bits, count.stages),
        operand_member("smem_B", columns, k, bits, count.stages),
        scale_member("smem_SFA", sfa, count.stages),
        scale_member("smem_SFB", sfb, count.stages),
    ]
    return finish(
        key,
        tag,
        sm,
        count,
        members,
        rules,
        schedulers=schedulers,
        accumulators=accumulators,
        maps=("A", "B", "SFA", "SFB"),
    )
