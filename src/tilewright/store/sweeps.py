"""Sweeps in a store: what each was started with, and its events, appended as they happen."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from tilewright.errors import InputError, shown
from tilewright.store.database import patiently
from tilewright.store.opened import StoreFile

__all__ = ["SweepEvent", "SweepFile"]

T = TypeVar("T")


class SweepEvent(NamedTuple):
    """One event. `event`: `planned` or `ended`; `document` is JSON."""

    run: int
    event: str
    document: bytes


class SweepFile(StoreFile):
    """The sweeps in a store."""

    def _write(self, action: Callable[[], T]) -> T:
        try:
            return patiently(action)
        except sqlite3.Error as error:
            msg = f"The store {shown(str(self.path))} cannot be written: {error}; free the disk, then --resume."
            raise InputError("store", msg) from None

    def begin(self, identity: str, document: bytes) -> int:
        """A new sweep; its number."""
        sql = "INSERT INTO sweeps (at, identity, document) VALUES (?, ?, ?)"
        return self._write(lambda: self._connection.execute(sql, (_now(), identity, document)).lastrowid or 0)

    def latest(self, identity: str) -> int | None:
        """The newest sweep of this identity."""
        sql = "SELECT max(id) FROM sweeps WHERE identity = ?"
        (found,) = self._read(lambda: self._connection.execute(sql, (identity,)).fetchone())
        return found

    def append(self, sweep: int, run: int, event: str, document: bytes) -> None:
        """Keep one event."""
        sql = "INSERT OR IGNORE INTO sweep_events (sweep, run, at, event, document) VALUES (?, ?, ?, ?, ?)"
        self._write(lambda: self._connection.execute(sql, (sweep, run, _now(), event, document)))

    def events(self, sweep: int) -> list[SweepEvent]:
        """Every event of a sweep, oldest first."""
        sql = "SELECT run, event, document FROM sweep_events WHERE sweep = ? ORDER BY id"
        return [SweepEvent(*row) for row in self._read(lambda: self._connection.execute(sql, (sweep,)).fetchall())]

    def _read(self, action: Callable[[], Any]) -> Any:
        try:
            return patiently(action)
        except sqlite3.Error as error:
            raise self.damaged(error) from None


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
