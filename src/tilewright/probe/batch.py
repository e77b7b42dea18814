"""Compiling many configs: a few dozen a translation unit, units in parallel, known ones from the cache."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any, Final

from tilewright.probe.cache import ResultCache, content_key
from tilewright.probe.compiler import Stopped, kill_all, stoppable
from tilewright.probe.rounds import Job, Outcome, Round, Settings, Unit
from tilewright.probe.unit import config_text, preamble

__all__ = ["BATCH", "compile_jobs"]

BATCH: Final = {"sm_90a": 40, "sm_100a": 12, "sm_103a": 12, "sm_120a": 40, "sm_121a": 40}
"""Configs a translation unit, by target. Reading the headers takes about 5 s, a config 0.3-1.5 s (nvcc 13.0, one core);
units of 40 SM100 configs took 5 GB of memory, of 40 SM120 ones 1.5 GB."""


def job_key(job: Job, settings: Settings) -> str:
    """The cache key of a job: everything that its outcome depends on."""
    scatter = settings.extensions.digest if settings.extensions and job.types.needs_scatter else ""
    return content_key(
        "types", job.headers.digest, scatter, settings.compiler.version, job.types.arch,
        preamble(job.types.needs_scatter, sorted(job.headers.files)), config_text(0, job.types),
    )  # fmt: skip


def _split(indices: Sequence[int], jobs: int, batch: int) -> list[Sequence[int]]:
    """`indices` in units of at most `batch`, and at least as many units as there are cores, of at least 4."""
    size = max(4, min(batch, -(-len(indices) // max(1, jobs))))
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
    groups: dict[tuple[str, str], list[int]] = {}
    for index, name in enumerate(names):
        job = wanted[name]
        groups.setdefault((job.types.arch, job.headers.digest), []).append(index)
    for arch, _ in groups:
        settings.compiler.check_target(arch)
    units = [
        Unit({index: wanted[names[index]] for index in part})
        for (arch, _), indices in groups.items()
        for part in _split(indices, settings.jobs, BATCH[arch])
    ]
    started = time.monotonic()
    settled = 0
    work = Round(settings)
    with stoppable(), ThreadPoolExecutor(max(1, settings.jobs)) as pool:
        running: set[Future[tuple[dict[int, Outcome], list[Unit]]]] = {pool.submit(work.run, unit) for unit in units}
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
            for future in running:
                future.cancel()
            kill_all()
            for future in running:
                with suppress(Stopped, Exception):
                    future.result()
            raise
