"""`tilewright fit` as a shell sees it."""

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

DRIVING = (
    "fit", "--cutlass", "4.2.1", "--arch", "sm120", "--kind", "grouped", "--a", "nvfp4", "--tile", "128x256x128",
    "--fusion", "finalize",
)  # fmt: skip
MINIMAL = {"arch": "sm120", "a": "nvfp4", "tile": [128, 128, 128]}


def test_one_config_reads_like_an_explanation(cli: Any) -> None:
    result = cli(*DRIVING)
    assert result.code == 0
    for text in (
        "OVERFLOWS by 1,024 bytes: 102,400 of 101,376",
        "mainloop.tensors.smem_SFB",
        "977 bytes more in reserve",
        "stages = 2",
        "74,752 bytes",
    ):
        assert text in result.out
    assert "\x1b" not in result.out


def test_json_is_one_document_and_nothing_else(cli: Any) -> None:
    result = cli(*DRIVING, "--json", "--quiet")
    assert result.err == ""
    document = result.json
    assert document["schema"] == "tilewright/fit/1"
    assert (document["status"], document["excess_bytes"]) == ("overflow", 1024)
    assert document["fields"][0]["abs_offset"] == 0
    assert document["fixes"][0]["change"] == {"stages": 2}


def test_check_answers_no_with_exit_1(cli: Any) -> None:
    assert cli(*DRIVING, "--check").code == 1
    assert cli(*DRIVING, "--stages", "2", "--check").code == 0


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("fit", "--arch", "sm77", "--a", "nvfp4", "--tile", "128x128x128"), "sm90"),
        (("fit", "--arch", "sm120", "--a", "nvfp4"), "tile"),
        (("fit", "--arch", "sm120", "--a", "nvfp4", "--tile", "128"), "3"),
        (("fit", "--from", "/nonexistent/file.jsonl"), "cannot be read"),
        (("fit", "--from", "/"), "cannot be read"),
        (("fit", "--from", "x", "--arch", "sm120"), "--from"),
        (("fit", "--no-such-flag"), "--no-such-flag"),
        (("fitt",), "fit"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(cli: Any, args: tuple[str, ...], says: str) -> None:
    result = cli(*args)
    assert result.code == 2
    assert result.out == ""
    assert result.err.count("\n") == 1
    assert says in result.err


def lines(tmp_path: Path, *rows: bytes) -> str:
    path = tmp_path / "configs.jsonl"
    path.write_bytes(b"\n".join(rows) + b"\n")
    return str(path)


def test_a_stream_answers_every_line_in_order_and_stops_at_none(cli: Any, tmp_path: Path) -> None:
    good = json.dumps(MINIMAL | {"id": "good"}).encode()
    rows = (
        good,
        b"",
        b"{not json",
        b"[1, 2]",
        b"   ",
        json.dumps(MINIMAL | {"id": "typo", "tyle": 1}).encode(),
        b'{"id": "bytes", "arch": "\xff\xfe"}',
        b"[" * 200_000,
        json.dumps(MINIMAL | {"id": "last", "a": "bf16"}).encode(),
    )
    result = cli("fit", "--from", lines(tmp_path, *rows), "--json", "--brief")
    assert result.code == 0
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [answer["status"] for answer in answers] == ["fits", *["error"] * 5, "illegal"]
    assert [answer["id"] for answer in answers] == ["good", None, None, "typo", None, None, "last"]
    assert answers[3]["error"]["field"] == "tyle"
    assert "fields" not in answers[0] or answers[0]["fields"] == []


def test_a_line_of_many_megabytes_is_refused_and_the_next_is_answered(cli: Any, tmp_path: Path) -> None:
    huge = b'{"id":"' + b"x" * 3_000_000 + b'"}'
    result = cli("fit", "--from", lines(tmp_path, huge, json.dumps(MINIMAL).encode()), "--json")
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [answer["status"] for answer in answers] == ["error", "fits"]


def test_an_empty_stream_is_no_error(cli: Any, tmp_path: Path) -> None:
    result = cli("fit", "--from", lines(tmp_path), "--json")
    assert (result.code, result.out) == (0, "")


def run(*args: str, **keys: Any) -> subprocess.CompletedProcess[bytes]:
    command = [sys.executable, "-m", "tilewright", *args]
    return subprocess.run(command, capture_output=True, timeout=60, check=False, **keys)


def test_an_ascii_terminal_gets_ascii() -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C", "PYTHONUTF8": "0"}
    done = run(*DRIVING, env=environment)
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert b"OVERFLOWS" in done.stdout


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    source = lines(tmp_path, *[json.dumps(MINIMAL).encode()] * 3000)
    script = f"'{sys.executable}' -m tilewright fit --from '{source}' --json --quiet | head -n 1"
    done = subprocess.run(["sh", "-c", script], capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout)["status"] == "fits"
    assert done.stderr == b""


def test_ctrl_c_is_one_sentence_and_the_signals_exit() -> None:
    command = [sys.executable, "-m", "tilewright", "fit", "--from", "-", "--json"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdin.write(json.dumps(MINIMAL).encode() + b"\n")
        child.stdin.flush()
        time.sleep(1.0)  # past start-up, waiting for the next line
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=30)
        assert child.returncode == -signal.SIGINT
        assert b"Traceback" not in err
        assert err.strip().count(b"\n") == 0


def test_start_up_is_light() -> None:
    """No heavy module is imported by `import tilewright` or by the help."""
    code = "import sys, tilewright; print(sorted(set(sys.modules) & {'click', 'rich', 'msgspec', 'numpy', 'torch'}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stdout.strip() == b"[]"
    code = (
        "import sys\nfrom tilewright.cli.main import invoke\ninvoke(['--help'])\n"
        "print(sorted(set(sys.modules) & {'rich', 'msgspec', 'jinja2', 'numpy', 'torch'}), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=True)
    assert done.stderr.strip() == b"[]"
