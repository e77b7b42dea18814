"""Bytes at an offset: of a file, of a zip member that is never unzipped to disk, or of memory."""

from __future__ import annotations

import os
import stat
import zipfile
import zlib
from pathlib import Path
from typing import Final, Protocol

from tilewright.errors import InputError, shown

__all__ = ["BinaryError", "BytesSource", "FileSource", "InflateBudget", "Source", "ZipSource", "open_regular"]

CHUNK: Final = 1 << 20
"""Bytes a step when a stream is read past."""
MAX_RATIO: Final = 200
"""Inflated bytes a stored byte of a zip member; deflate itself ends at 1,032. Real libraries stay below 20."""
SMALL_MEMBER: Final = 1 << 20
"""A member of at most this many bytes may have any ratio: it costs nothing."""
MAX_INFLATED: Final = 32 << 30
"""Bytes that are inflated from one archive in all; the largest wheels hold about 3 GiB, read two to three times."""


class BinaryError(InputError):
    """A file is not the binary that it says it is: truncated, absurd counts, offsets beyond its end."""

    def __init__(self, msg: str) -> None:
        super().__init__("file", msg)


class Source(Protocol):
    """Random access to `size` bytes."""

    size: int

    def read(self, at: int, count: int) -> bytes:
        """Exactly `count` bytes at offset `at`; raises BinaryError where the source ends before."""
        ...


def _within(at: int, count: int, size: int) -> None:
    if at < 0 or count < 0 or at + count > size:
        msg = f"It has {size:,} bytes, but its headers point at {count:,} at offset {at:,}: truncated or damaged."
        raise BinaryError(msg)


class BytesSource:
    """A source in memory."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = len(data)

    def read(self, at: int, count: int) -> bytes:
        _within(at, count, self.size)
        return self._data[at : at + count]


def open_regular(path: Path) -> int:
    """A descriptor of a regular file, never waiting on a pipe or a device. Raises InputError with one sentence."""
    try:
        number = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise BinaryError(f"{shown(str(path))} cannot be read: {why}.") from None
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise BinaryError(f"{shown(str(path))} is no regular file; give a file, a wheel or a folder.")
    return number


class FileSource:
    """A file on disk; a context manager."""

    def __init__(self, path: Path) -> None:
        self._file = os.fdopen(open_regular(path), "rb", buffering=0)
        self.size = os.fstat(self._file.fileno()).st_size

    def read(self, at: int, count: int) -> bytes:
        _within(at, count, self.size)
        self._file.seek(at)
        parts: list[bytes] = []
        left = count
        while left:
            part = self._file.read(left)
            if not part:
                raise BinaryError("It became shorter while it was read.")
            parts.append(part)
            left -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


class InflateBudget:
    """How many more bytes may be inflated from one archive."""

    def __init__(self, limit: int = MAX_INFLATED) -> None:
        self.left = limit

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise BinaryError(f"The archive inflates to more than {MAX_INFLATED >> 30} GiB; reading it stops here.")


class ZipSource:
    """A member of a zip archive, inflated as it is read; a context manager.

    Reading forward costs one pass. The last `CHUNK` bytes before the position are kept, so that the names of an ELF's
    sections, which stand before their headers, don't cost another one; reading further back starts again.
    """

    def __init__(self, archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: InflateBudget) -> None:
        self.size = member.file_size
        if self.size > SMALL_MEMBER and self.size > MAX_RATIO * max(1, member.compress_size):
            msg = f"It says that {member.compress_size:,} bytes inflate to {self.size:,}: no library does; not read."
            raise BinaryError(msg)
        if member.flag_bits & 1:
            raise BinaryError("It is encrypted.")
        self._archive, self._member, self._budget = archive, member, budget
        self._at = 0
        self._kept = b""
        try:
            self._file = archive.open(member)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
            raise BinaryError(f"The archive does not give it: {error}.") from None

    def _forward(self, count: int) -> bytes:
        self._budget.take(count)
        try:
            data = self._file.read(count)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, NotImplementedError) as error:
            raise BinaryError(f"The archive is damaged there: {error}.") from None
        if len(data) != count:
            raise BinaryError("The archive holds fewer bytes of it than it says.")
        self._at += count
        self._kept = data[-CHUNK:] if count >= CHUNK else (self._kept + data)[-CHUNK:]
        return data

    def read(self, at: int, count: int) -> bytes:
        _within(at, count, self.size)
        start = self._at - len(self._kept)
        if start <= at and at + count <= self._at:
            return self._kept[at - start : at - start + count]
        head = b""
        if start <= at < self._at:
            head = self._kept[at - start :]
        elif at < self._at:
            self._file.close()
            self._file = self._archive.open(self._member)
            self._at, self._kept = 0, b""
        while self._at < at:
            self._forward(min(CHUNK, at - self._at))
        return head + self._forward(count - len(head))

    def __enter__(self) -> ZipSource:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
