"""A store that is open: what the results and the journal in it have in common."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from tilewright.errors import InputError, shown
from tilewright.store.database import open_readable, open_writable

UNREADABLE: Final = (sqlite3.Error, msgspec.MsgspecError, UnicodeDecodeError, TypeError, KeyError, RecursionError)
"""What reading a damaged store raises: SQLite's own errors, and those of documents that are none."""


class StoreFile:
    """Opened with `append_to(path)` to write, with `read(path)` to read; closes with `with`."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path

    @classmethod
    def append_to(cls, path: Path) -> Self:
        """Open `path` for appending; it is made where it is missing. Raises InputError where it cannot be used."""
        return cls(open_writable(path), path)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open `path` for reading only. Raises InputError where it is missing or no store."""
        return cls(open_readable(path), path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def damaged(self, error: BaseException) -> InputError:
        """The error of a store that holds what it cannot hold."""
        why = str(error) or type(error).__name__
        msg = f"The store {shown(str(self.path))} is damaged: {why}; restore it from a copy or an export."
        return InputError("store", msg)

    def close(self) -> None:
        self._connection.close()
