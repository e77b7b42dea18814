"""One measurement as it goes to the process that makes it, and what comes back."""

from __future__ import annotations

from typing import Any

import msgspec

from tilewright.store.result import Status


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a measuring process is asked. `budget_s`: sampling time of the figure; `reserve_bytes`: memory that is left
    free."""

    backend: str
    kind: str
    problem: dict[str, Any]
    device: int = 0
    budget_s: float = 2.0
    rank: int = 0
    meeting: str = ""
    """all-reduce: the file through which the processes find each other."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What one measurement gave; the fields are those of `store.Result`. `fatal`: the process cannot go on."""

    status: Status
    time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    samples: int = 0
    error: float | None = None
    config: dict[str, Any] = {}
    marks: list[str] = []
    figures: dict[str, Any] = {}
    versions: dict[str, str] = {}
    cuda: str | None = None
    note: str = ""
    fatal: bool = False
