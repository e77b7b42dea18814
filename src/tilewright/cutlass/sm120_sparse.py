"""Mainloops of SM120/SM121 for 2:4 sparse A operands, with and without hardware scale factors.

Mirrors `gemm/collective/builders/sm120_sparse_mma_builder.inl`, `sm120_blockscaled_sparse_mma_builder.inl` (what is
chosen and asserted), `gemm/collective/sm120_sparse_mma_tma.hpp`, `sm120_blockscaled_sparse_mma_tma.hpp` (how it is laid
out) and `builders/sm1xx_sparse_config.inl` (the metadata E that says which elements of A are there). A is stored
compressed, so a stage holds half of its logical elements plus E. Where two whole stages do not fit, B gets three stages
of half the K extent ("1.5 stages") and E stays in global memory: asymmetric DMA. Sizes in bytes, extents in logical
elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.cutlass import sm120_sparse_rules, sm120_tags
from tilewright.cutlass.caches import LAYOUTS
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.laid import StageCount
from tilewright.cutlass.operands import Operands, operands
from tilewright.cutlass.sm120_collective import (
    ARRAY_ALIGN,
    CAPACITY,
    MIN_STAGES,
    SF_GROUP,
    SF_ROWS,
    TENSOR_ALIGN,
    scale_member,
)
from tilewright.cutlass.sm120_sparse_rules import SPARSITY
from tilewright.cutlass.smem_atoms import ATOM_ROWS, pick_atom
from tilewright.cutlass.structs import Member, Struct, round_up, struct
from tilewright.cutlass.verdict import Broken, Entry
from tilewright.cutlass.versions import BARRIER_PAIR_BYTES, rules_for
from tilewright.formats.elements import ELEMENTS

SPARSE_COLLECTIVE: Final = "cutlass/gemm/collective/sm120_sparse_mma_tma.hpp"
SCALED_COLLECTIVE: Final = "cutlass/gemm/collective/sm120_blockscaled_sparse_mma_tma.hpp"

STAGE_BARRIERS: Final = 3 * 8
"""What the stage count adds a stage: `sizeof(ClusterBarrier) * 3` in both builders."""
SCHEDULER_STAGES: Final = 2
"""SchedulerPipelineStageCount of both builders."""
ASYMMETRIC_STAGES_B: Final = 3
"""Stages of B, each of half the K extent, where A and B get different numbers of stages."""
METADATA_ROWS: Final = 128
"""TensorEAtomM: rows of one atom of E."""


@dataclass(frozen=True, slots=True)
class Widths:
    """How an instruction stores its operands: `sparse_elem<2, uint8_t>` and bytes (f8f6f4), or `sparse_elem<4,
    uint8_t>` and nibbles (the FP4 instruction)."""

    bits_b: int
    a_shift: int
    """Bytes of A are M * K >> a_shift."""
    e_shift: int
    """Bytes of E are M * K >> e_shift."""
    sparsity: int
    """Logical elements a stored byte of A stands for."""
    metadata_k: int
    """TensorEAtomK: logical K extent of one atom of E."""


F8F6F4_WIDTHS: Final = Widths(bits_b=8, a_shift=1, e_shift=3, sparsity=2, metadata_k=128)
FP4_WIDTHS: Final = Widths(bits_b=4, a_shift=2, e_shift=4, sparsity=4, metadata_k=256)


@dataclass(frozen=True, slots=True)
class SparseMainloop:
    """A laid-out sparse mainloop. `bytes` is sizeof(SharedStorage); `stages_e` is 0 where E stays in global memory."""

    stages_a: int
    stages_b: int
    stages_e: int
    count: StageCount
    tensors: Struct
    pipeline_mk: int
    pipeline_nk: int
    bytes: int
    sf_short: bool | None
    acc2x4: bool
    """Whether the MMA warps lie 2x4 (KernelScheduleAcc2x4Sm120) instead of 4x2."""
    policy: str
    schedule: str
    members_why: tuple[str, ...]


def mainloop(config: KernelConfig, carveout: int) -> SparseMainloop | Broken:
    """Lay out the mainloop of a sparse `config`; `carveout` is sizeof the epilogue's SharedStorage.

    Returns the first rule that the config breaks, in the order in which the compiler would meet them.
    """
    return _mainloop(
        config.cutlass,
        config.op_class,
        config.kind == "grouped",
        operands(config),
        config.acc,
        config.tile,
        config.cluster,
        _tag_name(config),
        config.stages != "auto",
        carveout,
    )


def _tag_name(config: KernelConfig) -> str:
    """The builder tag that the short schedule names stand for; it depends on the formats of block-scaled operands."""
    if config.op_class != "block_scaled_sparse" or config.schedule not in ("cooperative", "acc2x4"):
        return config.schedule
    if config.schedule == "acc2x4":
        return "KernelSparseTmaWarpSpecializedMxf8f6f4Acc2x4Sm120"
    pair = (config.a, config.b)
    form = {("nvfp4", "nvfp4"): "Nvf4", ("mxfp4", "mxfp4"): "Mxf4"}.get(pair, "Mxf8f6f4")
    return f"KernelSparseTmaWarpSpecialized{form}Sm120"


@lru_cache(maxsize=LAYOUTS)
def _mainloop(
    version: str,
    op_class: str,
    grouped: bool,
    ops: Operands,
    acc: str,
    tile: tuple[int, int, int],
    cluster: tuple[int, int, int],
    schedule: str,
    pinned: bool,
    carveout: int,
) -> SparseMainloop | Broken:
    rules = rules_for(version)
    assert rules is not None, "callers check the release first"
    tag = sm120_tags.resolve(schedule, op_class, grouped)
    if tag is None:
        return sm120_sparse_rules.no_tag(schedule, op_class)
    if op_class == "sparse":
        broken = sm120_sparse_rules.plain(grouped, ops, acc, tile, cluster, tag, pinned)
        return broken or _lay_out("", ops, tile, F8F6F4_WIDTHS, None, carveout, SPARSE_COLLECTIVE)
    broken = sm120_sparse_rules.block_scaled(grouped, ops, acc, tile, cluster, tag, pinned)
    if broken:
        return broken
    a, b = ELEMENTS[ops.a], ELEMENTS[ops.b]
    widths = F8F6F4_WIDTHS if sm120_sparse_rules.in_bytes(tag, a, b, ops) else FP4_WIDTHS
    if rules.sparse_metadata_k_assert:
        broken = _metadata(tile[0], tile[2], widths, SCALED_COLLECTIVE)
        if broken:
            return broken
    vector = a.scale_vector * SPARSITY
    return _lay_out("BlockScaled", ops, tile, widths, vector, carveout, SCALED_COLLECTIVE, "Acc2x4" in tag.name)


def _metadata(m: int, k: int, widths: Widths, where: str) -> Broken | None:
    """What the collective asserts of E's layout from 4.7.0 on before it lays anything out."""
    if m % METADATA_ROWS:
        return Broken("SmemLayoutAtomE must evenly divide tile shape.", where, _ROWS_ADVICE)
    if k % widths.metadata_k:
        return Broken(
            "TileShape_K must be a multiple of the metadata atom K extent (256 for nvf4 and mxf4, 128 for mxf8f6f4).",
            where,
            f"Make K a multiple of {widths.metadata_k}, not {k}.",
        )
    return None


