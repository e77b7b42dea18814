"""Trials in the store: each is written when it ends and found again by device, driver, versions, problem and config."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, Final, Literal, Self, TypeVar

import msgspec

from tilewright.errors import InputError, shown
from tilewright.store.database import open_writable, patiently
from tilewright.store.opened import UNREADABLE, StoreFile
from tilewright.store.result import canonical, key_of
from tilewright.tune.layer import Problem, fields_of, problem_of
from tilewright.tune.space import Config

T = TypeVar("T")

Fault = Literal["", "compile", "resources", "memory", "wrong", "crash", "timeout", "setup", "error"]
"""Why a config has no time: it did not compile; asked for more than the GPU has; did not fit in memory; gave a wrong
answer; took its process or the CUDA context with it; hung; the worker could not start; raised something else."""
FAULTS: Final = ("compile", "resources", "memory", "wrong", "crash", "timeout", "error")
Rung = Literal["look", "again", "final"]
"""How well it was measured: few samples, more of them, interleaved with the other finalists."""


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """Where trials may be compared: one model of GPU, driver, versions of what takes part, text of the kernel."""

    gpu: str
    device_name: str
    driver: str | None
    versions: dict[str, str]
    kernel: str
    source: str
    """Digest of the kernel's text: another kernel's times say nothing of this one."""


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of one config on one problem. `time_s`: both GEMMs, seconds; `up_s` and `down_s` their parts."""

    config: Config
    rung: Rung
    at: str
    fault: Fault = ""
    time_s: float | None = None
    up_s: float | None = None
    down_s: float | None = None
    samples: int = 0
    stopped: bool = False
    """Given up after one look, because it was far behind the best: the time is that look's."""
    error: float | None = None
    worker: str = ""
    note: str = ""
    figures: dict[str, Any] = {}

    @property
    def ok(self) -> bool:
        return not self.fault and self.time_s is not None


_TRIAL: Final = msgspec.json.Decoder(Trial)
_WHOLE: Final = (
    "SELECT t.id, t.document, c.document, p.document FROM trials t JOIN tune_contexts c ON c.id = t.context "
    "JOIN tune_problems p ON p.id = t.problem"
)


class StoredTrial(msgspec.Struct, frozen=True, kw_only=True):
    """A trial with its number in the store, where it was measured, and of which problem: the kernel, the layer's sizes
    and format, and the number of tokens."""

    id: int
    context: Context
    problem: dict[str, Any]
    trial: Trial


class TrialsDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/results-trials/1"):
    """`results trials`: what `tune` measured, oldest first."""

    store: str
    trials: list[StoredTrial]


class TrialStore(StoreFile):
    """The trials of a store."""

    @classmethod
    def append_to(cls, path: Any) -> Self:
        """As `StoreFile`; a commit outlives the process but not the machine's power (SQLite, `synchronous=NORMAL` in
        WAL mode): waiting for the disk would cost as much as a trial."""
        connection = open_writable(path)
        connection.execute("PRAGMA synchronous = NORMAL")
        return cls(connection, path)

    def _id(self, table: str, document: Any) -> int:
        key = key_of(document)
        self._connection.execute(
            f"INSERT OR IGNORE INTO {table} (key, document) VALUES (?, ?)", (key, canonical(document))
        )
        found = self._connection.execute(f"SELECT id FROM {table} WHERE key = ?", (key,)).fetchone()
        return int(found[0])

    def append(self, context: Context, problem: Problem, trial: Trial) -> None:
        """Keep one trial.

        Raises:
            InputError: the store cannot be written.
        """

        def write() -> None:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                values = (
                    self._id("tune_contexts", context), self._id("tune_problems", fields_of(problem)),
                    key_of(trial.config), trial.samples, trial.fault or "ok", trial.time_s, trial.at,
                    msgspec.json.encode(trial),
                )  # fmt: skip
                self._connection.execute(
                    "INSERT INTO trials (context, problem, config, samples, status, time_s, at, document) "
                    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                    values,
                )
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # a full disk has ended it already
                    self._connection.execute("ROLLBACK")
                raise

        try:
            patiently(write)
        except sqlite3.Error as error:
            msg = f"The store {shown(str(self.path))} cannot be written: {error}; this trial was not kept."
            raise InputError("store", msg) from None

    def of(self, context: Context, problem: Problem) -> list[Trial]:
        """The trials of one problem in one context, oldest first."""
        sql = (
            "SELECT t.document FROM trials t JOIN tune_contexts c ON c.id = t.context "
            "JOIN tune_problems p ON p.id = t.problem WHERE c.key = ? AND p.key = ? ORDER BY t.id"
        )
        return list(self._made(sql, (key_of(context), key_of(fields_of(problem))), _TRIAL.decode))

    def everything(self) -> Iterator[tuple[Context, Problem, Trial]]:
        """Every trial of the store, oldest first."""
        for item in self._made(f"{_WHOLE} ORDER BY t.id", (), self._stored()):
            yield item.context, problem_of(item.problem), item.trial

    def find(
        self, wanted: Callable[[StoredTrial], bool] = lambda _: True, last: int | None = None
    ) -> list[StoredTrial]:
        """The trials that are `wanted`, oldest first; of more than `last` the newest.

        Raises:
            InputError: the file is damaged.
        """
        newest_first = self._made(f"{_WHOLE} ORDER BY t.id DESC", (), self._stored())
        most = None if last is None else min(last, sys.maxsize)  # all that islice counts to
        return list(islice(filter(wanted, newest_first), most))[::-1]

    @staticmethod
    def _stored() -> Callable[..., StoredTrial]:
        """What makes a trial of a row of `_WHOLE`; the few descriptions that thousands share are decoded once."""
        context_of = lru_cache(maxsize=None)(msgspec.json.Decoder(Context).decode)
        fields = lru_cache(maxsize=None)(msgspec.json.Decoder(dict[str, Any]).decode)

        def made(ident: int, trial: bytes, context: bytes, problem: bytes) -> StoredTrial:
            return StoredTrial(
                id=ident, context=context_of(context), problem=fields(problem), trial=_TRIAL.decode(trial)
            )

        return made

    def _made(self, sql: str, values: tuple[Any, ...], make: Callable[..., T]) -> Iterator[T]:
        """`make` of each row. Nothing where the file is older than trials are."""
        try:
            for row in self._connection.execute(sql, values):
                yield make(*row)
        except sqlite3.OperationalError as error:
            if "no such table" not in str(error):
                raise InputError("store", f"The store {shown(str(self.path))} cannot be read: {error}.") from None
        except UNREADABLE as error:
            raise self.damaged(error) from None
