"""Packaged lists of the flags of some releases, for when no tree of the engine is at hand.

`tools/build_engine_flags.py` makes them with the reader of this package; each is one file of `data/engine_flags`.
"""

from __future__ import annotations

import gzip
import re
from functools import lru_cache
from importlib.resources import files
from typing import Final

import msgspec

from tilewright.errors import UnknownNameError
from tilewright.libraries.engine_flags.model import FlagSet
from tilewright.versions import release_of, version_key

__all__ = ["snapshot", "snapshot_versions"]

_FILE: Final = re.compile(r"(sglang|vllm)-(.+)\.json\.gz")


@lru_cache(maxsize=1)
def _packaged() -> dict[str, tuple[str, ...]]:
    found: dict[str, list[str]] = {"sglang": [], "vllm": []}
    for item in files("tilewright.data").joinpath("engine_flags").iterdir():
        if hit := _FILE.fullmatch(item.name):
            found[hit[1]].append(hit[2])
    return {engine: tuple(sorted(versions, key=release_of)) for engine, versions in found.items()}


def snapshot_versions(engine: str) -> tuple[str, ...]:
    """Releases of the engine whose flags are packaged, oldest first; empty for another engine."""
    return _packaged().get(engine, ())


@lru_cache(maxsize=16)
def _load(engine: str, version: str) -> FlagSet:
    raw = files("tilewright.data").joinpath("engine_flags").joinpath(f"{engine}-{version}.json.gz").read_bytes()
    return msgspec.json.decode(gzip.decompress(raw), type=FlagSet)


def snapshot(engine: str, version: str | None = None) -> FlagSet:
    """The packaged flags nearest to a version: the newest release that is not newer than it, else the oldest one; the
    newest of all where no version is given.

    Raises:
        UnknownNameError: no flags of the engine are packaged.
        InputError: `version` is no version number.
    """
    known = snapshot_versions(engine)
    if not known:
        raise UnknownNameError("engine", engine, ("sglang", "vllm"))
    if version is None:
        return _load(engine, known[-1])
    version_key(version, "engine_version")  # the whole of it is a version, of which the release number alone counts
    asked = release_of(version, "engine_version")
    fitting = [item for item in known if release_of(item) <= asked]
    return _load(engine, fitting[-1] if fitting else known[0])
