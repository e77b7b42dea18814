"""Rules of SM120 kernels that compiling the types does not show: asserts inside member functions.

They fire when the device kernel is instantiated: in `to_underlying_arguments`, in the collectives' `load`, `mma` and
`store`, in the visitors of a fusion. Each was read in the header that it names; those marked `compiled` were also seen
when whole kernels of that kind were compiled (`tests/data/truth/kernel_check.jsonl.gz`, `kernel_extra.jsonl.gz`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from tilewright.cutlass import compiled_kernels
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.epilogue_storage import ARRAY_HEADER, DENSE_HEADER, Epilogue
from tilewright.cutlass.fusion import STORE_VISITOR
from tilewright.cutlass.laid import SF_SHORT_AT, SF_SHORT_TEXT
from tilewright.cutlass.verdict import Broken
from tilewright.cutlass.versions import Rules
from tilewright.formats.elements import ELEMENTS

MMA_M: Final = 16
MMA_N: Final = 8
"""The m16n8 of every SM120 mma.sync."""
COOPERATIVE_MIN_M: Final = 128
"""Smallest M of a cooperative kernel: a static_assert inside its operator()."""
PERMUTATION_M: Final = 128
PERMUTATION_N: Final = 32
"""PermTileM and PermTileN of every SM120 builder: what the tiled MMA covers before it repeats, or the tile's own
extent where that is smaller."""
SMALL_N: Final = 16
"""Below this N a cooperative block-scaled kernel of 4.6.0 and later puts all its warps along M."""

SIX_BITS: Final = 6
SF_ROWS: Final = 128
"""Columns of one block of B's scale factors (Blk_MN of Sm1xxBlockScaledConfig)."""


class Warps(NamedTuple):
    """AtomLayoutMNK: MMA warps along M and N."""

    m: int
    n: int


COOPERATIVE: Final = Warps(4, 2)
PINGPONG: Final = Warps(2, 2)
ALL_ALONG_M: Final = Warps(8, 1)
ACC_2X4: Final = Warps(2, 4)


def dense_warps(pingpong: bool, block_scaled: bool, n: int) -> Warps:
    """Warps of the block-scaled, f8f6f4 and blockwise builders."""
    if pingpong:
        return PINGPONG
    return ALL_ALONG_M if block_scaled and n < SMALL_N else COOPERATIVE


def tile_rules(config: KernelConfig, epi: Epilogue, warps: Warps, grouped: bool, rules: Rules) -> Iterator[Broken]:
    """What the epilogue's `store` asks of the tile, of its own tile and of the fusion."""
    header = ARRAY_HEADER if grouped else DENSE_HEADER
    m, n, _ = config.tile
    step_m, step_n = _step(m, PERMUTATION_M, warps.m * MMA_M), _step(n, PERMUTATION_N, warps.n * MMA_N)
    epi_m, epi_n = epi.tile
    if step_m is None or step_n is None:
        yield Broken(
            "Shape Divisibility Condition",
            "cute/layout.hpp",
            f"The {warps.m}x{warps.n} MMA warps cover {warps.m * MMA_M}x{warps.n * MMA_N} at a time: make the tile "
            "whole multiples of that.",
        )
        return
    if epi_m % step_m:
        yield Broken(
            "MMA_TILE_M must divide EPI_TILE_M",
            header,
            f"The MMA warps take {step_m} rows of this tile at a time, and the epilogue tile has {epi_m}: use M in "
            f"multiples of {PERMUTATION_M} (or 64, pingpong) and an epilogue tile of whole {warps.m * MMA_M} rows.",
            "compiled",
        )
    if epi_n % step_n:
        larger = epi_n > step_n if grouped and rules.small_n else epi_m * epi_n > step_m * step_n
        advice = (
            f"The MMA warps take {step_n} columns of this tile at a time, and the epilogue tile has {epi_n}: use N in "
            f"multiples of {PERMUTATION_N} and an epilogue tile of whole {warps.n * MMA_N} columns."
        )
        if larger:
            yield Broken("MMA_TILE_N must divide EPI_TILE_N", header, advice)
        elif step_n % epi_n:
            yield Broken("EPI_TILE_N must divide MMA_TILE_N", header, advice)
        else:
            yield Broken("Error: Ambiguous scatter detected in copy", "cute/algorithm/copy.hpp", advice, "compiled")
    yield from _block_scale_rules(config, epi, warps)


def _step(extent: int, permutation: int, covered: int) -> int | None:
    """MMA_TILE_M or _N as the epilogue computes it: the tile's extent over the number of repeats that a thread has,
    which a permutation that does not divide the tile rounds up. None where not even one pass of the warps fits."""
    tiled = min(extent, permutation)
    if tiled % covered:
        return None
    return extent // (-(-extent // tiled) * (tiled // covered))


