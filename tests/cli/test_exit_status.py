"""What a shell gets where the reader of the output goes away, and where options have nothing to be for."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import InputError
from tilewright.libraries.flashinfer.baseline import read_baseline

OVERFLOWS = '{"cutlass": "4.2.1", "arch": "sm120", "kind": "grouped", "a": "nvfp4", "tile": [128, 256, 128], '
OVERFLOWS += '"fusion": "finalize"}\n'


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("flags", "vllm"), 0),
        (("fit", "--from", "configs.jsonl", "--json"), 0),
        (("fit", "--from", "configs.jsonl", "--json", "--check"), 2),
    ],
)
def test_a_reader_that_goes_away_is_no_error_and_no_yes(tmp_path: Path, words: tuple[str, ...], code: int) -> None:
    (tmp_path / "configs.jsonl").write_text(OVERFLOWS * 300)
    command = [sys.executable, "-m", "tilewright", *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout is not None
        assert run.stderr is not None
        run.stdout.read(1)
        run.stdout.close()
        said = run.stderr.read().decode()
        assert run.wait(60) == code
    assert "Traceback" not in said
    assert "Exception ignored" not in said


@pytest.mark.parametrize("words", [("--tp", "3"), ("--gpu", "h200"), ("--mtp",), ("--tokens", "1"), ("--kv", "fp8")])
def test_options_of_a_model_need_one(cli: Any, words: tuple[str, ...]) -> None:
    done = cli("models", *words)
    assert done.code == 2
    assert f"{words[0]} needs the NAME of a model" in done.err


def test_a_folder_is_no_store_and_no_launch_line(cli: Any, tmp_path: Path) -> None:
    for words in (
        ("journal", "--store", str(tmp_path)),
        ("results", "list", "--store", str(tmp_path)),
        ("results", "import", str(tmp_path / "x.jsonl"), "--store", str(tmp_path)),
        ("plan", "--model", "GLM-5-NVFP4", "--gpu", "h200", "--gpus", "8", "--journal", str(tmp_path)),
        ("flags", "vllm", "--check-launch", str(tmp_path)),
    ):
        (tmp_path / "x.jsonl").write_text("")
        done = cli(*words)
        assert done.code == 2, words
        assert "is a folder" in done.err, (words, done.err)


def refused(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """What a user without rights meets at `folder` (the tests may run as one who has all of them)."""
    listed = os.scandir

    def scandir(path: Any = ".") -> Any:
        if Path(path) == folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(folder))
        return listed(path)

    monkeypatch.setattr(os, "scandir", scandir)


def test_a_folder_that_may_not_be_listed_is_not_said_to_be_empty(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "inner").mkdir()
    refused(monkeypatch, tmp_path / "inner")
    made = cli("inspect", str(tmp_path), "--json").json
    assert [(item["path"], "Permission denied" in item["error"]) for item in made["unreadable"]] == [("inner/", True)]
    refused(monkeypatch, tmp_path)
    done = cli("inspect", str(tmp_path))
    assert (done.code, "cannot be read: Permission denied" in done.err) == (2, True)


@pytest.mark.parametrize(
    "words", [("explain", "-"), ("fit", "--from", "-"), ("flags", "vllm", "--check-launch", "-")], ids=lambda w: w[0]
)
def test_a_closed_stdin_is_said_to_be_closed(words: tuple[str, ...]) -> None:
    script = f"'{sys.executable}' -m tilewright {' '.join(words)} <&-"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "stdin is closed" in done.stderr


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="no /proc here")
@pytest.mark.parametrize(
    "words", [("explain",), ("fit", "--from"), ("tactics", "flashinfer", "--root")], ids=lambda words: words[0]
)
def test_a_file_whose_reading_fails_is_named(cli: Any, words: tuple[str, ...]) -> None:
    """It opens, and its first byte cannot be read, as on a disk or a share that went away."""
    done = cli(*words, "/proc/self/mem")
    assert (done.code, done.out) == (2, "")
    assert "'/proc/self/mem' cannot be read" in done.err
    assert "Input/output error" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("tune", "moe", "--model", "GLM-5", "--compile-only", "--gpu", "h200", "--tokens"),
        ("models", "GLM-5", "--gemms", "--tokens"),
        ("bench", "moe", "--model", "GLM-5", "--tokens"),
        ("bench", "gemm", "--n", "4096", "--k", "4096", "--m"),
        ("record", "--change", "x", "--after", "1", "--before"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
@pytest.mark.parametrize("listed", ["1,,2", ",1", "1,", "1, ,2"])
def test_a_number_that_is_missing_in_a_list_is_not_left_out(cli: Any, words: tuple[str, ...], listed: str) -> None:
    """It is a variable of a shell that was never set."""
    done = cli(*words, listed)
    assert (done.code, done.out) == (2, "")
    assert f"'{listed}'" in done.err


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no /dev/zero here")
def test_a_device_that_never_ends_is_not_read_for_ever(cli: Any) -> None:
    done = cli("plan", "--model", "GLM-5-NVFP4", "--gpu", "h200", "--gpus", "8", "--log", "/dev/zero")
    assert (done.code, done.out) == (2, "")
    assert "--log '/dev/zero' is a device" in done.err
    with pytest.raises(InputError, match="larger than any report"):
        read_baseline("/dev/zero")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("words", [("gpus",), ("flags", "vllm", "--json"), ("mcp", "--list")], ids=lambda w: w[0])
def test_a_full_disk_under_stdout_is_one_sentence(words: tuple[str, ...]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tilewright", *words], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60,
            check=False,
        )  # fmt: skip
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "output cannot be written: No space left" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_stderr_that_takes_nothing_changes_no_exit_status() -> None:
    """Notes are beside the result; status 1 is a no, and was what a note on a full disk gave."""
    search = ("fit", "--search", "--gpu", "h200", "--a", "bf16", "--m", "64", "--n", "512", "--k", "512")
    for words, code in ((search, 0), (("observe", "--seconds", "0"), 0), (("nope",), 2), (("gpus", "nope"), 2)):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [sys.executable, "-m", "tilewright", *words], stdout=subprocess.PIPE, stderr=full, timeout=60,
                check=False,
            )  # fmt: skip
        assert done.returncode == code, words
        assert bool(done.stdout) == (code == 0)
