"""ELF64 little-endian: the header, the sections, the symbols. What CUDA puts into them is in `cubin`."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

from tilewright.binary.source import BinaryError, Source

__all__ = ["EM_CUDA", "MAGIC", "Elf", "Section", "machine_name", "read_elf", "string_at"]

MAGIC: Final = b"\x7fELF"
EM_CUDA: Final = 190
"""e_machine of device code (elf.h, EM_CUDA)."""
ET_REL: Final = 1
SHT_NOBITS: Final = 8

_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
MAX_SECTIONS: Final = 1 << 20
"""A cubin has about five sections a kernel; the largest modules seen have 60,000."""
MAX_NAMES: Final = 64 << 20
"""Bytes of the section name table that are read."""
MAX_NAME: Final = 16 << 10
"""Longest name that is taken, in bytes; mangled CUTLASS kernels have up to about 10,000."""

_MACHINES: Final = {
    3: "i386",
    20: "ppc",
    21: "ppc64",
    22: "s390",
    40: "arm",
    62: "x86_64",
    183: "aarch64",
    EM_CUDA: "cuda",
    243: "riscv",
    258: "loongarch",
}
"""e_machine by name, as `uname -m` says it (elf.h)."""


def machine_name(code: int) -> str:
    """The processor of an ELF file, as `uname -m` calls it."""
    return _MACHINES.get(code, f"e_machine {code}")


@dataclass(frozen=True, slots=True)
class Section:
    name: str
    type: int
    offset: int
    size: int
    link: int
    info: int

    @property
    def stored(self) -> int:
        """Bytes in the file: none for NOBITS, whose size is that in memory."""
        return 0 if self.type == SHT_NOBITS else self.size


@dataclass(frozen=True, slots=True)
class Elf:
    machine: int
    type: int
    os_abi: int
    abi_version: int
    flags: int
    sections: tuple[Section, ...]
    """In file order; index 0 is the null section. Empty where the section table was stripped."""

    @property
    def relocatable(self) -> bool:
        return self.type == ET_REL

    def section(self, name: str) -> Section | None:
        """The first section of that name."""
        return next((item for item in self.sections if item.name == name), None)


def string_at(table: bytes, at: int) -> str:
    """The NUL-ended string at `at`, at most `MAX_NAME` bytes; other than UTF-8 is escaped. Empty beyond the table."""
    end = table.find(b"\0", at, at + MAX_NAME + 1)
    return table[at : end if end >= 0 else at + MAX_NAME].decode("utf-8", "backslashreplace")


def read_elf(source: Source) -> Elf:
    """Header and sections of a 64-bit little-endian ELF. Raises BinaryError where it is something else or damaged."""
    head = source.read(0, min(_HEADER.size, source.size))
    if head[:4] != MAGIC:
        raise BinaryError("It is no ELF file.")
    if len(head) < _HEADER.size:
        raise BinaryError(f"Its ELF header is cut off after {len(head)} of {_HEADER.size} bytes.")
    ident, kind, machine, _, _, _, table, flags, _, _, _, entry, count, names_at = _HEADER.unpack(head)
    if ident[4:6] != b"\x02\x01":
        raise BinaryError(
            f"It is a 32-bit or big-endian ELF ({machine_name(machine)}); CUDA's are 64-bit little-endian."
        )
    sections: tuple[Section, ...] = ()
    if table:
        sections = _sections(source, table, entry, count, names_at)
    return Elf(machine, kind, ident[7], ident[8], flags, sections)


def _sections(source: Source, table: int, entry: int, count: int, names_at: int) -> tuple[Section, ...]:
    if entry != _SECTION.size:
        raise BinaryError(f"Its section headers are said to have {entry} bytes each; ELF64 has {_SECTION.size}.")
    first = _SECTION.unpack(source.read(table, entry))
    # from 65,280 sections on, the counts stand in the null section (ELF specification, extended numbering)
    count = count or first[5]
    names_at = first[6] if names_at == 0xFFFF else names_at
    if count > MAX_SECTIONS:
        raise BinaryError(f"It claims {count:,} sections; more than {MAX_SECTIONS:,} are not read.")
    rows = [*_SECTION.iter_unpack(source.read(table, count * entry))]
    if names_at >= len(rows):
        raise BinaryError(f"The names of its sections are said to be in section {names_at} of {len(rows)}.")
    size = rows[names_at][5]
    if size > MAX_NAMES:
        raise BinaryError(f"The names of its sections are said to take {size:,} bytes; at most {MAX_NAMES:,} are read.")
    names = source.read(rows[names_at][4], size)
    return tuple(Section(string_at(names, row[0]), row[1], row[4], row[5], row[6], row[7]) for row in rows)
