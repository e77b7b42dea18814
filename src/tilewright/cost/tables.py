"""Measured rows, kept beside the coefficients: a line of times over tokens (or m) for every shape that was measured.

A table file is one JSON line (axis and lines) and then the logarithms of the times as 16-bit differences along each
line, all gzip. Times keep 0.05%.
"""

from __future__ import annotations

import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from importlib.resources import files
from math import exp, log
from pathlib import Path
from typing import Final

import msgspec

from tilewright.errors import InputError, shown

__all__ = ["Neighbours", "Table", "pack_table", "read_table"]

_STEPS: Final = 1000.0
"""Steps of a table's values in one natural logarithm of microseconds."""
_MISSING: Final = -32768
_TOP: Final = 16000
"""Largest value: 8.9 s. Differences of two then fit 16 bits."""
_MAX_RATIO: Final = 2.1
"""Neighbours on the axis further apart than this factor are not interpolated between."""
_MAX_FILE: Final = 64 << 20
_CANDIDATES: Final = 12
"""Near shapes of which those are taken that were measured where the question is."""
_MAX_NEAREST: Final = 1 << 12


class _Head(msgspec.Struct, frozen=True):
    axis: list[int]
    lines: list[list[int]]
    names: list[str]


class Neighbours(msgspec.Struct, frozen=True):
    """The measured rows around a question, as (axis value, seconds); one row when it was measured itself.

    `beside`: near shapes that were measured at both of these and at the question's own value: shape, and seconds at the
    row below, at the question's value, at the row above."""

    rows: tuple[tuple[int, float], ...]
    beside: tuple[tuple[tuple[int, ...], tuple[float, float, float]], ...] = ()


class Table:
    """The rows of one backend and format."""

    __slots__ = ("_at", "_axis", "_nearest", "_values")

    def __init__(self, head: _Head, values: Sequence[int]) -> None:
        self._axis = head.axis
        self._values = values
        names = head.names
        self._at = {(*line[1:], names[line[0]]): index for index, line in enumerate(head.lines)}
        self._nearest: dict[int, list[tuple[tuple[int, ...], int]]] = {}

    def near(self, at: int, shape: tuple[int, ...], distribution: str, beside: int = 0) -> Neighbours | None:
        """Rows of exactly that shape at `at`, or next below and above it; None when the table has no such.

        `beside`: near shapes that are looked up too where rows below and above are all that there is."""
        line = self._at.get((*shape, distribution))
        if line is None:
            return None
        axis, values = self._axis, self._values
        start = line * len(axis)
        place = bisect_left(axis, at)
        if place < len(axis) and axis[place] == at and values[start + place] != _MISSING:
            return Neighbours(((at, _seconds(values[start + place])),))
        above = place
        while above < len(axis) and values[start + above] == _MISSING:
            above += 1
        below = place - 1
        while below >= 0 and values[start + below] == _MISSING:
            below -= 1
        if below < 0 or above >= len(axis) or axis[above] > _MAX_RATIO * axis[below]:
            return None
        rows = tuple((axis[i], _seconds(values[start + i])) for i in (below, above))
        if not beside or place >= len(axis) or axis[place] != at:
            return Neighbours(rows)
        return Neighbours(rows, self._beside(line, shape, distribution, (below, place, above), beside))

    def _beside(
        self, line: int, shape: tuple[int, ...], distribution: str, places: tuple[int, int, int], count: int
    ) -> tuple[tuple[tuple[int, ...], tuple[float, float, float]], ...]:
        """The nearest shapes, by the logarithms of their sizes, that were measured at all three places of the axis."""
        nearest = self._nearest.get(line)
        if nearest is None:
            if len(self._nearest) >= _MAX_NEAREST:
                self._nearest.clear()
            others = [
                (sum(abs(log(mine / theirs)) for mine, theirs in zip(shape, key[:-1], strict=True)), key[:-1], index)
                for key, index in self._at.items()
                if index != line and key[-1] == distribution
            ]
            others.sort()
            nearest = self._nearest[line] = [(other, index) for _, other, index in others[:_CANDIDATES]]
        out: list[tuple[tuple[int, ...], tuple[float, float, float]]] = []
        for other, index in nearest:
            found = [self._values[index * len(self._axis) + place] for place in places]
            if _MISSING not in found:
                below, same, above = (_seconds(value) for value in found)
                out.append((other, (below, same, above)))
                if len(out) == count:
                    break
        return tuple(out)


def _seconds(value: int) -> float:
    return exp(value / _STEPS) * 1e-6


def pack_table(rows: Sequence[tuple[int, tuple[int, ...], str, float]]) -> bytes:
    """A table file of rows (axis value, shape, distribution, seconds)."""
    axis = sorted({row[0] for row in rows})
    names = sorted({row[2] for row in rows})
    lines = sorted({(names.index(row[2]), *row[1]) for row in rows})
    where = {line: index for index, line in enumerate(lines)}
    values = [_MISSING] * (len(lines) * len(axis))
    for at, shape, name, time in rows:
        index = where[(names.index(name), *shape)] * len(axis) + bisect_left(axis, at)
        values[index] = max(-_TOP, min(_TOP, round(log(time * 1e6) * _STEPS)))
    out = array("h")
    for line in range(len(lines)):
        last = 0
        for value in values[line * len(axis) : (line + 1) * len(axis)]:
            out.append(_MISSING if value == _MISSING else value - last)
            last = last if value == _MISSING else value
    if sys.byteorder == "big":
        out.byteswap()
    raw = out.tobytes()
    head = msgspec.json.encode(_Head(axis, [list(line) for line in lines], names))
    gz = zlib.compressobj(9, zlib.DEFLATED, 31)
    return gz.compress(head + b"\n" + raw[::2] + raw[1::2]) + gz.flush()


def _check(head: _Head, size: int) -> None:
    if size != 2 * len(head.axis) * len(head.lines) or not head.axis:
        raise ValueError("it is cut short")
    if any(not line or not 0 <= line[0] < len(head.names) for line in head.lines):
        raise ValueError("a line names no distribution")


def read_table(name: str, folder: Path | None) -> Table | None:
    """The table called `name` beside the coefficients; None when there is none. Raises InputError when it is broken."""
    try:
        if folder is None:
            packed = files("tilewright.data").joinpath("tables", name).read_bytes()
        else:
            with (folder / name).open("rb") as stream:
                packed = stream.read(_MAX_FILE)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError("coefficients", f"Table {shown(name)} cannot be read ({error.strerror}).") from None
    try:
        text, _, body = zlib.decompressobj(31).decompress(packed, _MAX_FILE).partition(b"\n")
        head = msgspec.json.decode(text, type=_Head)
        _check(head, len(body))
        count = len(body) // 2
        raw = bytearray(2 * count)
        raw[::2], raw[1::2] = body[:count], body[count:]
    except (zlib.error, msgspec.MsgspecError, ValueError) as error:
        raise InputError("coefficients", f"Table {shown(name)} is broken ({error}); make it again.") from None
    steps = array("h")
    steps.frombytes(bytes(raw))
    if sys.byteorder == "big":
        steps.byteswap()
    width = len(head.axis)
    for start in range(0, count, width):
        last = 0
        for i in range(start, start + width):
            if steps[i] != _MISSING:
                last = steps[i] = max(-_TOP, min(_TOP, last + steps[i]))
    return Table(head, steps)
