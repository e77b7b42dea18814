"""`tilewright results trials`: what a run that was killed left behind, found again."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import drive
import msgspec
import pytest

from tilewright.report.schema import checker
from tilewright.tune.layer import Problem
from tilewright.tune.trials import Context, Trial, TrialStore

CONFIG = {
    "BLOCK_SIZE_M": 16,
    "BLOCK_SIZE_N": 128,
    "BLOCK_SIZE_K": 128,
    "GROUP_SIZE_M": 1,
    "num_warps": 4,
    "num_stages": 3,
}


def context(**change: Any) -> Context:
    base = Context(
        gpu="h200-sxm", device_name="NVIDIA H200", driver="580.1", versions={"triton": "3.6.0"},
        kernel="vllm-fused-moe", source="text",
    )  # fmt: skip
    return msgspec.structs.replace(base, **change)


@pytest.fixture
def store(tmp_path: Path) -> str:
    """Two GPUs, two numbers of tokens, a fault and a trial that was stopped after one look."""
    path = tmp_path / "results.sqlite"
    one, many = (Problem(kernel="vllm-fused-moe", layer=drive.LAYER, tokens=count) for count in (1, 2048))
    trial = Trial(config=CONFIG, rung="look", at="2026-12-02T13:00:00Z", time_s=31.5e-6, samples=3, worker="gpu0")
    with TrialStore.append_to(path) as opened:
        opened.append(context(), one, trial)
        opened.append(context(), one, msgspec.structs.replace(trial, fault="timeout", time_s=None, note="no answer"))
        opened.append(context(), many, msgspec.structs.replace(trial, stopped=True, time_s=9e-4))
        opened.append(context(gpu="b200-sxm"), one, msgspec.structs.replace(trial, rung="final", time_s=20e-6))
    return str(path)


def ids(cli: Any, store: str, *more: str) -> list[int]:
    found = cli("results", "trials", "--store", store, "--json", *more)
    assert found.code == 0, found.err
    checker("results-trials")(found.json)
    return [item["id"] for item in found.json["trials"]]


def test_trials_are_found_by_what_they_are_of(store: str, cli: Any) -> None:
    assert ids(cli, store) == [1, 2, 3, 4]
    assert ids(cli, store, "--last", "2") == [3, 4]
    assert ids(cli, store, "--last", "9" * 30) == [1, 2, 3, 4]
    assert ids(cli, store, "--tokens", "2048") == [3]
    assert ids(cli, store, "--gpu", "NVIDIA H200") == [1, 2, 3]
    assert ids(cli, store, "--fault", "any") == ids(cli, store, "--fault", "timeout") == [2]
    assert ids(cli, store, "--fault", "crash") == []
    assert ids(cli, store, "--kernel", "ours") == []


def test_a_reader_sees_times_and_why_there_is_none(store: str, cli: Any) -> None:
    text = cli("results", "trials", "--store", store).out
    assert "31.5" in text
    assert "900.0+" in text  # given up after one look
    assert "timeout: no answer" in text
    assert "No trial answers" in cli("results", "trials", "--store", store, "--tokens", "7").out


@pytest.mark.parametrize(
    ("args", "said"),
    [(("--kernel", "cutlass"), "vllm-fused-moe"), (("--fault", "bored"), "timeout"), (("--tokens", "0"), "--tokens")],
)
def test_what_is_none_is_refused(store: str, cli: Any, args: tuple[str, ...], said: str) -> None:
    result = cli("results", "trials", "--store", store, *args)
    assert result.code == 2
    assert said in result.err


def test_a_store_without_trials_has_none(tmp_path: Path, cli: Any) -> None:
    assert cli("results", "trials", "--store", str(tmp_path / "none.sqlite")).code == 2
    with TrialStore.append_to(tmp_path / "empty.sqlite"):
        pass
    assert ids(cli, str(tmp_path / "empty.sqlite")) == []


@pytest.mark.parametrize("table", ["trials", "tune_contexts", "tune_problems"])
@pytest.mark.parametrize("document", [5, None, b"{", b"[" * 100_000, b"[]", "\xff"])
def test_what_is_damaged_is_one_sentence(store: str, cli: Any, table: str, document: Any) -> None:
    """Bytes that are no JSON, nested without end, of another type, or no bytes at all."""
    connection = sqlite3.connect(store)
    connection.execute("DROP TRIGGER trials_are_kept")
    if document is None:  # a column that may not be NULL: the row says it refers to nothing
        connection.execute("UPDATE trials SET document = ''")
    else:
        connection.execute(f"UPDATE {table} SET document = ?", (document,))
    connection.commit()
    connection.close()
    result = cli("results", "trials", "--store", store)
    assert result.code == 2
    assert "damaged" in result.err
    assert len(result.err.strip().splitlines()) == 1
