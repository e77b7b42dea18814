"""The CUTLASS trees whose content was read: which one a tree is, and which one it is nearest to.

`data/cutlass_trees.json` maps fingerprints to names and to the release whose rules hold
(`tilewright.cutlass.versions`); `data/cutlass_files.json` holds a short hash of every file of every tree, to say what
an unknown tree is nearest to; `data/cutlass_first.json` says in which release each collective, builder and schedule tag
first appears. All three are written by `tools/build_cutlass_trees.py` from the tagged sources and published wheels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeVar

import msgspec

if TYPE_CHECKING:
    from tilewright.collectives.roots import CutlassRoot

__all__ = [
    "FirstSeen",
    "KnownTree",
    "NearestTree",
    "first_seen",
    "identify",
    "known_trees",
    "nearest_known",
    "short_hash",
]

SHORT_HASH_HEX: Final = 8
"""Hex digits of a file's hash that are kept: 32 bits tell apart the few dozen contents that one path ever had."""

T = TypeVar("T")


class KnownTree(msgspec.Struct, frozen=True):
    """One content of CUTLASS's headers that was read.

    `names` are what has it (`CUTLASS 4.2.1`, `flashinfer-python 0.6.2`), the release first. `ruleset` is the release
    whose rules hold for it: its own, or for a bundle that equals no release the nearest one.
    """

    fingerprint: str
    version: str
    ruleset: str
    names: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.names[0]

    def release(self, reported: str) -> str:
        """The release to call it: the one that it reports where that has this content, else `version`.

        Tag 4.1.0 reports 4.0.0; 4.4.3 has the content of 4.4.2.
        """
        return reported if f"CUTLASS {reported}" in self.names else self.version


class _TreesFile(msgspec.Struct):
    trees: list[KnownTree]


class _FilesFile(msgspec.Struct):
    fingerprints: list[str]
    files: dict[str, list[tuple[str, list[int]]]]
    """Per path: each content it has had, as (short hash, indices into `fingerprints`)."""


class FirstSeen(msgspec.Struct, frozen=True):
    """Releases in which things first appear. `oldest` is the oldest release read: there, "first" means "or before"."""

    oldest: str
    newest: str
    collectives: dict[str, str]
    """Dispatch policy -> first release with a collective for it."""
    built: dict[str, str]
    """Dispatch policy -> first release in which a builder gives that collective."""
    tags: dict[str, str]
    """Schedule tag -> first release that declares it."""
    accepted: dict[str, dict[str, str]]
    """Schedule tag -> {"sm120 tensor_op": first release in which a builder for these accepts it}."""


@dataclass(frozen=True, slots=True)
class NearestTree:
    """The known tree that an unknown one is nearest to. Of the `counted` files that decide a fingerprint (of both),
    `differing` differ or are on one side only; `examples` names some of them."""

    tree: KnownTree
    differing: int
    counted: int
    examples: tuple[str, ...]


def _read(name: str, kind: type[T]) -> T:
    # By path: importlib.resources costs more start-up than all the rest of a cached answer.
    data = (Path(__file__).parent.parent / "data" / name).read_bytes()
    return msgspec.json.decode(data, type=kind)


@lru_cache(maxsize=1)
def known_trees() -> dict[str, KnownTree]:
    """Every known tree by fingerprint."""
    return {tree.fingerprint: tree for tree in _read("cutlass_trees.json", _TreesFile).trees}


@lru_cache(maxsize=1)
def first_seen() -> FirstSeen:
    """In which release things first appear."""
    return _read("cutlass_first.json", FirstSeen)


def identify(root: CutlassRoot) -> KnownTree | None:
    """The known tree with the content of `root`, or None."""
    return known_trees().get(root.fingerprint)


def short_hash(content: bytes) -> str:
    """What `cutlass_files.json` keeps of a `fingerprint.content_hash`."""
    return content.hex()[:SHORT_HASH_HEX]


def nearest_known(root: CutlassRoot) -> NearestTree:
    """The known tree that differs from `root` in the fewest files (of those that count for a fingerprint); among equals
    the one with the version that `root` reports, then the newest."""
    from tilewright.collectives.fingerprint import file_hashes

    mine = {path: short_hash(digest) for path, digest in file_hashes(root.tree, root.include).items()}
    data = _read("cutlass_files.json", _FilesFile)
    everywhere = set(mine) | set(data.files)
    differing: list[list[str]] = [[] for _ in data.fingerprints]
    for path in sorted(everywhere):
        here = mine.get(path)
        contents = data.files.get(path, [])
        same = {index for content, indices in contents if content == here for index in indices}
        have = {index for _, indices in contents for index in indices}
        for index, names in enumerate(differing):
            if index not in same and (here is not None or index in have):
                names.append(path)
    trees = [known_trees()[fingerprint] for fingerprint in data.fingerprints]

    def rank(index: int) -> tuple[int, bool, int]:
        return len(differing[index]), trees[index].version != root.version, -index

    best = min(range(len(trees)), key=rank)
    theirs = {path for path, contents in data.files.items() if any(best in indices for _, indices in contents)}
    return NearestTree(trees[best], len(differing[best]), len(theirs | set(mine)), tuple(differing[best][:5]))


Presence = Literal["collective", "builder"]


def first_with(policy: str) -> tuple[str, Presence] | None:
    """The first release in which a collective for `policy` can be had from a builder (or at all), or None."""
    seen = first_seen()
    if policy in seen.built:
        return seen.built[policy], "builder"
    if policy in seen.collectives:
        return seen.collectives[policy], "collective"
    return None
