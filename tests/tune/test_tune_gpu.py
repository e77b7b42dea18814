"""`tune moe` on a real GPU: a tiny layer end to end, resumed, killed and exported. Needs torch and Triton beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tilewright.tune.start import read_start
from tilewright.tune.trials import TrialStore

pytestmark = pytest.mark.gpu
pytest.importorskip("torch")
pytest.importorskip("triton")

SIZES = ("--hidden", "256", "--inter", "128", "--experts", "32", "--topk", "4")


@pytest.fixture
def tune(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run `tune moe` on the tiny layer into a store and a build cache of the test's own; the document."""
    monkeypatch.setenv("TILEWRIGHT_TUNE_CACHE", str(tmp_path / "cache"))

    def run(*args: str) -> Any:
        result = cli("tune", "moe", *SIZES, "--store", str(tmp_path / "s.sqlite"), *args, "--json", "--quiet")
        assert result.code == 0, result.err
        return result.json

    return run


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "fp8-block"])
def test_the_engines_parameters_are_tuned_resumed_and_exported(tune: Any, tmp_path: Path, dtype: str) -> None:
    """Each number of tokens has a winner that is right; a second run measures nothing; the file reads back."""
    out = tmp_path / "tuned"
    common = ("--dtype", dtype, "--tokens", "1,40", "--trials", "24")
    document = tune(*common, "--out", str(out))
    assert [item["tokens"] for item in document["results"]] == [1, 40]
    assert all(item["config"] and item["time_s"] > 0 for item in document["results"])
    assert all(item["trials"] >= 24 and set(item["faults"]) <= {"compile", "resources"} for item in document["results"])
    with TrialStore.read(tmp_path / "s.sqlite") as store:
        trials = [trial for _, _, trial in store.everything()]
    assert all(trial.error is not None and trial.error < 0.02 for trial in trials if trial.ok)
    [file] = document["files"]
    table = read_start(file["path"])
    assert {tokens: table[tokens] for tokens in (1, 40)} == {
        item["tokens"]: item["config"] for item in document["results"]
    }
    again = tune(*common, "--resume")
    assert sum(item["trials"] for item in again["results"]) == 0
    assert [item["config"] for item in again["results"]] == [item["config"] for item in document["results"]]


def test_our_kernel_is_tuned(tune: Any, tmp_path: Path) -> None:
    """The NVFP4 kernel, at one row and at many."""
    document = tune("--kernel", "ours", "--tokens", "1,100", "--trials", "10")
    assert all(item["config"] and item["time_s"] > 0 for item in document["results"])
    assert all(item["faults"] == {} for item in document["results"])


def test_killed_on_the_gpu_and_resumed(tmp_path: Path) -> None:
    """SIGKILL while trials run: what the store has is used, no config is looked at again."""
    path = tmp_path / "s.sqlite"
    command = [
        sys.executable, "-m", "tilewright", "tune", "moe", *SIZES, "--tokens", "1,40", "--trials", "40", "--store",
        str(path), "--json", "--quiet",
    ]  # fmt: skip
    environment = {**os.environ, "TILEWRIGHT_TUNE_CACHE": str(tmp_path / "cache")}
    first = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 120
    while time.monotonic() < end and first.poll() is None:
        if path.exists():
            with TrialStore.read(path) as store:
                if sum(1 for _ in store.everything()) >= 12:
                    break
        time.sleep(0.05)
    first.send_signal(signal.SIGKILL)
    first.wait(timeout=20)
    with TrialStore.read(path) as store:
        kept = sum(1 for _ in store.everything())
    done = subprocess.run([*command, "--resume"], env=environment, capture_output=True, timeout=300, check=True)
    document = json.loads(done.stdout)
    assert sum(item["reused"] for item in document["results"]) >= kept
    assert all(item["config"] for item in document["results"])
