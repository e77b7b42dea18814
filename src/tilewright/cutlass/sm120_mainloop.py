"""Mainloops of SM120/SM121: block-scaled, plain f8f6f4, and FP8 with software (blockwise) scales.

Mirrors `gemm/collective/builders/sm120_blockscaled_mma_builder.inl`, `sm120_mma_builder.inl`,
`sm120_array_mma_builder.inl`, `sm120_blockwise_mma_builder.inl` (what is chosen and what is asserted) and
`gemm/collective/sm120_*_tma*.hpp` (how it is laid out). The MMAs read both operands from registers, so shared memory
holds A, B and scales a stage, nothing else. Sizes in bytes, extents in elements.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.cutlass import sm120_tags
from tilewright.cutlass.config import DEFAULT_GRANULARITY, KernelConfig
from tilewright.cutlass.laid import StageCount
from tilewright.cutlass.sm120_tags import Tag
from tilewright.cutlass.smem_atoms import ATOM_ROWS, pick_atom
from tilewright.cutlass.structs import Member, Struct, round_up, struct
from tilewright.cutlass.verdict import Broken, Entry
from tilewright.cutlass.versions import BARRIER_PAIR_BYTES, Rules, rules_for
from tilewright.formats.elements import ELEMENTS, Element

CAPACITY: Final = 101376
"""sm120_smem_capacity_bytes (`cutlass/arch/arch.h`): the opt-in limit of a block, 99 KiB."""
TENSOR_ALIGN: Final = 1024
"""`alignas(1024)` on smem_A and smem_B in every SM120 collective."""
ARRAY_ALIGN: Final = 16
"""alignof array_aligned and of arrays of whole bytes."""
TMA_DESCRIPTOR: Final = 128
"""sizeof and alignof cute::TmaDescriptor."""
SCALE_BYTES: Final = 4
"""Software scales are FP32 (ElementAccumulator)."""
SF_ROWS: Final = 128
"""Rows (or columns) of one block of scale factors: Blk_MN of Sm1xxBlockScaledConfig."""
SF_GROUP: Final = 4
"""Scale factors along K of one block: Blk_SF of Sm1xxBlockScaledConfig."""
MIN_STAGES: Final = 2
"""`static_assert(DispatchPolicy::Stages >= 2)` in every SM120 collective."""

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

BLOCKSCALED_BUILDER: Final = "cutlass/gemm/collective/builders/sm120_blockscaled_mma_builder.inl"
TENSOR_BUILDER: Final = "cutlass/gemm/collective/builders/sm120_mma_builder.inl"
ARRAY_BUILDER: Final = "cutlass/gemm/collective/builders/sm120_array_mma_builder.inl"
BLOCKWISE_BUILDER: Final = "cutlass/gemm/collective/builders/sm120_blockwise_mma_builder.inl"
COMMON: Final = "cutlass/gemm/collective/builders/sm1xx_common.inl"
MMA: Final = "cute/arch/mma_sm120.hpp"
NO_COLLECTIVE: Final = "Could not build a collective for given parameters."
NO_COLLECTIVE_AT: Final = "cutlass/gemm/collective/collective_builder_decl.hpp"

_COLLECTIVE: Final = {
    ("block_scaled", False): "cutlass/gemm/collective/sm120_blockscaled_mma_tma.hpp",
    ("block_scaled", True): "cutlass/gemm/collective/sm120_blockscaled_mma_array_tma.hpp",
    ("tensor_op", False): "cutlass/gemm/collective/sm120_mma_tma.hpp",
    ("tensor_op", True): "cutlass/gemm/collective/sm120_mma_array_tma.hpp",
    ("blockwise", False): "cutlass/gemm/collective/sm120_mma_tma_blockwise_scaling.hpp",
    ("blockwise", True): "cutlass/gemm/collective/sm120_mma_array_tma_blockwise_scaling.hpp",
}

F8F6F4: Final = frozenset({"e4m3", "e5m2", "e2m3", "e3m2", "e2m1"})
"""`is_sm10x_f8f6f4_element`: operands of the f8f6f4 instructions."""


@dataclass(frozen=True, slots=True)
class Mainloop:
    """A laid-out mainloop. `bytes` is sizeof(SharedStorage)."""

    stages: int
    count: StageCount
    pingpong: bool
    tensors: Struct
    tensormaps: Struct | None
    pipeline_bytes: int
    bytes: int
    scheduler_stages: int
    sf_short: bool | None
    policy: str
    schedule: str
    members_why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands as compiled: after swap_ab has exchanged them."""

    a: str
    b: str
    align_a: int
    align_b: int
    layout_a: str
    layout_b: str


