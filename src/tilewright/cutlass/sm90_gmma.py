"""Which wgmma an SM90 kernel issues, and how its operands lie in shared memory.

Mirrors the selectors of `cute/arch/mma_sm90.hpp` (`ss_op_selector`, `rs_op_selector`, `ss_op_selector_sparse`) and
of `gemm/collective/builders/sm90_common.inl` (`ss_smem_selector`, `rs_smem_selector`, `ss_smem_selector_sparse`).
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass.smem_atoms import ATOM_ROWS, ATOMS, Atom, pick_atom
from tilewright.cutlass.verdict import Broken
from tilewright.formats.elements import ELEMENTS

MMA: Final = "cute/arch/mma_sm90.hpp"
SELECTOR: Final = "cutlass/gemm/collective/builders/sm90_common.inl"

ATOM_M: Final = 64
"""M of every wgmma."""
ATOM_K_BYTES: Final = 32
"""K of every dense wgmma, bytes (PTX ISA, wgmma.mma_async: k16 for 16-bit, k32 for 8-bit, k8 for tf32)."""
ATOM_N: Final = (256, 192, 128, 96, 64, 32, 16, 8)
"""N of the wgmma that the selectors choose from, unless CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED is defined."""
SPARSITY: Final = 2
"""Logical elements a stored one stands for in a 2:4 sparse A (tf32: 1:2)."""

_FP8: Final = frozenset({"e4m3", "e5m2"})
_INT8: Final = frozenset({"int8", "uint8"})
_SAME: Final = {"f32": ("f16", "bf16", "tf32"), "f16": ("f16",)}
"""Operand formats that pair with themselves only, by accumulator."""

_SW32: Final = next(atom for atom in ATOMS if atom.name == "SW32")
_SW128: Final = next(atom for atom in ATOMS if atom.name == "SW128")


def atom_k(name: str) -> int:
    """K of the dense wgmma for operands of format `name`, elements."""
    return ATOM_K_BYTES * 8 // ELEMENTS[name].bits


def atom_n(n: int) -> int:
    """N of the wgmma that the selector takes for a tile of `n` columns, a multiple of 8."""
    return next(extent for extent in ATOM_N if n % extent == 0)


def _pairs(a: str, b: str, acc: str) -> bool:
    if acc == "int32":
        return {a, b} <= _INT8
    return (a == b and a in _SAME[acc]) or {a, b} <= _FP8


def select(a: str, b: str, acc: str, tile: tuple[int, int, int], *, sparse: bool = False) -> Broken | None:
    """The rule that keeps the selector from finding a wgmma, or None. The operands are K-major or 16-bit."""
    m, n, k = tile
    if m % ATOM_M:
        return Broken("Tile_M must be a multiple of 64.", MMA, f"A wgmma has M of 64; the tile's M is {m}.")
    if not _pairs(a, b, acc):
        return Broken(
            "No eligible GMMA operator for request configuration.",
            MMA,
            f"SM90 has no wgmma of {a} x {b} that accumulates in {acc}: 16-bit and tf32 pair with themselves (f32; f16 "
            "also f16), FP8 with FP8 (f32 or f16), 8-bit integers with each other (int32).",
        )
    step = atom_k(a) * (SPARSITY if sparse else 1)
    if k % step:
        return Broken(
            f"Tile_K must be a multiple of {step}.", MMA, f"The tile's K of {k} is not a whole number of wgmmas."
        )
    if n % ATOM_ROWS:
        return Broken("Tile_N must be a multiple of 8.", MMA, f"A wgmma has N in steps of 8; the tile's N is {n}.")
    return None


def _rows(mn: int, k: int) -> Broken | None:
    for extent, axis in ((mn, "MN"), (k, "K")):
        if extent % ATOM_ROWS:
            return Broken(f"BLK_{axis}0 must be a multiple of 8.", SELECTOR, f"{extent} is not a multiple of 8.")
    return None


def _no_atom(axis: str, atom: str, extent: int, bits: int) -> Broken:
    index = 1 if axis == "K" else 0
    return Broken(
        f"BLK_{axis}0 must be a multiple of size<{index}>(GMMA::Layout_{atom}_Atom<ElementType>{{}})",
        SELECTOR,
        f"{extent} elements of {bits} bits do not fill the rows of that layout; use a larger multiple.",
    )


def smem_atom(name: str, mn: int, k: int, mn_major: bool) -> Atom | Broken:
    """`ss_smem_selector`: the widest swizzle that the contiguous extent fills."""
    broken = _rows(mn, k)
    if broken:
        return broken
    axis, extent = ("MN", mn) if mn_major else ("K", k)
    bits = ELEMENTS[name].bits
    return pick_atom(extent, bits) or _no_atom(axis, f"{axis}_INTER", extent, bits)


def sparse_smem_atom(name: str, mn: int, k: int, mn_major: bool) -> Atom | Broken:
    """`ss_smem_selector_sparse`: the same for a compressed operand, whose rows hold K / 2 stored elements."""
    broken = _rows(mn, k)
    if broken:
        return broken
    bits = ELEMENTS[name].bits
    if mn_major:
        return pick_atom(mn, bits) or _no_atom("MN", "MN_INTER", mn, bits)
    return pick_atom(k, bits // SPARSITY) or _no_atom("K", "K_INTER_Sp", k, bits)


def register_smem_atom(name: str, mn: int, k: int, mn_major: bool, transposed: bool) -> Atom | Broken:
    """`rs_smem_selector`: operands of mainloops that read A from registers. MN-major words take SW32, which is free
    of bank conflicts; a B that the kernel transposes in shared memory takes the one layout that this works on."""
    broken = _rows(mn, k)
    if broken:
        return broken
    bits = ELEMENTS[name].bits
    if not mn_major:
        return pick_atom(k, bits) or _no_atom("K", "K_INTER", k, bits)
    if bits == 32:
        # SW32 rows are 8 words: the check of _rows has seen to that.
        return _SW32
    if transposed and bits <= 8:
        return _SW128 if mn * bits % (_SW128.row_bytes * 8) == 0 else _no_atom("MN", "MN_128", mn, bits)
    return pick_atom(mn, bits) or _no_atom("MN", "MN_INTER", mn, bits)
