"""A source tree that is a wheel or another zip, read in place."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final

from tilewright.collectives.folder import CLOCK_GRAIN_NS
from tilewright.collectives.tree import MAX_FILE_BYTES, SourceTree, tree_error
from tilewright.errors import shown

if TYPE_CHECKING:
    import zipfile

__all__ = ["WheelTree"]

MAX_MEMBERS: Final = 1_000_000
"""Members above which an archive is refused: the largest wheel seen (FlashInfer 0.7.4) has 14,705."""

_END_BYTES: Final = 22
_END_MAGIC: Final = b"PK\x05\x06"
_MAX_COMMENT: Final = 65_535
"""End-of-central-directory record (APPNOTE 4.3.16): 22 bytes, then a comment of at most 65,535."""


class WheelTree(SourceTree):
    """A wheel or zip. The central directory is read when the first name is asked for, members one by one."""

    kind = "wheel"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            self._stream: BinaryIO = path.open("rb")
        except OSError as error:
            raise tree_error(f"The file {shown(str(path))} cannot be read: {error.strerror}.") from None
        try:
            self._directory = _central_directory(self._stream, path)
        except OSError as error:
            self._stream.close()
            raise tree_error(f"The file {shown(str(path))} cannot be read: {error.strerror or error}.") from None
        except BaseException:
            self._stream.close()
            raise

    def close(self) -> None:
        if "_zip" in self.__dict__:
            self._zip.close()
        self._stream.close()

    def __del__(self) -> None:
        stream = getattr(self, "_stream", None)
        if stream is not None:
            stream.close()

    @cached_property
    def _zip(self) -> zipfile.ZipFile:
        from zipfile import ZipFile  # not needed where the index comes from the cache

        try:
            archive = ZipFile(self._stream)
        except _damage() as error:
            raise self._damaged(str(error)) from None
        if len(archive.filelist) > MAX_MEMBERS:
            raise self._damaged(f"it claims {len(archive.filelist):,} members")
        return archive

    def _damaged(self, reason: str) -> Exception:
        return tree_error(f"The archive {shown(str(self.path))} is damaged ({reason[:120]}); download it again.")

    @cached_property
    def _members(self) -> dict[str, zipfile.ZipInfo]:
        """Files by path. Names that would leave the archive are not part of it."""
        members: dict[str, zipfile.ZipInfo] = {}
        for info in self._zip.filelist:
            name = info.filename
            if name.endswith("/") or name.startswith("/") or "\\" in name or ".." in name.split("/"):
                continue
            members[name] = info
        return members

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._members)

    @cached_property
    def _children(self) -> dict[str, set[str]]:
        children: dict[str, set[str]] = {"": set()}
        for name in self._members:
            while name:
                parent, _, last = name.rpartition("/")
                known = parent in children
                children.setdefault(parent, set()).add(last)
                if known:
                    break
                name = parent
        return children

    def files(self, suffixes: tuple[str, ...] = (), under: str = "") -> Iterator[str]:
        prefix = f"{under.strip('/')}/" if under.strip("/") else ""
        return (name for name in self._sorted if name.startswith(prefix) and (not suffixes or name.endswith(suffixes)))

    def exists(self, path: str) -> bool:
        return path in self._members or path.strip("/") in self._children

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._children.get(path.strip("/"), ()))

    def read(self, path: str) -> bytes:
        info = self._members.get(path)
        if info is None:
            raise tree_error(f"{shown(path)} is not in {shown(str(self.path))}.")
        if info.file_size > MAX_FILE_BYTES:
            raise tree_error(f"{shown(path)} claims {info.file_size:,} bytes: too large for source text.")
        try:
            with self._zip.open(info) as stream:
                return stream.read(MAX_FILE_BYTES)
        except _damage() as error:
            raise self._damaged(f"member {shown(path)}: {error}") from None

    def find_cutlass(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name in self._sorted:
            if name == "cutlass/version.h" or name.endswith("/cutlass/version.h"):
                prefix = name[: -len("cutlass/version.h")].rstrip("/")
                if f"{prefix}/cute".lstrip("/") in self._children:
                    found[prefix] = []
                else:
                    self.notes.append(
                        f"{shown(name)} has no cute folder beside it: CUTLASS 2 or a stub, which has no collectives."
                    )
        return found

    def signature(self, prefixes: tuple[str, ...]) -> str | None:
        """Size, times and the whole central directory, which holds the CRC of every member."""
        info = self.path.stat()
        if max(info.st_mtime_ns, info.st_ctime_ns) > time.time_ns() - CLOCK_GRAIN_NS:
            return None
        digest = sha256(self._directory)
        digest.update("\0".join(prefixes).encode("utf-8", "surrogateescape"))
        digest.update(f"\0{info.st_size}\0{info.st_mtime_ns}\0{info.st_ctime_ns}\0{info.st_ino}".encode())
        return digest.hexdigest()


def _damage() -> tuple[type[Exception], ...]:
    """What `zipfile` raises on a damaged, encrypted or unknown archive, and on a member of one."""
    from zipfile import BadZipFile, LargeZipFile
    from zlib import error

    return (BadZipFile, LargeZipFile, error, EOFError, OSError, ValueError, RuntimeError, KeyError, OverflowError)


def _central_directory(stream: BinaryIO, path: Path) -> bytes:
    """The archive's central directory as bytes, found from its end: a cut archive has none, and says so at once."""
    if stream.read(2) != b"PK":
        raise tree_error(
            f"{shown(str(path))} is not a wheel (no zip archive); pass a folder or a .whl, and unpack anything else "
            "first."
        )
    size = stream.seek(0, 2)
    tail_bytes = min(size, _END_BYTES + _MAX_COMMENT)
    stream.seek(size - tail_bytes)
    tail = stream.read(tail_bytes)
    at = tail.rfind(_END_MAGIC)
    if at < 0 or at + _END_BYTES > len(tail):
        raise tree_error(
            f"The archive {shown(str(path))} is cut off ({size:,} bytes, no central directory at its end); "
            "download it again."
        )
    length = int.from_bytes(tail[at + 12 : at + 16], "little")
    end = size - tail_bytes + at
    if length > end:  # also zip64 with its marker 0xFFFFFFFF: take all that can be it
        length = min(end, _END_BYTES + _MAX_COMMENT)
    stream.seek(end - length)
    return stream.read(length) + tail[at:]
