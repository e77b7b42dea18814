"""A file, a wheel or a folder: what device code is in it, and what of that runs on one GPU."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from tilewright.binary.advice import advice, overall
from tilewright.binary.images import Carrier, Found, ReadBudget, open_carrier, read_image
from tilewright.binary.model import Architecture, FileReport, GpuRef, Image, ModuleCount, Report, Unreadable, Verdict
from tilewright.binary.source import BinaryError, FileSource, InflateBudget, Source, ZipSource
from tilewright.binary.target import Ruling, Target, parse_target, rule_ptx, rule_sass
from tilewright.errors import InputError, shown
from tilewright.hardware.gpu import Gpu

__all__ = ["inspect"]

_LOOKED_AT: Final = re.compile(r"\.(?:so(?:\.[0-9.]+)?|cubin|fatbin|ptx|o|a|lib|dll|pyd|exe)$", re.IGNORECASE)
"""Names of files that are opened in a folder or a wheel."""
MAX_FILES: Final = 200_000
"""Files of a folder or members of a wheel that are looked at."""
MAX_CENTRAL: Final = 256 << 20
"""Largest directory of a zip archive, in bytes: Python holds all of it in memory."""
_ZIP: Final = b"PK"
_WHEEL_CPU: Final = re.compile(r"_(x86_64|aarch64|amd64|arm64|ppc64le|riscv64)\.whl$", re.IGNORECASE)
_CPU_NAMES: Final = {"amd64": "x86_64", "arm64": "aarch64"}

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Asked:
    """The device that verdicts are for; its SM is major * 10 + minor."""

    gpu: Gpu | None

    @property
    def sm(self) -> int | None:
        if self.gpu is None:
            return None
        major, _, minor = self.gpu.compute_capability.partition(".")
        return int(major) * 10 + int(minor)

    def rule(self, found: Found, target: Target | None = None) -> Verdict | None:
        """The verdict on one image; None where no GPU was asked about."""
        sm = self.sm
        if sm is None:
            return None
        entry = found.entry
        at = target or entry.target
        if entry.kind == "sass":
            ruling = rule_sass(at, sm)
        elif entry.kind == "ptx":
            ruling = rule_ptx(at, sm, entry.version)
        else:
            ruling = Ruling("unknown", f"{entry.kind} images are not loaded as they are; a link step compiles them")
        if found.relocatable and ruling.outcome in ("native", "jit"):
            return Verdict(runs=ruling.outcome, why=f"{ruling.why}, once it is linked (relocatable device code)")
        return Verdict(runs=ruling.outcome, why=ruling.why)


def inspect(path: str | Path, gpu: Gpu | None = None, *, progress: Progress | None = None) -> Report:
    """Read `path`: a cubin, fatbinary, object, library, PTX text, wheel or folder.

    Kernels are listed for a single file; a wheel or a folder is summed up file by file, from headers alone, and a file
    in it that cannot be read is listed as such. `gpu` adds a verdict to everything.

    Raises InputError where `path` cannot be read, holds no device code format, or is damaged.
    """
    place = Path(path)
    asked = _Asked(gpu)
    try:
        is_folder = place.is_dir()
    except (OSError, ValueError):
        is_folder = False
    if is_folder:
        return _many(str(path), "folder", _walk(place), asked, (), progress)
    try:
        with FileSource(place) as source:
            if source.read(0, min(2, source.size)) == _ZIP:
                return _wheel(str(path), place, asked, progress)
            return _single(str(path), source, asked)
    except BinaryError as error:
        name = shown(place.name)
        msg = error.msg if name in error.msg or shown(str(place)) in error.msg else f"{name}: {error.msg}"
        raise InputError("file", msg) from None


def _gpu_ref(gpu: Gpu | None) -> GpuRef | None:
    return GpuRef(key=gpu.key, name=gpu.name, compute_capability=gpu.compute_capability) if gpu else None


def _single(path: str, source: Source, asked: _Asked) -> Report:
    carrier = open_carrier(source)
    if carrier is None:
        raise BinaryError("it is no cubin, fatbinary, ELF object or library, PTX text, wheel or folder.")
    budget = ReadBudget()
    images: list[Image] = []
    settled: list[Found] = []
    for found in carrier.images:
        image = read_image(source, found, budget)
        # the image itself can know more of its target than the entry's header
        settled.append(_settle(found, image))
        images.append(_judged(image, asked.rule(settled[-1])))
    report = _file(path, source.size, carrier, settled, asked, images)
    cpus = (report.cpu,) if report.cpu else ()
    return _report(path, "file", cpus, asked, [report], 0 if images else 1, [])


def _settle(found: Found, image: Image) -> Found:
    from dataclasses import replace

    target = parse_target(image.target)
    entry = found.entry if target is None else replace(found.entry, target=target)
    return Found(entry, found.module, image.relocatable)


def _judged(image: Image, verdict: Verdict | None) -> Image:
    from msgspec.structs import replace

    return replace(image, verdict=verdict)


def _file(
    path: str, size: int, carrier: Carrier, images: Sequence[Found], asked: _Asked, listed: Sequence[Image] | None
) -> FileReport:
    """What one file holds, image by image where `listed` is given."""
    modules = {found.module for found in loadable(images)}
    usable = verdict = None
    if asked.gpu is not None:
        usable = _usable(images, asked)
        verdict = overall(images, usable, [asked.rule(found) for found in images])
    notes: list[str] = []
    if not carrier.fatbin_sections:
        notes.append("Its section table was stripped; fatbinaries were found by their magic.")
    return FileReport(
        path=path,
        kind=carrier.kind,
        bytes=size,
        cpu=carrier.cpu,
        modules=len(modules),
        architectures=_architectures(images, asked),
        images=None if listed is None else tuple(listed),
        usable=usable,
        verdict=verdict,
        notes=tuple(notes),
    )


def loadable(images: Sequence[Found]) -> list[Found]:
    """The images that a driver would load: relocatable ones only where there are no others (a linked library keeps
    them, but nothing loads them)."""
    return [found for found in images if not found.relocatable] or [*images]


def _usable(images: Sequence[Found], asked: _Asked) -> ModuleCount:
    best: dict[int, int] = {}
    ranks = {"native": 2, "jit": 1}
    for found in loadable(images):
        verdict = asked.rule(found)
        rank = ranks.get(verdict.runs, 0) if verdict else 0
        best[found.module] = max(best.get(found.module, 0), rank)
    counts = [sum(1 for rank in best.values() if rank == wanted) for wanted in (2, 1, 0)]
    return ModuleCount(native=counts[0], jit=counts[1], none=counts[2])


def _architectures(images: Iterable[Found], asked: _Asked) -> tuple[Architecture, ...]:
    groups: dict[tuple[str, bool, Target], list[Found]] = {}
    for found in images:
        groups.setdefault((found.entry.kind, found.relocatable, found.entry.target), []).append(found)
    order = {"sass": 0, "ptx": 1, "lto": 2, "other": 3}
    rows: list[Architecture] = []
    for (kind, relocatable, target), group in sorted(groups.items(), key=lambda g: (order[g[0][0]], g[0][1], g[0][2])):
        prefix = {"ptx": "compute", "lto": "lto"}.get(kind, "sm")
        rows.append(
            Architecture(
                kind=group[0].entry.kind,
                target=target.name(prefix),
                images=len(group),
                bytes=sum(found.entry.size for found in group),
                modules=len({found.module for found in group}),
                relocatable=relocatable,
                verdict=asked.rule(group[0]),
            )
        )
    return tuple(rows)


def _walk(folder: Path) -> Iterator[tuple[str, Callable[[], FileSource]]]:
    """Files of a folder by name; links to folders are not followed, a file with several names is read once. Folders
    inside that cannot be listed come last, and say so when they are opened.

    Raises:
        InputError: the folder itself cannot be listed.
    """
    seen: set[tuple[int, int]] = set()
    closed: list[OSError] = []
    for where, folders, names in os.walk(folder, onerror=closed.append, followlinks=False):
        folders.sort()
        for name in sorted(names):
            if not _LOOKED_AT.search(name):
                continue
            place = Path(where, name)
            try:
                state = place.stat()
            except OSError:
                continue  # a dangling link
            if (state.st_dev, state.st_ino) in seen:
                continue
            seen.add((state.st_dev, state.st_ino))
            yield place.relative_to(folder).as_posix(), lambda place=place: FileSource(place)
    for error in closed:
        where = Path(error.filename)
        if where == folder:
            raise InputError("file", f"The folder {shown(str(folder))} cannot be read: {error.strerror}.")
        yield where.relative_to(folder).as_posix() + "/", lambda error=error: _refused(error)


def _refused(error: OSError) -> FileSource:
    raise error


def _wheel(path: str, place: Path, asked: _Asked, progress: Progress | None) -> Report:
    size = place.stat().st_size
    if size > MAX_CENTRAL:
        _check_directory(place, size)
    try:
        archive = zipfile.ZipFile(place)
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        raise BinaryError(f"It starts as a zip archive (a wheel), but cannot be read as one: {error}.") from None
    hit = _WHEEL_CPU.search(place.name)
    named = hit[1].lower() if hit else None
    with archive:
        cpus = (_CPU_NAMES.get(named, named),) if named else ()
        return _many(path, "wheel", _members(archive), asked, cpus, progress)


def _check_directory(place: Path, size: int) -> None:
    """Refuse an archive whose directory is absurdly large before Python reads it whole."""
    with place.open("rb") as stream:
        stream.seek(size - min(size, 1 << 17))
        tail = stream.read()
    at = tail.rfind(b"PK\x05\x06")
    directory = int.from_bytes(tail[at + 12 : at + 16], "little") if at >= 0 else 0
    if directory != 0xFFFFFFFF and directory > MAX_CENTRAL:
        raise BinaryError(f"Its directory is said to take {directory:,} bytes; at most {MAX_CENTRAL:,} are read.")


def _members(archive: zipfile.ZipFile) -> Iterator[tuple[str, Callable[[], ZipSource]]]:
    budget = InflateBudget()
    for member in sorted(archive.infolist(), key=lambda item: item.header_offset):
        if not member.is_dir() and _LOOKED_AT.search(member.filename):
            yield member.filename, lambda member=member: ZipSource(archive, member, budget)


def _many(
    path: str,
    kind: Literal["wheel", "folder"],
    sources: Iterable[tuple[str, Callable[[], FileSource | ZipSource]]],
    asked: _Asked,
    cpus: Sequence[str],
    progress: Progress | None,
) -> Report:
    files: list[FileReport] = []
    unreadable: list[Unreadable] = []
    without = 0
    seen = dict.fromkeys(cpus)
    for number, (name, opened) in enumerate(sources):
        if number >= MAX_FILES:
            unreadable.append(Unreadable(path=name, error=f"More than {MAX_FILES:,} binaries; the rest is not read."))
            break
        if progress is not None:
            progress(name)
        try:
            with opened() as source:
                carrier = open_carrier(source)
                if carrier is not None and carrier.cpu:
                    seen.setdefault(carrier.cpu)
                if carrier is None or not carrier.images:
                    without += 1
                    continue
                files.append(_file(name, source.size, carrier, carrier.images, asked, None))
        except BinaryError as error:
            unreadable.append(Unreadable(path=name, error=error.msg))
        except OSError as error:
            unreadable.append(Unreadable(path=name, error=f"The system refused: {error.strerror or error}."))
    return _report(path, kind, tuple(seen), asked, files, without, unreadable)


def _report(
    path: str,
    kind: Literal["file", "wheel", "folder"],
    cpus: Sequence[str],
    asked: _Asked,
    files: Sequence[FileReport],
    without: int,
    unreadable: Sequence[Unreadable],
) -> Report:
    targets = dict.fromkeys(row.target for file in files for row in file.architectures)
    verdict, hint = advice(files, asked.gpu) if asked.gpu is not None else (None, None)
    notes: list[str] = []
    if unreadable:
        noun = "file" if len(unreadable) == 1 else "files"
        left_out = ", and the verdict leaves them out" if asked.gpu else ""
        notes.append(f"{len(unreadable):,} {noun} could not be read{left_out}.")
    if len(cpus) > 1:
        notes.append(f"Host code for more than one processor: {', '.join(cpus)}.")
    return Report(
        path=path,
        kind=kind,
        cpu=tuple(cpus),
        gpu=_gpu_ref(asked.gpu),
        files=tuple(file for file in files if file.architectures),
        without_device_code=without,
        unreadable=tuple(unreadable),
        targets=tuple(targets),
        verdict=verdict,
        advice=hint,
        notes=tuple(notes),
    )
