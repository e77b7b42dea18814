"""The measuring process from outside: answers, crashes, hangs, nonsense."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from tilewright.bench.job import Job, Outcome
from tilewright.bench.process import MeasuringProcess, Together

JOB = Job(backend="torch", kind="read", problem={"bytes": 16})
ANSWER = b'{"status":"ok","time_s":1e-6}'


def command(tmp_path: Path, body: str) -> list[str]:
    """A process that runs `body` for each job that it gets as `line`."""
    script = tmp_path / "fake.py"
    head = "import os, sys, time, signal\nfor line in sys.stdin.buffer:\n"
    script.write_text(head + "".join(f"    {text}\n" for text in body.splitlines()))
    return [sys.executable, str(script)]


def test_one_process_answers_many_jobs(tmp_path: Path) -> None:
    body = """number = os.getpid()
print('{"status":"ok","time_s":1e-6,"samples":%d}' % number, flush=True)"""
    with MeasuringProcess(command(tmp_path, body)) as process:
        first, second = process.ask(JOB, 20), process.ask(JOB, 20)
    assert first.status == second.status == "ok"
    assert first.samples == second.samples


def test_a_crash_is_a_result_and_the_next_job_gets_a_new_process(tmp_path: Path) -> None:
    body = """print("CUDA error: an illegal memory access", file=sys.stderr, flush=True)
os.kill(os.getpid(), signal.SIGSEGV)"""
    with MeasuringProcess(command(tmp_path, body)) as process:
        for _ in range(2):
            lost = process.ask(JOB, 20)
            assert lost.status == "failed"
            assert "SIGSEGV" in lost.note
            assert "illegal memory access" in lost.note


def test_a_hang_ends_at_the_limit_with_its_children(tmp_path: Path) -> None:
    marker = tmp_path / "alive"
    body = f"""import subprocess
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(3); open({str(marker)!r}, 'w')"])
time.sleep(60)"""
    begin = time.monotonic()
    with MeasuringProcess(command(tmp_path, body)) as process:
        lost = process.ask(JOB, 1.0)
    assert lost.status == "timeout"
    assert time.monotonic() - begin < 20
    time.sleep(3)
    assert not marker.exists()


def test_nonsense_is_a_failure(tmp_path: Path) -> None:
    with MeasuringProcess(command(tmp_path, "print('hello', flush=True)\nbreak")) as process:
        assert process.ask(JOB, 20).status == "failed"


def test_half_a_line_does_not_wait_for_ever(tmp_path: Path) -> None:
    body = "sys.stdout.write('{\"status\"'); sys.stdout.flush()\ntime.sleep(60)"
    with MeasuringProcess(command(tmp_path, body)) as process:
        assert process.ask(JOB, 1.0).status == "timeout"


def test_after_a_fatal_outcome_the_process_is_replaced(tmp_path: Path) -> None:
    body = """print('{"status":"failed","fatal":true,"samples":%d}' % os.getpid(), flush=True)"""
    with MeasuringProcess(command(tmp_path, body)) as process:
        seen = {process.ask(JOB, 20).samples for _ in range(2)}
    assert len(seen) == 2


def test_processes_of_a_collective_share_one_limit(tmp_path: Path) -> None:
    body = """if b'"rank":1' in line: time.sleep(60)
print('{"status":"ok","time_s":1e-6}', flush=True)"""
    jobs = [Job(backend="nccl", kind="allreduce", problem={}, rank=rank) for rank in range(2)]
    begin = time.monotonic()
    with Together(2, command(tmp_path, body)) as processes:
        outcomes = processes.ask(jobs, 2.0)
    assert [outcome.status for outcome in outcomes] == ["ok", "timeout"]
    assert time.monotonic() - begin < 20


def test_ctrl_c_does_not_wait_for_processes_that_hang(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tilewright.bench.process.as_completed", interrupted)
    begin = time.monotonic()
    jobs = [Job(backend="nccl", kind="allreduce", problem={}, rank=rank) for rank in range(2)]
    with Together(2, command(tmp_path, "time.sleep(60)")) as processes, pytest.raises(KeyboardInterrupt):
        processes.ask(jobs, 60.0)
    assert time.monotonic() - begin < 20


def test_without_torch_the_real_process_says_what_failed() -> None:
    pytest.importorskip("tilewright.bench.work")
    try:
        import torch  # noqa: F401  # pyright: ignore[reportMissingImports]
    except ModuleNotFoundError:
        with MeasuringProcess() as process:
            lost = process.ask(JOB, 60)
        assert lost.status == "failed"
        assert "torch" in lost.note
    else:
        pytest.skip("torch is installed")


def test_outcomes_and_results_agree_on_what_a_status_is() -> None:
    assert Outcome(status="ok").fatal is False
