"""Compiling many configs: a few dozen a translation unit, units in parallel, survivors compiled again.

One round compiles a unit. When it fails, each error is attributed to a config; those configs are answered as illegal
and the rest is compiled again, until a unit compiles or is empty. What cannot be attributed is bisected. A capacity
assert is a verdict of its own: its sizes come from a second compile against a copy of that header without the assert.
"""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tilewright.errors import ToolError
from tilewright.probe.cache import ResultCache, cache_root, content_key, write_atomically
from tilewright.probe.compiler import Compiler, Stopped, run, stoppable
from tilewright.probe.cpp import KernelTypes
from tilewright.probe.demangle import type_names
from tilewright.probe.diagnostics import Diagnostic, parse_diagnostics
from tilewright.probe.headers import Extensions, Headers
from tilewright.probe.unit import config_text, preamble, read_ptx

__all__ = ["BATCH", "Job", "Outcome", "Settings", "compile_jobs", "nvcc_command"]

BATCH: Final = 40
"""Configs a translation unit. Reading the headers alone takes about 5 s, a config 0.3-1.5 s (nvcc 13.0, one core)."""

MORE_ERRORS: Final = 4
"""Further messages of a config that are kept beside its first."""

_FOLLOW_UP_ROUNDS: Final = 2
"""How often a config that only got follow-up errors is compiled again to see the message that belongs to it."""

_CAPACITY_ASSERT: Final = re.compile(rb"static_assert\s*\(\s*SharedStorageSize\s*<=[^;]*;")
_INVALID: Final = "the compiler stopped without a message"


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
class _Unit:
    """Jobs that are compiled together, with how often each came back with follow-up errors only."""

    jobs: dict[int, Job]
    follow_ups: dict[int, int] = field(default_factory=dict[int, int])
    patched: Path | None = None
    fired: dict[int, str] = field(default_factory=dict[int, str])


def job_key(job: Job, settings: Settings) -> str:
    """The cache key of a job: everything that its outcome depends on."""
    scatter = settings.extensions.digest if settings.extensions and job.types.needs_scatter else ""
    return content_key(
        "types", job.headers.digest, scatter, settings.compiler.version, job.types.arch,
        preamble(job.types.needs_scatter, sorted(job.headers.files)), config_text(0, job.types),
    )  # fmt: skip


def nvcc_command(
    settings: Settings, arch: str, includes: Sequence[Path], source: str, output: str, *mode: str
) -> list[str]:
    """The command line of a compile. Only paths of our own, enumerated targets and constants are on it."""
    folders = [str(path) for path in includes] + list(settings.compiler.includes)
    return [
        settings.compiler.path, "-std=c++17", f"-arch={arch}", "--expt-relaxed-constexpr", "-w", *mode,
        *(part for folder in folders for part in ("-I", folder)), "-o", output, source,
    ]  # fmt: skip


def include_folders(job: Job, settings: Settings, patched: Path | None = None) -> list[Path]:
    """Include folders of a job, first searched first."""
    folders = [patched] if patched else []
    folders.append(job.headers.include)
    if job.types.needs_scatter and settings.extensions:
        folders.append(settings.extensions.include)
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


def _worth_retrying(mine: Sequence[Diagnostic]) -> bool:
    """Whether `mine` explains nothing: the errors stand in the config's own lines only."""
    return all(item.follow_up for item in mine)


def _refused(mine: Sequence[Diagnostic]) -> Outcome:
    first = mine[0]
    more = list(dict.fromkeys(item.message for item in mine if item.message != first.message))[:MORE_ERRORS]
    return Outcome(error=first.message, error_at=first.at, more_errors=more)


