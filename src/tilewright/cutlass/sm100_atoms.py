"""Shared-memory layout atoms of SM100: which swizzle an operand or an epilogue tile gets, and what it must divide.

Mirrors `sm100_smem_selector` (`gemm/collective/builders/sm100_common.inl`), which differs from SM90's for MN-major
32-bit elements, where the tensor core takes one layout only.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from tilewright.cutlass.smem_atoms import ATOM_ROWS, Atom, pick_atom
from tilewright.cutlass.verdict import Broken

SELECTOR: Final = "cutlass/gemm/collective/builders/sm100_common.inl"

WORD_BITS: Final = 32
SW128_32B: Final = Atom("SW128_32B", 128, 512)
"""Layout_MN_SW128_32B_Atom: Swizzle<2, 5, 2>, aligned to 2**(2 + 5 + 2) bytes (`cute/atom/mma_traits_sm100.hpp`)."""


class Major(Enum):
    """Which mode of an operand is contiguous."""

    K = "K"
    MN = "MN"


def smem_atom(major: Major, bits: int, mn: int, k: int) -> Atom | Broken:
    """The atom of an operand of `mn` x `k` elements of `bits`, or the assert that it breaks."""
    for name, extent in (("BLK_MN0", mn), ("BLK_K0", k)):
        if extent % ATOM_ROWS:
            return Broken(f"{name} must be a multiple of 8.", SELECTOR, f"{extent} elements are none: change the tile.")
    if major is Major.MN and bits == WORD_BITS:
        if mn * bits % (SW128_32B.row_bytes * 8):
            return Broken(
                "for mn-major tf32 operands, SW128_32B is the only available smem layout",
                SELECTOR,
                f"{mn} elements along the contiguous mode are no multiple of 32: change the tile or the layout.",
            )
        return SW128_32B
    contiguous = k if major is Major.K else mn
    atom = pick_atom(contiguous, bits)
    if atom is None:
        name, index = ("BLK_K0", 1) if major is Major.K else ("BLK_MN0", 0)
        return Broken(
            f"{name} must be a multiple of size<{index}>(UMMA::Layout_{major.value}_INTER_Atom<ElementType>{{}})",
            SELECTOR,
            f"{contiguous} elements of {bits} bits are no multiple of 16 bytes: widen that extent of the tile.",
        )
    return atom
