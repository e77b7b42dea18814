"""The measuring process seen from outside: asked, waited for no longer than a limit, replaced when it is lost."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed, wait
from typing import IO, Final

import msgspec

from tilewright.bench.job import Job, Outcome

COMMAND: Final = (sys.executable, "-m", "tilewright.bench.work")
MAX_ANSWER: Final = 1 << 20
_LAST_WORDS: Final = 4096
GRACE_S: Final = 5.0
"""Time that the other processes of a collective have once one of them has failed: they may wait for it for ever."""


class MeasuringProcess:
    """One process that measures; started by the first job, and again after one that took it down."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._said: IO[bytes] | None = None

    def __enter__(self) -> MeasuringProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self.stop()
            self._said = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, start_new_session=True
            )
        return self._process

    def kill(self) -> None:
        """End the process and what it started; whoever waits for its answer hears of it."""
        process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def stop(self) -> None:
        """End the process and what it started."""
        self.kill()
        process, self._process = self._process, None
        if process is not None:
            process.wait()
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    stream.close()  # type: ignore[union-attr]
        if self._said is not None:
            self._said.close()
            self._said = None

    def send(self, job: Job) -> None:
        """Give it a job."""
        process = self._start()
        assert process.stdin is not None
        try:
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
        except (BrokenPipeError, ConnectionResetError):
            pass  # it is gone, which `receive` will tell

    def receive(self, limit_s: float) -> Outcome:
        """What the job gave, or how the process was lost. It is stopped at the limit, and after a failure."""
        process = self._process
        assert process is not None
        assert process.stdout is not None
        line = _line(process.stdout.fileno(), time.monotonic() + limit_s)
        if line is None:
            self.stop()
            return Outcome(status="timeout", note=f"no answer within {limit_s:g} s; its process was ended")
        try:
            outcome = msgspec.json.decode(line, type=Outcome)
        except msgspec.MsgspecError:
            outcome = Outcome(status="failed", note=self._death(process))
        if outcome.fatal or not line:
            self.stop()
        return outcome

    def ask(self, job: Job, limit_s: float) -> Outcome:
        """`send` and `receive`."""
        self.send(job)
        return self.receive(limit_s)

    def _death(self, process: subprocess.Popen[bytes]) -> str:
        try:
            code = process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            return "its process answered nonsense"
        how = f"its process ended with exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = f"its process was ended by {signal.Signals(-code).name}"
        last = ""
        if self._said is not None:
            size = self._said.seek(0, os.SEEK_END)
            self._said.seek(max(0, size - _LAST_WORDS))
            lines = self._said.read().decode("utf-8", "replace").strip().splitlines()
            last = f": {lines[-1][:200]}" if lines else ""
        return how + last


def _line(source: int, end: float) -> bytes | None:
    """One line from a pipe; b"" or a part of one where it closed, None where time was up."""
    found = bytearray()
    while not found.endswith(b"\n") and len(found) < MAX_ANSWER:
        left = end - time.monotonic()
        if left <= 0 or not select.select([source], [], [], left)[0]:
            return None
        some = os.read(source, 1 << 16)
        if not some:
            break
        found += some
    return bytes(found)


class Together:
    """The processes of a collective, one for each of `count` ranks, kept from one question to the next."""

    def __init__(self, count: int, command: Sequence[str] = COMMAND) -> None:
        self._processes = [MeasuringProcess(command) for _ in range(count)]

    def __enter__(self) -> Together:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End all of them."""
        for process in self._processes:
            process.stop()

    def ask(self, jobs: Sequence[Job], limit_s: float) -> list[Outcome]:
        """What each process made of its job, all at once and within one limit. Once one has failed, the others are
        given GRACE_S; after a failure all are started again."""
        for process, job in zip(self._processes, jobs, strict=True):
            process.send(job)
        with ThreadPoolExecutor(len(self._processes)) as pool:
            asked: list[Future[Outcome]] = [pool.submit(process.receive, limit_s) for process in self._processes]
            try:
                for future in as_completed(asked):
                    if future.result().status != "ok":
                        break
                wait(asked, timeout=GRACE_S)
            except BaseException:  # Ctrl-C: the threads of the pool are waited for, and they for the processes
                for process in self._processes:
                    process.kill()
                raise
            waiting = [not future.done() for future in asked]
            for process, still in zip(self._processes, waiting, strict=True):
                if still:
                    process.kill()
            outcomes = [future.result() for future in asked]
        if all(outcome.status == "ok" for outcome in outcomes):
            return outcomes
        self.stop()
        lost = Outcome(status="timeout", note="ended because another process of the collective had failed")
        return [lost if still else outcome for outcome, still in zip(outcomes, waiting, strict=True)]
