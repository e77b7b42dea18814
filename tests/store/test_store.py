"""The result store: append-only, safe under many writers and a kill, and left alone where it is not ours."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.errors import InputError
from tilewright.store import Query, Result, Store, compare
from tilewright.store.database import APPLICATION_ID, SCHEMA_VERSION, default_path
from tilewright.store.result import digest_of, key_of


def result(**change: Any) -> Result:
    base: dict[str, Any] = {
        "kind": "moe",
        "backend": "ours",
        "at": "2026-12-02T13:00:00Z",
        "status": "ok",
        "problem": {"tokens": 16, "experts": 256},
        "config": {"block_m": 16},
        "environment": {"gpu": "h200_sxm", "driver": "580.1"},
        "time_s": 64e-6,
        "low_s": 63e-6,
        "high_s": 66e-6,
        "samples": 21,
    }
    return Result(**{**base, **change})


def test_what_goes_in_comes_out_in_order(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.sqlite"
    with Store.append_to(path) as store:
        assert store.append([result(time_s=t) for t in (3e-6, 1e-6, 2e-6)]) == 3
    with Store.read(path) as store:
        found = list(store.find())
    assert [item.result.time_s for item in found] == [3e-6, 1e-6, 2e-6]
    assert [item.id for item in found] == [1, 2, 3]
    assert found[0].result == result(time_s=3e-6)


def test_the_same_measurement_is_kept_once(tmp_path: Path) -> None:
    with Store.append_to(tmp_path / "s") as store:
        assert store.append([result(), result()]) == 1
        assert store.append([result(), result(at="2026-12-02T13:00:01Z")]) == 1


def test_nothing_stored_is_changed_or_dropped(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Store.append_to(path) as store:
        store.append([result()])
    connection = sqlite3.connect(path)
    for statement in ("UPDATE results SET time_s = 1", "DELETE FROM results"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"time_s": float("nan")}, "time_s"),
        ({"time_s": -1.0}, "time_s"),
        ({"high_s": float("inf")}, "high_s"),
        ({"time_s": None}, "time_s"),
        ({"samples": -1}, "samples"),
        ({"backend": ""}, "kind"),
    ],
)
def test_a_result_that_cannot_be_is_refused_with_all_of_its_batch(
    tmp_path: Path, change: dict[str, Any], field: str
) -> None:
    with Store.append_to(tmp_path / "s") as store:
        with pytest.raises(InputError) as caught:
            store.append([result(), result(**change)])
        assert caught.value.field == field
        assert list(store.find()) == []


def test_queries_select_by_every_field(tmp_path: Path) -> None:
    with Store.append_to(tmp_path / "s") as store:
        store.append(
            [
                result(),
                result(backend="torch", at="2026-12-03T00:00:00Z"),
                result(kind="gemm", problem={"m": 16}, environment={"gpu": "b200"}),
                result(status="failed", time_s=None, note="crashed", config={"block_m": 32}),
            ]
        )

        def ids(**query: Any) -> list[int]:
            return [item.id for item in store.find(Query(**query))]

        assert ids(kind="moe") == [1, 2, 4]
        assert ids(backend="torch") == [2]
        assert ids(gpu="b200") == [3]
        assert ids(status="failed") == [4]
        assert ids(since="2026-12-02T20:00:00Z") == [2]
        assert ids(problem={"tokens": 16}) == [1, 2, 4]
        assert ids(problem={"tokens": 17}) == []
        assert ids(config={"block_m": 32}) == [4]
        assert ids(last=2) == [3, 4]
        assert ids(last=1, kind="moe", status="ok") == [2]


WRITER = """
import sys
from pathlib import Path
from tilewright.store import Result, Store
path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
for i in range(count):
    with Store.append_to(path) as store:
        store.append([Result(kind="moe", backend=name, at="2026-12-02T13:00:00Z", status="ok", time_s=1.0, samples=i)])
    print(i, flush=True)
