"""The images of one file, whatever carries them, and the kernels inside."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

from tilewright.binary import elf as elf_files
from tilewright.binary.cubin import SPILLS_MARKED_FROM, cubin_target, read_cubin
from tilewright.binary.decompress import has_fast_lz4, unpack_lz4, zstd_frame
from tilewright.binary.elf import EM_CUDA, Elf, machine_name, read_elf
from tilewright.binary.fatbin import SIGNATURE, Entry, fatbin_entries, find_fatbins
from tilewright.binary.model import Image
from tilewright.binary.ptx import looks_like_ptx, read_ptx
from tilewright.binary.source import BinaryError, Source

__all__ = ["SPILLS_MARKED_FROM", "Carrier", "Found", "ReadBudget", "open_carrier", "read_image"]

FATBIN_SECTIONS: Final = (".nv_fatbin", "__nv_relfatbin")
RELOCATABLE_SECTION: Final = "__nv_relfatbin"
MAX_IMAGE: Final = 256 << 20
"""Largest image, stored or uncompressed, whose kernels are read, in bytes."""
MAX_UNPACKED: Final = 4 << 30
"""Bytes of images whose kernels are read, of one file in all."""
MAX_LZ4: Final = 64 << 20
"""Bytes that are unpacked from LZ4 of one file without the `lz4` package: our decoder in Python gives about 20 MB/s."""
MAX_IMAGES: Final = 1 << 18
"""Images of one file; the largest libraries seen have about 20,000."""
_HEAD: Final = 1 << 14

CarrierKind = Literal["cubin", "fatbin", "elf", "ptx", "container"]


@dataclass(frozen=True, slots=True)
class Found:
    """An image and the fatbinary (module) that it is in."""

    entry: Entry
    module: int
    relocatable: bool


@dataclass(frozen=True, slots=True)
class Carrier:
    """A file with device code: what it is, the processor of its host code, and its images in file order."""

    kind: CarrierKind
    cpu: str | None
    images: tuple[Found, ...]
    fatbin_sections: bool = True


@dataclass(slots=True)
class ReadBudget:
    """What may still be unpacked of one file."""

    unpacked: int = MAX_UNPACKED
    lz4: int = MAX_LZ4


def open_carrier(source: Source) -> Carrier | None:
    """What device code a file has, from headers alone; None for a file that is none of the formats read here.

    Raises BinaryError for a damaged file. A host ELF without device code has no images.
    """
    head = source.read(0, min(_HEAD, source.size))
    if head.startswith(elf_files.MAGIC):
        elf = read_elf(source)
        return _cubin(source, elf) if elf.machine == EM_CUDA else _host(source, elf)
    if head.startswith(SIGNATURE[:4]):
        return Carrier("fatbin", None, _numbered(_chain(source)))
    if looks_like_ptx(head):
        return _ptx(source)
    if head.startswith((b"!<arch>\n", b"MZ")):  # static libraries; Windows executables and DLLs
        return Carrier("container", None, _numbered(find_fatbins(source, 0, source.size, strict=False)))
    return None


def _chain(source: Source) -> Iterator[tuple[list[Entry], int]]:
    """A .fatbin file: one container, in rare cases several behind one another."""
    entries, end = fatbin_entries(source, 0)
    yield entries, 0
    yield from find_fatbins(source, end, source.size, strict=False)


def _cubin(source: Source, elf: Elf) -> Carrier:
    target = cubin_target(elf, source)
    entry = Entry("sass", target, str(elf.abi_version), 0, source.size, None, source.size, None)
    return Carrier("cubin", None, (Found(entry, 0, elf.relocatable),))


def _ptx(source: Source) -> Carrier:
    if source.size > MAX_IMAGE:
        raise BinaryError(f"It is PTX of {source.size:,} bytes; at most {MAX_IMAGE:,} are read.")
    ptx = read_ptx(source.read(0, source.size))
    entry = Entry("ptx", ptx.target, ptx.version, 0, source.size, None, source.size, None)
    return Carrier("ptx", None, (Found(entry, 0, False),))


def _numbered(
    fatbins: Iterator[tuple[list[Entry], int]], relocatable: bool = False, first: int = 0
) -> tuple[Found, ...]:
    found: list[Found] = []
    for module, (entries, _) in enumerate(fatbins, start=first):
        found += [Found(entry, module, relocatable) for entry in entries]
        if len(found) > MAX_IMAGES:
            raise BinaryError(f"It holds more than {MAX_IMAGES:,} images; reading it stops here.")
    return tuple(found)


def _host(source: Source, elf: Elf) -> Carrier:
    cpu = machine_name(elf.machine)
    # in file order, so that a zip member is inflated once
    sections = sorted((item for item in elf.sections if item.name in FATBIN_SECTIONS), key=lambda item: item.offset)
    if not elf.sections:  # the section table was stripped: the magic still finds them
        return Carrier("elf", cpu, _numbered(find_fatbins(source, 0, source.size, strict=False)), False)
    found: tuple[Found, ...] = ()
    for section in sections:
        end = section.offset + section.stored
        if end > source.size:
            raise BinaryError(
                f"Its section {section.name} is said to end at byte {end:,}; the file has {source.size:,}."
            )
        first = found[-1].module + 1 if found else 0
        fatbins = find_fatbins(source, section.offset, end, strict=True)
        found += _numbered(fatbins, section.name == RELOCATABLE_SECTION, first)
    return Carrier("elf", cpu, found)


def _payload(source: Source, entry: Entry, budget: ReadBudget) -> bytes | str:
    """The image itself, or the sentence that says why it is not read."""
    if entry.size > MAX_IMAGE or entry.uncompressed > MAX_IMAGE:
        return f"Larger than {MAX_IMAGE >> 20} MiB; its kernels are not listed."
    budget.unpacked -= entry.uncompressed
    if budget.unpacked < 0:
        return f"After {MAX_UNPACKED >> 30} GiB of images of this file no more kernels are listed."
    data = source.read(entry.at, entry.size)
    if entry.compression == "zstd":
        unpacked = zstd_frame(data, entry.uncompressed)
        if unpacked is None:
            return "Compressed with zstd; install tilewright[binary] (Python 3.14 needs nothing) to list its kernels."
        return unpacked
    if entry.compression == "lz4":
        budget.lz4 -= 0 if has_fast_lz4() else entry.uncompressed
        if budget.lz4 < 0:
            return (
                f"After {MAX_LZ4 >> 20} MiB of LZ4 of this file no more kernels are listed without tilewright[binary]."
            )
        return unpack_lz4(data, entry.uncompressed)
    return data


def read_image(source: Source, found: Found, budget: ReadBudget) -> Image:
    """One image with its kernels; a damaged image is listed with the reason instead of its kernels."""
    entry = found.entry
    prefix = {"sass": "sm", "ptx": "compute", "lto": "lto"}.get(entry.kind, "sm")
    image = Image(
        module=found.module,
        kind=entry.kind,
        target=entry.target.name(prefix),
        ptx_version=entry.version if entry.kind == "ptx" else None,
        bytes=entry.size,
        compression=entry.compression,
        uncompressed_bytes=entry.uncompressed,
        relocatable=found.relocatable,
        source=entry.name,
    )
    if entry.kind not in ("sass", "ptx"):
        note = "LTO IR: nvJitLink or nvlink turns it into code." if entry.kind == "lto" else "Of a kind not known here."
        return _with(image, note=note)
    try:
        data = _payload(source, entry, budget)
        if isinstance(data, str):
            return _with(image, note=data)
        if entry.kind == "ptx":
            ptx = read_ptx(data.rstrip(b"\0"))
            return _with(image, kernels=ptx.kernels, target=ptx.target.name("compute"))
        cubin = read_cubin(data)
    except BinaryError as error:
        return _with(image, note=f"Unreadable: {error.msg}")
    target = cubin.target if cubin.target.variant or not entry.target.variant else entry.target
    return _with(
        image,
        kernels=cubin.kernels,
        target=target.name(),
        toolkit=cubin.toolkit,
        relocatable=found.relocatable or cubin.relocatable,
    )


def _with(image: Image, **changes: object) -> Image:
    from msgspec.structs import replace

    return replace(image, **changes)
