"""One command on another host through ssh: its name checked, what went wrong said in one sentence."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Final

from tilewright.errors import InputError, TilewrightError, ToolError, shown

CONNECT_S: Final = 15
"""How long a host may take to answer at all."""
MAX_HOST: Final = 320
"""Characters of USER@HOST: a name has at most 253 (RFC 1035), a user's 64 are more than any system takes."""
SSH_FAILED: Final = 255
"""ssh's own exit code for "could not get there" (ssh(1))."""
NO_COMMAND: Final = 127


def check_host(host: str) -> None:
    """Raise InputError where `host` is no host's name, or would be an option of ssh's."""
    if (
        not 0 < len(host) <= MAX_HOST
        or host.startswith("-")
        or any(letter.isspace() or not letter.isprintable() for letter in host)
    ):
        raise InputError("ssh", f"--ssh {shown(host)} is no host; write HOST or USER@HOST.")


def ssh_command(host: str, words: Sequence[str]) -> list[str]:
    """The command line that runs `words` there; the far shell gets each of them as it is."""
    # ssh joins them with spaces and the far shell takes them apart again.
    far = [shlex.quote(word) for word in words]
    return ["ssh", "-T", "-o", "BatchMode=yes", "-o", f"ConnectTimeout={CONNECT_S}", "--", host, *far]


def failure(host: str, code: int, stderr: bytes, what: str) -> TilewrightError:
    """What `code` and the last line of stderr mean for the user."""
    said = stderr.decode("utf-8", "replace").strip().splitlines()
    reason = said[-1][:200] if said else f"exit code {code}"
    if code == SSH_FAILED:
        return InputError(
            "ssh", f"{host} cannot be reached: {reason}; `ssh {host} true` has to work without a password."
        )
    if code == NO_COMMAND:
        return ToolError(f"{host} has no python3 ({reason}); {what} needs Python 3.8 or later there.")
    return ToolError(f"{what[0].upper()}{what[1:]} failed on {host}: {reason}")
