"""A finding about a source, with its place: what stops a reader that must not guess."""

from __future__ import annotations


class PlacedFinding(Exception):  # noqa: N818 (a finding about a source, not a fault of ours)
    """Why a source cannot be followed. `where` is `file:line`, or empty."""

    def __init__(self, why: str, file: str = "", line: int = 0) -> None:
        super().__init__(why)
        self.why, self.file, self.line = why, file, line

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}" if self.file else ""

    def __str__(self) -> str:
        return f"{self.where}: {self.why}" if self.file else self.why
