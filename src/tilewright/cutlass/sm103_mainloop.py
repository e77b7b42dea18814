"""The "ultra" FP4 mainloop of SM103: K of 768 a tile, operands and scale factors in pipelines of their own.

Mirrors `gemm/collective/builders/sm103_blockscaled_umma_builder.inl` (what is chosen and asserted) and
`gemm/collective/sm103_blockscaled_mma{,_array}_warpspecialized.hpp` (how it is laid out). A stage of A and B holds 128
bytes of K (a third of the tile's), a stage of scale factors a quarter or half of the tile's. Sizes in bytes, extents in
elements.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.cutlass import sm100_carveout, sm100_mma
from tilewright.cutlass.caches import LAYOUTS
from tilewright.cutlass.laid import StageCount
from tilewright.cutlass.sm100_blockscaled import scale_member
from tilewright.cutlass.sm100_carveout import BARRIER, BARRIER_PAIR, LOAD_ORDER, RESPONSE, TMEM_POINTER
from tilewright.cutlass.sm100_collective import MainloopKey, operand_member
from tilewright.cutlass.sm100_tags import Tag
from tilewright.cutlass.sm100_versions import sm100_rules_for
from tilewright.cutlass.structs import TMA_DESCRIPTOR, Member, Struct, struct, tensor_maps
from tilewright.cutlass.verdict import Broken, no_collective
from tilewright.formats.elements import ELEMENTS

BUILDER: Final = "cutlass/gemm/collective/builders/sm103_blockscaled_umma_builder.inl"
COLLECTIVE: Final = "cutlass/gemm/collective/sm103_blockscaled_mma{A}_warpspecialized.hpp"
TILE_K: Final = 768
"""The only K: eight instructions of 96."""
STAGE_K_BYTES: Final = 128
"""Bytes of K that a stage of A and B holds (`SmemTileShape`)."""
SCHEDULERS: Final = 3
LEGAL_N: Final = (128, 192, 256)
SCALE_ROWS: Final = 128
ODD_N: Final = 192
ODD_N_STORED: Final = 256
"""Scale factors of 192 columns are stored as those of 256."""
PREFETCH: Final = 0
NO_PREFETCH: Final = 1
"""cutlass::sm103::detail::KernelPrefetchType (`detail/collective/sm103_kernel_type.hpp`)."""

_TAG: Final = re.compile(
    r"Kernel(PtrArray)?TmaWarpSpecialized([12])SmBlockScaledMxNvf4UltraVs(16|32)Sm103(TmaPrefetch|DisablePrefetch)?"
)


@dataclass(frozen=True, slots=True)
class Mainloop:
    """A laid-out mainloop. `bytes` is sizeof(SharedStorage); the pipelines are the kernel's."""

    tag: Tag
    sm: int
    """CTAs that share one MMA."""
    count: StageCount
    load_sf_stages: int
    tensors: Struct
    pipeline: Member
    tensormaps: Struct | None
    bytes: int
    scheduler_stages: int
    accumulator_stages: int
    policy: str
    schedule: str


def resolve(schedule: str, grouped: bool, a: str) -> tuple[Tag, int] | None:
    """The tag that `schedule` means and its prefetch type, or None when the builder takes no such tag.

    Names without a prefetch word are aliases: dense kernels prefetch through TMA, grouped ones do not
    (`gemm/dispatch_policy.hpp`). A short name takes the scale vector of the operand format `a`.
    """
    if schedule == "auto":
        return Tag("KernelScheduleAuto", 0, vector=32), PREFETCH
    if schedule in ("1sm", "2sm"):
        vector = 32 if a == "mxfp4" else 16
        array = "PtrArray" if grouped else ""
        schedule = f"Kernel{array}TmaWarpSpecialized{schedule[0]}SmBlockScaledMxNvf4UltraVs{vector}Sm103"
    found = _TAG.fullmatch(schedule)
    if found is None:
        return None
    array, sm, vector, prefetch = found.groups()
    disabled = prefetch == "DisablePrefetch" or (prefetch is None and array is not None)
    return Tag(schedule, int(sm), bool(array), vector=int(vector)), NO_PREFETCH if disabled else PREFETCH


