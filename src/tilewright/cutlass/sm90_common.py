"""What the SM90 mainloops have in common: the problem as a builder sees it, stage counts, the laid-out result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from tilewright.cutlass import cute_slices
from tilewright.cutlass.laid import StageCount
from tilewright.cutlass.sm90_tags import Tag
from tilewright.cutlass.sm90_versions import GMMA_BUILDER, sm90_rules
from tilewright.cutlass.smem_atoms import ATOM_ROWS, Atom
from tilewright.cutlass.structs import TMA_DESCRIPTOR, Member, Struct, round_up, struct, tensor_maps
from tilewright.cutlass.verdict import Broken, Entry
from tilewright.cutlass.versions import BARRIER_PAIR_BYTES
from tilewright.formats.elements import ELEMENTS

CAPACITY: Final = 232448
"""sm90_smem_capacity_bytes (`builders/sm90_common.inl`): the opt-in limit of a block, 227 KiB."""
TENSOR_ALIGN: Final = 128
"""`aligned_struct<128>` of the TensorStorage of mainloops that read both operands from shared memory."""
STAGE_ALIGN: Final = 128
"""Default `alignment` of compute_stage_count_or_override: a stage is counted in multiples of it."""
ARRAY_ALIGN: Final = 16
"""alignof array_aligned and of arrays of whole bytes."""
SCHEDULER_PIPELINE: Final = 8 * BARRIER_PAIR_BYTES
"""sizeof PipelineAsyncSharedStorage<8>, the grouped scheduler's pipeline."""
TMA_ALIGNMENT: Final = 16
"""tma_alignment_bytes (`builders/sm90_common.inl`)."""
MIN_STAGES: Final = 2
"""`static_assert(DispatchPolicy::Stages >= 2)` in every SM90 collective."""
WARP_GROUP: Final = 128

COLLECTIVE: Final = "cutlass/gemm/collective/sm90_mma_{}.hpp"

_FP8: Final = frozenset({"e4m3", "e5m2"})


def size_of(name: str) -> int:
    """sizeof the C++ type of format `name`: sub-byte types take a byte of their own."""
    return max(8, ELEMENTS[name].bits) // 8


