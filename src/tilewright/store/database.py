"""The file behind the store: opening, schema and migrations.

SQLite in WAL mode: many readers beside one writer at a time, a writer waits for its turn, and a process that is
killed loses at most the transaction that it had not committed. `synchronous=FULL`, since a result can cost minutes
of GPU time and a commit costs a millisecond. The schema's version is SQLite's own `user_version`; a file of a newer
Tilewright is left exactly as it is.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from tilewright.errors import InputError, shown
from tilewright.homes import home

T = TypeVar("T")

APPLICATION_ID: Final = 0x5457_5253
"""`TWRS`, in the file's header (PRAGMA application_id): tells our file from any other SQLite database."""
BUSY_S: Final = 30.0
"""How long a writer waits for its turn. One commit takes milliseconds; this is for hundreds of writers at once."""
_RETRY_S: Final = 0.02
_MAGIC: Final = b"SQLite format 3\0"
"""First bytes of every SQLite database (sqlite.org/fileformat2.html, section 1.3.1)."""
VARIABLE: Final = "TILEWRIGHT_STORE"
IMMUTABLE: Final = "mode=ro&immutable=1"
"""SQLite reads the file as it is and looks at nothing beside it (sqlite.org/uri.html)."""

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (
    (
        """CREATE TABLE results (
            id INTEGER PRIMARY KEY,
            digest TEXT NOT NULL UNIQUE,
            at TEXT NOT NULL,
            kind TEXT NOT NULL,
            backend TEXT NOT NULL,
            status TEXT NOT NULL,
            gpu TEXT,
            problem_key TEXT NOT NULL,
            config_key TEXT NOT NULL,
            environment_key TEXT NOT NULL,
            time_s REAL,
            document BLOB NOT NULL
        )""",
        "CREATE INDEX results_by_problem ON results (kind, problem_key, backend)",
        "CREATE INDEX results_by_config ON results (kind, problem_key, config_key)",
        # Append-only is a rule of the file, not a habit of its writers.
        """CREATE TRIGGER results_are_kept BEFORE UPDATE ON results
            BEGIN SELECT RAISE(ABORT, 'results are append-only'); END""",
        """CREATE TRIGGER results_stay BEFORE DELETE ON results
            BEGIN SELECT RAISE(ABORT, 'results are append-only'); END""",
    ),
    (
        """CREATE TABLE experiments (
            id INTEGER PRIMARY KEY,
            digest TEXT NOT NULL UNIQUE,
            at TEXT NOT NULL,
            finding TEXT NOT NULL,
            document BLOB NOT NULL
        )""",
        """CREATE TRIGGER experiments_are_kept BEFORE UPDATE ON experiments
            BEGIN SELECT RAISE(ABORT, 'experiments are append-only'); END""",
        """CREATE TRIGGER experiments_stay BEFORE DELETE ON experiments
            BEGIN SELECT RAISE(ABORT, 'experiments are append-only'); END""",
    ),
    (
        # Trials of a tuning run come by the ten thousand and share two long descriptions: where (GPU, driver, versions,
        # kernel) and what (layer, tokens). Each is kept once.
        """CREATE TABLE tune_contexts (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL UNIQUE,
            document BLOB NOT NULL
        )""",
        """CREATE TABLE tune_problems (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL UNIQUE,
            document BLOB NOT NULL
        )""",
        """CREATE TABLE trials (
            id INTEGER PRIMARY KEY,
            context INTEGER NOT NULL REFERENCES tune_contexts (id),
            problem INTEGER NOT NULL REFERENCES tune_problems (id),
            config TEXT NOT NULL,
            samples INTEGER NOT NULL,
            status TEXT NOT NULL,
            time_s REAL,
            at TEXT NOT NULL,
            document BLOB NOT NULL
        )""",
        "CREATE INDEX trials_by_problem ON trials (context, problem, config)",
        """CREATE TRIGGER trials_are_kept BEFORE UPDATE ON trials
            BEGIN SELECT RAISE(ABORT, 'trials are append-only'); END""",
        """CREATE TRIGGER trials_stay BEFORE DELETE ON trials
            BEGIN SELECT RAISE(ABORT, 'trials are append-only'); END""",
    ),
    (
        # A sweep of a server's flags: what it was started with, and what happened, event by event. An event `planned`
        # without its `ended` is a start that was cut off.
        """CREATE TABLE sweeps (
            id INTEGER PRIMARY KEY,
            at TEXT NOT NULL,
            identity TEXT NOT NULL,
            document BLOB NOT NULL
        )""",
        "CREATE INDEX sweeps_by_identity ON sweeps (identity)",
        """CREATE TABLE sweep_events (
            id INTEGER PRIMARY KEY,
            sweep INTEGER NOT NULL REFERENCES sweeps (id),
            run INTEGER NOT NULL,
            at TEXT NOT NULL,
            event TEXT NOT NULL,
            document BLOB NOT NULL,
            UNIQUE (sweep, run, event)
        )""",
        *(
            f"""CREATE TRIGGER {table}_{rule} BEFORE {action} ON {table}
            BEGIN SELECT RAISE(ABORT, 'sweeps are append-only'); END"""
            for table in ("sweeps", "sweep_events")
            for rule, action in (("are_kept", "UPDATE"), ("stay", "DELETE"))
        ),
    ),
)
"""Statements that lead from schema version n to n + 1. A landed one is never edited: a change is a new entry."""
SCHEMA_VERSION: Final = len(MIGRATIONS)


