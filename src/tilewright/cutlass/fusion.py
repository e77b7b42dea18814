"""What a fusion keeps in shared memory, and which fusions the callbacks of an epilogue exist for.

Mirrors the `SharedStorage` of the visitors in `epilogue/fusion/sm90_visitor_load_tma_warpspecialized.hpp`,
`sm90_visitor_store_tma_warpspecialized.hpp`, `sm120_visitor_store_tma_warpspecialized.hpp` and, for finalize,
TensorRT-LLM's `cutlass_extensions/epilogue/fusion/sm90_visitor_scatter.hpp`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from tilewright.cutlass.smem_atoms import pick_atom
from tilewright.cutlass.verdict import Broken
from tilewright.cutlass.versions import Rules
from tilewright.formats.elements import ELEMENTS

CALLBACKS: Final = "cutlass/epilogue/fusion/callbacks.hpp"
STORE_VISITOR: Final = "cutlass/epilogue/fusion/sm120_visitor_store_tma_warpspecialized.hpp"

EMPTY_BYTES: Final = 1
"""An empty class takes a byte: every visitor of the fusion has no shared storage."""
ALIGNED: Final = 16
"""alignof cutlass::array_aligned."""
COMPUTE_BYTES: Final = 4
"""sizeof float: the usual ElementCompute, and the router scale of finalize."""
ROW_SCALE_SYNC: Final = 2 * 4 * 8
"""Sm120BlockScaleFactorRowStore: 2 warp groups x 4 warps x 8 quads exchange one ElementCompute each."""
COL_SCALE_SYNC: Final = 2 * 4 * 4
"""Sm120BlockScaleFactorColStore: 2 warp groups x 4 warps x 4 threads of a quad exchange one ElementCompute each."""


class FusionStorage(NamedTuple):
    """sizeof and alignof FusionCallbacks::SharedStorage, and why."""

    bytes: int
    align: int
    why: str


def _missing(what: str, advice: str) -> Broken:
    return Broken("Could not find a callbacks specialization.", CALLBACKS, f"{what} {advice}")


def fusion_storage(
    fusion: str,
    grouped: bool,
    rules: Rules,
    *,
    tile_n: int,
    epilogue_tile: tuple[int, int],
    stages_d: int,
    output: str,
    scattered: str,
    activation: str | None,
    swap_ab: bool,
    layout_sfd: str,
    layout_d: str,
    acc: str = "f32",
) -> FusionStorage | Broken:
    """Shared storage of `fusion` on an SM120 epilogue, or the rule that it breaks.

    Args:
        acc: accumulator format, which is ElementCompute too (float for int32).
        tile_n: N extent of the CTA tile, elements (row vectors are staged whole).
        output: element format of the tile in shared memory.
        scattered: element format that finalize scatters, which is its bias's too whatever D is.
    """
    empty = FusionStorage(EMPTY_BYTES, 1, "no visitor of this fusion keeps anything in shared memory")
    if fusion in ("linear_combination", "activation"):
        return empty
    if fusion == "finalize":
        if not grouped or not rules.array_aux_callbacks:
            return _missing(
                "The finalize scatter is a grouped (ptr-array) fusion",
                "and needs CUTLASS 4.0.0 or later: use kind grouped, or another fusion.",
            )
        if swap_ab:
            size = tile_n * COMPUTE_BYTES
            return FusionStorage(size, ALIGNED, f"router scales along N, swapped: {tile_n} x float")
        size = tile_n * _sizeof(scattered)
        return FusionStorage(size, ALIGNED, f"bias along N: {tile_n} x {scattered}")
    if fusion == "block_scale_out":
        return _block_scale(grouped, epilogue_tile, output, activation, layout_sfd, acc)
    if grouped:
        return _missing(
            f"{fusion} has no ptr-array callbacks:", "use kind dense, or add the bias in the finalize fusion."
        )
    if fusion == "per_row_bias":
        return empty
    if fusion == "per_col_bias":
        size = tile_n * _sizeof(output)
        return FusionStorage(size, ALIGNED, f"bias along N: {tile_n} x {output}")
    return _auxiliary(epilogue_tile, stages_d, output, layout_d)


def _sizeof(name: str) -> int:
    """sizeof an element of a row vector, which is an array_aligned of the type itself: FP4 and FP6 take a byte."""
    return max(1, ELEMENTS[name].bits // 8)


def _block_scale(
    grouped: bool, tile: tuple[int, int], output: str, activation: str | None, layout_sfd: str, acc: str
) -> FusionStorage | Broken:
    fmt = ELEMENTS[output]
    if not fmt.block_scaled:
        return _missing("block_scale_out writes a block-scaled D:", "set d to nvfp4, mxfp4 or mxfp8_e4m3.")
    if grouped and layout_sfd == "col":
        return _missing("Column-major scale factors exist for dense kernels only:", "set layout_sfd to row.")
    if activation is not None and not grouped:
        return _missing(
            "An activation with generated scale factors exists for grouped kernels only:",
            "drop the activation or use kind grouped.",
        )
    vector = fmt.scale_vector
    row = layout_sfd == "row"
    extent = tile[1] if row else tile[0]
    allowed = (1, 2, 4, 8) if row else (1, 2, 4)
    if extent % vector:
        return Broken(
            "EpilogueTileN should be divisible by SFVecSize",
            STORE_VISITOR,
            f"The epilogue tile has {extent} elements along the scales; it needs a multiple of {vector}.",
        )
    if extent // vector not in allowed:
        return Broken(
            "Possible store in interleaved 4B aligned format",
            STORE_VISITOR,
            f"The epilogue tile may hold {', '.join(map(str, allowed))} scale vectors, not {extent // vector}.",
        )
    count, compute = ROW_SCALE_SYNC if row else COL_SCALE_SYNC, "f16" if acc == "f16" else "f32"
    return FusionStorage(
        count * _sizeof(compute), ALIGNED, f"absolute maxima ({compute}) that {count} threads exchange"
    )


def _auxiliary(tile: tuple[int, int], stages_d: int, output: str, layout_d: str) -> FusionStorage | Broken:
    """Sm90AuxStore: the auxiliary tile, staged like D and aligned to its own swizzle."""
    bits = ELEMENTS[output].bits
    if bits < 8:
        return _missing("An auxiliary output of less than 8 bits has no callbacks:", "store D in 8 bits or more.")
    atom = pick_atom(tile[1] if layout_d == "row" else tile[0], bits)
    align = atom.align if atom else ALIGNED
    size = tile[0] * tile[1] * bits // 8 * stages_d
    return FusionStorage(size, align, f"auxiliary output: {stages_d} stages x {tile[0]}x{tile[1]} x {output}")
