"""What an evaluation may cost, and how it says that it cannot go on."""

from __future__ import annotations

from tilewright.libraries.placed import PlacedFinding

MAX_STEPS = 6_000_000
"""Evaluation steps (nodes visited, elements produced) before an evaluation is given up; FlashInfer 0.7.4's whole
SM120 MoE module takes under a tenth of this."""

MAX_BYTES = 256 * 1024 * 1024
"""Characters that an evaluation may produce in all strings together."""

MAX_STRING = 8 * 1024 * 1024
"""Longest single string, in characters."""

MAX_INT_BITS = 512
"""Widest integer."""

MAX_DEPTH = 80
"""Deepest nesting of calls."""

MAX_SOURCE = 8 * 1024 * 1024
"""Largest source file that is read, in bytes."""


class CannotFollow(PlacedFinding):
    """The evaluation met something that it does not understand or must not decide. `where` is `file:line`."""

    def at(self, file: str, line: int) -> CannotFollow:
        """The same finding, placed at `file:line` unless it has a place already."""
        if not self.file:
            self.file, self.line = file, line
        return self


class OutOfBudget(CannotFollow):
    """The evaluation took more steps or memory than a generator needs."""


class Meter:
    """Counts what an evaluation costs."""

    def __init__(self, steps: int = MAX_STEPS, size: int = MAX_BYTES) -> None:
        self.steps, self.bytes = steps, size

    def step(self, count: int = 1) -> None:
        self.steps -= count
        if self.steps < 0:
            raise OutOfBudget("it takes more steps than any generator we know of")

    def text(self, value: str) -> str:
        """Account for the string `value` and return it."""
        size = len(value)
        self.bytes -= size
        if size > MAX_STRING or self.bytes < 0:
            raise OutOfBudget("it builds more text than any generator we know of")
        return value

    def integer(self, value: int) -> int:
        if value.bit_length() > MAX_INT_BITS:
            raise OutOfBudget("it computes an integer of more than 512 bits")
        return value
