"""What changed between CUTLASS releases, as far as it moves a byte or the legality of a config.

A release is data (its number) plus the rules below. Each rule names the header whose change it records; they were
read by comparing the tagged header trees with each other, and the compiled rows in the tests hold them to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.errors import nearest

Version = tuple[int, ...]

KNOWN: Final[tuple[str, ...]] = (
    "3.9.0", "3.9.1", "3.9.2", "4.0.0", "4.1.0", "4.2.0", "4.2.1", "4.2.2", "4.3.0", "4.3.1", "4.3.2", "4.3.3",
    "4.3.4", "4.3.5", "4.3.6", "4.4.0", "4.4.1", "4.4.2", "4.4.3", "4.5.0", "4.5.1", "4.5.2", "4.5.3", "4.6.0",
    "4.6.1", "4.6.2", "4.7.0",
)  # fmt: skip
"""Releases whose headers were read. Any other answers `unsupported` and names the nearest of these."""

BARRIER_PAIR_BYTES: Final = 16
"""A full and an empty mbarrier, 8 bytes each: one stage of any TMA pipeline (`pipeline/sm90_pipeline.hpp`)."""
ROUNDED_PIPELINE_BYTES: Final = 128
"""The same pair as the stage count counts it after `round_up(..., 128)`."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The switches of one release."""

    version: str
    stage_pipeline_bytes: int
    """Bytes a stage that the block-scaled stage count adds for the mainloop pipeline:
    `gemm/collective/builders/sm100_blockscaled_umma_builder.inl`, line 76 in every release. 16 up to 4.3.5; rounded
    to 128 from 4.4.0 on, and in the patch releases 4.2.2 and 4.3.6, to which the change was ported back."""
    reserves_kernel_storage: bool
    """From 4.4.2 the SM120 block-scaled builder takes scheduler pipeline, two tensor maps and the CLC responses off
    the capacity before it counts stages (`builders/sm120_blockscaled_mma_builder.inl`, ReducedSmemCapacityBytes)."""
    sfb_covers_128: bool
    """From 4.5.0 SFB is laid out for max(N, 128) columns (`sSFBTileShape_N` there); before, a tile with N < 128 had
    an SFB of zero bytes."""
    small_n: bool
    """From 4.6.0 N may be 8 or 16: the builder's assert went from `>= 32` to `>= 8`, and the SM120 epilogue builder
    shrinks its tile with N (`epilogue/collective/builders/sm120_builder.inl`)."""
    grouped_f8f6f4: bool
    """From 4.6.0 `builders/sm120_array_mma_builder.inl` builds grouped plain FP8/FP6/FP4 kernels."""
    mx_ptr_array_tags: bool
    """From 4.4.2 MX operands accept the plain KernelPtrArray* tags (`builders/sm1xx_common.inl`, select_instr)."""
    mx_ptr_array_inputs: bool
    """From 4.2.0 one FP4 operand beside a wider one accepts those tags too (same header, check_input_datatypes)."""
    heavy_block_scaled: bool
    """From 4.3.0 the dense cooperative block-scaled kernel moves registers to the MMA warps from 128 accumulators a
    thread on instead of 208 (`gemm/kernel/sm90_gemm_tma_warpspecialized_cooperative.hpp`)."""
    array_aux_callbacks: bool
    """From 4.0.0 the SM120 PtrArray epilogue has the callbacks builder that fusions with auxiliary tensors, and the
    MoE finalize scatter, need (`epilogue/collective/builders/sm120_builder.inl`)."""
    sparse_metadata_k_assert: bool
    """From 4.7.0 the block-scaled sparse collective asserts that the metadata's blocks divide the tile before it lays
    anything out (`gemm/collective/sm120_blockscaled_sparse_mma_tma.hpp`); before, the layout itself failed."""


def parse_version(text: str) -> Version:
    """`4.2.1` as (4, 2, 1)."""
    return tuple(int(part) for part in text.split("."))


@lru_cache(maxsize=64)
def rules_for(version: str) -> Rules | None:
    """The rules of CUTLASS `version`, or None when that release was not read."""
    if version not in KNOWN:
        return None
    number = parse_version(version)
    rounded = number >= (4, 4, 0) or version in ("4.2.2", "4.3.6")
    return Rules(
        version=version,
        stage_pipeline_bytes=ROUNDED_PIPELINE_BYTES if rounded else BARRIER_PAIR_BYTES,
        reserves_kernel_storage=number >= (4, 4, 2),
        sfb_covers_128=number >= (4, 5, 0),
        small_n=number >= (4, 6, 0),
        grouped_f8f6f4=number >= (4, 6, 0),
        mx_ptr_array_tags=number >= (4, 4, 2),
        mx_ptr_array_inputs=number >= (4, 2, 0),
        heavy_block_scaled=number >= (4, 3, 0),
        array_aux_callbacks=number >= (4, 0, 0),
        sparse_metadata_k_assert=number >= (4, 7, 0),
    )


def nearest_known(version: str) -> list[str]:
    """The two known releases nearest to `version` by number."""
    try:
        wanted = _rank(parse_version(version))
    except ValueError:
        return nearest(version, KNOWN)
    ordered: list[str] = sorted(KNOWN, key=lambda name: abs(_rank(parse_version(name)) - wanted))
    return ordered[:2]


def _rank(number: Version) -> int:
    """A release as one number, so that 4.7.0 lies next to 5.0.0."""
    major, minor, patch = (*number, 0, 0, 0)[:3]
    return major * 10_000 + minor * 100 + patch
