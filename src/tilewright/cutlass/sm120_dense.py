"""The plain mainloop of SM120: FP8, FP6 and FP4 in any mix, dense and, from CUTLASS 4.6.0 on, grouped.

Mirrors `gemm/collective/builders/sm120_mma_builder.inl`, `sm120_array_mma_builder.inl` (what is chosen and asserted)
and `gemm/collective/sm120_mma{,_array}_tma.hpp` (how it is laid out).
"""

from __future__ import annotations

from tilewright.cutlass.operands import Operands
from tilewright.cutlass.sm120_collective import (
    ARRAY_BUILDER,
    COLLECTIVE,
    MMA,
    TENSOR_BUILDER,
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
    single_cta,
    too_few,
)
from tilewright.cutlass.sm120_tags import Tag
from tilewright.cutlass.verdict import Broken
from tilewright.cutlass.versions import BARRIER_PAIR_BYTES, Rules
from tilewright.formats.elements import ELEMENTS


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
    array_builder = rules.grouped_f8f6f4 and tag.array is True
    where = ARRAY_BUILDER if array_builder else TENSOR_BUILDER
    what = "array TmaWarpSpecialized" if array_builder else "TmaWarpSpecialized"
    broken = (
        aligned(ops, a.bits < 8 or b.bits < 8)
        or plain_inputs(ops, where, what)
        or single_cta(cluster, where)
        or k_major_only(ops, where)
        or mixed_k(a, b, k, where, "meet" if array_builder else "met with")
    )
    if broken:
        return broken
    if acc not in ("f32", "f16"):
        return Broken(
            "No MMA matches SM120_16x8x32_TN for given data types.", MMA, "f8f6f4 MMAs accumulate in f32 or f16."
        )
    if tag.array is True and not array_builder:
        return Broken(
            "PtrArray kernel is not supported for this collective builder.",
            TENSOR_BUILDER,
            "Grouped FP8 without scales exists from CUTLASS 4.6.0 on; before, use blockwise scaling or a dense kernel.",
        )
    if array_builder and not tag.scheduler_stages:
        return Broken(
            f'class "cutlass::gemm::{tag.name}" has no member "SchedulerPipelineStageCount"',
            ARRAY_BUILDER,
            "Use KernelPtrArrayTmaWarpSpecialized{Cooperative,Pingpong}Sm120<2> (schedule cooperative or pingpong).",
        )
    collective = COLLECTIVE["tensor_op", array_builder]
    broken = operand_atoms(tile, 8, 8, collective)
    if broken:
        return broken
    terms = (("A", m * k), ("B", n * k), ("pipeline", BARRIER_PAIR_BYTES))
    count = count_stages(stages, carveout, terms)
    broken = too_few(count, "tensor_op", array_builder)
    if broken:
        return broken
    if grouped and not array_builder:
        return Broken(
            "ProblemShape{} should be <M,N,K> or <M,N,K,L>",
            "cutlass/gemm/kernel/sm90_gemm_tma_warpspecialized_cooperative.hpp",
            "KernelScheduleAuto builds a dense kernel: ask for cooperative or pingpong (CUTLASS 4.6.0 and later).",
        )
    if array_builder and not grouped:
        return Broken(
            'class "cute::tuple<int, int, int, int>" has no member "UnderlyingProblemShape"',
            "cutlass/gemm/kernel/sm90_gemm_array_tma_warpspecialized_cooperative.hpp",
            f"{tag.name} builds a grouped kernel: use kind grouped, or cooperative or pingpong.",
        )
    s = count.stages
    members = [operand_member("smem_A", m, k, 8, s), operand_member("smem_B", n, k, 8, s)]
    whys = [operand_why(ops.a, "M", m, k, 8, s), operand_why(ops.b, "N", n, k, 8, s)]
    return finish("tensor_op", array_builder, tag.pingpong, count, members, ("A", "B"), 2, None, whys)
