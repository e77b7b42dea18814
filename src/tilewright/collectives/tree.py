"""A source tree to read: a folder, or a wheel read in place.

`open_tree(path)` answers a `SourceTree`. Paths inside a tree are relative and posix (`a/b.hpp`), whatever holds them.
A wheel is never unpacked: its central directory is read, then the members that somebody asks for. Nothing in a tree is
ever imported or run. `SourceTree.cutlass_roots()` finds every copy of CUTLASS in it (`roots.py`), `.library()` which
library it is (`library.py`).
"""

from __future__ import annotations

import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tilewright.errors import TreeError, shown
from tilewright.homes import expanded

if TYPE_CHECKING:
    from types import TracebackType

    from tilewright.collectives.library import Library
    from tilewright.collectives.roots import CutlassRoot

__all__ = ["HEADER_SUFFIXES", "MAX_FILE_BYTES", "SourceTree", "open_tree", "printable"]

MAX_FILE_BYTES: Final = 32 << 20
"""Largest file that is read, in bytes. The largest header of CUTLASS 4.7.0 (`cute/arch/mma_sm90_gmma_sparse_ext.hpp`)
has 3 MB; what is above this is no source text."""

HEADER_SUFFIXES: Final = (".h", ".hpp", ".inl", ".cuh")

_ARCHIVES: Final = (".whl", ".zip")


def printable(text: str) -> str:
    """`text` with what no UTF-8 stream can carry (undecodable bytes of a file name) replaced."""
    return text.encode("utf-8", "replace").decode("utf-8")


def tree_error(msg: str) -> TreeError:
    """A TreeError of the field `root`, whose sentence any stream can carry."""
    return TreeError("root", printable(msg))


class SourceTree(ABC):
    """A folder or a wheel. Use it as a context manager, or `close()` it, when it is no longer needed.

    `notes` collects what could not be read on the way (unreadable subfolders, links out of bounds): one sentence each.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.notes: list[str] = []

    kind: str
    """`folder` or `wheel`."""

    @property
    def name(self) -> str:
        """The path as it was given, fit for printing."""
        return printable(str(self.path))

    @abstractmethod
    def files(self, suffixes: tuple[str, ...] = (), under: str = "") -> Iterator[str]:
        """Relative posix paths of the files below the folder `under` whose name ends in one of `suffixes`, sorted.

        No suffixes: every file. A folder that is not there has no files. Each real folder is visited once, so a loop of
        links ends.
        """

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The content of the file `path`; a TreeError where it is missing, unreadable, damaged or absurdly large."""

    @abstractmethod
    def exists(self, path: str) -> bool:
        """Whether `path` is a file or a folder of the tree."""

    @abstractmethod
    def list_dir(self, path: str) -> list[str]:
        """Names directly in the folder `path`, sorted; empty where there is no such folder."""

    @abstractmethod
    def find_cutlass(self) -> dict[str, list[str]]:
        """Where CUTLASS headers are: `{include prefix: [prefixes that are links to it]}`.

        An include prefix is the folder that holds `cutlass/version.h` and the folder `cute` ("" for the tree's own
        root). What only has `cutlass/version.h` is CUTLASS 2 or a stub, and goes to `notes`.
        """

    @abstractmethod
    def signature(self, prefixes: tuple[str, ...]) -> str | None:
        """A cheap signature of the files below `prefixes` that changes whenever one of them does; no content is read.

        None where it cannot vouch for that (a file changed within the clock's grain): then nothing may be cached.
        """

    def on_disk(self, path: str) -> Path | None:
        """The path of `path` on disk, or None where the tree is an archive."""
        return None

    def close(self) -> None:  # noqa: B027 - a folder holds nothing open
        """Let go of what the tree holds open."""

    def read_text(self, path: str) -> str:
        """The file `path` as text: UTF-8 with bad bytes replaced, line ends made `\\n`."""
        return self.read(path).decode("utf-8", "replace").replace("\r\n", "\n").replace("\r", "\n")

    def library(self) -> Library | None:
        """The library that this tree is (FlashInfer, vLLM, ...), name and version, or None. Parsed, never imported."""
        libraries = self.libraries()
        return libraries[0] if libraries else None

    def libraries(self) -> list[Library]:
        """Every library known to us that is in the tree: a whole site-packages may hold several. Best known first."""
        from tilewright.collectives.library import find_libraries

        return find_libraries(self)

    def cutlass_roots(self) -> list[CutlassRoot]:
        """Every distinct copy of CUTLASS, the main one first; copies with the same content are one root.

        Raises:
            TreeError: there is none; says what was looked for.
        """
        return self._roots

    @cached_property
    def _roots(self) -> list[CutlassRoot]:
        from tilewright.collectives.roots import find_roots

        return find_roots(self)

    def __enter__(self) -> SourceTree:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_tree(path: str | Path) -> SourceTree:
    """Open the folder, wheel or zip at `path`.

    Raises:
        TreeError: nothing is there, it may not be read, or it is neither a folder nor a whole archive.
    """
    text = str(path)
    if not text or "\0" in text:
        raise tree_error(f"{shown(text)} is no path; pass a folder or a wheel, as in --root DIR_OR_WHEEL.")
    target = expanded(text) if text.startswith("~") else Path(path)
    try:
        mode = target.stat().st_mode
    except FileNotFoundError:
        raise tree_error(f"There is nothing at {shown(text)}; pass an existing folder or wheel.") from None
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise tree_error(f"{shown(text)} cannot be read: {reason}.") from None
    if stat.S_ISDIR(mode):
        from tilewright.collectives.folder import FolderTree

        return FolderTree(target)
    if stat.S_ISREG(mode):
        from tilewright.collectives.wheel import WheelTree

        return WheelTree(target)
    raise tree_error(f"{shown(text)} is neither a folder nor a file; pass a folder or a wheel.")
