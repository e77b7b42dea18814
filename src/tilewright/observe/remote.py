"""The collector on another host, through ssh: its script on the far python3's input, one JSON object back."""

from __future__ import annotations

import subprocess
from typing import Final

from tilewright.errors import InputError, ToolError, shown
from tilewright.observe.script import script
from tilewright.observe.snapshot import MAX_SNAPSHOT_BYTES

CONNECT_S: Final = 15
"""How long a host may take to answer at all."""
SLACK_S: Final = 180
"""What the collector may take beside its window: several tools, each with a limit of its own."""
SSH_FAILED: Final = 255
"""ssh's own exit code for "could not get there" (ssh(1))."""
NO_COMMAND: Final = 127


def remote_snapshot(host: str, seconds: float, pid: int | None, url: str | None) -> bytes:
    """The snapshot of `host` as JSON.

    Raises:
        InputError: the host's name is none, or it does not answer.
        ToolError: ssh or the far python3 is missing, or the collector failed there.
    """
    if not host or host.startswith("-") or any(character.isspace() for character in host):
        raise InputError("ssh", f"--ssh {shown(host)} is no host; write HOST or USER@HOST.")
    words = ["python3", "-", "--seconds", str(seconds)]
    words += ["--pid", str(pid)] if pid is not None else []
    if url is not None:
        if not url.isprintable() or any(character in url for character in " '\"\\;&|<>$`()"):
            raise InputError("url", f"--url {shown(url)} is no address; write http://HOST:PORT.")
        words += ["--url", url]
    command = ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "--", host, *words]
    try:
        done = subprocess.run(
            command, input=script().encode(), capture_output=True, timeout=seconds + SLACK_S, check=False
        )
    except FileNotFoundError:
        raise ToolError(
            "ssh is not installed here; run `tilewright observe --script | ssh HOST python3 -` elsewhere."
        ) from None
    except subprocess.TimeoutExpired:
        raise InputError(
            "ssh", f"{host} took more than {seconds + SLACK_S:.0f} s; try again or lower --seconds."
        ) from None
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    reason = said[-1][:200] if said else f"exit code {done.returncode}"
    if done.returncode == SSH_FAILED:
        raise InputError(
            "ssh", f"{host} cannot be reached: {reason}; `ssh {host} true` has to work without a password."
        )
    if done.returncode == NO_COMMAND:
        raise ToolError(f"{host} has no python3 ({reason}); the collector needs Python 3.8 or later there.")
    if done.returncode:
        raise ToolError(f"The collector failed on {host}: {reason}")
    if len(done.stdout) > MAX_SNAPSHOT_BYTES:
        raise ToolError(f"{host} sent more than {MAX_SNAPSHOT_BYTES >> 20} MiB, which no snapshot is.")
    # A login script of that host may print before us: the snapshot is the last line.
    return done.stdout.strip().rpartition(b"\n")[2]
