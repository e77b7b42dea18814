"""The header trees that the probe compiles against, as include folders on disk.

A folder is used where it lies. Of a wheel, the headers (and nothing else) are copied once into the user's cache, in a
folder named after their content; the wheel itself is read in place. The content hash of every header is part of the
key of each result, so that a result is never taken for another tree's.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tilewright.collectives.known import identify
from tilewright.collectives.roots import CutlassRoot
from tilewright.collectives.tree import HEADER_SUFFIXES, SourceTree, open_tree
from tilewright.errors import InputError, ToolError, TreeError, shown
from tilewright.probe.cache import cache_root
from tilewright.probe.tags import EPILOGUE_POLICIES, KERNEL_POLICIES, TagIndex, tag_index
from tilewright.probe.unit import SCATTER_HEADER

__all__ = ["NO_SCATTER", "Extensions", "Headers", "find_extensions", "open_headers", "pick_headers"]

_FOLDERS: Final = ("cutlass", "cute")
_EXTENSIONS: Final = "cutlass_extensions"

NO_SCATTER: Final = (
    "Fusion finalize is TensorRT-LLM's (cutlass_extensions/epilogue/fusion/sm90_visitor_scatter.hpp), which no tree "
    "given has; pass a FlashInfer tree or wheel with --extensions."
)


@dataclass(frozen=True)
class Headers:
    """One CUTLASS, ready to compile against."""

    include: Path
    """Folder on disk that holds `cutlass/` and `cute/`."""
    version: str
    """The release with this content; of a tree that is not known, what its version.h says. Tag 4.1.0's says 4.0.0."""
    fingerprint: str
    """Of `tilewright.collectives.fingerprint`: which known tree this is."""
    digest: str
    """Hash over every header, whatever it is."""
    files: frozenset[str]
    """Headers relative to `include`."""
    tags: TagIndex
    name: str
    """What to call the tree in output."""


@dataclass(frozen=True)
class Extensions:
    """An include folder that holds TensorRT-LLM's `cutlass_extensions/`."""

    include: Path
    digest: str


def _digest(tree: SourceTree, prefix: str, files: Iterable[str]) -> tuple[str, frozenset[str]]:
    hashed = hashlib.sha256()
    names: list[str] = []
    for name in files:
        data = tree.read(f"{prefix}/{name}" if prefix else name)
        hashed.update(name.encode("utf-8", "surrogateescape") + b"\0%d\0" % len(data))
        hashed.update(data)
        names.append(name)
    return hashed.hexdigest(), frozenset(names)


def _below(tree: SourceTree, prefix: str, folders: Sequence[str]) -> list[str]:
    start = len(prefix) + 1 if prefix else 0
    return [
        path[start:]
        for folder in folders
        for path in tree.files(HEADER_SUFFIXES, f"{prefix}/{folder}" if prefix else folder)
    ]


def _materialise(tree: SourceTree, prefix: str, digest: str, files: Iterable[str]) -> Path:
    """The include folder `prefix` of `tree` on disk: itself, or a copy in the cache made once."""
    here = tree.on_disk(prefix)
    if here is not None:
        return here.resolve()
    target = cache_root() / "probe" / "headers" / digest[:32]
    if target.is_dir():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        building = Path(tempfile.mkdtemp(dir=target.parent, prefix=".part-"))
    except OSError as error:
        raise ToolError(
            f"The headers of a wheel are copied to {shown(str(target.parent))}, which cannot be written "
            f"({error.strerror}); set TILEWRIGHT_CACHE_DIR to a folder that can."
        ) from None
    try:
        for name in files:
            path = building / name  # WheelTree has already refused names that leave the archive
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(tree.read(f"{prefix}/{name}" if prefix else name))
        with suppress(OSError):  # another process was faster: its copy has the same content
            building.rename(target)
    finally:
        if building.exists():
            shutil.rmtree(building, ignore_errors=True)
    return target


def _headers(root: CutlassRoot, name: str) -> Headers:
    files = _below(root.tree, root.include, _FOLDERS)
    digest, names = _digest(root.tree, root.include, files)
    for needed in (KERNEL_POLICIES, EPILOGUE_POLICIES):
        if needed not in names:
            raise TreeError(
                "root", f"The CUTLASS {root.version} in {shown(name)} has no {needed}: it is older than 3.0."
            )
    known = identify(root)
    version = known.release(root.version) if known is not None else root.version
    return Headers(
        include=_materialise(root.tree, root.include, digest, files),
        version=version,
        fingerprint=root.fingerprint,
        digest=digest,
        files=names,
        tags=tag_index(version, root.read_text(KERNEL_POLICIES), root.read_text(EPILOGUE_POLICIES)),
        name=name,
    )


def find_extensions(tree: SourceTree) -> Extensions | None:
    """TensorRT-LLM's `cutlass_extensions/` in `tree`, or None."""
    for path in tree.files((SCATTER_HEADER.rsplit("/", 1)[-1],)):
        if path.endswith("/" + SCATTER_HEADER) or path == SCATTER_HEADER:
            prefix = path[: -len(SCATTER_HEADER)].rstrip("/")
            files = _below(tree, prefix, (_EXTENSIONS,))
            digest, _ = _digest(tree, prefix, files)
            return Extensions(_materialise(tree, prefix, digest, files), digest)
    return None


def open_headers(roots: Sequence[str], extensions: str | None = None) -> tuple[list[Headers], Extensions | None]:
    """Every CUTLASS below `roots` (folders or wheels), in order, and the extensions that finalize needs.

    `extensions` names a tree to take the latter from; without it they are looked for in the roots themselves.

    Raises:
        TreeError: a root has no CUTLASS, or cannot be read.
        InputError: `extensions` has no such header.
    """
    found: list[Headers] = []
    scatter: Extensions | None = None
    for path in roots:
        with open_tree(path) as tree:
            found += [_headers(root, tree.name) for root in tree.cutlass_roots()]
            if extensions is None and scatter is None:
                scatter = find_extensions(tree)
    if extensions is not None:
        with open_tree(extensions) as tree:
            scatter = find_extensions(tree)
        if scatter is None:
            msg = f"--extensions: {shown(extensions)} has no {SCATTER_HEADER}; give a FlashInfer tree or wheel."
            raise InputError("--extensions", msg)
    return found, scatter


def pick_headers(trees: Sequence[Headers], version: str | None) -> Headers:
    """The first of `trees` that is `version`; the first of all where it is None.

    Raises:
        InputError: none is.
    """
    if version is None:
        return trees[0]
    wanted = version.removeprefix("v")
    for headers in trees:
        if headers.version == wanted:
            return headers
    have = ", ".join(dict.fromkeys(headers.version for headers in trees))
    raise InputError(
        "cutlass", f"cutlass: {shown(version)} is not in the trees given (they have {have}); add its --root."
    )
