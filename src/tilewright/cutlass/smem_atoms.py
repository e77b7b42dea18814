"""Shared-memory layout atoms: which swizzle CuTe picks for an operand and what alignment it asks for.

Mirrors `cute/arch/mma_sm90_desc.hpp` / `cute/atom/mma_traits_sm90_gmma.hpp` (the GMMA and UMMA K-major and MN-major
atoms) and the selectors `ss_smem_selector` (`gemm/collective/builders/sm90_common.inl`) and
`sm120_rr_smem_selector` (`builders/sm120_common.inl`): the widest swizzle whose atom divides the contiguous extent.
"""

from __future__ import annotations

from typing import Final, NamedTuple

ATOM_ROWS: Final = 8
"""Every atom spans 8 rows across the contiguous direction (Layout_K_*_Atom: shape 8 x ...)."""


class Atom(NamedTuple):
    """A swizzle atom: `row_bytes` along the contiguous direction, base alignment 2**(B + 4 + 3) bytes
    (`alignment_for_swizzle`, `cutlass/detail/layout.hpp`)."""

    name: str
    row_bytes: int
    align: int


ATOMS: Final = (
    Atom("SW128", 128, 1024),
    Atom("SW64", 64, 512),
    Atom("SW32", 32, 256),
    Atom("INTER", 16, 128),
)


def pick_atom(contiguous: int, bits: int) -> Atom | None:
    """The widest atom that divides `contiguous` elements of `bits` each; None when not even 16 bytes do."""
    size = contiguous * bits
    for atom in ATOMS:
        if size % (atom.row_bytes * 8) == 0:
            return atom
    return None