def _refused(key: MainloopKey, tag: Tag, sm: int) -> Broken | None:
    """What the builder and the MMA assert, in their order."""
    ops, (m, n, k) = key.ops, key.tile
    a, b = ELEMENTS[ops.a], ELEMENTS[ops.b]
    if not (a.block_scaled and b.block_scaled):  # the builder's enable_if asks for pairs of element and scale
        return no_collective(
            "Both operands need a block-scaled FP4 format: nvfp4 or mxfp4.",
        )
    broken = sm100_mma.aligned(ops, unpacked=False, sparse=False)
    if broken:
        return broken
    if k != TILE_K:
        return Broken("TileShape_K should 768 for MMA kernels", BUILDER, f"Make the tile's K {TILE_K}, not {k}.")
    if (ops.layout_a, ops.layout_b) != ("row", "col"):
        return Broken("Only K major inputs are supported", BUILDER, "Use layout_a row and layout_b col.")
    for name, fmt in (("A", a), ("B", b)):
        if fmt.plain != "e2m1":
            return Broken(f"Incorrect type for {name} matrix", BUILDER, "SM103 MMAs take FP4: nvfp4 or mxfp4.")
    if m not in (128, 256):
        return Broken("Invalid TileShape_M.", BUILDER, f"M must be {128 * sm} for a {sm}sm MMA, not {m}.")
    if n % 64 or n > sm100_mma.MAX_N:
        return Broken("Invalid TileShape_N.", BUILDER, f"N must be one of {', '.join(map(str, LEGAL_N))}, not {n}.")
    if sm == 1 and m != SCALE_ROWS:
        return Broken(
            "MMA M-mode size should be 128 for 1 CTA cluster MMA.",
            sm100_mma.UMMA,
            f"A 1sm MMA has M of 128, not {m}: use schedule 2sm, or M of 128.",
        )
    if tag.vector == 32 and a.scale != "ue8m0":
        return Broken(
            "Vector size can only be 4x mode (VS=16) or 2x mode (VS=32) for MMA.",
            sm100_mma.UMMA,
            "Auto and the Vs32 tags mean 32 elements a scale, NVFP4 has 16: use schedule 1sm or 2sm.",
        )
    if sm == 2 and key.cluster[0] % 2:
        return Broken(
            "Cluster shape not divisible by MMA size",
            sm100_mma.COMMON,
            f"A 2sm MMA needs an even cluster along M, not {key.cluster[0]}: use cluster 2x1x1 or schedule 1sm.",
        )
    if key.stages is not None:
        return Broken(
            "Index out of range",
            "cute/int_tuple.hpp",
            "The builder asks a stage count for two numbers, and StageCount<n> has one: leave stages at auto.",
        )
    where = COLLECTIVE.format(A="_array" if tag.array else "")
    if n not in LEGAL_N:
        return Broken("Cta N should be one of 128/192/256", where, f"N is {n}: use 128, 192 or 256.")
    if a.scale != b.scale:
        return Broken("SFA and SFB data types should be the same", where, f"{a.name} and {b.name} scale differently.")
    if m // sm != SCALE_ROWS:
        return Broken(
            "TMA requires CTA_Tile and SLayout top-level size equivalence.",
            "cute/atom/copy_traits_sm90_tma.hpp",
            f"Scale factors come in blocks of 128 rows, a CTA of this pair has {m // sm}: use M of 256 with 2sm.",
        )
    return None