def default_path() -> Path:
    """Where results go unless told otherwise: $TILEWRIGHT_STORE, else the user's data folder (XDG).

    Raises:
        InputError: neither is there.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    base = os.environ.get("XDG_DATA_HOME")
    if base and Path(base).is_absolute():
        return Path(base) / "tilewright" / "results.sqlite"
    own = home()
    if own is None:
        raise InputError("store", f"There is no home folder to keep results in; set {VARIABLE} to a file.")
    return own / ".local" / "share" / "tilewright" / "results.sqlite"


def patiently(action: Callable[[], T], seconds: float = BUSY_S) -> T:
    """`action()`, tried again while another process holds the file: some locks do not honour SQLite's own timeout."""
    end = time.monotonic() + seconds
    while True:
        try:
            return action()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) and "busy" not in str(error):
                raise
            if time.monotonic() > end:
                raise
            time.sleep(_RETRY_S)


def _refusal(path: Path, error: BaseException) -> InputError:
    text = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    msg = f"The store {shown(str(path))} cannot be used: {text}; give another store."
    return InputError("store", msg)


def _check_header(path: Path) -> None:
    """Refuse a file that is no SQLite database. SQLite itself takes a very short one for an empty database."""
    try:
        if path.is_dir():
            raise InputError("store", f"{shown(str(path))} is a folder, and a store is a file; give another store.")
        if not path.exists():
            return
        if not path.is_file():  # SQLite would leave its journal beside it (/dev/null-journal)
            raise InputError("store", f"{shown(str(path))} is no file, and a store is one; give another store.")
        with path.open("rb") as stream:
            head = stream.read(len(_MAGIC))
    except (OSError, ValueError) as error:
        raise _refusal(path, error) from None
    if head and head != _MAGIC:
        raise InputError("store", f"{shown(str(path))} is no result store and is left alone; give another store.")


def _version(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of an open file; 0 for one that is empty.

    Raises:
        InputError: it is another program's database, or of a newer Tilewright.
    """
    # One statement, so that all three are of the same moment: another process may be making the file right now.
    application, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master) "
        "FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if application != APPLICATION_ID and (application or version or tables):
        msg = f"{shown(str(path))} is a database of another program and is left alone; give another store."
        raise InputError("store", msg)
    if version > SCHEMA_VERSION:
        msg = (
            f"{shown(str(path))} was written by a newer Tilewright (store version {version}, this one knows "
            f"{SCHEMA_VERSION}) and is left alone; upgrade tilewright, or give another store."
        )
        raise InputError("store", msg)
    return int(version)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring the file to the present schema, in one transaction that only one process runs."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = _version(connection, path)  # again, now that nobody else can change it
        for step in MIGRATIONS[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.execute("ROLLBACK")
        raise


def open_writable(path: Path) -> sqlite3.Connection:
    """`path` opened for appending, made where it is missing, migrated where it is old.

    Raises:
        InputError: it cannot be opened, is another program's, or of a newer Tilewright.
    """
    _check_header(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None)
    except (OSError, ValueError, sqlite3.Error) as error:
        raise _refusal(path, error) from None
    try:
        if patiently(lambda: _version(connection, path)) < SCHEMA_VERSION:
            patiently(lambda: connection.execute("PRAGMA journal_mode = WAL").fetchone())
            patiently(lambda: _migrate(connection, path))
        connection.execute("PRAGMA synchronous = FULL")
    except sqlite3.Error as error:
        connection.close()
        raise _refusal(path, error) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _log_beside(path: Path) -> Path | None:
    """The write-ahead log of the store, where it holds something: what a writer that was killed has left."""
    log = path.with_name(f"{path.name}-wal")
    try:
        return log if log.stat().st_size else None
    except OSError:
        return None


def open_readable(path: Path) -> sqlite3.Connection:
    """`path` opened for reading; nothing in its folder is changed where the folder may not be written.

    Raises:
        InputError: it is not there, cannot be read, or is no store of this or an older version.
    """
    _check_header(path)
    if not path.is_file():
        msg = f"There is no store at {shown(str(path))}; `bench` and `record` make one, or give the one that you have."
        raise InputError("store", msg)
    quoted = path.resolve().as_uri()
    last: BaseException | None = None
    # A store in a folder that we may not write (a mounted archive) has no place for the WAL's index file.
    for mode in ("mode=ro", IMMUTABLE):
        if mode == IMMUTABLE and (beside := _log_beside(path)) is not None:
            msg = (
                f"The newest results of {shown(str(path))} are in {beside.name} beside it, which cannot be read in "
                "a folder that may not be written; copy both files to one that may."
            )
            raise InputError("store", msg)
        try:
            connection = sqlite3.connect(f"{quoted}?{mode}", uri=True, timeout=BUSY_S, isolation_level=None)
        except sqlite3.Error as error:
            last = error
            continue
        try:
            version = patiently(lambda: _version(connection, path))  # noqa: B023 - called at once
        except sqlite3.OperationalError as error:
            connection.close()
            last = error
            continue
        except sqlite3.Error as error:
            connection.close()
            raise _refusal(path, error) from None
        except BaseException:
            connection.close()
            raise
        if version == 0:
            connection.close()
            msg = f"{shown(str(path))} holds nothing yet; `bench` and `record` fill it, or name another --store."
            raise InputError("store", msg)
        return connection
    raise _refusal(path, last or sqlite3.OperationalError("it cannot be opened"))
