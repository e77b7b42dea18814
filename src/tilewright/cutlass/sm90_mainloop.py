"""Mainloops of SM90: which builder takes a config, and the storage of those that read A and B from shared memory.

Mirrors `gemm/collective/builders/sm90_gmma_builder.inl` (what is chosen and what is asserted) and
`gemm/collective/sm90_mma_*tma_gmma_ss*.hpp` (how it is laid out). Mainloops with A in registers are in
`sm90_register_a`, software scales in `sm90_blockwise`, cp.async in `sm90_cp_async`, 2:4 sparsity in `sm90_sparse`.
Rules are checked in the order in which the compiler meets them. Sizes in bytes, extents in elements.
"""

from __future__ import annotations

from functools import lru_cache

from tilewright.cutlass import sm90_blockwise, sm90_cp_async, sm90_register_a, sm90_sparse, sm90_tags
from tilewright.cutlass.caches import LAYOUTS
from tilewright.cutlass.config import DEFAULT_GRANULARITY, KernelConfig
from tilewright.cutlass.laid import StageCount
from tilewright.cutlass.sm90_common import (
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
from tilewright.cutlass.sm90_gmma import select, smem_atom
from tilewright.cutlass.sm90_tags import TAGS, Tag
from tilewright.cutlass.sm90_versions import GMMA_BUILDER, sm90_rules
from tilewright.cutlass.structs import Member, struct
from tilewright.cutlass.verdict import Broken, no_collective
from tilewright.cutlass.versions import BARRIER_PAIR_BYTES

_TRANSPOSED = {"row": "col", "col": "row"}


def problem(config: KernelConfig, carveout: int) -> Problem:
    """What a mainloop depends on, as compiled: swap_ab exchanges the operands and transposes their layouts."""
    scaled = config.narrow if config.scale is not None else None
    operands = (
        (config.a, config.align_a, config.layout_a, scaled == "a"),
        (config.b, config.align_b, config.layout_b, scaled == "b"),
    )
    if config.swap_ab:
        (b, align_b, layout_b, tuple_b), (a, align_a, layout_a, tuple_a) = operands
        layout_a, layout_b = _TRANSPOSED[layout_a], _TRANSPOSED[layout_b]
    else:
        (a, align_a, layout_a, tuple_a), (b, align_b, layout_b, tuple_b) = operands
    return Problem(
        version=config.cutlass,
        op_class=config.op_class,
        grouped=config.kind == "grouped",
        a=a,
        b=b,
        align_a=align_a,
        align_b=align_b,
        a_k_major=layout_a == "row",
        b_k_major=layout_b == "col",
        tuple_a=tuple_a,
        tuple_b=tuple_b,
        scale=config.scale if scaled else None,
        zero=config.zero if scaled else None,
        acc=config.acc,
        tile=config.tile,
        cluster=config.cluster,
        schedule=config.schedule,
        stages=None if config.stages == "auto" else config.stages,
        granularity=config.scale_granularity or DEFAULT_GRANULARITY,
        scale_k_major=config.scale_major == "k",
        carveout=carveout,
    )


@lru_cache(maxsize=LAYOUTS)
def mainloop(p: Problem) -> Mainloop | Broken:
    """Lay out the mainloop of `p`, or name the rule that it breaks first."""
    rules = sm90_rules(p.version)
    if p.schedule == "auto":
        tag = _auto(p)
        if isinstance(tag, Broken):
            return tag
    else:
        tag = sm90_tags.resolve(p.schedule, p.op_class, p.grouped, rules)
    if tag is None:
        return no_collective(f"No SM90 {p.op_class} builder accepts the schedule {p.schedule}.")
    if p.op_class == "sparse":
        return sm90_sparse.mainloop(p, tag)
    if p.op_class == "blockwise":
        return sm90_blockwise.mainloop(p, tag, rules)
    if tag.family == "blockwise":
        return no_collective(f"{tag.name} takes operands with software scales: set op_class to blockwise.")
    if tag.family == "fast_accum":
        return _fast_accumulation(p, tag)
    if tag.loads == "cp_async":
        return sm90_cp_async.mainloop(p, tag)
    if not p.register_a:
        return _shared_a(p, tag)
    if tag.loads == "tma_unspecialised":
        return no_collective(
            "KernelTma reads A and B from shared memory: both must be K-major, or 16-bit, and of the same width."
        )
    return sm90_register_a.mainloop(p, tag, rules)


def _auto(p: Problem) -> Tag | Broken | None:
    """KernelScheduleAuto: by TMA where the alignment allows it, pingpong for M of 64 and cooperative otherwise."""
    if p.op_class == "blockwise":
        return None
    name = "KernelTmaWarpSpecializedPingpong" if p.tile[0] == 64 else "KernelTmaWarpSpecializedCooperative"
    if p.op_class != "sparse" and not p.tma_aligned:
        if p.widths_differ:
            return Broken(
                "Only TMA warp specialized kernels are supported for mixed width input.",
                GMMA_BUILDER,
                "Align both operands to 16 bytes.",
            )
        name = "KernelCpAsyncWarpSpecialized"
    return TAGS[name]


def _fast_accumulation(p: Problem, tag: Tag) -> Mainloop | Broken:
    """FP8 without promotion of the accumulators: the plain mainloop, FP8 and TN only."""
    broken = alignment(p, "Not meet TMA alignment requirement yet")
    if broken:
        return broken
    if not p.fp8:
        return Broken(
            "Only FP8 datatypes are compatible with these kernel schedules",
            GMMA_BUILDER,
            f"{p.a} x {p.b} is not FP8 x FP8: use the schedule without fast accumulation.",
        )
    if p.register_a:
        return Broken(
            "Not supported for fp8 non-TN warp specialized kernels yet",
            GMMA_BUILDER,
            "Store A row-major and B column-major (both K-major).",
        )
    return _from_shared(p, tag, fp8=False)


def _shared_a(p: Problem, tag: Tag) -> Mainloop | Broken:
    broken = alignment(p)
    if broken:
        return broken
    return _from_shared(p, tag, fp8=p.fp8 and tag.loads == "tma")


def _from_shared(p: Problem, tag: Tag, *, fp8: bool) -> Mainloop | Broken:
    """SS mainloops: A and B of every stage in shared memory, 128-byte aligned."""
    m, n, k = p.tile
    broken = select(p.a, p.b, p.acc, p.tile)
    if broken:
        return broken
    atom_a = smem_atom(p.a, m, k, p.a_mn_major_smem)
    if isinstance(atom_a, Broken):
        return atom_a
    atom_b = smem_atom(p.b, n, k, p.b_mn_major_smem)
    if isinstance(atom_b, Broken):
        return atom_b
    count = count_stages(p, p.operand_terms, reserves_maps=2 if tag.array else 0)
    name = "ss" if tag.loads == "tma_unspecialised" else "ss_warpspecialized"
    where = COLLECTIVE.format(("array_" if tag.array else "") + "tma_gmma_" + name + ("_fp8" if fp8 else ""))
    # Two collectives assert 2 and say 1.
    says = 1 if not tag.array and (fp8 or tag.loads == "tma_unspecialised") else 2
    broken = divides(p) or too_few(count, where, says=says)
    if broken:
        return broken
    s = count.stages
    device_rule = (
        one_stage(p, p.a, atom_a, m, p.a_mn_major_smem, s)
        or one_stage(p, p.b, atom_b, n, p.b_mn_major_smem, s)
        or multicast(p, p.a_mn_major_smem, p.b_mn_major_smem)
    )
    if tag.array and device_rule:
        # The ptr-array collectives declare their TMA types in the class itself, the others in Params.
        return device_rule
    members = [
        operand_member("smem_A", m, k, p.bits_a, s),
        operand_member("smem_B", n, k, p.bits_b, s),
    ]
    whys = (operand_why(p.a, "M", m, k, s), operand_why(p.b, "N", n, k, s))
    if tag.loads == "tma_unspecialised":
        return _unspecialised(p, tag, count, members, whys, device_rule)
    policy = f"MainloopSm90{'Array' if tag.array else ''}TmaGmmaWarpSpecialized{'FP8' if fp8 else ''}"
    tensors, maps = struct(members, TENSOR_ALIGN), ("A", "B") if tag.array else ()
    return finish(p, tag, count, tensors, whys, policy, maps=maps, device_rule=device_rule)


def _unspecialised(
    p: Problem,
    tag: Tag,
    count: StageCount,
    members: list[Member],
    whys: tuple[str, ...],
    device_rule: Broken | None,
) -> Mainloop:
    """`sm90_mma_tma_gmma_ss.hpp`: arrays and barriers in one struct, no TensorStorage of its own."""
    stages = count.stages
    pipeline = BARRIER_PAIR_BYTES * stages
    shared = struct([*members, Member("pipeline_storage", pipeline, 16, 8)])
    return Mainloop(
        stages=stages,
        count=count,
        tag=tag,
        tensors=struct(members),
        tensormaps=None,
        tensormap_bytes=None,
        pipeline_bytes=pipeline,
        bytes=shared.bytes,
        policy=f"cutlass::gemm::MainloopSm90TmaGmma<{stages}, {p.cluster_text}, 1>",
        whys=whys,
        load_warp_groups=0,
        device_rule=device_rule,
    )
