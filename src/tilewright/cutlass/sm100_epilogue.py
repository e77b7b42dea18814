"""Epilogues of SM100 and SM103: tile, stages, reuse and storage.

Mirrors `epilogue/collective/builders/sm100_builder.inl` (what is chosen; `sm103_builder.inl` forwards to it) and
`epilogue/collective/sm100_epilogue_{tma_warpspecialized,nosmem}.hpp` with their `array_` counterparts (how it is laid
out). Extents in elements, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.cutlass import sm100_epilogue_tags, sm100_sparse_epilogue
from tilewright.cutlass.caches import LAYOUTS
from tilewright.cutlass.fusion import FusionStorage
from tilewright.cutlass.sm100_epilogue_key import FP6_BITS, EpilogueKey, bits_of, smem_bits
from tilewright.cutlass.sm100_epilogue_storage import collective_storage, tensor_entries
from tilewright.cutlass.sm100_epilogue_tags import EpilogueTag
from tilewright.cutlass.sm100_epilogue_tile import (
    BUILDER,
    WIDEST,
    CtaShape,
    choose_tile,
    indivisible,
    load_op,
    misaligned,
    outputs,
    shape_div,
)
from tilewright.cutlass.sm100_fusion import Fused, fusion_storage
from tilewright.cutlass.sm100_versions import Sm100Rules, sm100_rules_for
from tilewright.cutlass.structs import TMA_DESCRIPTOR, Member, struct
from tilewright.cutlass.verdict import Broken, Entry

THREADS: Final = 128
"""ThreadCount of every SM100 epilogue: one warp group."""
BARRIER_PAIR: Final = 16
DESCRIPTORS: Final = 2
"""C and D, rewritten for each group (TensorMapStorage of the ptr-array epilogue)."""
EMPTY_PIPELINE: Final = 2
"""PipelineTransactionAsync<0>::SharedStorage: two arrays of no barriers, a byte each."""
NO_ELEMENTS: Final = 16
"""sizeof array_aligned<uint8_t, 0>, the reduction buffer that no fusion here needs."""
DIRECT_COLUMNS: Final = 64
"""Columns of EpilogueTileAuto where D is stored directly."""


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A laid-out epilogue. `bytes` is sizeof(SharedStorage): what StageCountAutoCarveout takes off the capacity."""

    tag: EpilogueTag
    tile: tuple[int, int]
    stages_c: int | None
    stages_d: int | None
    reuse_smem_c: bool | None
    delay_tma_store: bool | None
    fragment_size: int | None
    tensors: Member
    """TensorStorage."""
    tensormaps: Member | None
    """TensorMapStorage, where the type has one."""
    pipeline: Member
    thread: FusionStorage | None
    bytes: int
    policy: str
    entries: tuple[Entry, ...]


@lru_cache(maxsize=LAYOUTS)
def epilogue(key: EpilogueKey) -> Epilogue | Broken:
    """Lay out the epilogue that `key` names, or say which rule it breaks first."""
    if key.schedule == "auto":
        if key.epilogue_tile is not None:
            return Broken(
                "Don't specify epilogue tile with auto schedule",
                BUILDER,
                "Name the epilogue schedule, or leave the epilogue tile at auto too.",
            )
        tag: EpilogueTag | None = sm100_epilogue_tags.automatic(key.op_class, key.tile[0], key.cluster_m)
    else:
        tag = sm100_epilogue_tags.resolve(key.schedule, key.version)
    if tag is None and sm100_epilogue_tags.PLANAR_COMPLEX.fullmatch(key.schedule):
        return Broken(
            "Could not find an epilogue specialization.",
            "cutlass/epilogue/collective/collective_epilogue.hpp",
            "Planar complex epilogues are for complex operands: use the tag without planar_complex.",
        )
    if tag is None:
        return Broken(
            "Could not build a collective epilogue for given parameters.",
            "cutlass/epilogue/collective/collective_builder.hpp",
            "The SM100 epilogue builders take auto, [ptr_array_]tma_warp_specialized_{1,2}sm and "
            "[ptr_array_]no_smem_warp_specialized_{1,2}sm.",
        )
    if tag.sm == 2 and key.cluster_m % 2:
        return Broken(
            "schedule + cluster mismatch",
            BUILDER,
            f"A 2sm epilogue needs an even cluster along M, not {key.cluster_m}: use cluster 2x1x1 or a 1sm schedule.",
        )
    rules = sm100_rules_for(key.version)
    if shape_div(key.tile[0], tag.sm) is None:
        return indivisible(f"A 2sm epilogue halves the tile's M, which is {key.tile[0]}: make it even.")
    shape = CtaShape(tag.sm, key.tile)
    if tag.tma:
        return _through_smem(key, tag, shape, rules)
    return _direct(key, tag, shape, rules)


