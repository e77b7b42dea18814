"""`Store`: results in, results out. Nothing in it changes or removes a result."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tilewright.errors import InputError, shown
from tilewright.store.database import patiently
from tilewright.store.opened import UNREADABLE, StoreFile
from tilewright.store.result import Result, Stored, check, digest_of, key_of

_INSERT = """INSERT OR IGNORE INTO results
    (digest, at, kind, backend, status, gpu, problem_key, config_key, environment_key, time_s, document)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"""
_DECODER = msgspec.json.Decoder(Result)


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which results are meant; None or empty means any. `problem` and `config` hold fields that must be equal."""

    kind: str | None = None
    backend: str | None = None
    gpu: str | None = None
    status: str | None = None
    since: str | None = None
    """ISO 8601; results of that moment and later (a date alone is its first moment, UTC)."""
    problem: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    config: dict[str, Any] = field(default_factory=lambda: dict[str, Any]())
    last: int | None = None
    """Only so many, the newest."""


def _holds(have: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(name in have and have[name] == value for name, value in wanted.items())


class Store(StoreFile):
    """The results in a store."""

    def append(self, results: Iterable[Result]) -> int:
        """Store `results` in one transaction: all of them or none; how many were new (the same one is kept once).

        Raises:
            InputError: one of them says what cannot be, or the file cannot be written.
        """
        rows = [self._row(check(result)) for result in results]

        def write() -> int:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                new = sum(self._connection.execute(_INSERT, row).rowcount for row in rows)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk has ended it already
                    self._connection.execute("ROLLBACK")
                raise
            return new

        try:
            return patiently(write)
        except sqlite3.Error as error:
            msg = f"The store {shown(str(self.path))} cannot be written: {error}; nothing of this was stored."
            raise InputError("store", msg) from None

    @staticmethod
    def _row(result: Result) -> tuple[Any, ...]:
        gpu = result.environment.get("gpu")
        return (
            digest_of(result),
            result.at,
            result.kind,
            result.backend,
            result.status,
            gpu if isinstance(gpu, str) else None,
            key_of(result.problem),
            key_of(result.config),
            key_of(result.environment),
            result.time_s,
            msgspec.json.encode(result),
        )

    def kinds(self) -> list[str]:
        """The kinds of its results, in order of the alphabet.

        Raises:
            InputError: the file is damaged.
        """
        try:
            return [kind for (kind,) in self._connection.execute("SELECT DISTINCT kind FROM results ORDER BY kind")]
        except UNREADABLE as error:
            raise self.damaged(error) from None

    def find(self, query: Query = Query()) -> Iterator[Stored]:
        """The results that `query` means, oldest first.

        Raises:
            InputError: a stored document cannot be read (the file is damaged).
        """
        clauses, values = ["1"], list[Any]()
        for column, value, sign in (
            ("kind", query.kind, "="),
            ("backend", query.backend, "="),
            ("gpu", query.gpu, "="),
            ("status", query.status, "="),
            ("at", query.since, ">="),
        ):
            if value is not None:
                clauses.append(f"{column} {sign} ?")
                values.append(value)
        order = "DESC" if query.last is not None else "ASC"
        sql = f"SELECT id, digest, document FROM results WHERE {' AND '.join(clauses)} ORDER BY id {order}"
        kept = list[Stored]()
        try:
            for ident, digest, document in self._connection.execute(sql, values):
                result = _DECODER.decode(document)
                if not (_holds(result.problem, query.problem) and _holds(result.config, query.config)):
                    continue
                stored = Stored(id=ident, digest=digest, result=result)
                if query.last is None:
                    yield stored
                    continue
                kept.append(stored)
                if len(kept) >= query.last:
                    break
        except UNREADABLE as error:
            raise self.damaged(error) from None
        yield from reversed(kept)