"""


def start(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path), name, str(count)], stdout=subprocess.PIPE)


def test_many_writers_lose_nothing(tmp_path: Path) -> None:
    """Six processes open the file (which none of them finds) and write at the same time."""
    path = tmp_path / "results.sqlite"
    writers = [start(path, f"w{i}", 20) for i in range(6)]
    for writer in writers:
        writer.communicate(timeout=120)
        assert writer.returncode == 0
    with Store.read(path) as store:
        found = [(item.result.backend, item.result.samples) for item in store.find()]
    assert sorted(found) == sorted((f"w{i}", n) for i in range(6) for n in range(20))


def test_a_kill_loses_at_most_what_was_not_committed(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    writer = start(path, "w", 100_000)
    assert writer.stdout is not None
    said = [int(writer.stdout.readline()) for _ in range(15)]
    os.kill(writer.pid, signal.SIGKILL)
    rest, _ = writer.communicate(timeout=30)
    said += [int(line) for line in rest.split()]
    with Store.append_to(path) as store:
        kept = [item.result.samples for item in store.find()]
        assert kept[: len(said)] == said
        assert len(kept) <= len(said) + 1
        assert store.append([result()]) == 1
    connection = sqlite3.connect(path)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_a_reader_waits_for_nobody(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with Store.append_to(path) as store:
        store.append([result()])
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    with Store.read(path) as store:
        assert len(list(store.find())) == 1
    assert time.monotonic() - begun < 5
    holder.close()


def test_a_store_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    connection = sqlite3.connect(path)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    connection.execute("CREATE TABLE new_things (x)")
    connection.close()
    before = path.read_bytes()
    for open_ in (Store.append_to, Store.read):
        with pytest.raises(InputError, match=f"newer Tilewright .store version {SCHEMA_VERSION + 1}"):
            open_(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE bookmarks (x)")
    connection.close()
    before = path.read_bytes()
    for open_ in (Store.append_to, Store.read):
        with pytest.raises(InputError, match="another program"):
            open_(path)
    assert path.read_bytes() == before


@given(st.binary(min_size=1, max_size=300))
@settings(max_examples=60, deadline=None)
def test_garbage_is_no_store(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("g") / "s"
    path.write_bytes(data)
    for open_ in (Store.read, Store.append_to):
        with pytest.raises(InputError):
            open_(path)
    assert path.read_bytes() == data


def test_a_missing_or_impossible_path_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="There is no store at"):
        Store.read(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputError, match="cannot be used"):
        Store.append_to(tmp_path / "file" / "s")
    with pytest.raises(InputError, match="is a folder, and a store is a file"):
        Store.append_to(tmp_path)


def test_a_pipe_or_a_device_is_no_store_and_gets_no_journal_beside_it(tmp_path: Path) -> None:
    """As root, `--store /dev/null` left /dev/null-journal."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to("/dev/null")
    for name in ("pipe", "null"):
        for opened in (Store.read, Store.append_to):
            with pytest.raises(InputError, match="is no file, and a store is one"):
                opened(tmp_path / name)
    assert sorted(item.name for item in tmp_path.iterdir()) == ["null", "pipe"]