def _through_smem(key: EpilogueKey, tag: EpilogueTag, shape: CtaShape, rules: Sm100Rules) -> Epilogue | Broken:
    """The TMA epilogue: `Sm100TmaBuilderImpl`."""
    if rules.aligned_outputs and misaligned(key):
        return Broken(
            "C/D Should meet TMA alignment requirement",
            BUILDER,
            "Align C and D to 16 bytes (128 bits; 6-bit elements to 96 bytes), or use a no_smem epilogue schedule.",
        )
    output = outputs(key)
    if isinstance(output, Broken):
        return output
    source = None if key.c == "void" else key.c
    if rules.n_of_64 and tag.sm == 2 and key.epilogue_tile is None:
        widest = max(smem_bits(source or output), smem_bits(output))
        if widest == 16 and shape.n > 128 and shape.n % 64:
            return Broken(
                "SM100 2SM TMA epilogue: 16-bit element types (f16/bf16) with CtaN > 128 require CtaN to be divisible "
                "by 64.",
                BUILDER,
                "Use N of 128, 192 or 256, or an f32 output.",
            )
    tile = choose_tile(key, tag, shape, output, rules)
    if isinstance(tile, Broken):
        return tile
    broken = load_op(key, shape, tile, bits_of(output))
    if broken:
        return broken
    steps_m, steps_n = shape_div(shape.m, tile[0]), shape_div(shape.n, tile[1])
    if steps_m is None or steps_n is None:
        return indivisible(
            f"The epilogue tile {tile[0]}x{tile[1]} does not divide the CTA's {shape.m}x{shape.n}: choose one that does"
            + ("." if key.epilogue_tile else ", or use CUTLASS 4.3.0 or later, which then takes the whole N.")
        )

    tiles = steps_m * steps_n
    array = tag.array
    c_bits = bits_of(key.c)
    # 8-bit sources load fast and stay separate from D; TMA stores are delayed where no source is loaded.
    reuse, delay = c_bits > 8, source is None and not array
    if key.op_class in ("sparse", "block_scaled_sparse"):
        stages_c, stages_d = sm100_sparse_epilogue.expected_stages(
            tag.family, tag.sm, shape.n, shape.k, c_bits, bits_of(output)
        )
        stages_c, stages_d = min(tiles, stages_c), min(tiles, stages_d)
        array, delay = False, source is None
    else:
        stages_d = min(tiles, 2)
        stages_c = max(min(tiles, 4), stages_d + 1) if reuse else min(tiles, 4)

    # EpilogueTileAuto is strided over the columns of the CTA's warps; a tile of one's own is not, nor the fixed 128
    # columns of block-scaled tiles of 256 (`sm100_dense_compute_tile_shape_or_override`).
    fixed = key.epilogue_tile is not None or (key.op_class == "block_scaled" and shape.n == WIDEST)
    strided = not fixed and tile[1] != shape.n
    extents = (tile[0], tile[1] // shape.warps_n if strided else tile[1])
    thread = fusion_storage(
        Fused(
            key.fusion,
            array,
            stages_d,
            shape.n,
            tile,
            extents,
            output,
            key.activation,
            key.swap_ab,
            key.layout_d,
            key.layout_sfd,
            key.final_output,
        )
    )
    if isinstance(thread, Broken):
        return thread
    collective = collective_storage(key, source, output, tile, extents, stages_c, stages_d, reuse and key.d != "void")
    if isinstance(collective, Broken):
        return collective
    tensors = struct(
        [
            Member("collective", collective.bytes, collective.align, collective.align),
            Member("thread", thread.bytes, thread.align, thread.align),
        ]
    )
    parts = [Member("tensors", tensors.bytes, tensors.align, tensors.align)]
    tensormaps = Member("tensormaps", DESCRIPTORS * TMA_DESCRIPTOR, TMA_DESCRIPTOR, TMA_DESCRIPTOR) if array else None
    if tensormaps is not None:
        parts.append(tensormaps)
    pipeline = Member("pipeline", BARRIER_PAIR * stages_c, 8, 8)
    fragment = tile[0] * tile[1] // THREADS
    flags = f"{stages_c}, {stages_d}, {fragment}, {str(reuse).lower()}, {str(delay).lower()}"
    return Epilogue(
        tag=tag,
        tile=tile,
        stages_c=stages_c,
        stages_d=stages_d,
        reuse_smem_c=reuse,
        delay_tma_store=delay,
        fragment_size=fragment,
        tensors=parts[0],
        tensormaps=tensormaps,
        pipeline=pipeline,
        thread=thread,
        bytes=struct([*parts, pipeline]).bytes,
        policy=f"cutlass::epilogue::Sm100{'PtrArray' if array else ''}TmaWarpSpecialized<{flags}>",
        entries=tensor_entries(tensors, collective, thread, tile, source, output, stages_c, stages_d),
    )


def _direct(key: EpilogueKey, tag: EpilogueTag, shape: CtaShape, rules: Sm100Rules) -> Epilogue | Broken:
    """The epilogue that stores straight from registers: the "No smem builder"."""
    d_bits = bits_of(key.d)
    if d_bits == FP6_BITS:
        return Broken("Output element requires TMA", BUILDER, "A 6-bit D needs a tma_warp_specialized epilogue.")
    scaled = key.op_class == "block_scaled"
    if key.epilogue_tile is not None:
        tile = key.epilogue_tile
    elif scaled or (rules.no_smem_callbacks and not tag.transform):
        tile = shape.m, min(DIRECT_COLUMNS, shape.n)
    else:
        tile = shape.m, shape.n
    broken = load_op(key, shape, tile, d_bits)
    if broken:
        return broken
    if rules.no_smem_callbacks and (shape_div(shape.m, tile[0]) is None or shape_div(shape.n, tile[1]) is None):
        return indivisible(
            f"The epilogue tile {tile[0]}x{tile[1]} does not divide the CTA's {shape.m}x{shape.n}: choose one that "
            "does."
        )
    plain = not rules.no_smem_callbacks or tag.transform or tag.array
    if key.fusion == "linear_combination" and not scaled and plain:
        thread = None  # thread::LinearCombination: no callbacks, and an empty SharedStorage
        storage = struct([Member("empty", 1, 1, 1)])
    else:
        if tag.array and not rules.no_smem_callbacks:
            return Broken(
                "Could not find a callbacks specialization.",
                "cutlass/epilogue/fusion/callbacks.hpp",
                "Grouped kernels without shared memory have callbacks from CUTLASS 4.2.0 on: use a TMA epilogue.",
            )
        found = fusion_storage(
            Fused(
                key.fusion,
                tag.array,
                0,
                shape.n,
                tile,
                tile,
                key.d,
                key.activation,
                key.swap_ab,
                key.layout_d,
                key.layout_sfd,
                key.final_output,
            )
        )
        if isinstance(found, Broken):
            return found
        thread = found
        storage = struct(
            [Member("thread", thread.bytes, thread.align, thread.align), Member("buffer", NO_ELEMENTS, 16, 16)]
        )
    lines = () if thread is None else (Entry("epilogue.tensors.thread", 0, thread.bytes, thread.align, thread.why),)
    known = 1 if rules.no_smem_callbacks else None
    return Epilogue(
        tag=tag,
        tile=tile,
        stages_c=known,
        stages_d=known,
        reuse_smem_c=None,
        delay_tma_store=None,
        fragment_size=known,
        tensors=Member("tensors", storage.bytes, storage.align, storage.align),
        # the adapter takes the same struct for both (`detail::Sm100TmaWarpSpecializedAdapter`)
        tensormaps=Member("tensormaps", storage.bytes, storage.align, storage.align),
        pipeline=Member("pipeline", EMPTY_PIPELINE, 1, 1),
        thread=thread,
        bytes=storage.bytes,
        policy=f"cutlass::epilogue::Sm100{'PtrArray' if tag.array else ''}NoSmem",
        entries=lines,
    )
