"""What became of one start of a server: measured, or how it failed. Every failure is a value with a type."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["STATUSES", "Explained", "Outcome", "Repeat", "Status"]

Status = Literal[
    "measured", "died_starting", "never_ready", "port_taken", "died_loaded", "hung", "errors", "generator_failed"
]
STATUSES: dict[Status, str] = {
    "measured": "measured",
    "died_starting": "the server ended before it was ready",
    "never_ready": "the server was not ready in time",
    "port_taken": "another program listened on the port",
    "died_loaded": "the server ended under load",
    "hung": "the load was not answered in time",
    "errors": "every request failed",
    "generator_failed": "the load generator failed",
}


class Repeat(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measurement: all metrics (see `metrics.METRICS`), and what makes them doubtful."""

    metrics: dict[str, float]
    requests: int
    seconds: float
    marks: tuple[str, ...] = ()


class Explained(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the server's log says, as `tilewright explain` reads it: one known line, or the last error in it."""

    title: str
    line: str
    cause: str | None = None
    fix: str | None = None
    known: bool = False
    source: str | None = None


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One start of a server (or one look at a server that runs) and what was measured of it."""

    status: Status
    started: str
    """UTC, ISO 8601."""
    seconds: float
    reason: str | None = None
    """Why it is not `measured`, in one sentence."""
    ready_s: float | None = None
    exit_code: int | None = None
    """Of the server, where it ended by itself."""
    command: tuple[str, ...] = ()
    repeats: tuple[Repeat, ...] = ()
    explained: tuple[Explained, ...] = ()
    log: str | None = None
    """File that holds the server's output."""
    model: str | None = None
    server_metrics: dict[str, Any] | None = None
