"""A process between a sweep and what it starts, so that nothing outlives the sweep. Standard library only.

It runs in a session of its own, holds one end of a pipe, and starts one program. When the pipe closes - the sweep
ended, was interrupted, or was killed with SIGKILL, which no process can catch - it ends the program and everything
that the program started, however deep and in whatever session: as their subreaper (prctl(2), Linux) every orphan
among them becomes a child of this process and is found in /proc. Should this process itself be killed, the program
gets SIGKILL from the kernel (PR_SET_PDEATHSIG).

    python -I -S supervise.py LOG -- PROGRAM ARGUMENT...

stdin: lines `stop SIGNAL SECONDS` (signal to the program, then SIGTERM to all, then SIGKILL), or its end.
stdout: `started PID` or `failed REASON`; `exited CODE` (negative: the signal) when the program ends; `ended` once
nothing of it is left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
"""linux/prctl.h."""
POLL_S = 0.05
TERM_S = 2.0
"""Seconds that leftovers get between SIGTERM and SIGKILL."""
ORPHAN_S = 5.0
"""Seconds that the program gets to end by itself once the sweep is gone."""


def _prctl(option: int, value: int) -> None:
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _parents() -> dict[int, int]:
    """Process -> its parent, of all that /proc shows."""
    found: dict[int, int] = {}
    try:
        names = os.listdir("/proc")  # noqa: PTH208 - speed: this runs while a server is being measured
    except OSError:
        return found
    for name in names:
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as stream:  # noqa: PTH123
                    # The command's name, in parentheses, may hold anything; the parent is the second field after it.
                    found[int(name)] = int(stream.read().rpartition(b")")[2].split()[1])
            except (OSError, ValueError, IndexError):
                continue
    return found


def descendants(root: int) -> list[int]:
    """Everything below `root`, parents before children."""
    below: dict[int, list[int]] = {}
    for child, parent in _parents().items():
        below.setdefault(parent, []).append(child)
    found: list[int] = []
    pending = [root]
    while pending:
        for child in below.get(pending.pop(), []):
            found.append(child)
            pending.append(child)
    return found


def _send(processes: list[int], number: int) -> None:
    for process in processes:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process, number)


class Child:
    """The program and what it started."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.code: int | None = None

    def reap(self) -> None:
        """Take in every child that has ended, adopted ones too."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self.pid:
                self.code = os.waitstatus_to_exitcode(status)
                _say(f"exited {self.code}")

    def others(self) -> list[int]:
        """What is left of it all. Without /proc: the program's process group, if any of it is alive."""
        if os.path.isdir("/proc/self"):  # noqa: PTH112
            return descendants(os.getpid())
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, 0)
            return [-self.pid]
        return []

    def wait(self, seconds: float) -> bool:
        """Whether everything ended within `seconds`."""
        end = time.monotonic() + seconds
        while True:
            self.reap()
            if not self.others():
                return True
            if time.monotonic() >= end:
                return False
            time.sleep(POLL_S)

    def finish(self) -> None:
        """SIGTERM, then SIGKILL to everything that is left, until nothing is."""
        self.reap()
        left = self.others()
        if not left:
            return
        _send(left, signal.SIGTERM)
        if self.wait(TERM_S):
            return
        # A process may start another between the look and the signal: look until none is seen.
        while True:
            _send(self.others(), signal.SIGKILL)
            if self.wait(POLL_S * 2):
                return

    def stop(self, number: int, seconds: float) -> None:
        """`number` to the program, `seconds` to end by itself, then `finish`."""
        if self.code is None:
            _send([self.pid], number)
            end = time.monotonic() + seconds
            while self.code is None and time.monotonic() < end:
                self.reap()
                time.sleep(POLL_S)
        self.finish()


def _start(log: str, command: list[str]) -> int:
    """The program as a child in a session of its own, its output in the file `log`. Raises OSError."""
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    reader, writer = os.pipe()  # says why exec failed; closes by itself when it did not
    supervisor = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            os.setsid()
            _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != supervisor:  # it was killed before the line above
                os._exit(127)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            os.execvp(command[0], command)
        except OSError as error:
            os.write(writer, str(error.errno or 0).encode())
        finally:
            os._exit(127)
    os.close(writer)
    os.close(output)
    said = os.read(reader, 16)
    os.close(reader)
    if said:
        os.waitpid(pid, 0)
        raise OSError(int(said), os.strerror(int(said)))
    return pid


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # nobody may be listening any more
        os.write(1, text.encode() + b"\n")


def main(arguments: list[str]) -> int:
    """Supervise. Never raises."""
    log, command = arguments[0], arguments[2:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        child = Child(_start(log, command))
    except OSError as error:
        _say(f"failed {error.strerror or error}")
        return 1
    _say(f"started {child.pid}")
    said = b""
    while True:
        child.reap()
        if child.code is not None:
            child.finish()
            break
        if not select.select([0], [], [], POLL_S)[0]:
            continue
        some = os.read(0, 4096)
        said += some
        if not some:  # the sweep is gone
            child.stop(signal.SIGTERM, ORPHAN_S)
            break
        line, found, said = said.partition(b"\n")
        words = line.split()
        if found and len(words) == 3 and words[0] == b"stop":
            child.stop(int(words[1]), float(words[2]))
            break
    _say("ended")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