def test_an_empty_file_becomes_a_store_but_is_none_yet(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.touch()
    with pytest.raises(InputError, match="holds nothing yet"):
        Store.read(path)
    with Store.append_to(path) as store:
        assert store.append([result()]) == 1


@pytest.mark.parametrize("document", [b"{", b"[" * 100_000, 5, "", "\\ud800"])
def test_a_damaged_document_is_said_to_be_one(tmp_path: Path, document: Any) -> None:
    path = tmp_path / "s"
    with Store.append_to(path) as store:
        store.append([result()])
    connection = sqlite3.connect(path)
    connection.execute("DROP TRIGGER results_are_kept")
    connection.execute("UPDATE results SET document = ?", (document,))
    connection.commit()
    connection.close()
    with Store.read(path) as store, pytest.raises(InputError, match="damaged"):
        list(store.find())


def test_where_results_go(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_STORE", str(tmp_path / "mine"))
    assert default_path() == tmp_path / "mine"
    monkeypatch.delenv("TILEWRIGHT_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert default_path() == tmp_path / "tilewright" / "results.sqlite"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    assert default_path().parts[-4:] == (".local", "share", "tilewright", "results.sqlite")


def test_a_key_depends_on_content_alone() -> None:
    assert key_of({"a": 1, "b": 2}) == key_of({"b": 2, "a": 1})
    assert key_of({"a": 1}) != key_of({"a": 2})
    assert digest_of(result()) == digest_of(result(problem={"experts": 256, "tokens": 16}))


def stored(tmp_path: Path, *results: Result) -> Any:
    with Store.append_to(tmp_path / "c") as store:
        store.append(results)
        return list(store.find())


def test_comparing_takes_each_groups_best_config_and_says_when_it_is_noise(tmp_path: Path) -> None:
    found = stored(
        tmp_path,
        result(backend="a", time_s=10e-6, low_s=9.9e-6, high_s=10.1e-6),
        result(backend="b", time_s=30e-6, low_s=29e-6, high_s=31e-6, config={"x": 1}),
        result(backend="b", time_s=20e-6, low_s=19e-6, high_s=21e-6, config={"x": 2}),
        result(backend="c", time_s=10.1e-6, low_s=10.0e-6, high_s=10.2e-6),
        result(backend="d", time_s=1e-6, status="wrong"),
        result(backend="a", problem={"tokens": 1}),
    )
    comparison = compare(found)
    assert comparison.left_out == 1
    (row,) = comparison.rows
    assert (row.reference, row.ratio["b"], row.apart) == ("a", pytest.approx(2), {"b": True, "c": False})
    assert row.cells[1].config == {"x": 2}
    other = compare(found, baseline="b").rows[0]
    assert other.ratio == {"a": pytest.approx(0.5), "c": pytest.approx(0.505)}
    with pytest.raises(InputError, match="there are: a, b, c"):
        compare(found, baseline="z")


def test_results_that_are_only_in_the_log_are_not_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A writer was killed before its log was folded in, and the folder may not be written: the file alone is older."""
    path = tmp_path / "results.sqlite"
    code = (
        "import os, sys; from pathlib import Path; from tilewright.store import Result, Store\n"
        "store = Store.append_to(Path(sys.argv[1]))\n"
        "store.append([Result(kind='gemm', backend='a', at='2026-12-02T13:00:00Z', status='ok', time_s=1e-6)])\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    assert path.with_name("results.sqlite-wal").stat().st_size
    real = sqlite3.connect

    def refused(name: Any, **more: Any) -> Any:
        if "immutable" not in str(name):
            raise sqlite3.OperationalError("unable to open database file")
        return real(name, **more)

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", refused)
        with pytest.raises(InputError, match=r"results\.sqlite-wal beside it"):
            Store.read(path)
    with Store.read(path) as store:
        assert len(list(store.find())) == 1


def test_comparing_by_driver_and_day(tmp_path: Path) -> None:
    found = stored(
        tmp_path,
        result(environment={"driver": "1"}),
        result(environment={"driver": "2"}, at="2026-12-03T00:00:00Z", time_s=32e-6),
    )
    assert compare(found, "driver").groups == ["1", "2"]
    assert compare(found, "day", baseline="2026-12-03").rows[0].ratio["2026-12-02"] == pytest.approx(2)


def test_what_is_not_compared_is_the_same_within_a_row(tmp_path: Path) -> None:
    """Two backends on two GPUs, one of the four runs missing."""
    found = stored(
        tmp_path,
        result(backend="a", environment={"gpu": "h200-sxm"}, time_s=10e-6),
        result(backend="b", environment={"gpu": "h200-sxm"}, time_s=20e-6),
        result(backend="b", environment={"gpu": "b200-sxm"}, time_s=5e-6),
    )
    (row,) = compare(found).rows
    assert (row.gpu, row.backend, row.ratio) == ("h200-sxm", "", {"b": pytest.approx(2)})
    (row,) = compare(found, "gpu").rows
    assert (row.gpu, row.backend, row.ratio) == ("", "b", {"h200-sxm": pytest.approx(4)})
    assert compare(found, "driver").rows == []


def test_a_marked_run_counts_only_where_there_is_no_other(tmp_path: Path) -> None:
    found = stored(
        tmp_path,
        result(backend="a", time_s=40e-6, low_s=None, high_s=None, marks=["throttled: heat (driver)"]),
        result(backend="a", time_s=50e-6, low_s=None, high_s=None),
        result(backend="b", time_s=60e-6, low_s=None, high_s=None, marks=["shared gpu"]),
    )
    (row,) = compare(found).rows
    assert [(cell.time_s, cell.results, cell.marks) for cell in row.cells] == [
        (50e-6, 1, []), (60e-6, 1, ["shared gpu"]),
    ]  # fmt: skip