_ROWS_ADVICE: Final = f"Metadata comes in blocks of {METADATA_ROWS} rows: make the tile's M a multiple of them."


def _lay_out(
    family: str,
    ops: Operands,
    tile: tuple[int, int, int],
    widths: Widths,
    vector: int | None,
    carveout: int,
    collective: str,
    acc2x4: bool = False,
) -> SparseMainloop | Broken:
    m, n, k = tile
    stored_k = k // widths.sparsity
    if k % widths.sparsity or pick_atom(stored_k, 8) is None or pick_atom(k, widths.bits_b) is None:
        return Broken(
            "No shared memory copy atom can be selected.",
            "cutlass/gemm/collective/builders/sm120_common.inl",
            f"The tile's K of {k} is not a whole number of 16-byte rows; use a multiple of {widths.metadata_k}.",
        )
    if m % ATOM_ROWS or n % ATOM_ROWS:
        text = "SmemLayoutAtom must evenly divide tile shape."
        return Broken(text, collective, "Make the tile's M and N multiples of 8.")

    a, b, e = m * k >> widths.a_shift, n * k * widths.bits_b // 8, m * k >> widths.e_shift
    columns = round_up(n, SF_ROWS)
    sf_k = 0 if vector is None else k // vector // SF_GROUP * SF_GROUP
    sfa, sfb = m // SF_ROWS * SF_ROWS * sf_k, columns * sf_k
    scales = () if vector is None else (("SFA", sfa), ("SFB", sfb))
    count, stages_a, stages_b = _stages(a, b, e, scales, carveout)
    if stages_a < MIN_STAGES:
        which = "StagesA" if family else "Stages"
        room = max(0, count.capacity - count.carveout)
        return Broken(
            f"Specialization requires {which} set to value 2 or more.",
            collective,
            f"Even without metadata and with three quarters of B a stage takes {count.stage_bytes:,} bytes, and "
            f"{room:,} are left beside the epilogue. Use a smaller tile or epilogue.",
        )
    asymmetric = stages_a != stages_b
    k_b = -(-k // 2) if asymmetric else k
    atom_b = pick_atom(k, widths.bits_b)
    assert atom_b is not None
    broken = _divides(m, k, k_b, widths, atom_b.row_bytes * 8 // widths.bits_b)
    if broken:
        return broken

    stages_e = 0 if asymmetric else stages_a
    members = [
        Member("smem_A", a * stages_a, TENSOR_ALIGN, ARRAY_ALIGN),
        Member(
            "smem_B", n * k_b * widths.bits_b // 8 * stages_b, TENSOR_ALIGN, ARRAY_ALIGN if widths.bits_b == 8 else 1
        ),
    ]
    whys = [
        f"{stages_a} stages x M {m} x K {k}, half of it stored ({_stored(ops.a, widths)})",
        f"{stages_b} stages x N {n} x K {k_b} ({_stored(ops.b, widths)})"
        + (": half of the tile's K each, 1.5 stages in all" if asymmetric else ""),
    ]
    if vector is not None:
        members += [scale_member("smem_SFA", sfa * stages_a), scale_member("smem_SFB", sfb * stages_a)]
        whys += [
            f"{stages_a} stages x {m} rows x {sf_k} scales (one a {vector} of K)",
            f"{stages_a} stages x {columns} columns x {sf_k} scales (one a {vector} of K)",
        ]
    members.append(scale_member("smem_E", e * stages_e))
    whys.append(
        "empty: with different stages of A and B the metadata is read from global memory"
        if asymmetric
        else f"{stages_e} stages of metadata: which of A's elements are there, {e} bytes each"
    )
    tensors = struct(members, TENSOR_ALIGN)
    pipeline_mk, pipeline_nk = BARRIER_PAIR_BYTES * stages_a, BARRIER_PAIR_BYTES * stages_b
    storage = struct(
        [
            Member("tensors", tensors.bytes, tensors.align, tensors.align),
            Member("pipeline_storage_mk", pipeline_mk, 16, 8),
            Member("pipeline_storage_nk", pipeline_nk, 16, 8),
        ]
    )
    one = "cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >"
    return SparseMainloop(
        stages_a=stages_a,
        stages_b=stages_b,
        stages_e=stages_e,
        count=count,
        tensors=tensors,
        pipeline_mk=pipeline_mk,
        pipeline_nk=pipeline_nk,
        bytes=storage.bytes,
        acc2x4=acc2x4,
        sf_short=None if vector is None else sf_k * vector < k,
        policy=(
            f"cutlass::gemm::MainloopSm120TmaWarpSpecializedSparse{family}"
            f"<{stages_a}, {stages_b}, {stages_e}, {SCHEDULER_STAGES}, {one} >"
        ),
        schedule=(
            f"cutlass::gemm::KernelTmaWarpSpecializedCooperativeSparse{family}Sm120"
            f"<{SCHEDULER_STAGES}, {str(asymmetric).lower()}>"
        ),
        members_why=tuple(whys),
    )


def _stages(a: int, b: int, e: int, scales: tuple[tuple[str, int], ...], carveout: int) -> tuple[StageCount, int, int]:
    """`sm120_compute_stage_count_or_override_*sparse`: how it counted, stages of A, stages of B."""
    room = max(0, CAPACITY - carveout)
    pipeline = ("pipeline", STAGE_BARRIERS)

    def counted(*terms: tuple[str, int]) -> StageCount:
        stage_bytes = sum(size for _, size in terms)
        return StageCount(room // stage_bytes, False, CAPACITY, carveout, stage_bytes, terms)

    whole = counted(("A", a), ("B", b), ("E", e), *scales, pipeline)
    if whole.stages >= MIN_STAGES:
        return whole, whole.stages, whole.stages
    reduced = counted(("A", a), ("3/4 of B", b * 3 // 4), *scales, pipeline)
    return reduced, reduced.stages, ASYMMETRIC_STAGES_B if reduced.stages >= MIN_STAGES else reduced.stages


def _divides(m: int, k: int, k_b: int, widths: Widths, atom_k_b: int) -> Broken | None:
    """`tile_to_shape` of B's atom into half the tile's K, and of the metadata atom into M x K."""
    text, where = "tile_to_shape: block shape does not divide the target shape.", "cute/layout.hpp"
    if k_b % atom_k_b:
        advice = (
            f"Two whole stages do not fit, and half of K = {k} is no whole number of B's {atom_k_b}-element rows: "
            "use a smaller M or N, or twice the K."
        )
        return Broken(text, where, advice)
    if m % METADATA_ROWS:
        return Broken(text, where, _ROWS_ADVICE)
    if k % widths.metadata_k:
        advice = f"Metadata comes in blocks of {widths.metadata_k} along K: make K a multiple of them, not {k}."
        return Broken(text, where, advice)
    return None


def _stored(name: str, widths: Widths) -> str:
    if widths.bits_b == 8 and ELEMENTS[name].bits < 8:
        return f"{name} in 8-bit containers"
    return f"{name}, {ELEMENTS[name].bits} bits"


def entries(main: SparseMainloop) -> list[Entry]:
    """Budget lines inside the mainloop (paths `mainloop.tensors.*`)."""
    return [
        Entry(f"mainloop.tensors.{member.name}", offset, member.bytes, member.type_align, why)
        for member, offset, why in zip(main.tensors.members, main.tensors.offsets, main.members_why, strict=True)
    ]
