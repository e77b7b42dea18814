"""Compiling ahead of the GPU: processes on all cores that fill the cache which the measuring processes read."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

from tilewright.bench.job import Job, Outcome
from tilewright.bench.process import MeasuringProcess
from tilewright.store.result import key_of

COMMAND: Final = (sys.executable, "-m", "tilewright.tune.build_work")
LIMIT_S: Final = 120.0
"""Longest that one compilation may take: the largest Triton tiles take about 20 s (`triton_/compile.py`)."""


def default_builders(workers: int) -> int:
    """Compiling processes: all cores but one for each measuring process, at least one."""
    return max(1, (os.cpu_count() or 2) - workers)


class Builders:
    """A pool of compiling processes. Each build is made once, however many trials need it."""

    def __init__(self, count: int, command: Sequence[str] = COMMAND, limit_s: float = LIMIT_S) -> None:
        self.count = count
        self._command, self._limit_s = command, limit_s
        self._pool = ThreadPoolExecutor(max_workers=count, thread_name_prefix="build")
        self._own = threading.local()
        self._processes: list[MeasuringProcess] = []
        self._made: dict[str, Future[Outcome]] = {}
        self._lock = threading.Lock()
        self.failed = 0
        self.finished = 0

    def __enter__(self) -> Builders:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for process in self._processes:
                process.stop()

    def start(self, jobs: Sequence[dict[str, Any]]) -> list[Future[Outcome]]:
        """Have `jobs` (`build.builds`) compiled; those that were asked for before are not made again."""
        found: list[Future[Outcome]] = []
        for job in jobs:
            key = key_of(job)
            with self._lock:
                if key not in self._made:
                    self._made[key] = self._pool.submit(self._build, job)
                found.append(self._made[key])
        return found

    def _build(self, job: dict[str, Any]) -> Outcome:
        process: MeasuringProcess | None = getattr(self._own, "process", None)
        if process is None:
            process = MeasuringProcess(self._command)
            self._own.process = process
            with self._lock:
                self._processes.append(process)
        outcome = process.ask(Job(backend="build", kind="build", problem=job), self._limit_s)
        with self._lock:
            self.finished += 1
            self.failed += outcome.status != "ok"
        return outcome


def first_failure(builds: Sequence[Future[Outcome]]) -> Outcome | None:
    """Waits for `builds`; the first that failed, or None."""
    for future in builds:
        outcome = future.result()
        if outcome.status != "ok":
            return outcome
    return None


BuildsOf = Callable[[Any], list[dict[str, Any]]]
