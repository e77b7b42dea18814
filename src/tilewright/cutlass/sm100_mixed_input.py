"""The mixed-input mainloop of SM100: a narrow A, converted (and scaled) to B's type on its way to the MMA.

Mirrors `gemm/collective/builders/sm100_mixed_input_umma_builder.inl` (what is chosen and asserted),
`gemm/collective/sm100_mma_warpspecialized_mixed_input.hpp` (how it is laid out) and
`detail/sm100_mixed_dtype_blockwise_layout.hpp` (scales). Four warps convert A into tensor memory, or into shared memory
with the `...Smem` tags. Dense only, from CUTLASS 4.2.0 on. Sizes in bytes, extents in elements.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.cutlass import sm100_mma
from tilewright.cutlass.laid import StageCount
from tilewright.cutlass.sm100_atoms import Major, smem_atom
from tilewright.cutlass.sm100_carveout import BARRIER, BARRIER_PAIR, CAPACITY, RESPONSE, TMEM_POINTER
from tilewright.cutlass.sm100_collective import (
    ARRAY_ALIGN,
    MIN_STAGES,
    TENSOR_ALIGN,
    TMEM_COLUMNS,
    Mainloop,
    MainloopKey,
    odd_cluster,
    policy_name,
    schedule_name,
)
from tilewright.cutlass.sm100_tags import Tag
from tilewright.cutlass.sm100_versions import Sm100Rules
from tilewright.cutlass.structs import Member, Struct, round_up, struct
from tilewright.cutlass.verdict import Broken, no_collective
from tilewright.formats.elements import ELEMENTS

BUILDER: Final = "cutlass/gemm/collective/builders/sm100_mixed_input_umma_builder.inl"
COLLECTIVE: Final = "cutlass/gemm/collective/sm100_mma_warpspecialized_mixed_input.hpp"
LAYOUT: Final = "cute/layout.hpp"
TMA: Final = "cute/atom/copy_traits_sm90_tma.hpp"
UTILS: Final = "cutlass/detail/collective/mixed_input_utils.hpp"

SCHEDULERS: Final = 3
"""SchedulerPipelineStageCount of the builder."""
WORD_BYTES: Final = 4
"""The builder's enable_if counts alignments in floats, whatever the operand is."""
TMA_ALIGNMENT: Final = 16
MAX_N: Final = 128
"""`static_assert(CtaN <= 128)` of the automatic stage count."""
ACCUMULATOR_BYTES: Final = 32
"""What the count sets aside for each accumulator stage."""
UNBOUNDED: Final = 10000
"""Transform stages that tensor memory allows where A is not in it."""
NO_SCALE: Final = (128, 64)
"""VoidLayoutScale: the granularity (M, K) that stands in where no scale layout is given."""
SMEM_A_ALIGN, SMEM_B_ALIGN, COMPUTE_ALIGN = 512, 1024, 1024
SCALE_STAGE_BYTES: Final = 128
"""TMA brings whole 128 bytes of them (mixed_input_utils.hpp)."""
COMPUTED: Final = frozenset({"bf16", "f16", "e4m3"})
"""Types of B that `sm100_make_trivial_mixed_input_tiled_mma` has an MMA for."""

TMEM_WORD_BITS: Final = 32
TMEM_BITS: Final = 128 * 512 * 32
"""Tensor memory of an SM (`TMEM::MAX_CAPACITY_BITS`, cute/arch/tmem_allocator_sm100.hpp)."""


class Stages(NamedTuple):
    """The three numbers of `sm100_compute_stage_count_or_override_mixed_input`."""

    load: int
    transform: int
    accumulators: int


