"""The server's log of a plan (`plan --log FILE`): known lines by rule id."""

from __future__ import annotations

from pathlib import Path

from tilewright.diagnose.scan import Hit, scan
from tilewright.errors import InputError, shown

__all__ = ["Hit", "scan_log"]


def scan_log(path: Path) -> dict[str, Hit]:
    """Known lines of the log at `path`; an InputError where it cannot be read or is no text."""
    label = shown(str(path))
    try:
        if not path.is_char_device():
            with path.open("rb") as stream:
                return scan(stream, path.name).hits
    except InputError as error:
        raise InputError("log", f"--log: {error.msg}") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        msg = f"--log {label} cannot be read: {reason}; pass a server's log file."
        raise InputError("log", msg) from None
    raise InputError("log", f"--log {label} is a device, not a file; pass a server's log file.")
