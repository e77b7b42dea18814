"""One round of a batch: compile a unit, read its figures, or attribute its errors.

When a unit fails, each error is attributed to a config; those configs are answered and the rest is compiled again,
until a unit compiles or is empty. What cannot be attributed is bisected. A capacity assert is a verdict of its own: its
sizes come from a second compile against a copy of that header without the assert.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tilewright.errors import ToolError
from tilewright.probe.cache import cache_root, content_key, write_atomically
from tilewright.probe.compiler import Compiler, Finished, run
from tilewright.probe.cpp import KernelTypes
from tilewright.probe.demangle import type_names
from tilewright.probe.diagnostics import MAX_MESSAGE, Diagnostic, parse_diagnostics
from tilewright.probe.headers import Extensions, Headers
from tilewright.probe.unit import LINE_E, LINE_M, config_text, preamble, read_ptx

__all__ = ["Job", "Outcome", "Round", "Settings", "Unit", "include_folders", "nvcc_command"]

MORE_ERRORS: Final = 4
"""Further messages of a config that are kept beside its first."""

_FOLLOW_UP_ROUNDS: Final = 2
"""How often a config whose errors may not be its own is compiled again with others, before it is alone."""

_CAPACITY_ASSERT: Final = re.compile(rb"static_assert\s*\(\s*SharedStorageSize\s*<=[^;]*;")


@dataclass(frozen=True)
class Job:
    """One distinct kernel to compile, for one header tree."""

    types: KernelTypes
    headers: Headers


@dataclass(frozen=True)
class Outcome:
    """What compiling one kernel's types gave: `error` is None, or the rest of the figures is empty."""

    scalars: dict[str, int] = field(default_factory=dict[str, int])
    fields: dict[str, tuple[int, int, int]] = field(default_factory=dict[str, tuple[int, int, int]])
    names: tuple[str | None, str | None, str | None] = (None, None, None)
    error: str | None = None
    error_at: str = ""
    more_errors: list[str] = field(default_factory=list[str])
    assert_fired: str | None = None
    """Message of the capacity assert; the figures are then those of the types without it."""
    failed: str | None = None
    """Why there is no answer at all (the compiler crashed or took too long)."""


@dataclass(frozen=True)
class Settings:
    """How to compile."""

    compiler: Compiler
    extensions: Extensions | None = None
    jobs: int = 1
    timeout_s: float = 900.0
    """For one round of one unit."""
    keep: Path | None = None
    """Where to leave the translation units."""
    use_cache: bool = True


@dataclass
class Unit:
    """Jobs that are compiled together, with how often each came back with follow-up errors only."""

    jobs: dict[int, Job]
    follow_ups: dict[int, int] = field(default_factory=dict[int, int])
    patched: Path | None = None
    fired: dict[int, str] = field(default_factory=dict[int, str])


def nvcc_command(
    settings: Settings, arch: str, includes: Sequence[Path], source: str, output: str, *mode: str
) -> list[str]:
    """The command line of a compile. Only paths of our own, enumerated targets and constants are on it."""
    return [
        settings.compiler.path, "-std=c++17", f"-arch={arch}", "--expt-relaxed-constexpr", "-w", *mode,
        *(part for folder in includes for part in ("-I", str(folder))), "-o", output, source,
    ]  # fmt: skip


def include_folders(headers: Headers, extensions: Extensions | None, patched: Path | None = None) -> list[Path]:
    """Include folders of a unit, first searched first."""
    folders = [patched] if patched else []
    folders.append(headers.include)
    if extensions is not None:
        folders.append(extensions.include)
    return folders


def _without_assert(headers: Headers, names: Iterable[str]) -> Path:
    """A folder with copies of the kernel headers `names` in which only the capacity assert is blanked out."""
    texts = {name: (headers.include / name).read_bytes() for name in sorted(set(names))}
    folder = cache_root() / "probe" / "patched" / content_key(*texts, *texts.values())[:32]
    for name, text in texts.items():
        target = folder / name
        if not target.is_file():
            # as many lines as before, so that diagnostics keep their line numbers
            write_atomically(target, _CAPACITY_ASSERT.sub(lambda hit: b"\n" * hit[0].count(b"\n"), text))
    return folder