class _Round:
    """One compile of one unit: answers what it settles, returns the units that are left to compile."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    def run(self, unit: _Unit) -> tuple[dict[int, Outcome], list[_Unit]]:
        job = next(iter(unit.jobs.values()))
        text = preamble(job.types.needs_scatter, sorted(job.headers.files)) + "".join(
            config_text(index, each.types) for index, each in unit.jobs.items()
        )
        folder = Path(tempfile.mkdtemp(prefix="tilewright-probe-"))
        try:
            (folder / "unit.cu").write_text(text, encoding="utf-8")
            if self.settings.keep is not None:
                write_atomically(
                    self.settings.keep / f"types-{job.types.arch}-{content_key(text)[:12]}.cu", text.encode()
                )
            includes = include_folders(job, self.settings, unit.patched)
            command = nvcc_command(self.settings, job.types.arch, includes, "unit.cu", "unit.ptx", "-ptx")
            done = run(command, folder, self.settings.timeout_s)
            if done.code == 0:
                return self._read(unit, (folder / "unit.ptx").read_text("utf-8", "replace")), []
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if done.timed_out:
            return self._halve(unit, f"the compiler took longer than {self.settings.timeout_s:.0f} s")
        errors = parse_diagnostics(done.output, [str(path) for path in includes])
        return self._settle(unit, job.headers, errors, done.output)

    def _read(self, unit: _Unit, ptx: str) -> dict[int, Outcome]:
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
        self, unit: _Unit, headers: Headers, errors: list[Diagnostic], output: str
    ) -> tuple[dict[int, Outcome], list[_Unit]]:
        by_config: dict[int, list[Diagnostic]] = {}
        for item in errors:
            if item.config in unit.jobs:
                by_config.setdefault(item.config, []).append(item)
        if not by_config:
            # An error outside every config (the headers do not compile), or none at all (a crash).
            general = errors[0] if errors else None
            reason = f"{general.message} ({general.at})" if general else _INVALID
            if general is None and output.strip():
                reason = f"{_INVALID} of a known form: {output.strip().splitlines()[-1][:200]}"
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
            if len(unit.jobs) > 1 and _worth_retrying(mine) and tries < _FOLLOW_UP_ROUNDS:
                again[index] = tries + 1
                continue
            settled[index] = _refused(mine)
        left = {index: job for index, job in unit.jobs.items() if index not in settled and index not in fired}
        units: list[_Unit] = []
        lonely = {index for index, tries in again.items() if tries >= _FOLLOW_UP_ROUNDS and index in left}
        together = {index: job for index, job in left.items() if index not in lonely}
        if together:
            units.append(_Unit(together, again, unit.patched, unit.fired))
        units += [_Unit({index: left[index]}, again, unit.patched, unit.fired) for index in sorted(lonely)]
        if fired:
            patched = _without_assert(headers, kernels)
            units.append(_Unit({index: unit.jobs[index] for index in fired}, {}, patched, fired))
        return settled, units

    def _halve(self, unit: _Unit, reason: str) -> tuple[dict[int, Outcome], list[_Unit]]:
        indices = list(unit.jobs)
        if len(indices) == 1:
            return {indices[0]: Outcome(failed=reason)}, []
        middle = len(indices) // 2
        halves = (indices[:middle], indices[middle:])
        return {}, [
            _Unit({i: unit.jobs[i] for i in half}, unit.follow_ups, unit.patched, unit.fired) for half in halves
        ]


def _split(indices: Sequence[int], jobs: int) -> list[Sequence[int]]:
    """`indices` in units of at most `BATCH`, and at least as many units as there are cores, of at least 4."""
    size = max(4, min(BATCH, -(-len(indices) // max(1, jobs))))
    return [indices[at : at + size] for at in range(0, len(indices), size)]


def _encode(outcome: Outcome) -> dict[str, Any]:
    return {
        "scalars": outcome.scalars, "fields": outcome.fields, "names": outcome.names, "error": outcome.error,
        "error_at": outcome.error_at, "more_errors": outcome.more_errors, "assert_fired": outcome.assert_fired,
    }  # fmt: skip


def _decode(entry: dict[str, Any]) -> Outcome | None:
    try:
        first, second, third = entry["names"]
        return Outcome(
            scalars={str(key): int(value) for key, value in entry["scalars"].items()},
            fields={str(path): (int(a), int(b), int(c)) for path, (a, b, c) in entry["fields"].items()},
            names=(first, second, third),
            error=entry["error"],
            error_at=str(entry["error_at"]),
            more_errors=[str(item) for item in entry["more_errors"]],
            assert_fired=entry["assert_fired"],
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def compile_jobs(
    jobs: Sequence[Job], settings: Settings, progress: Callable[[int, int, float], None] | None = None
) -> list[Outcome]:
    """The outcome of every job, in order. Jobs with the same text are compiled once.

    `progress(settled, of how many, seconds since the start)` is called as outcomes come in; cached ones do not count.

    Raises:
        ToolError: the compiler cannot be started, or writes what we cannot read.
    """
    cache = ResultCache(settings.use_cache)
    keys = [job_key(job, settings) for job in jobs]
    known: dict[str, Outcome] = {}
    wanted: dict[str, Job] = {}
    for key, job in zip(keys, jobs, strict=True):
        if key in known or key in wanted:
            continue
        entry = cache.get(key)
        outcome = _decode(entry) if entry is not None else None
        if outcome is not None:
            known[key] = outcome
        else:
            wanted[key] = job
    if wanted:
        for key, outcome in _compile_all(wanted, settings, progress):
            known[key] = outcome
            if outcome.failed is None:
                cache.put(key, _encode(outcome))
    return [known[key] for key in keys]


def _compile_all(
    wanted: dict[str, Job], settings: Settings, progress: Callable[[int, int, float], None] | None
) -> Iterable[tuple[str, Outcome]]:
    """(key, outcome) of every job as it is settled."""
    names = list(wanted)
    groups: dict[tuple[str, str, bool], list[int]] = {}
    for index, name in enumerate(names):
        job = wanted[name]
        groups.setdefault((job.types.arch, job.headers.digest, job.types.needs_scatter), []).append(index)
    for arch, _, _ in groups:
        settings.compiler.check_target(arch)
    units = [
        _Unit({index: wanted[names[index]] for index in part})
        for indices in groups.values()
        for part in _split(indices, settings.jobs)
    ]
    started = time.monotonic()
    settled = 0
    work = _Round(settings)
    with stoppable(), ThreadPoolExecutor(max(1, settings.jobs)) as pool:
        running: set[Future[tuple[dict[int, Outcome], list[_Unit]]]] = {pool.submit(work.run, unit) for unit in units}
        try:
            while running:
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    outcomes, more = future.result()
                    running |= {pool.submit(work.run, unit) for unit in more}
                    for index, outcome in outcomes.items():
                        settled += 1
                        yield names[index], outcome
                if progress is not None:
                    progress(settled, len(names), time.monotonic() - started)
        except BaseException:
            from tilewright.probe.compiler import kill_all

            for future in running:
                future.cancel()
            kill_all()
            for future in running:
                with suppress(Stopped, Exception):
                    future.result()
            raise
