"""`Journal`: experiments in, experiments out; nothing in it is changed or dropped. It shares the results' file."""

from __future__ import annotations

import hashlib
import sqlite3

import msgspec

from tilewright.errors import InputError, shown
from tilewright.journal.experiment import Experiment, Recorded, check
from tilewright.store.database import patiently
from tilewright.store.opened import StoreFile
from tilewright.store.result import canonical

_DECODER = msgspec.json.Decoder(Experiment)


class Journal(StoreFile):
    """The experiments in a store."""

    def record(self, experiment: Experiment) -> Recorded:
        """Append `experiment`; the same one is kept once.

        Raises:
            InputError: it says what cannot be, corrects an entry that is not there, or the file cannot be written.
        """
        check(experiment)
        if experiment.supersedes is not None and experiment.supersedes not in {item.id for item in self.entries()}:
            msg = f"--supersedes {experiment.supersedes}: there is no such entry; `tilewright journal` lists them."
            raise InputError("supersedes", msg)
        digest = hashlib.sha256(canonical(experiment)).hexdigest()
        row = (digest, experiment.at, experiment.finding, msgspec.json.encode(experiment))
        sql = "INSERT OR IGNORE INTO experiments (digest, at, finding, document) VALUES (?, ?, ?, ?)"
        try:
            patiently(lambda: self._connection.execute(sql, row))
            (ident,) = self._connection.execute("SELECT id FROM experiments WHERE digest = ?", (digest,)).fetchone()
        except sqlite3.Error as error:
            msg = f"The journal {shown(str(self.path))} cannot be written: {error}; nothing was recorded."
            raise InputError("store", msg) from None
        return Recorded(id=ident, experiment=experiment)

    def entries(self) -> list[Recorded]:
        """Every experiment, oldest first. A store of before there were journals has none.

        Raises:
            InputError: the file is damaged.
        """
        try:
            (there,) = self._connection.execute(
                "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'experiments'"
            ).fetchone()
            if not there:
                return []
            rows = self._connection.execute("SELECT id, document FROM experiments ORDER BY id").fetchall()
            return [Recorded(id=ident, experiment=_DECODER.decode(document)) for ident, document in rows]
        except (sqlite3.Error, msgspec.DecodeError, UnicodeDecodeError) as error:
            msg = f"The journal {shown(str(self.path))} is damaged: {error}; restore it from a copy or an export."
            raise InputError("store", msg) from None


def standing(entries: list[Recorded]) -> list[Recorded]:
    """The entries that no later one corrects."""
    gone = {item.experiment.supersedes for item in entries}
    return [item for item in entries if item.id not in gone]
