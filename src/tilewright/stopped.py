"""A run that a signal ends: as Ctrl-C, with the signal's number for the shell and a sentence of its own."""

from __future__ import annotations

from signal import SIGINT

__all__ = ["STOPPED", "StoppedError"]

STOPPED = "Stopped by {}; nothing was left half-written."
"""What is said of a run with nothing to add."""


class StoppedError(KeyboardInterrupt):
    """`number` is the signal; `msg` one sentence that says what is kept, None where there is nothing to say of it.

    No TilewrightError: like Ctrl-C it passes by every `except Exception`.
    """

    def __init__(self, number: int = SIGINT, msg: str | None = None) -> None:
        super().__init__(number)
        self.number = number
        self.msg = msg