def lay_out(key: MainloopKey, tag: Tag, rules: Sm100Rules) -> Mainloop | Broken:
    """`sm100_mixed_input_umma_builder.inl`."""
    if not rules.mixed_input:
        return Broken(
            f'namespace "cutlass::gemm" has no member "{tag.name}"',
            "cutlass/gemm/dispatch_policy.hpp",
            "SM100 mixed input came with CUTLASS 4.2.0: use that or later.",
        )
    sm, in_smem = tag.sm, "Smem" in tag.name
    broken = _operands(key) or _mma(key, sm, in_smem) or odd_cluster(key, sm)
    if broken:
        return broken
    ops, (m, n, k) = key.ops, key.tile
    rows, columns = m // sm, n // sm
    a, b = ELEMENTS[ops.a], ELEMENTS[ops.b]
    k_major_b = ops.layout_b == "col"
    atoms = (
        smem_atom(Major.K, a.bits, rows, k),
        smem_atom(Major.K, b.bits, rows, k),
        smem_atom(Major.K if k_major_b else Major.MN, b.bits, columns, k),
    )
    for atom in atoms:
        if isinstance(atom, Broken):
            return atom
    counted = _stages(key, sm, in_smem)
    if isinstance(counted, Broken):
        return counted
    stages, count = counted
    broken = _collective(key, sm, stages, rules)
    if broken:
        return broken
    tensors = _tensors(key, sm, in_smem, stages, rules)
    pipeline = Member("pipeline", (2 * stages.load + stages.transform + stages.accumulators) * BARRIER_PAIR, 16, 16)
    storage = struct([Member("tensors", tensors.bytes, tensors.align, tensors.align), pipeline])
    numbers = f"{stages.load}, {stages.transform}, {SCHEDULERS}, {stages.accumulators}"
    return Mainloop(
        tag=tag,
        sm=sm,
        count=count,
        tensors=tensors,
        pipeline=pipeline,
        tensormaps=None,
        bytes=storage.bytes,
        scheduler_stages=SCHEDULERS,
        accumulator_stages=stages.accumulators,
        policy=policy_name(key.op_class, False, numbers, key.cluster, rules),
        schedule=schedule_name(key.op_class, False, SCHEDULERS, stages.accumulators),
        device_rule=_scale_stage(key, sm, rules)
        or (None if in_smem else _scale_fragment(rows, k, b.bits, stages.load)),
        unusable=None if in_smem else _columns(stages, _words(n, rows, sm), k * b.bits // TMEM_WORD_BITS),
    )


def _words(n: int, rows: int, sm: int) -> int:
    """Columns of tensor memory that an accumulator takes."""
    return n // 2 if rows == 64 and sm == 2 else n


def _columns(stages: Stages, accumulator: int, converted: int) -> str | None:
    """Why a pinned number of stages cannot run: nothing checks that accumulators and converted A fit side by side."""
    need = stages.accumulators * accumulator + stages.transform * converted
    if need <= TMEM_COLUMNS:
        return None
    most = TMEM_COLUMNS // (accumulator + converted)
    return (
        f"It compiles and can be launched, and computes nonsense: {stages.accumulators} accumulators of {accumulator} "
        f"columns and {stages.transform} converted stages of {converted} take {need} of the {TMEM_COLUMNS} columns of "
        f"tensor memory, which nothing asserts. Pin at most {most} stages, or leave them at auto."
    )


def _scale_stage(key: MainloopKey, sm: int, rules: Sm100Rules) -> Broken | None:
    """`compute_tma_transaction_bytes_extra_transform`: a stage of scales, and of zero points, is whole 128 bytes."""
    count = _scales(key, sm, rules)
    for name, bits in zip(("scale", "zero"), _scale_bits(key), strict=True):
        if count * bits % (8 * SCALE_STAGE_BYTES):
            return Broken(
                f"Each {name} stage must be 128B aligned.",
                UTILS,
                f"A tile has {count} of them at {bits} bits, {count * bits // 8} bytes: "
                + ("give scale_granularity, with" if key.scale_granularity is None else "use")
                + f" so many that they fill {SCALE_STAGE_BYTES} bytes.",
                "compiled",
            )
    return None


def _scales(key: MainloopKey, sm: int, rules: Sm100Rules) -> int:
    """Scales of one stage. Before 4.3.0 each CTA holds those of the pair's whole M."""
    m, k = key.tile[0], key.tile[2]
    grain_m, grain_k = _granularity(key) or NO_SCALE
    held = m // sm if rules.tiled_mixed_scales else m
    return -(-held // min(grain_m, m)) * -(-k // min(grain_k, k))


def _scale_fragment(rows: int, k: int, bits: int, stages: int) -> Broken | None:
    """`transform_init` makes a fragment of A in tensor memory with the shape of the scales' shared memory, which has a
    stage for each one that is loaded; whether there are scales or not. The A that is converted has fewer stages."""
    if rows * k * bits * stages <= TMEM_BITS:
        return None
    most = TMEM_BITS // (rows * k * bits)
    return Broken(
        "Requesting more TMEM than is available.",
        "cute/atom/mma_traits_sm100.hpp",
        f"A fragment is made for all {stages} loaded stages of {rows}x{k} at {bits} bits, and tensor memory holds "
        f"{most}: use a wider N, or pin fewer stages.",
        "compiled",
    )


def _operands(key: MainloopKey) -> Broken | None:
    """The builder's enable_if and what it asserts of the operands: A is the narrow one, alone in carrying scales."""
    ops = key.ops
    for name, alignment in ((ops.a, ops.align_a), (ops.b, ops.align_b)):
        if WORD_BYTES * alignment % TMA_ALIGNMENT:
            return no_collective(
                f"Align {name} to a multiple of {TMA_ALIGNMENT // WORD_BYTES} elements.",
            )
    a, b = ELEMENTS[ops.a].bits, ELEMENTS[ops.b].bits
    if a == b:
        return Broken(
            "Mixed Input GEMM Kernel doesn't support regular gemm.",
            BUILDER,
            f"{ops.a} and {ops.b} have one width: use op_class tensor_op.",
        )
    tuple_a = key.converted.side == "a" if key.converted else a < b
    if not tuple_a:
        return Broken(
            "A matrix should be transformed.",
            BUILDER,
            "The builder's A must be the narrow operand: exchange the operands, or set swap_ab.",
        )
    return None


def _mma(key: MainloopKey, sm: int, in_smem: bool) -> Broken | None:
    """`sm100_make_trivial_mixed_input_tiled_mma` and the asserts of its atoms."""
    ops, (m, n, _) = key.ops, key.tile
    in_tmem = ops.layout_a == "row" and not in_smem
    if ops.b not in COMPUTED or (sm == 2 and not in_tmem):
        what = f"B of {ops.b}" if ops.b not in COMPUTED else "a 2sm MMA with A in shared memory"
        return Broken(
            "the MMA's type is void (no tiled MMA is made)",
            BUILDER,
            f"There is none for {what}: B must be bf16, f16 or e4m3, and A of 2sm K-major, not with a Smem tag.",
        )
    kind = "F8F6F4" if ops.b == "e4m3" else "F16BF16"
    legal_m = (64, 128) if sm == 1 else (128, 256)
    step = 32 if sm == 2 else 16 if m > legal_m[0] else 8
    name = f"SM100_MMA_{kind}{'_2x1SM' if sm == 2 else ''}{'_TS' if in_tmem else '_SS'}"
    if m not in legal_m:
        return Broken(
            f"{name} M-mode size should be {legal_m[0]} or {legal_m[1]} for {sm} CTA cluster MMA.",
            sm100_mma.UMMA,
            f"M of {m} is none: change the tile or the schedule.",
        )
    if not in_tmem:
        step = 8 * (2 if kind == "F8F6F4" and ops.layout_b == "row" else 1)
    if n % step or n > sm100_mma.MAX_N:
        return Broken(
            f"{name} N-mode size should be a multiple of {step} between {step} and 256.",
            sm100_mma.UMMA,
            f"N of {n} is none: make it a multiple of {step}.",
        )
    return None


def _scale_bits(key: MainloopKey) -> tuple[int, int]:
    """Bits of a scale and of a zero point; 0 where there is none."""
    if key.converted is None:
        return 0, 0
    return ELEMENTS[key.converted.scale].bits, ELEMENTS[key.converted.zero].bits if key.converted.zero else 0


def _granularity(key: MainloopKey) -> tuple[int, int] | None:
    """(M, K) elements that share a scale, where the layout of the scales is given."""
    if key.converted is None or key.scale_granularity is None:
        return None
    return key.scale_granularity[0], key.scale_granularity[2]


def _stages(key: MainloopKey, sm: int, in_smem: bool) -> tuple[Stages, StageCount] | Broken:
    """`sm100_compute_stage_count_or_override_mixed_input`."""
    ops, (m, n, k) = key.ops, key.tile
    rows, columns = m // sm, n // sm
    scale_bits, zero_bits = _scale_bits(key)
    grain = (_granularity(key) or (0, 1))[1]
    loaded_bits = max(8, ELEMENTS[ops.a].bits)  # TmaElementA: sub-byte operands are counted as bytes
    computed_bits = ELEMENTS[ops.b].bits
    reserved = (
        (f"CLC pipeline, PipelineCLCFetchAsync<{SCHEDULERS}>", BARRIER_PAIR * SCHEDULERS),
        ("CLC responses", RESPONSE * SCHEDULERS),
        (f"CLC throttle pipeline, PipelineAsync<{SCHEDULERS}>", BARRIER_PAIR * SCHEDULERS),
        ("tensor memory dealloc barrier", BARRIER),
        ("tensor memory pointer", TMEM_POINTER),
    )
    terms = (
        ("A", _bytes(loaded_bits * rows * k)),
        ("scales", _bytes(scale_bits * rows * k // grain)),
        ("zero points", _bytes(zero_bits * rows * k // grain)),
        ("B", _bytes(computed_bits * columns * k)),
        ("pipelines", 2 * BARRIER_PAIR),
    )
    stage = sum(size for _, size in terms)
    computed = _bytes(computed_bits * rows * k) if in_smem else 0
    capacity = CAPACITY - sum(size for _, size in reserved)
    terms = tuple((name, size) for name, size in terms if size)

    def count(stages: int, taken: tuple[tuple[str, int], ...]) -> StageCount:
        left = capacity - sum(size for _, size in taken)
        return StageCount(stages, key.stages is not None, left, key.carveout, stage, terms, (*reserved, *taken))

    if key.stages is not None:
        return Stages(key.stages, key.stages, key.stages), count(key.stages, ())
    if n > MAX_N:  # CtaTileShape: N is not divided between the CTAs of a pair
        return Broken("Can't support CtaN>128 tiles", BUILDER, f"N of {n} is over {MAX_N}: use a smaller tile.")
    words = _words(n, rows, sm)
    accumulators = TMEM_COLUMNS // words if in_smem else 2 if words == MAX_N else 3
    left = capacity - key.carveout - accumulators * ACCUMULATOR_BYTES
    in_tmem = UNBOUNDED if in_smem else (TMEM_COLUMNS - accumulators * words) // (k // 2)
    transform = min(in_tmem, int(left / (stage + computed + BARRIER_PAIR)))
    load = int((left - transform * (computed + BARRIER_PAIR)) / stage)
    if load < MIN_STAGES or transform < MIN_STAGES or accumulators < MIN_STAGES:
        return Broken(
            "Not enough SMEM or TMEM capacity for selected tile size",
            BUILDER,
            f"There is room for {load} loaded, {transform} converted and {accumulators} accumulator stages, and each "
            "must be 2 or more: use a smaller tile or epilogue.",
        )
    taken = (
        (f"{accumulators} accumulator stages", accumulators * ACCUMULATOR_BYTES),
        (f"{transform} converted stages of A", transform * (computed + BARRIER_PAIR)),
    )
    return Stages(load, transform, accumulators), count(load, taken)


def _bytes(bits: int) -> int:
    return -(-bits // 8)


def _collective(key: MainloopKey, sm: int, stages: Stages, rules: Sm100Rules) -> Broken | None:
    """What the collective asserts."""
    ops, (m, _, k) = key.ops, key.tile
    if ops.layout_a != "row":
        return Broken("The transformed type must be K-major.", COLLECTIVE, "Store the narrow operand K-major.")
    if ELEMENTS[ops.b].bits != 16 and ops.layout_b != "col":
        return Broken(
            "The unscaled element must be 2 bytes OR both inputs must be K-major",
            COLLECTIVE,
            f"Store {ops.b} K-major (layout_b col).",
        )
    grain_m, grain_k = _granularity(key) or NO_SCALE
    for extent, grain, name in ((m, min(grain_m, m), "M"), (k, min(grain_k, k), "K")):
        if extent % grain:
            return Broken(
                "SmemLayoutAtomScale must evenly divide tile k shape."
                if name == "K"
                else "SmemLayoutAtomScale must equal the tile shape.",
                COLLECTIVE,
                f"A scale covers {grain} along {name}, which does not divide {extent}.",
            )
    if stages.load < MIN_STAGES:
        return Broken("Specialization requires Stages set to value 2 or more.", COLLECTIVE, "Pin 2 stages or more.")
    rows = m // sm
    if rules.tiled_mixed_scales and rows % min(grain_m, m):
        return Broken(
            "tile_to_shape: block shape does not divide the target shape.",
            LAYOUT,
            f"A block of scales covers {min(grain_m, m)} rows and a CTA has {rows}: use a finer granularity along M.",
        )
    if key.converted is not None and (rows // min(grain_m, m)) * (k // min(grain_k, k)) == 1:
        return Broken(
            "Could not find a common tile-gmem vectorization. Does the Tile select out major GMEM modes?",
            TMA,
            "TMA is handed a single scale for the whole tile: give scale_granularity fewer rows or a smaller K.",
        )
    return None


def _tensors(key: MainloopKey, sm: int, in_smem: bool, stages: Stages, rules: Sm100Rules) -> Struct:
    """TensorStorage: `input` (A and B as loaded, scales, zero points) and `compute` (A as converted)."""
    ops, (m, n, k) = key.ops, key.tile
    rows, columns = m // sm, n // sm
    a_bits, b_bits = ELEMENTS[ops.a].bits, ELEMENTS[ops.b].bits
    scale_bits, zero_bits = _scale_bits(key)
    scales = _scales(key, sm, rules) * stages.load
    source = struct(
        [
            Member("smem_A", rows * k * a_bits // 8 * stages.load, SMEM_A_ALIGN, 1),
            Member("smem_B", columns * k * b_bits // 8 * stages.load, SMEM_B_ALIGN, ARRAY_ALIGN),
            _vector("smem_scale", scales, scale_bits),
            _vector("smem_zero", scales, zero_bits),
        ]
    )
    size = rows * k * b_bits // 8 * stages.transform if in_smem else ARRAY_ALIGN
    align = COMPUTE_ALIGN if in_smem else ARRAY_ALIGN
    compute = struct([Member("smem_ACompute", size, align, align)])
    return struct(
        [
            Member("input", source.bytes, source.align, source.align),
            Member("compute", compute.bytes, compute.align, compute.align),
        ],
        TENSOR_ALIGN,
    )


def _vector(name: str, count: int, bits: int) -> Member:
    """An ArrayEngine of scales or zero points: whole 16 bytes, and 16 bytes when it has no element."""
    return Member(name, max(ARRAY_ALIGN, round_up(count * bits // 8, ARRAY_ALIGN)), ARRAY_ALIGN, ARRAY_ALIGN)
