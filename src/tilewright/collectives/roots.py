"""Every copy of CUTLASS in a source tree, copies with the same content as one."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

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

    def signature(self) -> str | None:
        """`SourceTree.signature` of the files that count."""
        return self.tree.signature(counted_prefixes(self.include))


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


def find_roots(tree: SourceTree) -> list[CutlassRoot]:
    """Every distinct CUTLASS of `tree`, the shallowest first.

    Raises:
        TreeError: there is none, or none of those there can be read.
    """
    places = tree.find_cutlass()
    if not places:
        raise tree_error(_none_found(tree))
    libraries = tree.libraries()
    grouped: dict[tuple[str, str], CutlassRoot] = {}
    refused = ""
    for include in sorted(places, key=lambda place: (place.count("/") if place else -1, place)):
        try:
            version = read_version(tree, include)
            fingerprint = fingerprint_of(file_hashes(tree, include))
        except TreeError as error:
            refused = error.msg
            tree.notes.append(f"The CUTLASS at {shown(include or '.')} was skipped: {error.msg}")
            continue
        first = grouped.get((fingerprint, version))
        if first is None:
            grouped[fingerprint, version] = CutlassRoot(
                tree, include, version, fingerprint, tuple(sorted(places[include])), _owner(libraries, include)
            )
        else:
            copies = tuple(sorted({*first.copies, include, *places[include]}))
            grouped[fingerprint, version] = CutlassRoot(tree, first.include, version, fingerprint, copies, first.owner)
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
