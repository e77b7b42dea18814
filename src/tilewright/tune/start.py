"""A tuned file of vLLM or SGLang as a starting point: its tiles are looked at first."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tilewright.errors import InputError, shown
from tilewright.libraries.tuned.files import MAX_BYTES, UnreadableFile, parse_table
from tilewright.tune.export import KEYS
from tilewright.tune.space import FUSED_MOE, Config

MAX_PART: Final = 1 << 16
"""Largest number of a tile: above any that a kernel is built with."""


def read_start(path: str) -> dict[int, Config]:
    """Tokens -> tile of the file `path`; parts that it leaves out are the first of the space.

    Raises:
        InputError: it cannot be read, or holds no tile.
    """
    try:
        if "\0" in path or not Path(path).is_file():
            raise InputError("start", f"--start {shown(path)} is no file; give a tuned JSON file of vLLM or SGLang.")
        with Path(path).open("rb") as stream:
            table = parse_table(stream.read(MAX_BYTES + 1))
    except UnreadableFile as error:
        raise InputError("start", f"--start {shown(path)} is no tuned file: {error}.") from None
    except OSError as error:
        raise InputError("start", f"--start {shown(path)} cannot be read: {error.strerror}.") from None
    found: dict[int, Config] = {}
    for entry in table.entries:
        tile = {key: int(entry.tile.get(key) or FUSED_MOE[key][0]) for key in KEYS} if not entry.problem else {}
        if tile and all(1 <= value <= MAX_PART for value in tile.values()):
            found[entry.m] = tile
    if not found:
        raise InputError("start", f"--start {shown(path)} holds no tile that can be read.")
    return found


def nearest(table: dict[int, Config], tokens: int) -> Config:
    """The entry that the engines take for `tokens`: the nearest number, the smaller of two."""
    return table[min(table, key=lambda count: abs(count - tokens))]
