"""What the mainloops of SM100 have in common: their parts, the stage count, storage and names.

Mirrors what `gemm/collective/builders/sm100_*_builder.inl` and `gemm/collective/sm100_*mma*_warpspecialized*.hpp`
share. The tile is the MMA's: of a 2sm kernel each CTA of the pair stores half of A's rows and half of B's columns.
Accumulators live in tensor memory. Sizes in bytes, extents in elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from tilewright.cutlass import sm100_mma
from tilewright.cutlass.config import DEFAULT_GRANULARITY, KernelConfig
from tilewright.cutlass.cute_slices import slices, stage_modes, unsliceable
from tilewright.cutlass.laid import StageCount
from tilewright.cutlass.operands import Operands, operands
from tilewright.cutlass.sm100_atoms import Major, smem_atom
from tilewright.cutlass.sm100_carveout import BARRIER_PAIR, CAPACITY, Reserved
from tilewright.cutlass.sm100_tags import Tag
from tilewright.cutlass.sm100_versions import Sm100Rules
from tilewright.cutlass.structs import Member, Struct, struct, tensor_maps
from tilewright.cutlass.verdict import Broken, Entry

TMEM_COLUMNS: Final = 512
"""Columns of 32 bits of an SM's tensor memory (`Sm100TmemCapacityColumns`)."""
GROUPED_SCHEDULERS: Final = 8
"""SchedulerPipelineStageCount of grouped kernels."""
TENSOR_ALIGN: Final = 128
"""TensorStorage is an `aligned_struct<128>`."""
ARRAY_ALIGN: Final = 16
"""alignof ArrayEngine of elements of a byte and more."""
MIN_STAGES: Final = 2
"""`static_assert(DispatchPolicy::Stages >= 2)` of the plain and blockwise collectives; block-scaled ones take 1."""

_POLICY: Final = {
    "tensor_op": "MainloopSm100{A}TmaUmmaWarpSpecialized",
    "block_scaled": "MainloopSm100{A}TmaUmmaWarpSpecializedBlockScaled",
    "blockwise": "MainloopSm100{A}TmaUmmaWarpSpecializedBlockwiseScaling",
    "sparse": "MainloopSm100{A}TmaUmmaWarpSpecializedSparse",
    "block_scaled_sparse": "MainloopSm100{A}TmaUmmaWarpSpecializedBlockScaledSparse",
    "mixed_input": "MainloopSm100TmaUmmaWarpSpecializedMixedInput",
}
_SCHEDULE: Final = {
    "tensor_op": "Kernel{P}TmaWarpSpecializedSm100",
    "block_scaled": "Kernel{P}TmaWarpSpecializedBlockScaledSm100",
    "blockwise": "Kernel{P}TmaWarpSpecializedMmaTransformSm100",
    "sparse": "KernelSparse{P}TmaWarpSpecializedSm100",
    "block_scaled_sparse": "KernelSparse{P}TmaWarpSpecializedBlockScaledSm100",
    "mixed_input": "KernelTmaWarpSpecializedMixedInputTransformSm100",
}


@dataclass(frozen=True, slots=True)
class Mainloop:
    """A laid-out mainloop. `bytes` is sizeof(SharedStorage), `pipeline` PipelineStorage as the kernel holds it."""

    tag: Tag
    sm: int
    """CTAs that share one MMA."""
    count: StageCount
    tensors: Struct
    pipeline: Member
    tensormaps: Struct | None
    bytes: int
    scheduler_stages: int
    accumulator_stages: int
    policy: str
    schedule: str
    device_rule: Broken | None = None
    """What only instantiating the whole kernel shows."""
    unusable: str | None = None
    """Why the kernel is of no use although it compiles."""


class Converted(NamedTuple):
    """A narrow operand that carries scales: which of the builder's operands it is, and the types that convert it."""

    side: str
    scale: str
    zero: str | None


@dataclass(frozen=True, slots=True)
class MainloopKey:
    """What a mainloop depends on, and nothing else."""

    version: str
    op_class: str
    grouped: bool
    ops: Operands
    acc: str
    tile: tuple[int, int, int]
    cluster: tuple[int, int, int]
    schedule: str
    stages: int | None
    scale_granularity: tuple[int, int, int] | None
    scale_major: str
    formats: tuple[str, str]
    """Formats before the swap, which a short schedule name goes by."""
    carveout: int
    converted: Converted | None = None
    """Mixed input: the operand with scales, where there is one."""


