"""A stream that takes nothing more is pointed at nothing."""

from __future__ import annotations

import os
from typing import TextIO

__all__ = ["silence"]


def silence(stream: TextIO) -> None:
    """Let what `stream` still holds, and all that follows, go nowhere: the interpreter's last flush cannot fail then.

    A stream without a file (one that a test captures) is left alone.
    """
    try:
        number = stream.fileno()
    except (OSError, ValueError, AttributeError):
        return
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, number)
    os.close(devnull)