@lru_cache(maxsize=LAYOUTS)
def mainloop(key: MainloopKey) -> Mainloop | Broken:
    """Lay out the mainloop of `key`, or the first rule that it breaks in the order in which the compiler meets them."""
    found = resolve(key.schedule, key.grouped, key.formats[0])
    if found is None:
        return no_collective(
            f"The SM103 builder takes no schedule {key.schedule}: use 1sm or 2sm.",
        )
    tag, prefetch = found
    sm = tag.sm or (2 if key.cluster[0] % 2 == 0 else 1)
    broken = _refused(key, tag, sm)
    if broken:
        return broken
    rules = sm100_rules_for(key.version)
    m, n, k = key.tile
    accumulators = 1 if n == 256 else 2
    rows, columns = m // sm, n // sm
    # a scale factor of 8 bits each; a stage holds a quarter (vectors of 16) or half (of 32) of the tile's
    of_k = k // tag.vector // (4 if tag.vector == 16 else 2)
    sfa, sfb = rows * of_k, (ODD_N_STORED if n == ODD_N else n) * of_k
    reserved = (
        (f"accumulator pipeline, PipelineUmmaAsync<{accumulators}>", BARRIER_PAIR * accumulators),
        (f"CLC pipeline, PipelineCLCFetchAsync<{SCHEDULERS}>", BARRIER_PAIR * SCHEDULERS),
        ("load order barrier", LOAD_ORDER),
        ("CLC responses", RESPONSE * SCHEDULERS),
        (f"CLC throttle pipeline, PipelineAsync<{SCHEDULERS}>", BARRIER_PAIR * SCHEDULERS),
        ("tensor memory dealloc barrier", BARRIER),
        ("tensor memory pointers", TMEM_POINTER * accumulators),
        *((("4 tensor maps", 4 * TMA_DESCRIPTOR),) if tag.array else ()),
    )
    terms = (
        ("A", rows * STAGE_K_BYTES),
        ("B", columns * STAGE_K_BYTES),
        ("SFA", sfa),
        ("SFB", sfb),
        ("pipelines", 2 * BARRIER_PAIR),
    )
    stage = sum(size for _, size in terms)
    capacity = sm100_carveout.CAPACITY - sum(size for _, size in reserved)
    rest = capacity - key.carveout
    if rest < 0:
        return Broken(
            "the size of an array must be greater than zero",
            BUILDER,
            "The epilogue alone exceeds shared memory: use a smaller epilogue tile, or no C.",
        )
    stages = rest // stage
    # what A and B leave goes to scale factors
    scale_stages = stages + rest % stage // (BARRIER_PAIR + sfa + sfb)
    members = [
        operand_member("smem_A", rows, STAGE_K_BYTES, 8, stages),
        operand_member("smem_B", columns, STAGE_K_BYTES, 8, stages),
        scale_member("smem_SFA", sfa, scale_stages),
        scale_member("smem_SFB", sfb, scale_stages),
    ]
    tensors = struct(members, 128)
    parts = [Member("tensors", tensors.bytes, tensors.align, tensors.align)]
    tensormaps = tensor_maps(("A", "B", "SFA", "SFB")) if tag.array else None
    if tensormaps is not None:
        parts.append(Member("tensormaps", tensormaps.bytes, tensormaps.align, tensormaps.align))
    shape = ", ".join(f"cute::C<{extent}>" for extent in key.cluster)
    array, pointers = ("Array", "PtrArray") if tag.array else ("", "")
    arch = ", cutlass::arch::Sm103" if rules.arch_in_policy else ""
    return Mainloop(
        tag=tag,
        sm=sm,
        count=StageCount(stages, False, capacity, key.carveout, stage, terms, reserved),
        load_sf_stages=scale_stages,
        tensors=tensors,
        pipeline=Member("pipeline", BARRIER_PAIR * (stages + scale_stages), 8, 8),
        tensormaps=tensormaps,
        bytes=struct(parts).bytes,
        scheduler_stages=SCHEDULERS,
        accumulator_stages=accumulators,
        policy=(
            f"cutlass::gemm::MainloopSm103{array}TmaUmmaWarpSpecializedBlockScaled<{stages}, {scale_stages}, "
            f"{SCHEDULERS}, {accumulators}, cute::tuple<{shape} >, "
            f"(cutlass::sm103::detail::KernelPrefetchType){prefetch}{arch}>"
        ),
        schedule=f"cutlass::gemm::Kernel{pointers}TmaWarpSpecializedBlockScaledSm103<{SCHEDULERS}, {accumulators}>",
    )
