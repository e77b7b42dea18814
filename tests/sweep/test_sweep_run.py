"""Whole sweeps against a small server: faults, resume after SIGKILL, nothing left running, one clear error before."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tilewright.stopped import StoppedError
from tilewright.sweep.free_port import free_port
from tilewright.sweep.http_client import parse_url
from tilewright.sweep.load import Target
from tilewright.sweep.load_own import OwnClient
from tilewright.sweep.metrics import client_metrics
from tilewright.sweep.run import _terminable  # pyright: ignore[reportPrivateUsage]
from tilewright.sweep.space import Load

pytest.importorskip("optuna")
FAKE = str(Path(__file__).with_name("fake_server.py"))
GOAL = "max output_tok_s s.t. p95_ttft_s < 5"
LOAD = {"concurrency": 6, "requests": 12, "warmup_requests": 2, "input_tokens": 12, "output_tokens": 10, "timeout_s": 2}


def space_file(folder: Path, flags: dict[str, Any], *words: str, **more: Any) -> str:
    path = folder / "space.json"
    command = [sys.executable, FAKE, "--port", "{port}", *words]
    load = {**LOAD, **more.pop("load", {})}
    path.write_text(
        json.dumps({"flags": flags, "load": load, "server": {"command": command, "health": "/health"}, **more})
    )
    return str(path)


def sweep(cli: Any, folder: Path, space: str, *more: str) -> Any:
    return cli(
        "sweep", "--engine", "openai", "--space", space, "--goal", GOAL, "--store", str(folder / "s.sqlite"),
        "--load-generator", "own", "--repeats", "2", "--confirm", "0", "--json", *more,
    )  # fmt: skip


def left_running(mark: str) -> list[str]:
    """Processes that have `mark` among their words: the name of a server, which no other test's is called."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            words = (entry / "cmdline").read_bytes().decode().split("\0") if entry.name.isdigit() else []
            if mark in words and (entry / "stat").read_text().rpartition(")")[2].split()[0] != "Z":
                found.append(" ".join(words))
        except OSError:
            continue
    return found


def test_the_better_flag_wins_failures_are_typed_and_explained(cli: Any, tmp_path: Path) -> None:
    flags = {"slots": [1, 6], "fault": {"values": ["none", "die_starting", "die_loaded"], "when": {"slots": [6]}}}
    space = space_file(tmp_path, flags, "--step-ms", "5", "--name", str(tmp_path), baseline={"slots": 1})
    found = sweep(cli, tmp_path, space).json
    by_state = {(c["assignment"].get("slots"), c["assignment"].get("fault")): c for c in found["candidates"]}
    assert by_state[6, "none"]["number"] == found["verdict"]["leader"]
    assert by_state[6, "none"]["metrics"]["output_tok_s"] > 2 * by_state[1, None]["metrics"]["output_tok_s"]
    assert found["verdict"]["over_baseline"]["difference_pct"] > 100
    assert by_state[6, "die_starting"]["status"] == "died_starting"
    assert by_state[6, "die_loaded"]["status"] == "died_loaded"
    assert "exit code 7" in by_state[6, "die_loaded"]["reason"]
    said = {run["outcome"]["status"]: run["outcome"].get("explained", []) for run in found["runs"]}
    assert "memory" in said["died_starting"][0]["title"], "the log is explained by the rules of `explain`"
    assert said["died_starting"][0]["known"]
    assert "illegal memory access" in said["died_loaded"][0]["line"]
    assert found["space_size"] == 4
    assert "--slots 6" in found["launch"]
    assert left_running(str(tmp_path)) == []
    listed = cli("results", "list", "--store", str(tmp_path / "s.sqlite"), "--json").json["results"]
    assert sorted(r["result"]["status"] for r in listed) == ["failed", "failed", "ok", "ok", "ok"]


@pytest.mark.parametrize(
    ("fault", "status", "says"),
    [
        ("never_ready", "never_ready", "not ready within 2 s"),
        ("hang", "hung", "not answered within 2 s"),
        ("errors", "errors", "engine is broken"),
        ("cut", "errors", "broke off"),
    ],
)
def test_what_goes_wrong_is_a_result(cli: Any, tmp_path: Path, fault: str, status: str, says: str) -> None:
    space = space_file(tmp_path, {"fault": fault}, load={"warmup_requests": 0, "requests": 4})
    result = sweep(cli, tmp_path, space, "--ready-timeout", "2" if fault == "never_ready" else "20")
    assert result.code == 0
    outcome = result.json["runs"][0]["outcome"]
    assert outcome["status"] == status
    assert says in outcome["reason"]
    assert "Nothing could be measured" in result.json["verdict"]["text"]