def _doubtful(job: Job, mine: Sequence[Diagnostic], others: Iterable[tuple[Job, Sequence[Diagnostic]]]) -> bool:
    """Whether the first of `mine` need not be what is wrong with `job`.

    A type that several configs share is diagnosed once, for the first of them. The others get a follow-up in their own
    lines, or a later error: then one of `others` with the same epilogue or mainloop text was diagnosed there.
    """
    if all(item.follow_up for item in mine):
        return True
    first = min(item.statement for item in mine)
    for other, theirs in others:
        for line, same in (
            (LINE_E, other.types.epilogue == job.types.epilogue),
            (LINE_M, other.types.mainloop == job.types.mainloop),
        ):
            if same and line < first and any(item.statement == line for item in theirs):
                return True
    return False


def _verdict(mine: Sequence[Diagnostic]) -> Outcome:
    """The answer to a config with errors: the first that is no capacity assert; overflow where there is none."""
    first = next((item for item in mine if not item.capacity), None)
    if first is None:
        return Outcome(assert_fired=mine[0].message, error_at=mine[0].at)
    more = list(dict.fromkeys(item.message for item in mine if item.message != first.message))[:MORE_ERRORS]
    return Outcome(error=first.message, error_at=first.at, more_errors=more)


def _general_reason(errors: Sequence[Diagnostic], output: str) -> str:
    """Why a unit failed, where no error belongs to a config."""
    if errors:
        return f"{errors[0].message} ({errors[0].at})"
    lines = output.strip().splitlines()
    return lines[-1][:MAX_MESSAGE] if lines else "the compiler stopped without a message"


