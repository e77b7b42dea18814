"""Compiling ahead of the GPU: processes on all cores that fill the cache which the measuring processes read."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

from tilewright.bench.job import Job, Outcome
from tilewright.bench.process import MeasuringProcess
from tilewright.store.result import key_of

COMMAND: Final = (sys.executable, "-m", "tilewright.tune.build_work")
LIMIT_S: Final = 120.0
"""Longest that one compilation may take: the largest Triton tiles take about 20 s (`triton_/compile.py`)."""
_CLOSE_S: Final = 5.0
"""Longest that closing waits for the threads whose processes are gone."""


def default_builders(workers: int) -> int:
    """Compiling processes: all cores but one for each measuring process, at least one."""
    return max(1, (os.cpu_count() or 2) - workers)


class Builders:
    """A pool of compiling processes. Each build is made once, however many trials need it; what a trial waits for comes
    before what is only made ahead."""

    def __init__(self, count: int, command: Sequence[str] = COMMAND, limit_s: float = LIMIT_S) -> None:
        self.count = count
        self._limit_s = limit_s
        self._made: dict[str, Future[Outcome]] = {}
        self._wanted: deque[tuple[Future[Outcome], dict[str, Any]]] = deque()
        self._ahead: deque[tuple[Future[Outcome], dict[str, Any]]] = deque()
        self._change = threading.Condition()
        self._closing = False
        self._processes = [MeasuringProcess(command) for _ in range(count)]
        self._threads: list[threading.Thread] = []
        self.failed = 0
        self.finished = 0

    def __enter__(self) -> Builders:
        return self

    def __exit__(self, *_: object) -> None:
        with self._change:
            self._closing = True
            for task in (*self._wanted, *self._ahead):
                task[0].cancel()
            self._change.notify_all()
        # Killed until nobody reads from them, and only then closed: a thread may just have started one, and what is
        # closed under a reader is another file's by the time it reads.
        end = time.monotonic() + _CLOSE_S
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < end:
            for process in self._processes:
                process.kill()
            for thread in self._threads:
                thread.join(timeout=_CLOSE_S / 100)
        for process in self._processes:
            process.stop()

    def start(self, jobs: Sequence[dict[str, Any]], *, ahead: bool = False) -> list[Future[Outcome]]:
        """Have `jobs` (`build.builds`) compiled; those that were asked for before are not made again. `ahead`: when
        nothing else is waited for."""
        found: list[Future[Outcome]] = []
        with self._change:
            for job in jobs:
                key = key_of(job)
                known = self._made.get(key)
                future = self._made.setdefault(key, Future[Outcome]())
                found.append(future)
                if known is None and ahead:
                    self._ahead.append((future, job))
                elif known is None or (not ahead and not future.running() and not future.done()):
                    # One that was only to be made ahead stands in both lines; whoever comes second finds it begun.
                    self._wanted.append((future, job))
            while len(self._threads) < min(self.count, len(self._wanted) + len(self._ahead)) and not self._closing:
                process = self._processes[len(self._threads)]
                thread = threading.Thread(target=self._work, args=(process,), name="build", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._change.notify_all()
        return found

    def _next(self) -> tuple[Future[Outcome], dict[str, Any]] | None:
        """The next build to make, None once there will be none."""
        with self._change:
            while not self._closing:
                for line in (self._wanted, self._ahead):
                    while line:
                        future, job = line.popleft()
                        if not future.running() and not future.done() and future.set_running_or_notify_cancel():
                            return future, job
                self._change.wait()
        return None

    def _work(self, process: MeasuringProcess) -> None:
        while (task := self._next()) is not None:
            future, job = task
            try:
                outcome = process.ask(Job(backend="build", kind="build", problem=job), self._limit_s)
            except BaseException as error:  # whoever waits must hear of it
                future.set_exception(error)
                continue
            with self._change:
                self.finished += 1
                self.failed += outcome.status != "ok"
            future.set_result(outcome)


def first_failure(builds: Sequence[Future[Outcome]]) -> Outcome | None:
    """Waits for `builds`; the first that failed, or None."""
    for future in builds:
        outcome = future.result()
        if outcome.status != "ok":
            return outcome
    return None


BuildsOf = Callable[[Any], list[dict[str, Any]]]
