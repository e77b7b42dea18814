"""What changed for SM90 between CUTLASS releases, as far as it moves a byte or the legality of a config.

Read by comparing the tagged header trees; no patch release carries a back-port that touches SM90's types.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.cutlass.versions import parse_version

GMMA_BUILDER: Final = "cutlass/gemm/collective/builders/sm90_gmma_builder.inl"
EPILOGUE_BUILDER: Final = "cutlass/epilogue/collective/builders/sm90_builder.inl"


@dataclass(frozen=True, slots=True)
class Sm90Rules:
    """The switches of one release."""

    reserves_scheduler: bool
    """From 4.0.0 grouped builders take the scheduler's pipeline off the capacity (`sm90_gmma_builder.inl`,
    SchedulerPipelineStorage); before, only the blockwise one did (TileSchedulerCarveout)."""
    pins_register_a: bool
    """From 4.3.0 StageCount<n> compiles where A comes from registers: before, the builder asked the stage count for
    a member `bytes` that only StageCountAutoCarveout has."""
    aligned_outputs: bool
    """From 4.0.0 the TMA epilogue asserts the alignment of C and D (`sm90_builder.inl`, Sm90TmaBuilderImpl)."""
    wide_8_bit_tile: bool
    """Up to 3.9.2 an 8-bit D asked for an epilogue tile of 64 columns even where 64 does not divide N."""
    blockwise_pingpong: bool
    """From 3.9.1 dense blockwise kernels exist as pingpong."""
    blockwise_aligned_scales: bool
    """From 3.9.1 the dense blockwise collective loads scales by TMA: its arrays are CUTE_ALIGNAS(128)."""
    blockwise_one_promotion: bool
    """From 4.0.0 the blockwise collectives assert that a tile's K is one promotion interval."""
    blockwise_name: bool
    """From 4.2.0 the tags and policies say Blockwise; before, FP8BlockScaledAccum and BlockScaling. The old tags stay
    as aliases. The scales' major became a parameter in the same release (`detail/blockwise_scale_layout.hpp`)."""
    slices_plainly: bool
    """From 4.6.0 one stage is cut off a swizzled layout without composing the swizzle (`cute/pointer_flagged.hpp`,
    slice_and_offset for smem_ptr_flag_bits); before, tiles whose stage did not divide the swizzle did not compile."""
    blockwise_splits_m: bool
    """From 4.3.0 the blockwise collectives compute M in one or two slices of 128 and assert it (NumSplitsM)."""
    blockwise_small_m_array: bool
    """From 4.4.1 the ptr-array collective counts an M below 128 as one slice; the dense one still refuses it."""


@lru_cache(maxsize=64)
def sm90_rules(version: str) -> Sm90Rules:
    """The rules of CUTLASS `version`, a release in `versions.KNOWN`."""
    number = parse_version(version)
    return Sm90Rules(
        reserves_scheduler=number >= (4, 0, 0),
        pins_register_a=number >= (4, 3, 0),
        aligned_outputs=number >= (4, 0, 0),
        wide_8_bit_tile=number < (4, 0, 0),
        blockwise_pingpong=number >= (3, 9, 1),
        blockwise_aligned_scales=number >= (3, 9, 1),
        blockwise_one_promotion=number >= (4, 0, 0),
        blockwise_name=number >= (4, 2, 0),
        slices_plainly=number >= (4, 6, 0),
        blockwise_splits_m=number >= (4, 3, 0),
        blockwise_small_m_array=number >= (4, 4, 1),
    )
