"""A source tree that is a folder."""

from __future__ import annotations

import os
import stat
import time
from collections import deque
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Final

from tilewright.collectives.tree import MAX_FILE_BYTES, SourceTree, tree_error
from tilewright.errors import shown

__all__ = ["FolderTree"]

MAX_FOLDERS: Final = 200_000
"""Folders visited before a walk stops and says so: a whole site-packages with torch has about 5,000."""

PRUNED: Final = frozenset({"__pycache__", ".git", ".hg", ".svn", "node_modules", ".mypy_cache", ".ruff_cache", ".tox"})
"""Folders that never hold headers; they are many and large."""

_PSEUDO: Final = frozenset({"proc", "sys", "dev"})
"""Folders of `/` that are no disk: every process's working folder is reachable below /proc."""

CLOCK_GRAIN_NS: Final = 2_000_000_000
"""A file changed less than this long ago may change again under the same time stamp (FAT's grain is 2 s, the coarsest
in use), so no signature vouches for it."""

_Identity = tuple[int, int]


def _join(prefix: str, name: str) -> str:
    return f"{prefix}/{name}" if prefix else name


class FolderTree(SourceTree):
    """A folder on disk. Links are followed, each real folder once."""

    kind = "folder"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            with os.scandir(path):
                pass
        except OSError as error:
            raise tree_error(f"The folder {shown(str(path))} cannot be read: {error.strerror}.") from None

    def on_disk(self, path: str) -> Path | None:
        return self.path / path

    def _locate(self, path: str) -> Path:
        parts = path.split("/")
        if path.startswith("/") or ".." in parts or "\0" in path:
            raise tree_error(f"{shown(path)} is not a path inside {shown(str(self.path))}.")
        return self.path / path

    def exists(self, path: str) -> bool:
        try:
            return self._locate(path).exists()
        except OSError:
            return False

    def list_dir(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._locate(path)))  # noqa: PTH208 - names only, without a Path each
        except OSError:
            return []

    def read(self, path: str) -> bytes:
        target = self._locate(path)
        try:
            # O_NONBLOCK: opening a FIFO that nobody writes to must not hang.
            descriptor = os.open(target, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        except OSError as error:
            raise tree_error(f"{shown(path)} in {shown(str(self.path))} cannot be read: {error.strerror}.") from None
        try:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode):
                raise tree_error(f"{shown(path)} in {shown(str(self.path))} is not a regular file.")
            if info.st_size > MAX_FILE_BYTES:
                raise tree_error(
                    f"{shown(path)} in {shown(str(self.path))} has {info.st_size:,} bytes: too large for source text."
                )
            with os.fdopen(os.dup(descriptor), "rb") as stream:
                return stream.read(MAX_FILE_BYTES)
        except OSError as error:
            raise tree_error(f"{shown(path)} in {shown(str(self.path))} cannot be read: {error.strerror}.") from None
        finally:
            os.close(descriptor)

    def files(self, suffixes: tuple[str, ...] = (), under: str = "") -> Iterator[str]:
        found = [path for path, _ in self._walk_files(under) if not suffixes or path.endswith(suffixes)]
        return iter(sorted(found))

    def _walk_files(self, under: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
        """Every file below `under` with its directory entry; real folders before links to folders, each once."""
        seen: set[_Identity] = set()
        pending: deque[str] = deque([under.strip("/")])
        links: deque[str] = deque()
        while pending or links:
            here = pending.popleft() if pending else links.popleft()
            try:
                identity = _identity(self._locate(here))
                if identity in seen:
                    continue
                seen.add(identity)
                if len(seen) > MAX_FOLDERS:
                    self._note(f"More than {MAX_FOLDERS:,} folders; the rest was not looked at.")
                    return
                with os.scandir(self._locate(here)) as entries:
                    for entry in entries:
                        path = _join(here, entry.name)
                        if _is_dir(entry):
                            if entry.name not in PRUNED:
                                (links if entry.is_symlink() else pending).append(path)
                        elif _is_file(entry):
                            yield path, entry
            except NotADirectoryError:
                continue
            except FileNotFoundError:
                continue
            except OSError as error:
                self._note(f"The folder {shown(here)} was skipped: {error.strerror}.")

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def find_cutlass(self) -> dict[str, list[str]]:
        walk = _Walk(self)
        walk.run()
        return walk.result()

    def signature(self, prefixes: tuple[str, ...]) -> str | None:
        digest = sha256()
        newest = 0
        for prefix in prefixes:
            rows: list[str] = []
            target = self._locate(prefix)
            if target.is_file():
                found: list[tuple[str, os.stat_result]] = [(prefix, target.stat())]
            else:
                found = [(path, entry.stat()) for path, entry in self._walk_files(prefix)]
            for path, info in found:
                newest = max(newest, info.st_mtime_ns, info.st_ctime_ns)
                rows.append(f"{path}\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ctime_ns}\0{info.st_ino}")
            digest.update(f"{prefix}\0{len(rows)}\n".encode("utf-8", "surrogateescape"))
            digest.update("\n".join(sorted(rows)).encode("utf-8", "surrogateescape"))
        if newest > time.time_ns() - CLOCK_GRAIN_NS:
            return None
        return digest.hexdigest()


def _identity(path: Path) -> _Identity:
    info = path.stat()
    return info.st_dev, info.st_ino


def _is_dir(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads round in a circle
        return False


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:
        return False


class _Walk:
    """One search for `cutlass/version.h` beside `cute`.

    Real folders are walked first, then links that lead to folders not seen yet. A link to a folder that was walked is
    an alias: what was found below the folder is also reachable below the link.
    """

    def __init__(self, tree: FolderTree) -> None:
        self.tree = tree
        self.seen: dict[_Identity, str] = {}
        self.aliases: list[tuple[str, str]] = []
        self.found: list[str] = []

    def run(self) -> None:
        pending: deque[str] = deque([""])
        links: deque[str] = deque()
        ancestors = self._ancestors()
        while pending or links:
            here = pending.popleft() if pending else links.popleft()
            target = self.tree.path / here
            try:
                identity = _identity(target)
                if identity in ancestors:
                    continue  # a link back up to where the search started
                if identity in self.seen:
                    self.aliases.append((here, self.seen[identity]))
                    continue
                self.seen[identity] = here
                if len(self.seen) > MAX_FOLDERS:
                    self.tree.notes.append(f"More than {MAX_FOLDERS:,} folders; the rest was not looked at.")
                    return
                with os.scandir(target) as entries:
                    folders = [
                        (entry.name, entry.is_symlink())
                        for entry in entries
                        if entry.name not in PRUNED and _is_dir(entry)
                    ]
            except OSError as error:
                self.tree.notes.append(f"The folder {shown(here or '.')} was skipped: {error.strerror}.")
                continue
            names = {name for name, _ in folders}
            if not here and str(self.tree.path) == "/":
                names -= _PSEUDO
            if "cutlass" in names and (target / "cutlass" / "version.h").is_file():
                if "cute" in names:
                    self.found.append(here)
                    names -= {"cutlass", "cute"}  # no further copy below the headers themselves
                else:
                    self.tree.notes.append(
                        f"{shown(_join(here, 'cutlass'))} has version.h but no cute folder beside it: "
                        "CUTLASS 2 or a stub, which has no collectives."
                    )
            for name, is_link in sorted(folders):
                if name in names:
                    (links if is_link else pending).append(_join(here, name))

    def _ancestors(self) -> set[_Identity]:
        above: set[_Identity] = set()
        for parent in self.tree.path.resolve().parents:
            try:
                above.add(_identity(parent))
            except OSError:
                continue
        return above

    def result(self) -> dict[str, list[str]]:
        places: dict[str, list[str]] = {prefix: [] for prefix in self.found}
        for link, real in self.aliases:
            if link == real or link.startswith(f"{real}/" if real else ""):
                continue  # a link to a folder that it lies in: a loop, not a copy
            for prefix, copies in places.items():
                if prefix == real:
                    copies.append(link)
                elif not real or prefix.startswith(f"{real}/"):
                    copies.append(_join(link, prefix[len(real) :].lstrip("/")))
        return places