class Problem(NamedTuple):
    """What a mainloop depends on, and nothing else, so that equal ones are laid out once. As compiled: after swap_ab.

    `tuple_a`, `tuple_b`: the operand is given to the builder as a tuple with its scale (and zero point).
    """

    version: str
    op_class: str
    grouped: bool
    a: str
    b: str
    align_a: int
    align_b: int
    a_k_major: bool
    b_k_major: bool
    tuple_a: bool
    tuple_b: bool
    scale: str | None
    zero: str | None
    acc: str
    tile: tuple[int, int, int]
    cluster: tuple[int, int, int]
    schedule: str
    stages: int | None
    granularity: tuple[int, int, int]
    scale_k_major: bool
    carveout: int

    @property
    def bits_a(self) -> int:
        return ELEMENTS[self.a].bits

    @property
    def bits_b(self) -> int:
        return ELEMENTS[self.b].bits

    @property
    def widths_differ(self) -> bool:
        return self.bits_a != self.bits_b

    @property
    def fp8(self) -> bool:
        """is_input_fp8: of the types as given, and a tuple is none."""
        return {self.a, self.b} <= _FP8 and not (self.tuple_a or self.tuple_b)

    @property
    def two_bytes(self) -> bool:
        """is_input_size_two_bytes."""
        return size_of(self.a) == 2 and size_of(self.b) == 2

    @property
    def register_a(self) -> bool:
        """is_use_rmem_A: A must pass through registers to be converted or transposed."""
        k_major = self.a_k_major and self.b_k_major
        return (not self.two_bytes and not k_major) or self.widths_differ or self.tuple_a != self.tuple_b

    @property
    def tma_aligned(self) -> bool:
        """is_aligned for TMA: by sizeof, so that sub-byte operands need 16 elements only."""
        return all(
            size_of(name) * align % TMA_ALIGNMENT == 0
            for name, align in ((self.a, self.align_a), (self.b, self.align_b))
        )

    @property
    def a_mn_major_smem(self) -> bool:
        """gmma_ss_tag_to_major_A: only 16-bit operands lie MN-major."""
        return not self.a_k_major and size_of(self.a) == 2

    @property
    def b_mn_major_smem(self) -> bool:
        """gmma_ss_tag_to_major_B."""
        return not self.b_k_major and size_of(self.b) == 2

    @property
    def operand_terms(self) -> tuple[tuple[str, int], ...]:
        """A and B of one stage, bytes."""
        m, n, k = self.tile
        return (("A", m * k * self.bits_a // 8), ("B", n * k * self.bits_b // 8))

    @property
    def cluster_text(self) -> str:
        """The cluster shape as the policies' names print it."""
        extents = ", ".join(f"cute::C<{extent}>" for extent in self.cluster)
        return f"cute::tuple<{extents} >"


@dataclass(frozen=True, slots=True)
class Mainloop:
    """A laid-out mainloop. `bytes` is sizeof(SharedStorage)."""

    stages: int
    count: StageCount
    tag: Tag
    """The schedule in the dispatch policy: what "auto" became."""
    tensors: Struct
    tensormaps: Struct | None
    """TensorMapStorage where the collective keeps one; `tensormap_bytes` is its size."""
    tensormap_bytes: int | None
    pipeline_bytes: int
    bytes: int
    policy: str
    whys: tuple[str, ...]
    load_warp_groups: int = 1
    """Warp groups that load: 2 for cp.async without warp specialisation of the MMAs, 0 for KernelTma."""
    device_rule: Broken | None = None
    """A rule of the operands that only the whole kernel shows: TMA cannot be handed one stage of them, or multicast
    it over the cluster."""


def alignment(p: Problem, text: str = "Should meet TMA alignment requirement") -> Broken | None:
    """16 bytes of A and of B, counted by sizeof."""
    if p.tma_aligned:
        return None
    for key, name, align in (("A", p.a, p.align_a), ("B", p.b, p.align_b)):
        if size_of(name) * align % TMA_ALIGNMENT:
            need = TMA_ALIGNMENT // size_of(name)
            return Broken(
                text,
                GMMA_BUILDER,
                f"Alignment {align} of {key} ({name}) is no multiple of 16 bytes; use {need} elements.",
            )
    return None


def divides(p: Problem) -> Broken | None:
    """`shape_div(TileShape, ClusterShape)` of the collectives that compute a CtaShape_MNK."""
    for extent, ctas, axis in zip(p.tile, p.cluster, "MNK", strict=True):
        if extent % ctas and ctas % extent:
            return Broken(
                "Divisibility Condition",
                "cute/int_tuple.hpp",
                f"The cluster's {axis} of {ctas} and the tile's {axis} of {extent} do not divide each other.",
            )
    return None


def count_stages(
    p: Problem,
    terms: tuple[tuple[str, int], ...],
    *,
    align: int = STAGE_ALIGN,
    reserves_maps: int = 0,
    always_reserves_scheduler: bool = False,
) -> StageCount:
    """Stages: pinned, or (capacity - carveout) / stage, each rounded to `align`.

    Args:
        terms: what a stage holds, name and bytes, without the pipeline.
        reserves_maps: TMA descriptors that the builder takes off the capacity.
        always_reserves_scheduler: the builder took the scheduler's pipeline off before 4.0.0 too.
    """
    reserved: list[tuple[str, int]] = []
    if reserves_maps:
        reserved.append((f"{reserves_maps} tensor maps", reserves_maps * TMA_DESCRIPTOR))
    if p.grouped and (always_reserves_scheduler or sm90_rules(p.version).reserves_scheduler):
        reserved.append(("scheduler pipeline, PipelineAsync<8>", SCHEDULER_PIPELINE))
    left = CAPACITY - sum(size for _, size in reserved)
    capacity = left // align * align
    if capacity != left:
        reserved.append((f"rounding down to {align}", left - capacity))
    stage = sum(size for _, size in terms)
    rounding = round_up(stage, align) - stage
    counted = (
        *terms,
        *(((f"rounding up to {align}", rounding),) if rounding else ()),
        ("pipeline", BARRIER_PAIR_BYTES),
    )
    stage_bytes = stage + rounding + BARRIER_PAIR_BYTES
    carveout = round_up(p.carveout, align)
    # C++ integer division truncates towards zero; a negative rest only ever means "no stage".
    stages = max(0, capacity - carveout) // stage_bytes if p.stages is None else p.stages
    return StageCount(stages, p.stages is not None, capacity, carveout, stage_bytes, counted, tuple(reserved))


def too_few(count: StageCount, where: str, says: int = MIN_STAGES) -> Broken | None:
    """Every collective asserts two stages; `says` is the number in its message, which is not always two."""
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
    return Broken(f"Specialization requires Stages set to value {says} or more.", where, advice)


def one_stage(p: Problem, name: str, atom: Atom, mn: int, mn_major: bool, stages: int) -> Broken | None:
    """Whether `SmemLayout{}(_, _, 0)`, what TMA is built from, can be taken from `stages` of an operand.

    The layout is `tile_to_shape(atom, (MN, K, stages))`: blocks of 8 rows, along MN first where the operand is K-major
    and along K first where it is not.
    """
    if sm90_rules(p.version).slices_plainly:
        return None
    k = p.tile[2]
    row = atom.row_bytes * 8 // ELEMENTS[name].bits
    if mn_major:
        modes = ((row, 1), (mn // row, row * k), (ATOM_ROWS, row), (k // ATOM_ROWS, ATOM_ROWS * row))
    else:
        modes = ((ATOM_ROWS, row), (mn // ATOM_ROWS, ATOM_ROWS * row), (row, 1), (k // row, mn * row))
    broken = cute_slices.slices(atom.name, tuple(mode for mode in modes if mode[0] > 1), stages, mn * k)
    return cute_slices.unsliceable(name, broken) if broken else None


def multicast(p: Problem, a_mn_major: bool, b_mn_major: bool) -> Broken | None:
    """Whether the CTAs of a cluster can share the load of an operand: `safe_div` of its box by their number
    (make_tma_copy). Boxes are 2**n times the rows (MN-major: the K) of the tile, so that only odd factors matter."""
    m, n, k = p.tile
    for name, extent, ctas in (
        ("A", k if a_mn_major else m, p.cluster[1]),
        ("B", k if b_mn_major else n, p.cluster[0]),
    ):
        odd = ctas // (ctas & -ctas)
        if extent % odd:
            return Broken(
                "Stride Divisibility Condition",
                "cute/layout.hpp",
                f"{ctas} CTAs of the cluster share the load of {name}, whose extent of {extent} {odd} does not divide.",
            )
    return None


def operand_member(
    name: str, rows: int, k: int, bits: int, stages: int, *, align: int = ARRAY_ALIGN, type_align: int | None = None
) -> Member:
    """An operand's array. `align` places it; `type_align` is alignof its type, that of a plain array by default."""
    natural = ARRAY_ALIGN if bits >= 8 else 1
    return Member(name, rows * k * bits // 8 * stages, align, type_align or natural)


def operand_why(name: str, axis: str, rows: int, k: int, stages: int) -> str:
    """The reason of an operand's budget line."""
    return f"{stages} stages x {axis} {rows} x K {k} ({name}, {ELEMENTS[name].bits} bits)"


def finish(
    p: Problem,
    tag: Tag,
    count: StageCount,
    tensors: Struct,
    whys: tuple[str, ...],
    policy: str,
    *,
    maps: tuple[str, ...] = (),
    load_warp_groups: int = 1,
    device_rule: Broken | None = None,
) -> Mainloop:
    """SharedStorage of a collective: TensorStorage, tensor maps (`maps` names the operands), PipelineStorage."""
    pipeline = BARRIER_PAIR_BYTES * count.stages
    parts = [Member("tensors", tensors.bytes, tensors.align, tensors.align)]
    tensormaps = tensor_maps(maps) if maps else None
    if tensormaps is not None:
        parts.append(Member("tensormaps", tensormaps.bytes, tensormaps.align, tensormaps.align))
    parts.append(Member("pipeline", pipeline, 8, 8))
    return Mainloop(
        stages=count.stages,
        count=count,
        tag=tag,
        tensors=tensors,
        tensormaps=tensormaps,
        tensormap_bytes=tensormaps.bytes if tensormaps else None,
        pipeline_bytes=pipeline,
        bytes=struct(parts).bytes,
        policy=f"cutlass::gemm::{policy}<{count.stages}, {p.cluster_text}, {tag.qualified}>",
        whys=whys,
        load_warp_groups=load_warp_groups,
        device_rule=device_rule,
    )


def entries(main: Mainloop) -> list[Entry]:
    """Budget lines inside the mainloop (paths `mainloop.tensors.*` and `mainloop.tensormaps.*`)."""
    out = [
        Entry(f"mainloop.tensors.{member.name}", offset, member.bytes, member.type_align, why)
        for member, offset, why in zip(main.tensors.members, main.tensors.offsets, main.whys, strict=True)
    ]
    if main.tensormaps:
        for member, offset in zip(main.tensormaps.members, main.tensormaps.offsets, strict=True):
            operand = member.name.rsplit("_", 1)[1]
            why = f"TMA descriptor of {operand}, rewritten for each group"
            out.append(Entry(f"mainloop.tensormaps.{member.name}", offset, member.bytes, member.type_align, why))
    return out
