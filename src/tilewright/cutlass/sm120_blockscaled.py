"""The block-scaled mainloop of SM120: NVFP4, MXFP4, MXFP6 and MXFP8, dense and grouped.

Mirrors `gemm/collective/builders/sm120_blockscaled_mma_builder.inl` (what is chosen and asserted) and
`gemm/collective/sm120_blockscaled_mma{,_array}_tma.hpp` (how it is laid out).
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass import sm120_tags
from tilewright.cutlass.operands import Operands
from tilewright.cutlass.sm120_collective import (
    BLOCKSCALED_BUILDER,
    COLLECTIVE,
    MMA,
    SF_GROUP,
    SF_ROWS,
    Mainloop,
    aligned,
    count_stages,
    finish,
    k_major_only,
    mixed_k,
    operand_atoms,
    operand_member,
    operand_why,
    scale_member,
    single_cta,
    too_few,
)
from tilewright.cutlass.sm120_tags import Tag
from tilewright.cutlass.structs import TMA_DESCRIPTOR
from tilewright.cutlass.verdict import Broken, no_collective
from tilewright.cutlass.versions import BARRIER_PAIR_BYTES, Rules
from tilewright.formats.elements import ELEMENTS, Element

RESERVED_GROUPED: Final = (
    ("scheduler pipeline, PipelineAsync<8>", 8 * BARRIER_PAIR_BYTES),
    ("two tensor maps", 2 * TMA_DESCRIPTOR),
    ("tensor-map pipeline, PipelineAsync<3>", 3 * BARRIER_PAIR_BYTES),
)
RESERVED_DENSE: Final = (
    ("CLC pipeline, PipelineCLCFetchAsync<3>", 3 * BARRIER_PAIR_BYTES),
    ("three CLC responses", 3 * 16),
)
"""What ReducedSmemCapacityBytes takes off from 4.4.2 on (`sm120_blockscaled_mma_builder.inl`)."""


def lay_out(
    rules: Rules,
    grouped: bool,
    ops: Operands,
    acc: str,
    tile: tuple[int, int, int],
    cluster: tuple[int, int, int],
    tag: Tag,
    stages: int | None,
    carveout: int,
) -> Mainloop | Broken:
    m, n, k = tile
    a, b = ELEMENTS[ops.a], ELEMENTS[ops.b]
    for fmt, key in ((a, "a"), (b, "b")):
        if not fmt.block_scaled:
            return no_collective(
                f"{key} = {fmt.name} carries no scale factors; use an nvfp4 or mx format.",
            )
    if rules.small_n and tag.pingpong and n < 16:
        return no_collective("Pingpong kernels need N of 16 or more; use a cooperative schedule.")
    broken = (
        aligned(ops, tag.instruction == "mxf8f6f4")
        or _scale_types(a, b)
        or k_major_only(ops, BLOCKSCALED_BUILDER)
        or sm120_tags.check_inputs(tag, a, b)
        or single_cta(cluster, BLOCKSCALED_BUILDER)
        or _tile_n(rules, n)
        or sm120_tags.check_selection(tag, a, b, rules)
    )
    if broken:
        return broken
    wide = tag.instruction == "mxf8f6f4" or not (a.bits == 4 and b.bits == 4)
    if tag.instruction == "mxf8f6f4":
        broken = mixed_k(a, b, k, BLOCKSCALED_BUILDER)
        if broken:
            return broken
    if acc != "f32":
        shape = "16x8x32_TN_VS" if wide else "16x8x64_TN_VS"
        return Broken(
            f"No MMA matches SM120_{shape} for given data types.", MMA, "SM120 accumulates block-scaled MMAs in f32."
        )
    if grouped and tag.array is False:
        return Broken(
            "Invalid builder schedule tag for grouped GEMM", BLOCKSCALED_BUILDER, "Use a KernelPtrArray* tag or auto."
        )
    bits_a = 8 if wide else a.bits
    bits_b = 8 if wide else b.bits
    collective = COLLECTIVE["block_scaled", grouped]
    broken = operand_atoms(tile, bits_a, bits_b, collective)
    if broken:
        return broken

    # One block of scale factors serves 128 rows and 4 scales along K; the builder's divisions are exact integer
    # divisions in the type system, so what does not fill a block is dropped (and the kernel cannot be used).
    vector = a.scale_vector
    columns = max(n, SF_ROWS) if rules.sfb_covers_128 else n
    sf_k = k // vector // SF_GROUP * SF_GROUP
    sfa = m // SF_ROWS * SF_ROWS * sf_k
    sfb = columns // SF_ROWS * SF_ROWS * sf_k
    sf_short = sfa < m * k // vector or sfb < n * k // vector
    if rules.sfb_covers_128:
        broken = _sf_layout(n, k, vector)
        if broken:
            return broken

    stage_a, stage_b = m * k * bits_a // 8, n * k * bits_b // 8
    terms = (
        ("A", stage_a),
        ("B", stage_b),
        ("SFA", sfa),
        ("SFB", sfb),
        ("pipeline", rules.stage_pipeline_bytes),
    )
    reserved: tuple[tuple[str, int], ...] = ()
    if rules.reserves_kernel_storage:
        reserved = RESERVED_GROUPED if grouped else RESERVED_DENSE
    count = count_stages(stages, carveout, terms, reserved)
    broken = too_few(count, "block_scaled", grouped)
    if broken:
        return broken
    s = count.stages
    overhang = _sfb_overhang(n) if rules.sfb_covers_128 else 0
    members = [
        operand_member("smem_A", m, k, bits_a, s),
        operand_member("smem_B", n, k, bits_b, s),
        scale_member("smem_SFA", sfa * s),
        scale_member("smem_SFB", sfb * s + overhang),
    ]
    whys = [
        operand_why(ops.a, "M", m, k, bits_a, s),
        operand_why(ops.b, "N", n, k, bits_b, s),
        f"{s} stages x {m // SF_ROWS * SF_ROWS} rows x {sf_k} scales ({a.scale}, one a {vector} of K)",
        f"{s} stages x {columns // SF_ROWS * SF_ROWS} columns x {sf_k} scales ({b.scale}, one a {vector} of K)",
    ]
    return finish("block_scaled", grouped, tag.pingpong, count, members, ("A", "B", "SFA", "SFB"), 3, sf_short, whys)


def _sfb_overhang(n: int) -> int:
    """Bytes by which dividing SFB's 128 columns by a tile of `n` reaches past their end.

    The columns of a block lie as (32, 4):(16, 4). `logical_divide` by n = 32 j makes ((32, j), ceil(4 / j)) of them
    with strides ((16, 4), 4 j); where j does not divide 4 the last tile hangs over, and cosize counts it.
    """
    if n >= SF_ROWS or n < 32:
        return 0
    groups = n // 32
    tiles = -(-4 // groups)
    last = SF_GROUP * (groups - 1) + SF_GROUP * groups * (tiles - 1)
    return last - SF_GROUP * 3


def _scale_types(a: Element, b: Element) -> Broken | None:
    if a.scale != b.scale:
        return Broken(
            "Scale factor types for A and B must be the same.",
            BLOCKSCALED_BUILDER,
            f"{a.name} scales with {a.scale}, {b.name} with {b.scale}: NVFP4 pairs with NVFP4 only.",
        )
    return None


def _tile_n(rules: Rules, n: int) -> Broken | None:
    smallest = 8 if rules.small_n else 32
    if n >= smallest:
        return None
    more = "" if rules.small_n else " (CUTLASS 4.6.0 and later take 8 and 16)"
    return Broken("Invalid tile shape N.", BLOCKSCALED_BUILDER, f"N must be at least {smallest}{more}.")


def _sf_layout(n: int, k: int, vector: int) -> Broken | None:
    """From 4.5.0 the collective divides SFB's layout by the tile (`logical_divide` and the TMA's tile)."""
    where = "cute/layout.hpp"
    if k < SF_GROUP * vector:
        return Broken(
            'result of decltype qualifier "__nv_bool" is not a class or enumeration',
            where,
            f"K = {k} holds fewer than the {SF_GROUP} scales of one block: use K of {SF_GROUP * vector} or more.",
        )
    if k % (SF_GROUP * vector):
        return Broken(
            "Shape Divisibility Condition",
            where,
            f"Scales come in blocks of {SF_GROUP} along K: make K a multiple of {SF_GROUP * vector}, not {k}.",
        )
    if n % SF_ROWS if n > SF_ROWS else (n % 32 and 32 % n):
        return Broken(
            "Shape Divisibility Condition",
            where,
            f"The scales of N = {n} cannot be divided: use 8, 16, 32, 64, 96 or a multiple of 128.",
        )
    return None