def test_a_server_that_counts_wrong_or_drops_requests_is_not_trusted(cli: Any, tmp_path: Path) -> None:
    space = space_file(tmp_path, {"fault": ["wrong_metrics", "some_errors"]})
    found = sweep(cli, tmp_path, space, "--no-baseline").json
    states = {c["assignment"]["fault"]: c for c in found["candidates"]}
    assert any("the server counted 360 output tokens" in m for m in states["wrong_metrics"]["marks"])
    assert not states["some_errors"]["feasible"]
    assert any(text.startswith("error_rate") for text in states["some_errors"]["missed"])


def test_a_failure_of_every_candidate_alike_ends_it_early(cli: Any, tmp_path: Path) -> None:
    space = space_file(tmp_path, {"slots": [1, 2, 3, 4, 5, 6, 7, 8], "fault": "die_starting"})
    found = sweep(cli, tmp_path, space).json
    assert len(found["runs"]) == 3
    assert "one and the same way" in found["stopped"]


def test_killed_with_sigkill_it_leaves_nothing_and_resumes(cli: Any, tmp_path: Path) -> None:
    flags = {"slots": [2, 3], "block-size": {"values": [16, 7], "when": {"slots": [2]}}}
    words = ("--children", "--name", str(tmp_path), "--step-ms", "3")
    space = space_file(tmp_path, flags, *words, load={"requests": 30, "timeout_s": 30})
    store = tmp_path / "s.sqlite"
    command = [
        sys.executable, "-m", "tilewright", "sweep", "--engine", "openai", "--space", space, "--goal", GOAL,
        "--store", str(store), "--load-generator", "own", "--repeats", "2", "--confirm", "0",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        seen = []
        for line in process.stderr:
            seen.append(line)
            if line.startswith("    1/2") and any(text.startswith("[2]") for text in seen):
                break
        # The server, its supervisor, and the two that left the server's session.
        assert len(left_running(str(tmp_path))) == 4, "".join(seen)
        os.kill(process.pid, signal.SIGKILL)
    end = time.monotonic() + 15
    while left_running(str(tmp_path)) and time.monotonic() < end:
        time.sleep(0.1)
    assert left_running(str(tmp_path)) == []
    found = sweep(cli, tmp_path, space, "--resume")
    assert "1 runs kept, 1 cut off and repeated" in found.err
    numbers = [run["number"] for run in found.json["runs"]]
    assert numbers == [1, 3, 4, 5], "the run that was cut off is made again, the finished one is not"
    states = [c["status"] for c in found.json["candidates"]]
    assert sorted(states) == ["died_starting", *["measured"] * 3]
    again = sweep(cli, tmp_path, space, "--resume")
    assert [run["number"] for run in again.json["runs"]] == numbers, "nothing is left to do"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_stops_its_server_and_says_how_to_go_on(tmp_path: Path, number: int) -> None:
    space = space_file(tmp_path, {"slots": [1, 2]}, "--name", str(tmp_path), load={"requests": 400, "timeout_s": 60})
    command = [
        sys.executable, "-m", "tilewright", "sweep", "--engine", "openai", "--space", space, "--goal", GOAL,
        "--store", str(tmp_path / "s.sqlite"), "--load-generator", "own",
    ]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("    ready"):
                break
        process.send_signal(number)
        rest = process.stderr.read()
    assert process.returncode == -number
    assert rest.strip().splitlines()[-1].endswith("Go on with --resume."), rest
    assert "Traceback" not in rest, rest
    assert left_running(str(tmp_path)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_inside_a_destructor_is_heard_a_moment_later(number: signal.Signals) -> None:
    """Python prints what a destructor raises and goes on: the sweep would have run to its end."""
    hook = sys.unraisablehook

    class Last:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def swept() -> None:
        with _terminable():
            Last()
            time.sleep(5)

    try:
        with pytest.raises(StoppedError) as stopped:
            swept()
        assert stopped.value.number == number
    finally:
        sys.unraisablehook = hook


@contextmanager
def serving(*words: str) -> Iterator[int]:
    port = free_port("127.0.0.1")
    with subprocess.Popen([sys.executable, FAKE, "--port", str(port), *words], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"serving\n"
        try:
            yield port
        finally:
            process.kill()


def test_an_endpoint_that_runs_is_measured_under_varied_load_and_left_running(cli: Any, tmp_path: Path) -> None:
    space = tmp_path / "load.toml"
    space.write_text("[load]\nconcurrency = [1, 4]\nrequests = 12\noutput_tokens = 8\ninput_tokens = 5\n")
    with serving("--slots", "4", "--step-ms", "4", "--name", "run ning") as port:
        url = f"http://127.0.0.1:{port}/v1"
        found = cli(
            "sweep", "--engine", "openai", "--space", str(space), "--goal", "max output_tok_s", "--url", url,
            "--store", str(tmp_path / "s.sqlite"), "--load-generator", "own", "--confirm", "0", "--json",
        ).json  # fmt: skip
        assert found["model"] == "run ning"
        assert found["candidates"][found["verdict"]["leader"]]["assignment"] == {"load.concurrency": 4}
        assert found["launch"] is None
        with socket.create_connection(("127.0.0.1", port)):
            pass
    bad = cli("sweep", "--engine", "openai", "--space", str(space), "--goal", "max output_tok_s", "--url", url)
    assert (bad.code, "does not answer" in bad.err) == (2, True)


@pytest.mark.parametrize("rate", [None, 40.0])
def test_the_light_client_sends_what_it_was_told_to(rate: float | None) -> None:
    load = Load(concurrency=None if rate else 3, request_rate=rate, requests=24, input_tokens=7, output_tokens=5)
    with serving("--slots", "3", "--step-ms", "10") as port:
        target = Target(parse_url(f"http://127.0.0.1:{port}"), "fake", "/v1/completions")
        begun = time.monotonic()
        records = OwnClient().measure(target, load, (), 1)
        took = time.monotonic() - begun
    assert len(records) == 24
    assert {(r.input_tokens, r.output_tokens, r.error) for r in records} == {(7, 5, None)}
    # 8 rounds of 5 tokens each take 10 ms or more; at 40 requests a second 24 take over half a second.
    assert took >= (0.4 if rate is None else 0.2)
    assert client_metrics(records)["p50_ttft_s"] >= 0.009


def test_bad_input_is_one_sentence_before_anything_starts(cli: Any, tmp_path: Path) -> None:
    space = space_file(tmp_path, {"slots": [1, 2]})
    store = str(tmp_path / "none" / "s.sqlite")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for arguments, names in (
            (("--engine", "openai", "--space", space, "--goal", "max nothing"), "output_tok_s"),
            (("--engine", "openai", "--space", str(tmp_path / "no.toml"), "--goal", GOAL), "cannot be read"),
            (("--engine", "openai", "--space", space, "--goal", GOAL, "--port", port), f"--port {port} is in use"),
            (("--engine", "vllm", "--space", space, "--goal", GOAL, "--model", "/no/such"), "no model at"),
            (("--engine", "vllm", "--space", space, "--goal", GOAL), "--model"),
            (("--engine", "vllm", "--space", space, "--goal", GOAL, "--model", "a/b"), "has no flag --slots"),
            (("--engine", "openai", "--space", space, "--goal", GOAL, "--url", "x"), "[load]"),
            (("--engine", "openai", "--space", space, "--goal", GOAL, "--finding", "x"), "--plan"),
            (("--engine", "openai", "--space", space, "--goal", GOAL, "--aiperf", "/no/aiperf"), "--aiperf"),
        ):
            result = cli("sweep", *arguments, "--store", store)
            assert result.code == 2, arguments
            assert names in result.err, result.err
            assert result.err.count("\n") == 1
    assert not Path(store).parent.exists()


def test_a_load_generator_that_was_asked_for_and_is_not_there(
    cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = sweep(cli, tmp_path, space_file(tmp_path, {}), "--load-generator", "aiperf")
    if not Path(sys.executable).with_name("aiperf").exists():
        assert result.code == 3
        assert "tilewright[sweep]" in result.err
