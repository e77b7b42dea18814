"""A process that runs a command and takes it down when the one that asked for it is gone.

Run as `python -I -S supervise.py PARENT_PID COMMAND...` in a process group of its own. Ctrl-C and time limits are the
parent's business (it kills the group); this covers the parent that was killed itself, which can do nothing any more.
Needs the standard library only, and imports nothing of the package.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

POLL_S = 0.5
"""How often the parent is looked at."""


def main(parent: int, command: list[str]) -> int:
    try:
        process = subprocess.Popen(command)
    except OSError as error:
        print(f"{command[0].rsplit(os.sep, 1)[-1]} could not be started: {error.strerror}")
        return 127
    while True:
        try:
            code = process.wait(POLL_S)
        except subprocess.TimeoutExpired:
            if os.getppid() != parent:
                os.killpg(0, signal.SIGKILL)  # this process, the command and its children
            continue
        return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
