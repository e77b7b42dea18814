"""What a fusion keeps in shared memory on SM100, and which fusions there are callbacks for.

Mirrors `epilogue/fusion/sm100_callbacks_tma_warpspecialized.hpp`, most of which forwards to the SM90 callbacks, the
`SharedStorage` of their visitors (`sm90_visitor_load_tma_warpspecialized.hpp`,
`sm90_visitor_store_tma_warpspecialized.hpp`, `sm100_visitor_store_tma_warpspecialized.hpp`) and, for finalize,
TensorRT-LLM's `cutlass_extensions/epilogue/fusion/sm90_visitor_scatter.hpp`. Extents in elements, sizes in bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.cutlass.fusion import ALIGNED, CALLBACKS, COMPUTE_BYTES, EMPTY_BYTES, FusionStorage
from tilewright.cutlass.sm100_atoms import Major, smem_atom
from tilewright.cutlass.structs import round_up
from tilewright.cutlass.verdict import Broken
from tilewright.formats.elements import ELEMENTS

STORE_VISITOR: Final = "cutlass/epilogue/fusion/sm100_visitor_store_tma_warpspecialized.hpp"
BYTE_BITS: Final = 8
STORED_VECTORS: Final = (1, 2, 4, 8)
"""Scale vectors of one epilogue tile that the block-scale visitors can store: their static_assert."""

_EMPTY: Final = FusionStorage(EMPTY_BYTES, 1, "no visitor of this fusion keeps anything in shared memory")


@dataclass(frozen=True, slots=True)
class Fused:
    """What the callbacks of a fusion are built from."""

    fusion: str
    array: bool
    """Whether the epilogue's policy is a PtrArray one."""
    stages_d: int
    """Stages of D in shared memory; 0 for an epilogue that stores directly."""
    cta_n: int
    tile: tuple[int, int]
    extents: tuple[int, int]
    """Contiguous extents of the epilogue tile (smaller than the tile where it is strided over the CTA's columns)."""
    d: str
    """Element format of D; the scattered one where finalize leaves D void."""
    activation: str | None
    swap_ab: bool
    layout_d: str
    layout_sfd: str
    final_output: str | None
    """What finalize scatters, which is the type of its bias too."""


def _missing(advice: str) -> Broken:
    return Broken("Could not find a callbacks specialization.", CALLBACKS, advice)


def fusion_storage(fused: Fused) -> FusionStorage | Broken:
    """sizeof and alignof the fusion's SharedStorage, or the rule that it breaks."""
    if fused.fusion in ("linear_combination", "activation"):
        return _EMPTY
    if fused.fusion == "finalize":
        return _finalize(fused)
    if fused.fusion == "block_scale_out":
        return _block_scale(fused)
    if fused.array:
        return _missing(
            f"{fused.fusion} has no ptr-array callbacks: use kind dense, or the bias of the finalize fusion."
        )
    if fused.fusion == "per_row_bias":
        return _EMPTY
    if fused.fusion == "per_col_bias":
        return _vector(fused.cta_n, ELEMENTS[fused.d].bits, f"bias along N: {fused.cta_n} x {fused.d}")
    return _auxiliary(fused)


def _vector(length: int, bits: int, why: str) -> FusionStorage:
    """`array_aligned<T, length>`."""
    return FusionStorage(round_up(-(-length * bits // BYTE_BITS), ALIGNED), ALIGNED, why)


def _finalize(fused: Fused) -> FusionStorage | Broken:
    if not fused.array:
        return _missing("The finalize scatter is a grouped (ptr-array) fusion: use kind grouped, or another fusion.")
    if fused.stages_d == 0 or fused.final_output is None:
        return _missing("The finalize scatter goes through shared memory: use a ptr_array_tma epilogue schedule.")
    if fused.swap_ab:
        why = f"router scales along N, swapped: {fused.cta_n} x float"
        return _vector(fused.cta_n, COMPUTE_BYTES * BYTE_BITS, why)
    bias = fused.final_output
    return _vector(fused.cta_n, ELEMENTS[bias].bits, f"bias along N: {fused.cta_n} x {bias}")


def _block_scale(fused: Fused) -> FusionStorage | Broken:
    fmt = ELEMENTS[fused.d]
    if not fmt.block_scaled:
        return _missing("block_scale_out writes a block-scaled D: set d to nvfp4, mxfp4 or mxfp8_e4m3.")
    if fused.array and fused.layout_sfd == "col":
        return _missing("Column-major scale factors exist for dense kernels only: set layout_sfd to row.")
    if fused.activation is not None and not fused.array:
        return _missing("An activation with generated scale factors exists for grouped kernels only: drop it.")
    row = fused.layout_sfd == "row"
    extent, vector = fused.tile[1 if row else 0], fmt.scale_vector
    if extent % vector:
        return Broken(
            "EpilogueTileN should be divisible by SFVecSize",
            STORE_VISITOR,
            f"The epilogue tile has {extent} elements along the scales; it needs a multiple of {vector}.",
        )
    if extent // vector not in STORED_VECTORS:
        return Broken(
            "Possible store in interleaved 4B aligned format",
            STORE_VISITOR,
            f"The epilogue tile may hold {', '.join(map(str, STORED_VECTORS))} scale vectors, not {extent // vector}.",
        )
    if row:
        return _EMPTY
    # array_aligned<float, NumSyncWarps>; warps exchange maxima for vectors of 64 only, an empty array takes 16 bytes
    return FusionStorage(ALIGNED, ALIGNED, "an empty array for the maxima that warps exchange")


def _auxiliary(fused: Fused) -> FusionStorage | Broken:
    """Sm90AuxStore: the auxiliary tile, staged like D and aligned to its own swizzle; no storage without stages."""
    bits = ELEMENTS[fused.d].bits
    if fused.stages_d == 0:
        return _EMPTY
    if bits < BYTE_BITS:
        return _missing("An auxiliary output of less than 8 bits has no callbacks: store D in 8 bits or more.")
    atom = smem_atom(Major.K if fused.layout_d == "row" else Major.MN, bits, *fused.extents)
    if isinstance(atom, Broken):
        return atom
    m, n = fused.tile
    size = m * n * bits // BYTE_BITS * fused.stages_d
    return FusionStorage(
        round_up(size, atom.align), atom.align, f"auxiliary output: {fused.stages_d} stages x {m}x{n} x {fused.d}"
    )
