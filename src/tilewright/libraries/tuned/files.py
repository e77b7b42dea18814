"""Tuned JSON files: their entries, and on which line each stands."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, cast

import msgspec

MAX_BYTES: Final = 4 << 20
"""Largest tuned file that is read; the largest that any engine carries has 40 KB."""
MAX_ENTRIES: Final = 4096
_KEY: Final = re.compile(rb'^[ \t]*"((?:[^"\\\n]|\\.){1,64})"[ \t]*:', re.M)

INTEGERS: Final = ("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages")


class UnreadableFile(Exception):  # noqa: N818 - a finding about a file, not a fault of ours
    """A file that is no table of tiles; says why."""


@dataclass(frozen=True)
class Entry:
    """One tile of a file."""

    m: int
    line: int
    tile: dict[str, Any]
    problem: str = ""
    """Why this is no tile; "" where it is."""


@dataclass(frozen=True)
class Table:
    """A tuned file."""

    entries: tuple[Entry, ...]
    triton_version: str | None
    problems: tuple[str, ...] = ()


def parse_table(data: bytes) -> Table:
    """The tiles of a tuned file.

    Raises:
        UnreadableFile: it is too large, no JSON, or no table.
    """
    if len(data) > MAX_BYTES:
        raise UnreadableFile(f"it has {len(data):,} bytes, more than any tuned file")
    try:
        raw: Any = msgspec.json.decode(data)
    except RecursionError:
        raise UnreadableFile("it is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise UnreadableFile(f"it is not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise UnreadableFile("it holds no JSON object")
    table = cast("dict[str, Any]", raw)
    if len(table) > MAX_ENTRIES:
        raise UnreadableFile(f"it has {len(table):,} keys, more than any tuned file")
    lines = _lines(data)
    version = table.get("triton_version")
    entries: list[Entry] = []
    problems: list[str] = []
    for key, value in table.items():
        if key == "triton_version":
            continue
        line = lines.get(key, 1)
        if not (key.isascii() and key.isdigit() and len(key) <= 9):
            problems.append(f"line {line}: the key {key[:40]!r} is no number of tokens, so that reading the file fails")
            continue
        entries.append(Entry(int(key), line, *_tile(value)))
    if not entries:
        raise UnreadableFile("it has no entry whose key is a number of tokens")
    return Table(tuple(entries), version if isinstance(version, str) else None, tuple(problems))


def _tile(value: Any) -> tuple[dict[str, Any], str]:
    if not isinstance(value, dict):
        return {}, "it is no JSON object"
    tile = cast("dict[str, Any]", value)
    for name in INTEGERS:
        part = tile.get(name)
        if part is not None and (not isinstance(part, int) or isinstance(part, bool)):
            return tile, f"{name} is no integer"
    if "BLOCK_SIZE_M" not in tile:
        return tile, "it has no BLOCK_SIZE_M"
    return tile, ""


def _lines(data: bytes) -> dict[str, int]:
    """Line of the first `"key":` that begins a line, by key."""
    out: dict[str, int] = {}
    line, at = 1, 0
    for found in _KEY.finditer(data):
        line += data.count(b"\n", at, found.start(1))
        at = found.start(1)
        out.setdefault(found[1].decode("utf-8", "replace"), line)
    return out