def _block_scale_rules(config: KernelConfig, epi: Epilogue, warps: Warps) -> Iterator[Broken]:
    """`Sm120BlockScaleFactor{Row,Col}Store`: how threads share the maxima of a scale vector."""
    if config.fusion != "block_scale_out":
        return
    epi_m, epi_n = epi.tile
    layout = config.layout_sfd or config.layout_d
    if config.swap_ab:
        layout = "col" if layout == "row" else "row"
    if layout == "row":
        if epi_n & (epi_n - 1):
            text = "Epilogue Tile N should be pow of 2"
            yield Broken(text, STORE_VISITOR, "Use an epilogue tile of 32 or 64 columns, or leave it at auto.")
        # Two fragments of 8 columns make 16 elements of a scale, whatever the vector.
        elif epi_n // (warps.n * MMA_N) % 2:
            yield Broken(
                "Fragments along N mode must be a multiple of the number of accumulator fragments needed per SF",
                STORE_VISITOR,
                f"Use an epilogue tile whose columns are a multiple of {2 * warps.n * MMA_N}.",
            )
    else:
        if epi_m & (epi_n - 1):
            text = "Epilogue Tile N should be pow of 2"
            yield Broken(text, STORE_VISITOR, "Use an epilogue tile whose columns divide its rows.")
        if warps.m * warps.n < COOPERATIVE.m * COOPERATIVE.n:
            text = "SM120 epilogue currently only supports two warp groups collaborating."
            yield Broken(text, STORE_VISITOR, "Column-major scales need the cooperative schedule.")


LDMATRIX_VALUES: Final = 16
"""Values of 8 bits that a thread gets from `ldmatrix.x4`, which brings B in from shared memory."""
NARROWED_N: Final = 32
"""Below this N the block-scaled builder takes `ldmatrix.x2` or `.x1` for B, but for 6-bit formats."""


def copy_rule(config: KernelConfig, warps: Warps) -> Iterator[Broken]:
    """Whether a thread's share of B in the tiled MMA fills the copy atom of `sm120_rr_smem_copy_selector_B`: x4, unless
    the builder passes its N on, which of 4.6.0 and later only the block-scaled one does."""
    n = config.tile[1]
    b = ELEMENTS[config.a if config.swap_ab else config.b]
    narrowed = config.op_class == "block_scaled" and b.bits != SIX_BITS
    if n >= NARROWED_N or narrowed:
        return
    share = min(n, PERMUTATION_N) // warps.n
    if share % LDMATRIX_VALUES:
        why = "6-bit formats" if config.op_class == "block_scaled" else f"{config.op_class} kernels"
        yield Broken(
            "TiledCopy uses too few vals for selected CopyAtom",
            "cute/atom/copy_atom.hpp",
            f"{why} bring B in {LDMATRIX_VALUES} values a thread at a time, and of N = {n} a thread has {share}: use N "
            f"of {NARROWED_N} or more.",
            "compiled",
        )


def cooperative_rule(config: KernelConfig, grouped: bool) -> Iterator[Broken]:
    """The assert on M in the cooperative kernels' operator()."""
    if config.tile[0] < COOPERATIVE_MIN_M:
        name = "sm90_gemm_array_tma" if grouped else "sm90_gemm_tma"
        yield Broken(
            "Cooperative kernel requires Tile Size to be greater than or equal to 128 along the M-dimension.",
            f"cutlass/gemm/kernel/{name}_warpspecialized_cooperative.hpp",
            f"Use M of {COOPERATIVE_MIN_M} or more, or the pingpong schedule.",
            "compiled",
        )


def scale_rules(config: KernelConfig, sf_short: bool | None, rules: Rules) -> Iterator[Broken]:
    """Scale factors of a block-scaled tile that TMA cannot bring in: too few, or in blocks that N does not divide."""
    if sf_short:
        yield Broken(
            SF_SHORT_TEXT,
            SF_SHORT_AT,
            "The scale factors in shared memory do not cover the tile: use M in multiples of 128, K of at least "
            "four scale vectors, and N of 128 or more (from CUTLASS 4.5.0 on N of 32 and 64 too).",
            compiled_kernels.basis(compiled_kernels.SCALE_FACTORS_SHORT, config.op_class, config.kind, rules.version),
        )
    n = config.tile[1]
    if config.op_class == "block_scaled" and rules.sfb_covers_128 and SF_ROWS % n and n < SF_ROWS:
        yield Broken(
            SF_SHORT_TEXT,
            SF_SHORT_AT,
            f"B's scales come for {SF_ROWS} columns at a time, of which tiles of N = {n} cannot take their share: "
            "use 32, 64 or a multiple of 128.",
            compiled_kernels.basis(compiled_kernels.SCALE_COLUMNS, config.op_class, config.kind, rules.version),
        )
