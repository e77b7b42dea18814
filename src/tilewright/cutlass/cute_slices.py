"""Whether CuTe can slice one stage off a swizzled shared-memory layout: the part of its layout algebra that asserts.

A mainloop's TMA descriptors are built from `SmemLayoutA{}(_, _, _, 0)`, one stage of the operand's layout. Slicing a
swizzled layout composes its modes with projections of the swizzle (`slice_and_offset`, `cute/swizzle_layout.hpp`), and
`composition_impl` (`cute/layout.hpp`) asserts that strides and shapes divide. 8-bit operands always do; 16- and 32-bit
ones do not for every number of rows. All numbers are in elements: the swizzle is applied to element offsets until a
pointer recasts it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from tilewright.cutlass.caches import LAYOUTS
from tilewright.cutlass.verdict import Broken

LAYOUT: Final = "cute/layout.hpp"
LINE: Final = 16
"""2**M: elements below the swizzled bits (Swizzle<B, 4, 3>)."""
SHIFT: Final = 3
NOT_BITS: Final = "Requires pow2 shape*stride."
SWIZZLE: Final = "cute/swizzle.hpp"
OPEN: Final = 2
"""Stands for the last mode of a layout, whose extent `coalesce_x` leaves open."""


class Mode(NamedTuple):
    """One mode of a layout: shape and stride."""

    shape: int
    stride: int


class Swizzle(NamedTuple):
    """cute::Swizzle<bits, base, shift>."""

    bits: int
    base: int
    shift: int


SWIZZLES: Final = {
    "SW128": Swizzle(3, 4, SHIFT),
    "SW64": Swizzle(2, 4, SHIFT),
    "SW32": Swizzle(1, 4, SHIFT),
    "INTER": Swizzle(0, 4, SHIFT),
    "SW128_32B": Swizzle(2, 5, 2),
}
"""The swizzle of each layout atom (`cute/atom/mma_traits_sm90_gmma.hpp`, `mma_traits_sm100.hpp`)."""

Layout = tuple[Mode, ...]


def _coalesce(modes: list[Mode]) -> Layout:
    """`detail::coalesce_x`: neighbouring modes joined, the last one kept open."""
    last = modes[-1]
    out = [Mode(OPEN, last.stride) if last.shape == 1 else last]
    for mode in reversed(modes[:-1]):
        if mode.shape == 1:
            continue
        if mode.shape * mode.stride == out[0].stride:
            out[0] = Mode(mode.shape * out[0].shape, mode.stride)
        else:
            out.insert(0, mode)
    return tuple(out)


@lru_cache(maxsize=64)
def _projections(swizzle: Swizzle) -> tuple[Layout, Layout, Layout]:
    """The layouts that a slice is composed with: what the swizzle leaves alone, what it touches, and itself."""
    bits, base, shift = swizzle
    line, half, gap = 1 << base, 1 << bits, 1 << (shift - bits)
    shapes = (line, half, gap, half, 1)
    strides = [1]
    for shape in shapes[:-1]:
        strides.append(strides[-1] * shape)
    alone = [
        Mode(shape, stride if index % 2 == 0 else 0)
        for index, (shape, stride) in enumerate(zip(shapes, strides, strict=True))
    ]
    touched = [
        Mode(shape, stride if index % 2 else 0)
        for index, (shape, stride) in enumerate(zip(shapes, strides, strict=True))
    ]
    low, high = 1 << base, 1 << (base + shift)
    itself = [
        Mode(line, 1),
        *(Mode(2, low << index) for index in range(bits)),
        Mode(gap, 1 << (base + bits)),
        *(Mode(2, (high + low) << index) for index in range(bits)),
        Mode(1, 1 << (base + bits + shift)),
    ]
    return _coalesce(alone), _coalesce(touched), _coalesce(itself)


def _compose(left: Layout, mode: Mode) -> list[Mode] | str:
    """`composition_impl` of a layout with one mode, or the condition that it asserts."""
    if mode.stride == 0 or len(left) == 1:
        return [Mode(mode.shape, mode.stride * left[0].stride)]
    shape, stride = mode
    out: list[Mode] = []
    for current in left[:-1]:
        if stride % current.shape and stride >= current.shape:
            return "Stride Divisibility Condition"
        next_shape, next_stride = -(-current.shape // stride), -(-stride // current.shape)
        if next_shape != 1 and shape != 1:
            taken = min(next_shape, shape)
            if shape % taken:
                return "Shape Divisibility Condition"
            out.append(Mode(taken, stride * current.stride))
            shape //= taken
        stride = next_stride
    if shape != 1 or not out:
        out.append(Mode(shape, stride * left[-1].stride))
    return out


def _not_a_power_of_two(number: int) -> bool:
    return number & (number - 1) != 0


def _end(modes: list[Mode]) -> int:
    """The largest offset of a layout."""
    return sum((mode.shape - 1) * mode.stride for mode in modes)


@lru_cache(maxsize=LAYOUTS)
def slices(atom: str, rest: tuple[tuple[int, int], ...], stages: int, stage: int) -> str | None:
    """The condition that slicing a stage off fails, or None. `rest` are the (shape, stride) modes of one stage, `stage`
    the stride between stages."""
    swizzle = SWIZZLES[atom]
    alone, touched, itself = _projections(swizzle)
    if stages > 1:
        for projection in (alone, touched):
            cut = _compose(projection, Mode(stages, stage))
            if isinstance(cut, str):
                return cut
            # What the swizzle touches is kept as bits (`to_mixed_bits`, `cute/swizzle.hpp`).
            if projection is touched and any(_not_a_power_of_two(mode.shape * mode.stride) for mode in cut):
                return NOT_BITS
    hit: list[Mode] = []
    for shape, stride in rest:
        made = _compose(touched, Mode(shape, stride))
        if isinstance(made, str):
            return made
        hit += made
    active = _end(hit)
    mask = ((1 << swizzle.bits) - 1) << (swizzle.base + swizzle.shift)
    if active & ~(active ^ ((active & mask) >> swizzle.shift)):
        return None  # both halves of the swizzle are hit: it stays
    for shape, stride in rest:
        made = _compose(itself, Mode(shape, stride))
        if isinstance(made, str):
            return made
    return None


def stage_modes(row_elements: int, k_major: bool, mn: int, k: int, mma_k: int) -> tuple[tuple[int, int], ...]:
    """Modes of one stage of an operand of `mn` x `k`, as `UMMA::tile_to_mma_shape` leaves them; `row_elements` is the
    contiguous extent of its atom."""
    if k_major:
        blocks = k // row_elements
        within = min(mma_k, row_elements)
        modes = [(mn, row_elements), (within, 1), (row_elements // within, within)]
        if blocks > 1:
            modes.append((blocks, mn * row_elements))
    else:
        modes = [(row_elements, 1), (mma_k, row_elements), (k // mma_k, mma_k * row_elements)]
        if mn > row_elements:
            modes.insert(1, (mn // row_elements, row_elements * k))
    return tuple(mode for mode in modes if mode[0] > 1)


def unsliceable(name: str, condition: str) -> Broken:
    """The rule that an operand breaks whose stage cannot be sliced off."""
    return Broken(
        condition,
        SWIZZLE if condition == NOT_BITS else LAYOUT,
        f"TMA cannot be handed one stage of {name}: its rows in each CTA do not divide the swizzle. Use a multiple of "
        "16 rows for 16-bit operands and of 32 for 32-bit ones, and a stage of a multiple of 1,024 elements.",
    )
