"""Every copy of CUTLASS in a source tree, copies with the same content as one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from tilewright.collectives import cache
from tilewright.collectives.fingerprint import COUNTED, COUNTED_FILES, file_hashes, fingerprint_of
from tilewright.collectives.library import Library
from tilewright.collectives.tree import HEADER_SUFFIXES, SourceTree, tree_error
from tilewright.errors import TreeError, shown

__all__ = ["CutlassRoot", "find_roots"]

_MACRO: Final = re.compile(r"^\s*#\s*define\s+CUTLASS_(MAJOR|MINOR|PATCH)\s+(\d{1,4})\b", re.M)


@dataclass(frozen=True)
class CutlassRoot:
    """One CUTLASS in a tree."""

    tree: SourceTree = field(repr=False, compare=False)
    include: str
    """The include folder inside the tree ("" where it is the tree's root): holds `cutlass/` and `cute/`."""
    version: str
    """As `cutlass/version.h` reports it, or "unknown". It does not identify the content: `fingerprint` does."""
    fingerprint: str
    """64 hex digits over the headers that decide what a kernel is (`fingerprint.py`)."""
    copies: tuple[str, ...] = ()
    """Other include folders of the tree with the same content: copies and links."""
    owner: Library | None = None
    """The library in whose package the headers lie."""

    def inside(self, path: str) -> str:
        """`path` (relative to the include folder) as a path of the tree."""
        return f"{self.include}/{path}" if self.include else path

    def read(self, path: str) -> bytes:
        """The header `path`, relative to the include folder (`cutlass/gemm/...`)."""
        return self.tree.read(self.inside(path))

    def read_text(self, path: str) -> str:
        """As `read`, as text."""
        return self.tree.read_text(self.inside(path))

    def files(self, suffixes: tuple[str, ...] = HEADER_SUFFIXES, under: str = "cutlass") -> Iterator[str]:
        """Headers below `under`, relative to the include folder, sorted."""
        start = len(self.include) + 1 if self.include else 0
        return (path[start:] for path in self.tree.files(suffixes, self.inside(under)))

    @property
    def include_dir(self) -> Path | None:
        """The include folder on disk, or None in a wheel."""
        return self.tree.on_disk(self.include)


def counted_prefixes(include: str) -> tuple[str, ...]:
    """Folders and files of the tree that decide the fingerprint of the CUTLASS at `include`, and its version."""
    prefix = f"{include}/" if include else ""
    names = (*COUNTED, *COUNTED_FILES, "cutlass/version.h")
    return tuple(prefix + name for name in names)


def read_version(tree: SourceTree, include: str) -> str:
    """The version that `cutlass/version.h` reports through its macros, "unknown" where it has none."""
    text = tree.read_text(f"{include}/cutlass/version.h" if include else "cutlass/version.h")
    macros: dict[str, str] = dict(_MACRO.findall(text))
    if len(macros) < 3:
        return "unknown"
    return ".".join(str(int(macros[part])) for part in ("MAJOR", "MINOR", "PATCH"))


class _Seen(msgspec.Struct):
    """What reading the CUTLASS at one include folder gave."""

    version: str
    fingerprint: str


class _Place(msgspec.Struct):
    """One `CutlassRoot` of a wheel, as it is cached."""

    include: str
    version: str
    fingerprint: str
    copies: tuple[str, ...]
    owner: Library | None


class _Places(msgspec.Struct):
    places: list[_Place]
    notes: list[str]


def find_roots(tree: SourceTree) -> list[CutlassRoot]:
    """Every distinct CUTLASS of `tree`, the shallowest first.

    What a wheel holds is cached by its central directory, what a folder's headers amount to by their time stamps.

    Raises:
        TreeError: there is none, or none of those there can be read.
    """
    if tree.kind != "wheel":
        return _search(tree)
    key = tree.signature(())
    seen = cache.load("wheels", key, _Places) if key is not None else None
    if seen is not None:
        tree.notes += seen.notes
        return [CutlassRoot(tree, p.include, p.version, p.fingerprint, p.copies, p.owner) for p in seen.places]
    roots = _search(tree)
    if key is not None:
        places = [_Place(r.include, r.version, r.fingerprint, r.copies, r.owner) for r in roots]
        cache.store("wheels", key, _Places(places, tree.notes))
    return roots


def _read(tree: SourceTree, include: str) -> _Seen:
    key = tree.signature(counted_prefixes(include)) if tree.kind != "wheel" else None
    seen = cache.load("headers", key, _Seen) if key is not None else None
    if seen is None:
        seen = _Seen(read_version(tree, include), fingerprint_of(file_hashes(tree, include)))
        if key is not None:
            cache.store("headers", key, seen)
    return seen


def _search(tree: SourceTree) -> list[CutlassRoot]:
    places = tree.find_cutlass()
    if not places:
        raise tree_error(_none_found(tree))
    libraries = tree.libraries()
    grouped: dict[tuple[str, str], CutlassRoot] = {}
    refused = ""
    for include in sorted(places, key=lambda place: (place.count("/") if place else -1, place)):
        try:
            seen = _read(tree, include)
        except TreeError as error:
            refused = error.msg
            tree.notes.append(f"The CUTLASS at {shown(include or '.')} was skipped: {error.msg}")
            continue
        first = grouped.get((seen.fingerprint, seen.version))
        if first is None:
            copies = tuple(sorted(places[include]))
            root = CutlassRoot(tree, include, seen.version, seen.fingerprint, copies, _owner(libraries, include))
        else:
            root = replace(first, copies=tuple(sorted({*first.copies, include, *places[include]})))
        grouped[seen.fingerprint, seen.version] = root
    if not grouped:
        raise tree_error(refused)
    return list(grouped.values())


def _owner(libraries: list[Library], include: str) -> Library | None:
    for library in libraries:
        if not library.package or include == library.package or include.startswith(f"{library.package}/"):
            return library
    return None


def _none_found(tree: SourceTree) -> str:
    """What was looked for, and what to do: a folder one too deep is recognised."""
    what = f"No CUTLASS under {shown(tree.name)}: looked for cutlass/version.h beside a folder cute"
    if tree.exists("version.h") and tree.exists("gemm/collective"):
        return f"{what}. This is the cutlass folder itself; pass the folder above it."
    if tree.exists("cute") and tree.exists("cutlass"):
        return f"{what}, and cutlass/version.h is missing; pass a whole include folder."
    legacy = next((note for note in tree.notes if "CUTLASS 2" in note), "")
    if legacy:
        return f"{what}; {legacy[0].lower()}{legacy[1:]}"
    return f"{what}; pass the root of a checkout, an installed package (flashinfer, vllm, ...) or a wheel that has one."
