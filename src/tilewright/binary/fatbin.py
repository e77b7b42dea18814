"""The fatbinary container: a header, and entries of SASS, PTX or LTO IR, each for one target.

Layout as `fatbinary` of CUDA 12 and 13 writes it; field by field in docs/notes/binaries.md.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tilewright.binary.cubin import header_target
from tilewright.binary.elf import EM_CUDA
from tilewright.binary.elf import MAGIC as ELF_MAGIC
from tilewright.binary.source import BinaryError, Source
from tilewright.binary.target import Target, Variant

__all__ = ["MAGIC", "SIGNATURE", "Entry", "fatbin_entries", "find_fatbins"]

MAGIC: Final = 0xBA55ED50
SIGNATURE: Final = struct.pack("<IHH", MAGIC, 1, 16)
"""Magic, version 1, header of 16 bytes: what every fatbinary starts with."""
_HEADER: Final = struct.Struct("<IHHQ")
_ENTRY: Final = struct.Struct("<HHIQIIHHIIIQQQ")
"""kind, version, header size, stored size, compressed size, offset of options, minor, major, SM, offset and length of
the name, flags, (unused here), uncompressed size."""

KINDS: Final[dict[int, Literal["sass", "ptx", "lto"]]] = {1: "ptx", 2: "sass", 8: "lto"}

LZ4: Final = 0x2000
ZSTD: Final = 0x8000
ACCELERATED: Final = 0x100000
"""Flag of an `a` target."""
FAMILY: Final = 0x200000
"""Flag of an `f` target."""

MAX_ENTRIES: Final = 1 << 14
"""Entries of one fatbinary; it has one or two for each target, and nvcc knows about 30."""
MAX_HEADER: Final = 1 << 16
"""Largest entry header: fixed fields, then the source's name and ptxas options."""
MAX_SOURCE_NAME: Final = 4096
_CHUNK: Final = 1 << 18
"""Bytes a step of the search for a magic; a fraction of what a zip source keeps, so that it never starts again."""
_PEEK: Final = 64
"""Bytes of an image that are looked at beside its header: an ELF header."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One image, described by its header; the payload is still in the source."""

    kind: Literal["sass", "ptx", "lto", "other"]
    target: Target
    version: str
    """PTX: the PTX ISA. SASS: the ELF ABI."""
    at: int
    size: int
    """Payload bytes, padding left out."""
    compression: Literal["lz4", "zstd"] | None
    uncompressed: int
    name: str | None
    """Source file, where a debug build recorded it."""


def fatbin_entries(source: Source, at: int) -> tuple[list[Entry], int]:
    """The entries of the fatbinary at `at`, and the offset where it ends.

    Raises BinaryError where there is none or its sizes contradict each other.
    """
    magic, version, header, size = _HEADER.unpack(source.read(at, _HEADER.size))
    if magic != MAGIC:
        raise BinaryError("It is no fatbinary: its magic is missing.")
    if version != 1 or header < _HEADER.size:
        raise BinaryError(
            f"It is a fatbinary of version {version} with a header of {header} bytes; known is version 1."
        )
    end = at + header + size
    if end > source.size:
        raise BinaryError(f"A fatbinary at offset {at:,} is said to take {size:,} bytes; the file ends before.")
    entries: list[Entry] = []
    at += header
    while at + _ENTRY.size <= end:
        entry, step = _entry(source, at, end)
        entries.append(entry)
        if len(entries) > MAX_ENTRIES:
            raise BinaryError(f"A fatbinary holds more than {MAX_ENTRIES:,} images; no compiler writes so many.")
        at += step
    return entries, end


def _entry(source: Source, at: int, end: int) -> tuple[Entry, int]:
    """The entry at `at`, and the bytes to the next one."""
    peek = source.read(at, min(end - at, _ENTRY.size + _PEEK))
    (code, _, header, size, packed, _, minor, major, sm, name_at, name_size, flags, _, whole) = _ENTRY.unpack_from(peek)
    if not _ENTRY.size <= header <= MAX_HEADER or at + header + size > end:
        raise BinaryError(
            f"A fatbinary's image at offset {at:,} is said to have a header of {header:,} and {size:,} bytes; its "
            "container ends before."
        )
    compression = "zstd" if flags & ZSTD else "lz4" if flags & LZ4 else None
    stored = packed if compression and 0 < packed <= size else size
    variant: Variant = "a" if flags & ACCELERATED else "f" if flags & FAMILY else ""
    kind: Literal["sass", "ptx", "lto", "other"] = KINDS.get(code, "other")
    target = Target(sm, variant)
    if kind == "sass" and compression is None and not variant:
        target = _peeked(source, at + header, size, target)
    name = None
    if 0 < name_size <= MAX_SOURCE_NAME and name_at + name_size <= header:
        name = source.read(at + name_at, name_size).rstrip(b"\0").decode("utf-8", "backslashreplace") or None
    entry = Entry(kind, target, f"{major}.{minor}", at + header, stored, compression, whole or stored, name)
    return entry, header + size


def _peeked(source: Source, at: int, size: int, target: Target) -> Target:
    """The target of an uncompressed cubin with what its own ELF header adds: the `a` of a CUDA 12 image."""
    if size < _PEEK:
        return target
    head = source.read(at, _PEEK)
    (machine,) = struct.unpack_from("<H", head, 18)
    if head[:4] != ELF_MAGIC or machine != EM_CUDA:
        return target
    own = header_target(head[8], struct.unpack_from("<I", head, 48)[0])
    return own if own.sm == target.sm else target


def find_fatbins(source: Source, start: int, end: int, *, strict: bool) -> Iterator[tuple[list[Entry], int]]:
    """(entries, offset) of each fatbinary between two offsets, wherever it starts.

    `strict` says that the range is a fatbinary section, where a damaged one is an error; elsewhere the magic can stand
    in other data, so that what does not parse is passed over.
    """
    at = start
    tail = len(SIGNATURE) - 1
    step = len(SIGNATURE)  # the next one mostly stands right there; only else is it searched for
    while at + len(SIGNATURE) <= end:
        chunk = source.read(at, min(step, end - at))
        step = _CHUNK
        hit = chunk.find(SIGNATURE)
        if hit < 0:
            at += max(1, len(chunk) - tail)
            continue
        found = at + hit
        try:
            entries, after = fatbin_entries(source, found)
        except BinaryError:
            if strict:
                raise
            at = found + len(SIGNATURE)
            continue
        if entries:
            yield entries, found
        at = max(after, found + len(SIGNATURE))
        step = len(SIGNATURE)
