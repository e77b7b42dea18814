"""What changed between CUTLASS releases for the SM100 and SM103 collectives, kernels and epilogue.

As `versions`, which holds the list of known releases and the switches that SM120 shares: each switch names the header
whose change it records; the header trees of all releases, patch releases included, were compared with each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.cutlass.versions import parse_version, rules_for


@dataclass(frozen=True, slots=True)
class Sm100Rules:
    """The switches of one release."""

    stage_pipeline_bytes: int
    """Bytes a stage that the block-scaled stage count adds for the mainloop pipeline (`versions.Rules`)."""
    sm103: bool
    """From 4.2.0 there are SM103 collectives (`builders/sm103_blockscaled_umma_builder.inl`)."""
    dense_scheduler_stages: int
    """SchedulerPipelineStageCount of dense kernels: 1 up to 3.9.2, then 2 (`builders/sm100_umma_builder.inl`)."""
    throttle: bool
    """From 4.0.0 the kernel reserve counts the CLC throttle pipeline (`builders/sm100_pipeline_carveout.inl`) and the
    sparse kernel has one."""
    array_epilogue_throttle: bool
    """Up to 3.9.2 the grouped kernel has an epilogue_throttle barrier
    (`gemm/kernel/sm100_gemm_array_tma_warpspecialized.hpp`)."""
    async_tensormaps: bool
    """From 4.3.0 four warps rewrite the TMA descriptors of grouped kernels ahead of time: five sets of descriptors,
    two sets of scheduler responses, one more pipeline, 128 threads more (same header)."""
    wide_n: bool
    """From 4.2.0 the dense MMAs take N in multiples of 8 (1sm) and 16 (2sm); before 16 with M = 128, and 32
    (`cute/arch/mma_sm100_umma.hpp`, `cute/atom/mma_traits_sm100.hpp`)."""
    aligned_outputs: bool
    """From 4.0.0 the TMA epilogue asserts C and D to be aligned (`epilogue/collective/builders/sm100_builder.inl`)."""
    dividing_tile: bool
    """From 4.3.0 EpilogueTileAuto falls back to the whole N where its choice does not divide it (same header)."""
    n_of_64: bool
    """From 4.5.2 the 2sm TMA epilogue refuses 16-bit C/D with N above 128 that is no multiple of 64 (same header)."""
    no_smem_callbacks: bool
    """From 4.2.0 the epilogue without shared memory runs dense fusions through callbacks, in tiles of 64 columns, has
    them for grouped kernels, and its policy names stages (same header; `epilogue/dispatch_policy.hpp`)."""
    arch_in_policy: bool
    """From 4.5.0 the mainloop policies name the architecture (`gemm/dispatch_policy.hpp`)."""
    slices_plainly: bool
    """From 4.6.0 one stage is cut off a swizzled layout without composing the swizzle (`cute/pointer_flagged.hpp`,
    slice_and_offset for smem_ptr_flag_bits); before, a stage that did not divide the swizzle did not compile."""
    mixed_input: bool
    """From 4.2.0 there are mixed-input kernels (`builders/sm100_mixed_input_umma_builder.inl`)."""
    tiled_mixed_scales: bool
    """From 4.3.0 the scales of a narrow operand are tiled over the CTA's A; before, one copy over the whole tile
    (`gemm/collective/sm100_mma_warpspecialized_mixed_input.hpp`)."""
    class_assert: bool
    """Up to 4.2.2 the capacity assert stands in the kernel's class, from 4.3.0 in its operator(): either way a kernel
    that is too large does not compile (`gemm/kernel/sm100_*.hpp`)."""


@lru_cache(maxsize=64)
def sm100_rules_for(version: str) -> Sm100Rules:
    """The switches of CUTLASS `version`, which must be one of `versions.KNOWN`."""
    shared = rules_for(version)
    assert shared is not None, "callers check the release first"
    number = parse_version(version)
    return Sm100Rules(
        stage_pipeline_bytes=shared.stage_pipeline_bytes,
        sm103=number >= (4, 2, 0),
        dense_scheduler_stages=2 if number >= (4, 0, 0) else 1,
        throttle=number >= (4, 0, 0),
        array_epilogue_throttle=number < (4, 0, 0),
        async_tensormaps=number >= (4, 3, 0),
        wide_n=number >= (4, 2, 0),
        aligned_outputs=number >= (4, 0, 0),
        dividing_tile=number >= (4, 3, 0),
        n_of_64=number >= (4, 5, 2),
        no_smem_callbacks=number >= (4, 2, 0),
        arch_in_policy=number >= (4, 5, 0),
        slices_plainly=number >= (4, 6, 0),
        mixed_input=number >= (4, 2, 0),
        tiled_mixed_scales=number >= (4, 3, 0),
        class_assert=number < (4, 3, 0),
    )
