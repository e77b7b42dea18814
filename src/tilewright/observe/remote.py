"""The collector on another host, through ssh: its script on the far python3's input, one JSON object back."""

from __future__ import annotations

import subprocess
from typing import Final
from urllib.parse import urlsplit

from tilewright.errors import InputError, ToolError, shown
from tilewright.observe.script import script
from tilewright.observe.snapshot import MAX_SNAPSHOT_BYTES
from tilewright.observe.ssh import check_host, failure, ssh_command

SLACK_S: Final = 180
"""What the collector may take beside its window: several tools, each with a limit of its own."""


def check_url(url: str | None) -> None:
    """Raise InputError where `url` is no address of a server's metrics."""
    if url is None:
        return
    if not url.startswith(("http://", "https://")):
        raise InputError("url", f"--url {shown(url)} has to begin with http:// or https://.")
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and parts.port != 0
    except ValueError:  # brackets that do not close, a port that is none
        named = False
    if not named or not url.isascii() or not url.isprintable() or " " in url:
        raise _no_address(url)


def _no_address(url: str) -> InputError:
    return InputError("url", f"--url {shown(url)} is no address; write http://HOST:PORT.")


def remote_snapshot(host: str, seconds: float, pid: int | None, url: str | None) -> bytes:
    """The snapshot of `host` as JSON.

    Raises:
        InputError: the host's name is none, or it does not answer.
        ToolError: ssh or the far python3 is missing, or the collector failed there.
    """
    check_host(host)
    check_url(url)
    words = ["python3", "-", "--seconds", str(seconds)]
    words += ["--pid", str(pid)] if pid is not None else []
    if url is not None:
        if any(character in url for character in "'\"\\;&|<>$`()"):
            raise _no_address(url)
        words += ["--url", url]
    command = ssh_command(host, words)
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
    if done.returncode:
        raise failure(host, done.returncode, done.stderr, "the collector")
    if len(done.stdout) > MAX_SNAPSHOT_BYTES:
        raise ToolError(f"{host} sent more than {MAX_SNAPSHOT_BYTES >> 20} MiB, which no snapshot is.")
    # A login script of that host may print before us: the snapshot is the last line.
    return done.stdout.strip().rpartition(b"\n")[2]
