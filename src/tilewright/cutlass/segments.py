"""A kernel's shared memory as it lies there: one run of bytes after the other, from 0 to its size, none twice."""

from __future__ import annotations

from itertools import pairwise

import msgspec

from tilewright.cutlass.budget import Budget, Field

PADDING = "padding"
"""What no member covers: alignment between members, and rounding of the whole."""
_EMPTY = 1
"""C++'s size of a struct without members: it lies over the member beside it."""


class Segment(msgspec.Struct, frozen=True):
    """A run of bytes that belongs to one member. Offset and size in bytes."""

    field: str
    offset: int
    bytes: int


def _inside(one: Field, other: Field) -> bool:
    return (
        one.bytes < other.bytes
        and other.abs_offset <= one.abs_offset
        and one.abs_offset + one.bytes <= other.abs_offset + other.bytes
    )


def _members(fields: list[Field]) -> list[Field]:
    """The fields that hold data themselves: no structs of others, and no empty struct that lies over one.

    A tensor (`smem_*`) is one even where a smaller one shares its bytes.
    """
    real = [field for field in fields if field.abs_offset >= 0 and field.bytes > _EMPTY]
    inner = [
        field
        for field in real
        if field.path.rpartition(".")[2].startswith("smem_") or not any(_inside(one, field) for one in real)
    ]
    small = [
        field
        for field in fields
        if field.abs_offset >= 0 and field.bytes == _EMPTY and not any(_inside(field, one) for one in inner)
    ]
    return inner + small


def segments(budget: Budget) -> list[Segment]:
    """`budget`'s bytes as segments that follow each other and add up to `smem_bytes`; empty where it has none.

    Members that share their bytes (D over C) are shown once, by the smallest of them.
    """
    total = budget.smem_bytes
    if not total:
        return []
    members = _members(budget.fields)
    edges = {0, total}
    for field in members:
        edges |= {min(field.abs_offset, total), min(field.abs_offset + field.bytes, total)}
    ordered = sorted(edges)
    out: list[Segment] = []
    for low, high in pairwise(ordered):
        over = [one for one in members if one.abs_offset <= low and high <= one.abs_offset + one.bytes]
        name = min(over, key=lambda one: (one.bytes, -one.path.count("."), one.path)).path if over else PADDING
        if out and out[-1].field == name:
            out[-1] = Segment(name, out[-1].offset, high - out[-1].offset)
        else:
            out.append(Segment(name, low, high - low))
    return out