class Round:
    """One compile of one unit: answers what it settles, returns the units that are left to compile."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._sound: set[tuple[str, str, bool]] = set()
        """(headers, target, with the finalize fusion) that compile by themselves."""

    def run(self, unit: Unit) -> tuple[dict[int, Outcome], list[Unit]]:
        """Compile `unit`; (what it settled, what is left to compile)."""
        job = next(iter(unit.jobs.values()))
        # The header of the finalize fusion adds specialisations of its own operations and changes no other type.
        scatter = any(each.types.needs_scatter for each in unit.jobs.values())
        text = preamble(scatter, sorted(job.headers.files)) + "".join(
            config_text(index, each.types) for index, each in unit.jobs.items()
        )
        if self.settings.keep is not None:
            name = f"types-{job.types.arch}-{content_key(text)[:12]}.cu"
            write_atomically(self.settings.keep / name, text.encode())
        done, includes, ptx = self._compile(text, job, scatter, unit.patched)
        if ptx is not None:
            return self._read(unit, ptx), []
        if done.timed_out:
            return self._halve(unit, f"the compiler took longer than {self.settings.timeout_s:.0f} s")
        return self._settle(unit, job.headers, parse_diagnostics(done.output, includes), done.output)

    def _compile(
        self, text: str, job: Job, scatter: bool, patched: Path | None
    ) -> tuple[Finished, list[str], str | None]:
        """(how the compile of `text` ended, the include folders it had, its PTX where there is one)."""
        includes = include_folders(job.headers, self.settings.extensions if scatter else None, patched)
        folder = Path(tempfile.mkdtemp(prefix="tilewright-probe-"))
        try:
            (folder / "unit.cu").write_text(text, encoding="utf-8")
            command = nvcc_command(self.settings, job.types.arch, includes, "unit.cu", "unit.ptx", "-ptx")
            done = run(command, folder, self.settings.timeout_s)
            ptx = (folder / "unit.ptx").read_text("utf-8", "replace") if done.code == 0 else None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return done, [str(path) for path in includes], ptx

    def _check_headers(self, unit: Unit) -> None:
        """Raise a ToolError where the headers alone do not compile: then no config is to blame."""
        job = next(iter(unit.jobs.values()))
        scatter = any(each.types.needs_scatter for each in unit.jobs.values())
        if (job.headers.digest, job.types.arch, scatter) in self._sound:
            return
        text = preamble(scatter, sorted(job.headers.files))
        done, includes, ptx = self._compile(text, job, scatter, unit.patched)
        if ptx is None:
            errors = parse_diagnostics(done.output, includes)
            raise ToolError(
                f"nvcc {self.settings.compiler.version} does not compile the headers of CUTLASS {job.headers.version} "
                f"in {job.headers.name}: {_general_reason(errors, done.output)}."
            )
        self._sound.add((job.headers.digest, job.types.arch, scatter))

    def _read(self, unit: Unit, ptx: str) -> dict[int, Outcome]:
        readings = read_ptx(ptx)
        names = type_names(symbol for reading in readings.values() for symbol in reading.names)
        outcomes: dict[int, Outcome] = {}
        for index in unit.jobs:
            reading = readings.get(index)
            if reading is None:
                raise ToolError("The compiler's PTX lacks a config that it compiled; please report nvcc's version.")
            first, second, third = (names.get(symbol) for symbol in reading.names)
            outcomes[index] = Outcome(
                reading.scalars, reading.fields, (first, second, third), assert_fired=unit.fired.get(index)
            )
        return outcomes

    def _settle(
        self, unit: Unit, headers: Headers, errors: list[Diagnostic], output: str
    ) -> tuple[dict[int, Outcome], list[Unit]]:
        by_config: dict[int, list[Diagnostic]] = {}
        for item in errors:
            if item.config in unit.jobs:
                by_config.setdefault(item.config, []).append(item)
        if not by_config:
            # An error outside every config, or none at all (a crash, a missing tool).
            reason = _general_reason(errors, output)
            if len(unit.jobs) > 1:
                self._check_headers(unit)
            return self._halve(unit, reason)

        settled: dict[int, Outcome] = {}
        fired: dict[int, str] = {}
        kernels: list[str] = []
        again = dict(unit.follow_ups)
        for index, mine in by_config.items():
            if unit.patched is None and all(item.capacity for item in mine):
                fired[index] = mine[0].message
                kernels += [item.file for item in mine]
                continue
            tries = again.get(index, 0)
            others = ((unit.jobs[other], theirs) for other, theirs in by_config.items() if other != index)
            if len(unit.jobs) > 1 and tries < _FOLLOW_UP_ROUNDS and _doubtful(unit.jobs[index], mine, others):
                again[index] = tries + 1
                continue
            settled[index] = _verdict(mine)
        left = {index: job for index, job in unit.jobs.items() if index not in settled and index not in fired}
        units: list[Unit] = []
        lonely = {index for index, tries in again.items() if tries >= _FOLLOW_UP_ROUNDS and index in left}
        together = {index: job for index, job in left.items() if index not in lonely}
        if together:
            units.append(Unit(together, again, unit.patched, unit.fired))
        units += [Unit({index: left[index]}, again, unit.patched, unit.fired) for index in sorted(lonely)]
        if fired:
            patched = _without_assert(headers, kernels)
            units.append(Unit({index: unit.jobs[index] for index in fired}, {}, patched, fired))
        return settled, units

    def _halve(self, unit: Unit, reason: str) -> tuple[dict[int, Outcome], list[Unit]]:
        indices = list(unit.jobs)
        if len(indices) == 1:
            return {indices[0]: Outcome(failed=reason)}, []
        middle = len(indices) // 2
        halves = (indices[:middle], indices[middle:])
        return {}, [Unit({i: unit.jobs[i] for i in half}, unit.follow_ups, unit.patched, unit.fired) for half in halves]
