"""How a C++ compiler lays a struct out: the one piece of arithmetic that every budget here is made of.

Standard-layout rules of the Itanium C++ ABI: members in order, each at the next multiple of its alignment; the size
rounded up to the largest alignment. An empty class takes one byte.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

TMA_DESCRIPTOR: Final = 128
"""sizeof and alignof `CUtensorMap` (`cuda.h`), in bytes."""


class Member(NamedTuple):
    """A data member. `align` is what places it (type alignment or its `alignas`), `type_align` alignof its type."""

    name: str
    bytes: int
    align: int
    type_align: int
    why: str = ""


class Struct(NamedTuple):
    """A laid-out struct: its members' offsets in order, its size and its alignment, in bytes."""

    members: tuple[Member, ...]
    offsets: tuple[int, ...]
    bytes: int
    align: int


def round_up(value: int, multiple: int) -> int:
    """The smallest multiple of `multiple` that is at least `value`."""
    return -(-value // multiple) * multiple


def struct(members: Iterable[Member], min_align: int = 1) -> Struct:
    """Lay `members` out in order; `min_align` is an alignment of the struct itself (`aligned_struct`)."""
    placed = tuple(members)
    offset, align = 0, min_align
    offsets: list[int] = []
    for member in placed:
        wanted = member.align
        if wanted > align:
            align = wanted
        offset = -(-offset // wanted) * wanted
        offsets.append(offset)
        offset += member.bytes
    return Struct(placed, tuple(offsets), -(-offset // align) * align or align, align)


def union(members: Iterable[Member]) -> Struct:
    """All `members` at offset 0."""
    placed = tuple(members)
    align = max(member.align for member in placed)
    return Struct(placed, (0,) * len(placed), round_up(max(member.bytes for member in placed), align), align)


def tensor_maps(names: Iterable[str]) -> Struct:
    """TensorMapStorage of a grouped (ptr-array) mainloop: a descriptor for each operand of `names`."""
    return struct(
        [Member(f"smem_tensormap_{name}", TMA_DESCRIPTOR, TMA_DESCRIPTOR, TMA_DESCRIPTOR) for name in names],
        TMA_DESCRIPTOR,
    )
