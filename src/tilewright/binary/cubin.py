"""A cubin: its target, the toolkit that made it, and what each kernel takes.

The attribute numbers are those that `cuobjdump -elf` (CUDA 13.5) names; the tests compare every figure with it and with
`ptxas -v`. docs/notes/binaries.md has what the fields mean in which toolkit.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tilewright.binary.elf import EM_CUDA, Elf, Section, read_elf, string_at
from tilewright.binary.model import Kernel
from tilewright.binary.source import BinaryError, BytesSource, Source
from tilewright.binary.target import Target, Variant, parse_target

__all__ = ["Cubin", "cubin_target", "header_target", "read_cubin"]

# Attributes of .nv.info (of the module, by symbol) and .nv.info.<kernel> (EIATTR_*).
MAX_THREADS: Final = 0x05
PARAM_CBANK: Final = 0x0A
REQNTID: Final = 0x10
FRAME_SIZE: Final = 0x11
MIN_STACK_SIZE: Final = 0x12
CBANK_PARAM_SIZE: Final = 0x19
MAX_STACK_SIZE: Final = 0x23
REGCOUNT: Final = 0x2F
CUDA_API_VERSION: Final = 0x37
CTA_PER_CLUSTER: Final = 0x3D
NUM_BARRIERS: Final = 0x4C
ANNOTATIONS: Final = 0x55
SPILL: Final = 1
"""The annotation that marks a spill: pairs of (1, offset of the LDL or STL). Found by comparing with `ptxas -v`, whose
bytes of spill loads and stores the marked instructions add up to exactly."""
SPILLS_MARKED_FROM: Final = 126
"""CUDA 12.6, as CUDA_API_VERSION writes it: the first of those tried that marks spills; 12.4 does not."""

ACCELERATOR_TARGET: Final = 0x09
"""Attribute of .nv.compat (EICOMPAT_ATTR_CUDA_ACCELERATOR_TARGET), CUDA 13: 1 for an `a` target."""

# Formats of an attribute (EIFMT_*): no value, one byte, two bytes, or a length and so many bytes.
SVAL: Final = 4

ABI_OLD: Final = 7
"""EI_ABIVERSION up to which e_flags hold the SM in the low byte; from 8 on it is in bits 8-15. CUDA 12.8 writes 7 for
sm_90 and older and 8 for sm_100 and newer, CUDA 13 writes 8 for all."""
OLD_ACCELERATED: Final = 0x800
"""e_flags of an `a` target, ABI 7 (sm_90a of CUDA 12)."""
NEW_ACCELERATED: Final = 0x8
"""e_flags of an `a` target, ABI 8 as CUDA 12.8 and 12.9 write it; CUDA 13 has .nv.compat instead."""

RESERVED_SHARED: Final = 1024
"""Shared memory that the system reserves a block. From sm_90 on .nv.shared.<kernel> counts it in (tried from CUDA 12.4
to 13.5), unless no kernel of the module has shared memory; `ptxas -v` leaves it out."""
FIRST_RESERVED_SM: Final = 90

# Opcodes (low 12 bits of a 16-byte instruction, Volta and later) and the bytes that a width code moves.
LDL: Final = 0x983
STL: Final = 0x387
_LOCAL_LOW: Final = re.compile(b"[\x83\x87]")
"""The low bytes of the two opcodes: a search in C over every sixteenth byte."""
_WIDTH_BYTE: Final = 9
"""The width code stands in bits 73-75 of the instruction: bits 1-3 of byte 9."""
_WIDTHS: Final = (1, 1, 2, 2, 4, 8, 16, 16)
INSTRUCTION: Final = 16
FIRST_WIDE_SM: Final = 70
"""Volta: instructions of 16 bytes since then."""

MAX_ATTRIBUTES: Final = 1 << 20
"""Attributes that are read of one cubin; a kernel has 10 and one for each parameter."""
MAX_ANNOTATIONS: Final = 1 << 23
"""Annotations that are read of one cubin; a kernel that spills much has some 1,000."""
MAX_CODE: Final = 1 << 28
"""Bytes of code that are looked through for local memory instructions."""
MAX_NAME_BYTES: Final = 64 << 20
"""Bytes of kernel names of one cubin."""

_SYMBOL: Final = struct.Struct("<IBBHQQ")
_FUNCTION: Final = 2
_ENTRY_OTHER: Final = 0x10
"""Bit of st_other that marks a kernel (STO_CUDA_ENTRY)."""
_ARCH_OPTION: Final = re.compile(rb"-arch[ =](sm_\d{2,3}[af]?)\b")
_RELEASE: Final = re.compile(rb"release (\d{1,2}\.\d{1,2})")


@dataclass(frozen=True, slots=True)
class Cubin:
    target: Target
    toolkit: str | None
    relocatable: bool
    kernels: tuple[Kernel, ...]


@dataclass(slots=True)
class _Work:
    """What may still be read of one cubin: a damaged file can point a thousand sections at the same bytes."""

    attributes: int = MAX_ATTRIBUTES
    annotations: int = MAX_ANNOTATIONS
    code: int = MAX_CODE
    names: int = MAX_NAME_BYTES

    def take(self, what: str, count: int) -> None:
        left = getattr(self, what) - count
        setattr(self, what, left)
        if left < 0:
            raise BinaryError(f"It holds more {what} than any compiler writes; reading it stops here.")


@dataclass(slots=True)
class _Facts:
    """What the attributes of one kernel say."""

    values: dict[int, int] = field(default_factory=dict[int, int])
    triples: dict[int, tuple[int, int, int]] = field(default_factory=dict[int, tuple[int, int, int]])
    spills: list[int] = field(default_factory=list[int])


def header_target(os_abi_version: int, flags: int) -> Target:
    """The target as far as an ELF header tells: `f` never shows there, nor does the `a` of CUDA 13."""
    if os_abi_version <= ABI_OLD:
        return Target(flags & 0xFF, "a" if flags & OLD_ACCELERATED else "")
    return Target(flags >> 8 & 0xFF, "a" if flags & NEW_ACCELERATED else "")


def cubin_target(elf: Elf, source: Source) -> Target:
    """The target in full: header, .nv.compat (`a`), and the compiler's command line where it was kept (`f`)."""
    plain = header_target(elf.abi_version, elf.flags)
    if plain.variant:
        return plain
    variant: Variant = ""
    compat = elf.section(".nv.compat")
    if compat is not None and compat.stored <= 1 << 16:
        for _, code, value in _attributes(source.read(compat.offset, compat.stored), _Work()):
            if code == ACCELERATOR_TARGET and value[:1] == b"\1":
                variant = "a"
    option = _ARCH_OPTION.search(_note(elf, source))
    named = parse_target(option[1].decode()) if option else None
    if named is not None and named.sm == plain.sm and not variant:
        variant = named.variant
    return Target(plain.sm, variant)


