"""A supervised program seen from the sweep: started, watched, stopped; see `supervise` for what guards it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tilewright.errors import ToolError, shown
from tilewright.sweep import supervise

__all__ = ["Supervised"]

_START_S: Final = 30.0
"""Seconds for a supervisor to report; Python starts in well under one."""
_SPARE_S: Final = 15.0
"""Seconds beyond the grace that a supervisor gets to end everything."""


class Supervised:
    """One program, its output in the file `log`. It and all its descendants end with this process, however it ends."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        """Start `command`.

        Raises:
            ToolError: it cannot be started.
        """
        self.log = log
        self.code: int | None = None
        """Exit code once it ended, negative for a signal."""
        self.pid = 0
        self._over = False
        self._said = b""
        script = str(Path(supervise.__file__))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script, str(log), "--", *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=None if env is None else dict(env),
            start_new_session=True,
        )
        try:
            word, rest = self._line(_START_S)
        except BaseException:
            self.stop()
            raise
        if word != "started":
            self._end()
            why = rest or "its supervisor did not start"
            raise ToolError(f"{shown(command[0])} cannot be started: {why}.")
        self.pid = int(rest)

    def __enter__(self) -> Supervised:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def running(self) -> bool:
        """Whether the program runs. What it started may still be ending when it does not: `stop` waits for that."""
        self._read(0)
        return self.code is None

    def _read(self, seconds: float) -> bool:
        """Take in what the supervisor says, for at most `seconds`; whether nothing is left of the program."""
        if self._over:
            return True
        word, rest = self._line(seconds)
        while word == "exited":
            self.code = int(rest)
            word, rest = self._line(0)
        if word in ("ended", "gone"):
            if word == "gone":  # somebody killed the supervisor: the kernel killed the program with it
                self._kill_group()
            self.code = -signal.SIGKILL if self.code is None else self.code
            self._over = True
            self._end()
        return self._over

    def stop(self, number: int = signal.SIGINT, grace_s: float = 10.0) -> int | None:
        """`number` to the program, then SIGTERM and SIGKILL to what is left; its exit code, once nothing is."""
        if not self._over and self.pid:
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.write(f"stop {int(number)} {grace_s:g}\n".encode())
                self._process.stdin.flush()
            end = time.monotonic() + grace_s + _SPARE_S
            while not self._read(0.1) and time.monotonic() < end:
                pass
            if not self._over:
                self._kill_group()
                self.code = -signal.SIGKILL if self.code is None else self.code
        self._end()
        return self.code

    def _kill_group(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError, AttributeError):
            os.killpg(self.pid, signal.SIGKILL)

    def _end(self) -> None:
        """Close the pipes, which ends a supervisor that is still there, and take it in."""
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=supervise.ORPHAN_S + _SPARE_S)

    def _line(self, seconds: float) -> tuple[str, str]:
        """The supervisor's next line as word and rest; ("", "") where there is none yet, "gone" where it closed."""
        stream = self._process.stdout
        assert stream is not None
        if stream.closed:
            return "gone", ""
        end = time.monotonic() + seconds
        while b"\n" not in self._said:
            if not select.select([stream], [], [], max(0.0, end - time.monotonic()))[0]:
                return "", ""
            some = os.read(stream.fileno(), 4096)
            if not some:
                return "gone", ""
            self._said += some
        line, _, self._said = self._said.partition(b"\n")
        word, _, rest = line.decode("utf-8", "replace").partition(" ")
        return word, rest