def _converted(config: KernelConfig) -> Converted | None:
    if config.op_class != "mixed_input" or config.narrow is None or config.scale is None:
        return None
    side = ("b" if config.narrow == "a" else "a") if config.swap_ab else config.narrow
    return Converted(side, config.scale, config.zero)


def mainloop_key(config: KernelConfig, carveout: int) -> MainloopKey:
    """The part of `config` that fixes its mainloop; `carveout` is sizeof the epilogue's SharedStorage."""
    return MainloopKey(
        config.cutlass,
        config.op_class,
        config.kind == "grouped",
        operands(config),
        config.acc,
        config.tile,
        config.cluster,
        config.schedule,
        None if config.stages == "auto" else config.stages,
        config.scale_granularity or (DEFAULT_GRANULARITY if config.op_class == "blockwise" else None),
        config.scale_major or "mn",
        (config.a, config.b),
        carveout,
        _converted(config),
    )


def is_pair(key: MainloopKey, tag: Tag) -> bool:
    """Whether the builder takes the kernel for a 2sm one: by its tag, else by the cluster."""
    return tag.sm == 2 or (tag.sm == 0 and key.cluster[0] % 2 == 0)


def odd_cluster(key: MainloopKey, sm: int) -> Broken | None:
    """A pair of CTAs needs an even cluster along M (`sm100_cluster_shape_to_tma_atom_A`)."""
    if sm == 2 and key.cluster[0] % 2:
        return Broken(
            "Cluster shape not divisible by MMA size",
            sm100_mma.COMMON,
            f"A 2sm MMA needs an even cluster along M, not {key.cluster[0]}: use cluster 2x1x1 or schedule 1sm.",
        )
    return None


def operand_atoms(ops: Operands, rows: int, columns: int, k: int, bits: tuple[int, int]) -> Broken | None:
    """Whether A (`rows` x k) and B (`columns` x k) have a shared-memory layout."""
    for major, width, extent in (
        (Major.K if ops.layout_a == "row" else Major.MN, bits[0], rows),
        (Major.K if ops.layout_b == "col" else Major.MN, bits[1], columns),
    ):
        atom = smem_atom(major, width, extent, k)
        if isinstance(atom, Broken):
            return atom
    return None


def sliceable(
    key: MainloopKey, rows: int, columns: int, bits: tuple[int, int], step: int, stages: int, rules: Sm100Rules
) -> Broken | None:
    """Whether TMA can be handed one stage of A (`rows` x k) and of B (`columns` x k); `step` is K of one MMA."""
    if rules.slices_plainly:
        return None
    ops, k = key.ops, key.tile[2]
    for name, major, width, extent in (
        ("A", Major.K if ops.layout_a == "row" else Major.MN, bits[0], rows),
        ("B", Major.K if ops.layout_b == "col" else Major.MN, bits[1], columns),
    ):
        atom = smem_atom(major, width, extent, k)
        assert not isinstance(atom, Broken), "operand_atoms() came first"
        line = atom.row_bytes * 8 // width
        condition = slices(atom.name, stage_modes(line, major is Major.K, extent, k, step), stages, extent * k)
        if condition:
            return unsliceable(name, condition)
    return None


def too_few_accumulators(stages: int, where: str) -> Broken | None:
    """Accumulators that do not fit tensor memory."""
    if stages > 0:
        return None
    return Broken(
        "Accumulator pipeline stage count must be positive.",
        where,
        f"The accumulators of one tile exceed the {TMEM_COLUMNS} columns of tensor memory: use a smaller M or N.",
    )


def counted(key: MainloopKey, reserved: Reserved, stage: int, terms: tuple[tuple[str, int], ...]) -> StageCount:
    """The stage count: (capacity - reserve - carveout) / stage, or what is pinned."""
    capacity = CAPACITY - sum(size for _, size in reserved)
    # C++ division truncates towards zero, so a negative rest counts no stages
    stages = int((capacity - key.carveout) / stage) if key.stages is None else key.stages
    return StageCount(stages, key.stages is not None, capacity, key.carveout, stage, terms, reserved)


