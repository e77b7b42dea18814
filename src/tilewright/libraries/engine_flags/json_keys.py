"""Keys of a flag's JSON that its version does not know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from tilewright.libraries.engine_flags.model import Flag
from tilewright.libraries.engine_flags.reading import BARE_NUMBER

__all__ = ["Key", "unknown_keys"]

Key = tuple[str, dict[str, Any]]
"""A key with its path (`pass_config.fuse`), and the keys that its place has."""


def unknown_keys(flag: Flag, name: str, values: tuple[str, ...]) -> list[Key]:
    """The keys in a flag's value, or in its name (`--compilation-config.mode 3`), that are none of `flag.keys`."""
    if flag.keys is None:
        return []
    path = name.removesuffix("+").split(".")[1:]
    if path:
        given: Any = None
        for key in reversed(path):
            given = {key: given}
        return list(_unknown(given, flag.keys, ""))
    out: list[Key] = []
    for value in values:
        try:
            read: Any = json.loads(BARE_NUMBER.sub("0", value))
        except (ValueError, RecursionError):
            continue  # told as no JSON
        out += _unknown(read, flag.keys, "")
    return out


def _unknown(given: Any, keys: dict[str, Any], path: str) -> Iterator[Key]:
    if not isinstance(given, dict):
        return
    for key, value in cast("dict[str, Any]", given).items():
        plain = key.replace("-", "_")
        if plain not in keys:
            yield path + key, keys
        elif isinstance(keys[plain], dict):
            yield from _unknown(value, keys[plain], f"{path}{key}.")
