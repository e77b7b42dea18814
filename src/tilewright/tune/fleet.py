"""Workers that measure: one process a GPU on this machine, each fed by a thread, each replaced when it is lost."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import msgspec

from tilewright.bench.job import Outcome
from tilewright.bench.process import MeasuringProcess
from tilewright.tune.builders import Builders, first_failure
from tilewright.tune.request import Request, job_of

COMMAND: Final = (sys.executable, "-m", "tilewright.tune.work")
LIMIT_S: Final = 60.0
"""Longest that one trial may take, with making the operands of a new layer: a few seconds on an H200."""


@dataclass
class Done:
    """One request that ended. `kept` is set once its trial is in the store: only then does its worker go on, so that
    whoever kills the run loses at most what is being measured."""

    request: Request
    outcome: Outcome
    worker: str
    kept: threading.Event = field(default_factory=threading.Event)


class Fleet(Protocol):
    """Measures requests, in no particular order; the requests of one `give` with `together` on one worker, in order."""

    done: queue.Queue[Done | BaseException]

    @property
    def left_out(self) -> Sequence[str]:
        """Workers that are there and do not take part, and why."""
        ...

    @property
    def width(self) -> int:
        """Workers, at least 1: how many requests are measured at once."""
        ...

    def give(self, requests: Sequence[Request], *, together: bool = False) -> None:
        """Have `requests` measured; each comes back through `done`."""
        ...

    def prepare(self, requests: Sequence[Request]) -> None:
        """Compile what `requests` need, when there is nothing better to do."""
        ...

    def close(self) -> None:
        """End all workers."""
        ...


class LocalFleet:
    """The GPUs of this machine: a thread and a process for each of `devices`."""

    left_out: Sequence[str] = ()

    def __init__(
        self,
        devices: Sequence[int],
        builders: Builders | None,
        builds_of: Callable[[Request], list[dict[str, Any]]],
        *,
        kernel_file: str = "",
        command: Sequence[str] = COMMAND,
        limit_s: float = LIMIT_S,
    ) -> None:
        self.done: queue.Queue[Done | BaseException] = queue.Queue()
        self._builders, self._builds_of = builders, builds_of
        self._kernel_file, self._limit_s = kernel_file, limit_s
        self._tasks: queue.Queue[list[tuple[Request, list[Future[Outcome]]]] | None] = queue.Queue()
        self._processes = {device: MeasuringProcess(command) for device in devices}
        self._closing = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, args=(device,), name=f"gpu{device}", daemon=True)
            for device in self._processes  # a GPU that is named twice has one process
        ]
        for thread in self._threads:
            thread.start()

    @property
    def width(self) -> int:
        return len(self._threads)

    def _builds(self, request: Request) -> list[Future[Outcome]]:
        return self._builders.start(self._builds_of(request)) if self._builders else []

    def prepare(self, requests: Sequence[Request]) -> None:
        if self._builders is not None:
            for request in requests:
                self._builders.start(self._builds_of(request), ahead=True)

    def give(self, requests: Sequence[Request], *, together: bool = False) -> None:
        pairs = [(request, self._builds(request)) for request in requests]
        if together:
            self._tasks.put(pairs)
        else:
            for pair in pairs:
                self._tasks.put([pair])

    def _work(self, device: int) -> None:
        process = self._processes[device]
        try:
            while (task := self._tasks.get()) is not None and not self._closing.is_set():
                for request, builds in task:
                    failed = first_failure(builds)
                    if failed is not None:
                        fault = failed.figures.get("fault", "compile")
                        outcome = msgspec.structs.replace(failed, status="failed", figures={"fault": fault})
                    else:
                        outcome = process.ask(job_of(request, device, self._kernel_file), self._limit_s)
                    if self._closing.is_set():
                        return
                    done = Done(request, outcome, f"gpu{device}")
                    self.done.put(done)
                    while not done.kept.wait(1.0):
                        if self._closing.is_set():
                            return
        except CancelledError:
            return
        except BaseException as error:  # whatever it is, the run must hear of it instead of waiting for ever
            self.done.put(error)

    def close(self) -> None:
        self._closing.set()
        for _ in self._threads:
            self._tasks.put(None)
        for process in self._processes.values():
            process.stop()
        for thread in self._threads:
            thread.join(timeout=5)