def no_stage(what: str, where: str) -> Broken:
    return Broken(
        f"Smem usage is too high. Can't create any SMEM buffers for {what}.",
        where,
        "Not one stage fits beside the epilogue: use a smaller tile or a smaller epilogue.",
    )


def minimum(count: StageCount, where: str) -> Broken | None:
    if count.stages >= MIN_STAGES:
        return None
    return Broken(
        "Specialization requires Stages set to value 1 or more.",
        where,
        f"The assert is Stages >= 2, and {'one is pinned' if count.pinned else 'one fits'}: pin 2 or more, or use a "
        "smaller tile.",
    )


def operand_member(name: str, rows: int, k: int, bits: int, stages: int) -> Member:
    """smem_A or smem_B, all stages. Arrays of sub-byte elements have alignment 1; one of no elements takes as much."""
    align = ARRAY_ALIGN if bits >= 8 else 1
    why = f"{stages} stages x {rows}x{k} x {bits} bits"
    return Member(name, max(rows * k * bits // 8 * stages, align), align, align, why)


def policy_name(op_class: str, array: bool, stages: str, cluster: tuple[int, int, int], rules: Sm100Rules) -> str:
    """The mainloop's dispatch policy as the compiler spells it."""
    shape = ", ".join(f"cute::C<{extent}>" for extent in cluster)
    arch = ", cutlass::arch::Sm100" if rules.arch_in_policy else ""
    name = _POLICY[op_class].format(A="Array" if array else "")
    return f"cutlass::gemm::{name}<{stages}, cute::tuple<{shape} >{arch or ' '}>"


def schedule_name(op_class: str, array: bool, schedulers: int, accumulators: int) -> str:
    """The kernel schedule as the compiler spells it."""
    name = _SCHEDULE[op_class].format(P="PtrArray" if array else "")
    return f"cutlass::gemm::{name}<{schedulers}, {accumulators}>"


def finish(
    key: MainloopKey,
    tag: Tag,
    sm: int,
    count: StageCount,
    members: list[Member],
    rules: Sm100Rules,
    *,
    schedulers: int,
    accumulators: int,
    maps: tuple[str, ...],
    pipeline: Member | None = None,
) -> Mainloop:
    """SharedStorage: tensors, tensor maps of grouped kernels, pipeline (unless `pipeline` is no member of it)."""
    tensors = struct(members, TENSOR_ALIGN)
    parts = [Member("tensors", tensors.bytes, tensors.align, tensors.align)]
    tensormaps = tensor_maps(maps) if tag.array else None
    if tensormaps is not None:
        parts.append(Member("tensormaps", tensormaps.bytes, tensormaps.align, tensormaps.align))
    own = pipeline or Member("pipeline", BARRIER_PAIR * count.stages, 8, 8)
    if pipeline is None:
        parts.append(own)
    numbers = f"{count.stages}, {schedulers}, {accumulators}"
    return Mainloop(
        tag=tag,
        sm=sm,
        count=count,
        tensors=tensors,
        pipeline=own,
        tensormaps=tensormaps,
        bytes=struct(parts).bytes,
        scheduler_stages=schedulers,
        accumulator_stages=accumulators,
        policy=policy_name(key.op_class, tag.array, numbers, key.cluster, rules),
        schedule=schedule_name(key.op_class, tag.array, schedulers, accumulators),
    )


def member_entries(tensors: Struct, tensormaps: Struct | None) -> list[Entry]:
    """Budget lines inside a mainloop's TensorStorage and TensorMapStorage."""
    out = [
        Entry(f"mainloop.tensors.{member.name}", offset, member.bytes, member.type_align, member.why)
        for member, offset in zip(tensors.members, tensors.offsets, strict=True)
        if member.name.startswith("smem_")  # not the structs that a mixed-input mainloop groups its arrays in
    ]
    if tensormaps is not None:
        out += [
            Entry(
                f"mainloop.tensormaps.{member.name}",
                offset,
                member.bytes,
                member.type_align,
                f"TMA descriptor of {member.name.removeprefix('smem_tensormap_')}, rewritten for each group",
            )
            for member, offset in zip(tensormaps.members, tensormaps.offsets, strict=True)
        ]
    return out