def _note(elf: Elf, source: Source) -> bytes:
    """The note with the tool's name, version and command line (CUDA 12.8 and later), or nothing."""
    note = elf.section(".note.nv.tkinfo")
    return source.read(note.offset, note.stored) if note is not None and note.stored <= 1 << 16 else b""


def _attributes(data: bytes, work: _Work) -> Iterator[tuple[int, int, bytes]]:
    """(format, attribute, value) of an attribute section; stops at a value that its end cuts off."""
    at, end = 0, len(data)
    while at + 4 <= end:
        work.take("attributes", 1)
        kind, code = data[at], data[at + 1]
        if kind == SVAL:
            size = int.from_bytes(data[at + 2 : at + 4], "little")
            if at + 4 + size > end:
                return
            yield kind, code, data[at + 4 : at + 4 + size]
            at += 4 + size
        else:
            yield kind, code, data[at + 2 : at + 4]
            at += 4


def read_cubin(data: bytes) -> Cubin:
    """Everything that `data`, one cubin, tells. Raises BinaryError where it is none or is damaged."""
    source = BytesSource(data)
    elf = read_elf(source)
    if elf.machine != EM_CUDA:
        raise BinaryError("It is no cubin: its ELF machine is not CUDA's.")
    work = _Work()
    target = cubin_target(elf, source)
    symbols = _kernels(elf, source, work)
    by_name = {item.name: item for item in elf.sections}
    facts = _module_facts(by_name.get(".nv.info"), source, work)
    kernels: list[Kernel] = []
    version = 0
    for index, name in symbols:
        own = facts.get(index, _Facts())
        _kernel_facts(by_name.get(f".nv.info.{name}"), source, work, own)
        version = max(version, own.values.get(CUDA_API_VERSION, 0))
        kernels.append(_kernel(name, own, by_name, source, target.sm, work))
    release = _RELEASE.search(_note(elf, source))
    toolkit = release[1].decode() if release else f"{version // 10}.{version % 10}" if version else None
    return Cubin(target, toolkit, elf.relocatable, tuple(kernels))


