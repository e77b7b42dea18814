"""What reading a tree gave, kept in the user's cache folder by content.

Two kinds of entries: what a signature stands for (paths, sizes and time stamps of a folder's headers, or a wheel's
central directory: see `SourceTree.signature`), and the index of a fingerprint. Both keys also cover this package's own
code, so that another version of it never reads them. An entry starts with its own hash; one that cannot be read, is
damaged or not understood counts as absent. Files are written whole and renamed, so concurrent runs are safe.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tilewright.errors import ToolError

__all__ = ["load", "store"]

MAX_ENTRIES: Final = 200
"""Entries of one kind that are kept, the oldest go first: an index has about 200 kB."""

T = TypeVar("T")


@lru_cache(maxsize=1)
def _code() -> str:
    """A hash of which version of this package's files is running: names, sizes, time stamps."""
    digest = hashlib.sha256()
    with os.scandir(Path(__file__).parent) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.name.endswith(".py"):
                info = entry.stat()
                digest.update(f"{entry.name}\0{info.st_size}\0{info.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _path(kind: str, key: str) -> Path:
    from tilewright.probe.cache import cache_root

    name = hashlib.sha256(f"{_code()}\0{key}".encode("utf-8", "surrogateescape")).hexdigest()
    return cache_root() / "collectives" / kind / f"{name}.entry"


def load(kind: str, key: str, type_: type[T]) -> T | None:
    """The entry of `kind` under `key`, or None."""
    try:
        from tilewright.probe.cache import read_whole

        data = read_whole(_path(kind, key))
        return None if data is None else msgspec.json.decode(data, type=type_)
    except (OSError, ValueError, RecursionError, ToolError):  # ToolError: there is no home folder
        return None


def store(kind: str, key: str, value: object) -> None:
    """Keep `value`; a folder that cannot be written is passed over."""
    with suppress(OSError, ValueError, RecursionError, ToolError):
        from tilewright.probe.cache import write_whole

        path = _path(kind, key)
        write_whole(path, msgspec.json.encode(value))
        _prune(path.parent)


def _prune(folder: Path) -> None:
    with os.scandir(folder) as entries:
        files = [entry for entry in entries if entry.name.endswith(".entry")]
    if len(files) > MAX_ENTRIES:
        files.sort(key=lambda entry: entry.stat().st_mtime_ns)
        for entry in files[: len(files) - MAX_ENTRIES]:
            with suppress(OSError):
                Path(entry.path).unlink()