_TRANSPOSED: Final = {"row": "col", "col": "row"}


def operands(config: KernelConfig) -> Operands:
    """The operands that the builder sees. swap_ab: A and B change places, each layout transposed."""
    if config.swap_ab:
        return Operands(
            config.b,
            config.a,
            config.align_b,
            config.align_a,
            _TRANSPOSED[config.layout_b],
            _TRANSPOSED[config.layout_a],
        )
    return Operands(config.a, config.b, config.align_a, config.align_b, config.layout_a, config.layout_b)


def mainloop(config: KernelConfig, carveout: int) -> Mainloop | Broken:
    """Lay out the mainloop of `config`; `carveout` is sizeof the epilogue's SharedStorage.

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
        config.schedule,
        None if config.stages == "auto" else config.stages,
        config.scale_granularity,
        carveout,
    )


@lru_cache(maxsize=65536)
def _mainloop(
    version: str,
    op_class: str,
    grouped: bool,
    ops: Operands,
    acc: str,
    tile: tuple[int, int, int],
    cluster: tuple[int, int, int],
    schedule: str,
    stages: int | None,
    granularity: tuple[int, int, int] | None,
    carveout: int,
) -> Mainloop | Broken:
    rules = rules_for(version)
    assert rules is not None, "callers check the release first"
    tag = sm120_tags.resolve(schedule, op_class, grouped)
    if tag is None:
        return Broken(
            NO_COLLECTIVE,
            NO_COLLECTIVE_AT,
            f"No SM120 {op_class} builder accepts the schedule {schedule}; leave it at auto.",
        )
    if op_class == "block_scaled":
        return _block_scaled(rules, grouped, ops, acc, tile, cluster, tag, stages, carveout)
    if op_class == "tensor_op":
        return _tensor_op(rules, grouped, ops, acc, tile, cluster, tag, stages, carveout)
    return _blockwise(grouped, ops, acc, tile, cluster, tag, stages, granularity or DEFAULT_GRANULARITY, carveout)


def _tn(ops: Operands, where: str) -> Broken | None:
    if (ops.layout_a, ops.layout_b) == ("row", "col"):
        return None
    return Broken("Only TN layout is supported.", where, "Store A row-major (K contiguous) and B column-major.")


def single_cta(cluster: tuple[int, int, int], where: str) -> Broken | None:
    """The assert of every builder but the blockwise one that a cluster is one CTA."""
    if cluster == (1, 1, 1):
        return None
    return Broken(
        "no programmatic multicast on this arch",
        where,
        "This collective demands cluster 1x1x1 (SM120 has clusters, but its TMA cannot multicast).",
    )


def _atoms(tile: tuple[int, int, int], bits_a: int, bits_b: int, where: str) -> Broken | None:
    """`sm120_rr_smem_selector` and the divisibility asserts of the collective."""
    m, n, k = tile
    if pick_atom(k, bits_a) is None or pick_atom(k, bits_b) is None:
        return Broken(
            "No shared memory copy atom can be selected.",
            "cutlass/gemm/collective/builders/sm120_common.inl",
            f"The tile's K of {k} is not a whole number of 16-byte rows; use a multiple of 32.",
        )
    if m % ATOM_ROWS or n % ATOM_ROWS:
        return Broken("SmemLayoutAtom must evenly divide tile shape.", where, "Make the tile's M and N multiples of 8.")
    return None


def _aligned(fmt: Element, align: int, f8f6f4_subbyte: bool) -> bool:
    """`get_input_alignment_bits` (`cutlass/detail/collective.hpp`): 16 bytes; for FP4/FP6 in f8f6f4 128 elements."""
    need = 128 * fmt.bits if f8f6f4_subbyte and fmt.bits < 8 else 128
    return fmt.bits * align % need == 0


def _alignment(ops: Operands, f8f6f4_subbyte: bool) -> Broken | None:
    for name, align, key in ((ops.a, ops.align_a, "A"), (ops.b, ops.align_b, "B")):
        fmt = ELEMENTS[name]
        if not _aligned(fmt, align, f8f6f4_subbyte):
            need = 128 if f8f6f4_subbyte and fmt.bits < 8 else -(-128 // fmt.bits)
            return Broken(
                NO_COLLECTIVE,
                NO_COLLECTIVE_AT,
                f"Alignment {align} of {key} ({name}) is below what its TMA load needs; use {need} elements.",
            )
    return None


def _count(
    stages: int | None,
    carveout: int,
    terms: tuple[tuple[str, int], ...],
    reserved: tuple[tuple[str, int], ...] = (),
) -> StageCount:
    stage_bytes = sum(size for _, size in terms)
    capacity = CAPACITY - sum(size for _, size in reserved)
    # C++ integer division truncates towards zero; a negative rest only ever means "no stage".
    counted = max(0, capacity - carveout) // stage_bytes if stage_bytes else 0
    return StageCount(
        stages if stages is not None else counted,
        stages is not None,
        capacity,
        carveout,
        stage_bytes,
        terms,
        reserved,
    )


def _too_few(count: StageCount, op_class: str, grouped: bool) -> Broken | None:
    if count.stages >= MIN_STAGES:
        return None
    if count.pinned:
        advice = "Ask for 2 stages or more."
    else:
        room = max(0, count.capacity - count.carveout)
        advice = (
            f"A stage takes {count.stage_bytes:,} bytes and {room:,} are left beside the epilogue: "
            f"room for {count.stages}. Use a smaller tile or epilogue."
        )
    return Broken("Specialization requires Stages set to value 2 or more.", _COLLECTIVE[op_class, grouped], advice)


def _finish(
    op_class: str,
    grouped: bool,
    pingpong: bool,
    count: StageCount,
    members: list[Member],
    maps: tuple[str, ...],
    scheduler_stages: int,
    sf_short: bool | None,
    whys: list[str],
    cluster: tuple[int, int, int] = (1, 1, 1),
) -> Mainloop:
    tensors = struct(members, TENSOR_ALIGN)
    pipeline = BARRIER_PAIR_BYTES * count.stages
    parts = [Member("tensors", tensors.bytes, tensors.align, tensors.align)]
    tensormaps = None
    if grouped:
        tensormaps = struct(
            [Member(f"smem_tensormap_{name}", TMA_DESCRIPTOR, TMA_DESCRIPTOR, TMA_DESCRIPTOR) for name in maps],
            TMA_DESCRIPTOR,
        )
        parts.append(Member("tensormaps", tensormaps.bytes, tensormaps.align, tensormaps.align))
    parts.append(Member("pipeline_storage", pipeline, 16, 8))
    family = {"block_scaled": "BlockScaled", "tensor_op": "", "blockwise": "BlockwiseScaling"}[op_class]
    array, ptr = ("Array", "PtrArray") if grouped else ("", "")
    kind = "Pingpong" if pingpong else "Cooperative"
    schedule = f"cutlass::gemm::Kernel{ptr}TmaWarpSpecialized{kind}{family}Sm120<{scheduler_stages}>"
    extents = ", ".join(f"cute::C<{extent}>" for extent in cluster)
    policy = (
        f"cutlass::gemm::MainloopSm120{array}TmaWarpSpecialized{family}"
        f"<{count.stages}, {scheduler_stages}, cute::tuple<{extents} >, {schedule} >"
    )
    return Mainloop(
        stages=count.stages,
        count=count,
        pingpong=pingpong,
        tensors=tensors,
        tensormaps=tensormaps,
        pipeline_bytes=pipeline,
        bytes=struct(parts).bytes,
        scheduler_stages=scheduler_stages,
        sf_short=sf_short,
        policy=policy,
        schedule=schedule,
        members_why=tuple(whys),
    )


def _operand_member(name: str, rows: int, k: int, bits: int, stages: int) -> Member:
    size = rows * k * bits // 8 * stages
    return Member(name, size, TENSOR_ALIGN, ARRAY_ALIGN if bits >= 8 else 1)


def _operand_why(name: str, axis: str, rows: int, k: int, bits: int, stages: int) -> str:
    container = f"{name} in 8-bit containers" if bits == 8 and ELEMENTS[name].bits < 8 else f"{name}, {bits} bits"
    return f"{stages} stages x {axis} {rows} x K {k} ({container})"


# --- block-scaled (hardware scales: NVFP4 and OCP MX) ----------------------------------------------------------------


def _block_scaled(
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
            return Broken(
                NO_COLLECTIVE,
                NO_COLLECTIVE_AT,
                f"{key} = {fmt.name} carries no scale factors; use an nvfp4 or mx format.",
            )
    if rules.small_n and tag.pingpong and n < 16:
        return Broken(
            NO_COLLECTIVE, NO_COLLECTIVE_AT, "Pingpong kernels need N of 16 or more; use a cooperative schedule."
        )
    broken = (
        _alignment(ops, tag.instruction == "mxf8f6f4")
        or _scale_types(a, b)
        or _tn(ops, BLOCKSCALED_BUILDER)
        or sm120_tags.check_inputs(tag, a, b)
        or single_cta(cluster, BLOCKSCALED_BUILDER)
        or _tile_n(rules, n)
        or sm120_tags.check_selection(tag, a, b, rules)
    )
    if broken:
        return broken
    wide = tag.instruction == "mxf8f6f4" or not (a.bits == 4 and b.bits == 4)
    if tag.instruction == "mxf8f6f4":
        broken = _mixed_k(a, b, k, BLOCKSCALED_BUILDER)
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
    collective = _COLLECTIVE["block_scaled", grouped]
    broken = _atoms(tile, bits_a, bits_b, collective)
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
    count = _count(stages, carveout, terms, reserved)
    broken = _too_few(count, "block_scaled", grouped)
    if broken:
        return broken
    s = count.stages
    overhang = _sfb_overhang(n) if rules.sfb_covers_128 else 0
    members = [
        _operand_member("smem_A", m, k, bits_a, s),
        _operand_member("smem_B", n, k, bits_b, s),
        scale_member("smem_SFA", sfa * s),
        scale_member("smem_SFB", sfb * s + overhang),
    ]
    whys = [
        _operand_why(ops.a, "M", m, k, bits_a, s),
        _operand_why(ops.b, "N", n, k, bits_b, s),
        f"{s} stages x {m // SF_ROWS * SF_ROWS} rows x {sf_k} scales ({a.scale}, one a {vector} of K)",
        f"{s} stages x {columns // SF_ROWS * SF_ROWS} columns x {sf_k} scales ({b.scale}, one a {vector} of K)",
    ]
    return _finish("block_scaled", grouped, tag.pingpong, count, members, ("A", "B", "SFA", "SFB"), 3, sf_short, whys)


def scale_member(name: str, size: int) -> Member:
    """An ArrayEngine of 8-bit scales: whole 16 bytes, and 16 bytes when it has no element."""
    return Member(name, max(ARRAY_ALIGN, round_up(size, ARRAY_ALIGN)), ARRAY_ALIGN, ARRAY_ALIGN)


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


def _mixed_k(a: Element, b: Element, k: int, where: str, met: str = "met with") -> Broken | None:
    """`sm1xx_gemm_check_for_f8f6f4_mix8bit_requirement`: TMA unpacks FP4/FP6 in rows of 128 elements."""
    if k % 128 and (a.bits < 8 or b.bits < 8):
        return Broken(
            f"TileSize and MNK Major does not {met} MMA Mix 8-bit TMA load requirement",
            where,
            f"FP4 and FP6 operands are unpacked 128 elements at a time: K must be a multiple of 128, not {k}.",
        )
    return None


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


# --- plain f8f6f4 ----------------------------------------------------------------------------------------------------


def _plain_inputs(ops: Operands, where: str, what: str) -> Broken | None:
    if ops.a not in F8F6F4 or ops.b not in F8F6F4:
        return Broken(
            f"SM120 {what} builder currently only supports F8F6F4 MMA.",
            where,
            f"{ops.a} x {ops.b} has no SM120 builder; use FP8, FP6 or FP4 operands.",
        )
    return None


def _tensor_op(
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
        _alignment(ops, a.bits < 8 or b.bits < 8)
        or _plain_inputs(ops, where, what)
        or single_cta(cluster, where)
        or _tn(ops, where)
        or _mixed_k(a, b, k, where, "meet" if array_builder else "met with")
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
    collective = _COLLECTIVE["tensor_op", array_builder]
    broken = _atoms(tile, 8, 8, collective)
    if broken:
        return broken
    terms = (("A", m * k), ("B", n * k), ("pipeline", BARRIER_PAIR_BYTES))
    count = _count(stages, carveout, terms)
    broken = _too_few(count, "tensor_op", array_builder)
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
    members = [_operand_member("smem_A", m, k, 8, s), _operand_member("smem_B", n, k, 8, s)]
    whys = [_operand_why(ops.a, "M", m, k, 8, s), _operand_why(ops.b, "N", n, k, 8, s)]
    return _finish("tensor_op", array_builder, tag.pingpong, count, members, ("A", "B"), 2, None, whys)


# --- FP8 with software scales ----------------------------------------------------------------------------------------


def _blockwise(
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
        _alignment(ops, a.bits < 8 or b.bits < 8)
        or _plain_inputs(ops, BLOCKWISE_BUILDER, "TmaWarpSpecialized blockwise scaling")
        or _tn(ops, BLOCKWISE_BUILDER)
        or _mixed_k(a, b, k, BLOCKWISE_BUILDER)
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
    broken = _atoms(tile, 8, 8, _COLLECTIVE["blockwise", grouped])
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
    count = _count(stages, carveout, terms)
    broken = _too_few(count, "blockwise", grouped)
    if broken:
        return broken
    s = count.stages
    members = [
        _operand_member("smem_A", m, k, 8, s),
        _operand_member("smem_B", n, k, 8, s),
        Member("smem_scale_A", round_up(SCALE_BYTES * scales_a * s, ARRAY_ALIGN), ARRAY_ALIGN, ARRAY_ALIGN),
        Member("smem_scale_B", round_up(SCALE_BYTES * scales_b * s, ARRAY_ALIGN), ARRAY_ALIGN, ARRAY_ALIGN),
    ]
    whys = [
        _operand_why(ops.a, "M", m, k, 8, s),
        _operand_why(ops.b, "N", n, k, 8, s),
        f"{s} stages x {scales_a} float scales of A (one a {gm}x{gk}), in whole 16 bytes",
        f"{s} stages x {scales_b} float scales of B (one a {gn}x{gk}), in whole 16 bytes",
    ]
    return _finish("blockwise", grouped, tag.pingpong, count, members, ("A", "B"), 2, None, whys, cluster)


def entries(main: Mainloop) -> list[Entry]:
    """Budget lines inside the mainloop (paths `mainloop.tensors.*` and `mainloop.tensormaps.*`)."""
    out = [
        Entry(f"mainloop.tensors.{member.name}", offset, member.bytes, member.type_align, why)
        for member, offset, why in zip(main.tensors.members, main.tensors.offsets, main.members_why, strict=True)
    ]
    if main.tensormaps:
        for member, offset in zip(main.tensormaps.members, main.tensormaps.offsets, strict=True):
            operand = member.name.rsplit("_", 1)[1]
            out.append(
                Entry(
                    f"mainloop.tensormaps.{member.name}",
                    offset,
                    member.bytes,
                    member.type_align,
                    f"TMA descriptor of {operand}, rewritten for each group",
                )
            )
    return out