def _kernels(elf: Elf, source: Source, work: _Work) -> list[tuple[int, str]]:
    """(symbol index, name) of the kernels, by name."""
    table = elf.section(".symtab")
    if table is None or not 0 < table.link < len(elf.sections):
        return []
    strings = elf.sections[table.link]
    names = source.read(strings.offset, strings.stored)
    found: list[tuple[int, str]] = []
    rows = source.read(table.offset, table.stored // _SYMBOL.size * _SYMBOL.size)
    for index, (at, info, other, _, _, _) in enumerate(_SYMBOL.iter_unpack(rows)):
        if info & 15 == _FUNCTION and other & _ENTRY_OTHER:
            name = string_at(names, at)
            work.take("names", len(name) + 1)
            found.append((index, name))
    return sorted(found, key=lambda item: item[1])


def _module_facts(section: Section | None, source: Source, work: _Work) -> dict[int, _Facts]:
    """Attributes of the module's .nv.info, which name a symbol each: registers, frame, stack."""
    facts: dict[int, _Facts] = {}
    if section is None:
        return facts
    for kind, code, value in _attributes(source.read(section.offset, section.stored), work):
        if kind == SVAL and len(value) == 8 and code in (REGCOUNT, FRAME_SIZE, MIN_STACK_SIZE, MAX_STACK_SIZE):
            symbol, figure = struct.unpack("<II", value)
            facts.setdefault(symbol, _Facts()).values[code] = figure
    return facts


def _kernel_facts(section: Section | None, source: Source, work: _Work, facts: _Facts) -> None:
    """Attributes of .nv.info.<kernel>."""
    if section is None:
        return
    for kind, code, value in _attributes(source.read(section.offset, section.stored), work):
        if code in (MAX_THREADS, REQNTID, CTA_PER_CLUSTER) and len(value) >= 12:
            facts.triples[code] = struct.unpack_from("<III", value)
        elif code == ANNOTATIONS and kind == SVAL:
            work.take("annotations", len(value) // 8)
            pairs = struct.iter_unpack("<II", value[: len(value) // 8 * 8])
            facts.spills += [offset for what, offset in pairs if what == SPILL]
        elif code == NUM_BARRIERS:
            facts.values[code] = value[0]
        elif code == CBANK_PARAM_SIZE or (code == CUDA_API_VERSION and len(value) <= 8):
            facts.values[code] = int.from_bytes(value[:4], "little")


def _kernel(name: str, facts: _Facts, sections: dict[str, Section], source: Source, sm: int, work: _Work) -> Kernel:
    values, triples = facts.values, facts.triples
    shared = sections.get(f".nv.shared.{name}")
    constant = sections.get(f".nv.constant0.{name}")
    local = _local_memory(sections.get(f".text.{name}"), source, sm, work)
    stores, loads = _spills(facts, local, values)
    whole = shared.size if shared is not None else 0
    reserved = RESERVED_SHARED if sm >= FIRST_RESERVED_SM and whole >= RESERVED_SHARED else 0
    cluster = triples.get(CTA_PER_CLUSTER)
    return Kernel(
        name=name,
        registers=values.get(REGCOUNT),
        stack_bytes=values.get(FRAME_SIZE),
        cumulative_stack_bytes=_stack(values),
        spill_store_bytes=stores,
        spill_load_bytes=loads,
        local_loads=None if local is None else sum(1 for op, _ in local.values() if op == LDL),
        local_stores=None if local is None else sum(1 for op, _ in local.values() if op == STL),
        shared_bytes=whole - reserved,
        shared_reserved_bytes=reserved,
        constant_bytes=constant.size if constant is not None else 0,
        parameter_bytes=values.get(CBANK_PARAM_SIZE, 0),
        barriers=values.get(NUM_BARRIERS, 0),
        max_threads=triples.get(MAX_THREADS),
        required_threads=triples.get(REQNTID),
        cluster=cluster if cluster is not None and any(cluster) else None,
    )


def _stack(values: dict[int, int]) -> int | None:
    figure = values.get(MIN_STACK_SIZE)
    return None if figure is None or figure >= 1 << 31 else figure


def _local_memory(text: Section | None, source: Source, sm: int, work: _Work) -> dict[int, tuple[int, int]] | None:
    """{offset: (opcode, bytes moved a thread)} of the local memory instructions of a kernel's code."""
    if text is None or sm < FIRST_WIDE_SM:
        return None
    work.take("code", text.stored)
    code = source.read(text.offset, text.stored // INSTRUCTION * INSTRUCTION)
    found: dict[int, tuple[int, int]] = {}
    for hit in _LOCAL_LOW.finditer(code[::INSTRUCTION]):
        start = hit.start() * INSTRUCTION
        opcode = code[start] | (code[start + 1] & 0xF) << 8
        if opcode in (LDL, STL):
            found[start] = (opcode, _WIDTHS[code[start + _WIDTH_BYTE] >> 1 & 7])
    return found


def _spills(
    facts: _Facts, local: dict[int, tuple[int, int]] | None, values: dict[int, int]
) -> tuple[int | None, int | None]:
    """Bytes of spill stores and loads; None where they cannot be told from other uses of local memory."""
    if local is None:
        return None, None
    if not facts.spills and local and values.get(CUDA_API_VERSION, 0) < SPILLS_MARKED_FROM:
        return None, None
    marked = [local[offset] for offset in set(facts.spills) if offset in local]
    return sum(size for op, size in marked if op == STL), sum(size for op, size in marked if op == LDL)
