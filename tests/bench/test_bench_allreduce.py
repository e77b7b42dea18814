"""All-reduce: what its processes agree on, over gloo on the CPU, and what the run makes of it. NCCL does not run."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tilewright.bench.allreduce import MOST_CALLS, bus_gbs, calls_of, tuning
from tilewright.bench.device import Device
from tilewright.bench.job import Job, Outcome
from tilewright.bench.problem import AllreduceProblem
from tilewright.bench.process import Together
from tilewright.bench.run import Options, bench_allreduce, of_all, prediction
from tilewright.errors import InputError
from tilewright.hardware.names import resolve_gpu
from tilewright.report.bench_text import show
from tilewright.report.output import Output

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
WORKER = [sys.executable, str(Path(__file__).parent / "gloo_worker.py")]


def ask(
    processes: Together, tmp_path: Path, gpus: int, mode: str = "", size: int = 64, name: str = "a"
) -> list[Outcome]:
    problem = {"mode": mode, "gpus": gpus, "bytes": size}
    jobs = [
        Job(
            backend="nccl", kind="allreduce", problem=problem, device=rank, rank=rank, budget_s=0.3,
            meeting=str(tmp_path / name),
        )
        for rank in range(gpus)
    ]  # fmt: skip
    return processes.ask(jobs, 60)


@needs_torch
def test_processes_agree_on_samples_and_end_and_stay_together(tmp_path: Path) -> None:
    """Their clocks are a quarter of an hour apart and one is slower: all take as many samples, of the slowest."""
    with Together(3, WORKER) as processes:
        first = ask(processes, tmp_path, 3)
        again = ask(processes, tmp_path, 3, size=2 * (5 << 20))  # two chunks of the check, the second not whole
    assert [outcome.status for outcome in first + again] == ["ok"] * 6, first + again
    assert len({(outcome.samples, outcome.time_s) for outcome in first}) == 1
    assert first[0].samples >= 9
    assert first[0].time_s == pytest.approx(3e-3 * 1.5)
    assert all(outcome.figures["looks"] >= 2 for outcome in first)
    assert [outcome.figures["pid"] for outcome in first] == [outcome.figures["pid"] for outcome in again]


@needs_torch
def test_a_wrong_sum_in_one_process_is_one_answer_of_all(tmp_path: Path) -> None:
    with Together(2, WORKER) as processes:
        outcomes = ask(processes, tmp_path, 2, "nan")
        assert [outcome.status for outcome in outcomes] == ["wrong", "wrong"]
        assert [outcome.status for outcome in ask(processes, tmp_path, 2, name="b")] == ["ok", "ok"]


@needs_torch
@pytest.mark.parametrize(("mode", "why"), [("fail", "no memory left on this GPU"), ("die", "SIGABRT")])
def test_a_process_that_fails_ends_the_wait_of_the_others(
    tmp_path: Path, mode: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.bench.process.GRACE_S", 0.5)
    begin = time.monotonic()
    with Together(2, WORKER) as processes:
        outcomes = ask(processes, tmp_path, 2, mode)
    assert time.monotonic() - begin < 40  # not the limit of 60
    assert why in of_all(outcomes).note


def ok(time_s: float, *marks: str) -> Outcome:
    return Outcome(status="ok", time_s=time_s, samples=9, marks=list(marks))


def test_the_marks_of_all_count_and_a_failure_before_its_consequences() -> None:
    together = of_all([ok(2e-5, "throttled: heat (driver)"), ok(3e-5, "shared gpu"), ok(1e-5)])
    assert together.time_s == 3e-5
    assert together.marks == ["throttled: heat (driver)", "shared gpu"]
    lost, failed = Outcome(status="timeout", note="ended"), Outcome(status="failed", note="NCCL error")
    assert of_all([lost, failed, ok(1e-5)]) is failed
    assert of_all([ok(1e-5), lost]) is lost
    assert of_all([failed, failed]).note == "NCCL error"
    both = of_all([failed, ok(1e-5), lost, Outcome(status="failed", note="no memory")])
    assert both.note == "GPU 0: NCCL error; GPU 3: no memory"


def test_samples_are_of_fewer_calls_where_messages_are_large() -> None:
    assert calls_of(256) == MOST_CALLS
    assert 4 <= calls_of(64 << 20) < MOST_CALLS
    assert calls_of(1 << 36) == 4


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    """8 GPUs, 64 MiB in 3.2 ms: 21 GB/s of message, times 7/4 (nccl-tests, doc/PERFORMANCE.md)."""
    assert bus_gbs(64 << 20, 8, 3.2e-3) == pytest.approx(64 * 2**20 / 3.2e-3 * 1.75 / 1e9)
    assert bus_gbs(1000, 2, 1e-6) == pytest.approx(1.0)


def test_what_tunes_nccl_is_part_of_what_was_measured() -> None:
    variables = {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": "x", "PATH": "/bin", "NCCL_PROTO": "LL"}
    assert tuning(variables) == {"NCCL_ALGO": "Ring", "NCCL_PROTO": "LL"}


EIGHT = Device(
    0, "NVIDIA RTX PRO 6000 Blackwell Server Edition", resolve_gpu("rtx-pro-6000-server"), (12, 0), 95 * 10**9, "580", 8
)


def measuring(tmp_path: Path, time_s: float) -> list[str]:
    """A process that answers each job; it writes down where it was to meet the others."""
    script = tmp_path / "measuring.py"
    answer = json.dumps({"status": "ok", "time_s": time_s, "samples": 9, "versions": {"nccl": "2.28.3"}})
    script.write_text(
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    job = json.loads(line)\n"
        f"    open({str(tmp_path / 'met')!r}, 'a').write(f'{{os.getpid()}} {{job[\"meeting\"]}}\\n')\n"
        "    if job['problem']['bytes'] == 16 and job['rank'] == 1: os.abort()\n"
        f"    print({answer!r}, flush=True)\n"
    )
    return [sys.executable, str(script)]


def test_a_run_keeps_its_processes_and_meets_elsewhere_after_a_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = Options(store=str(tmp_path / "r.sqlite"), limit_s=20, command=measuring(tmp_path, 30e-6))
    problems = [AllreduceProblem(bytes=size, gpus=2) for size in (8192, 65536, 16, 98304)]
    document = bench_allreduce(problems, EIGHT, options, lambda _: None)
    assert [line.result.status for line in document.lines] == ["ok", "ok", "failed", "ok"]
    met = [line.split() for line in (tmp_path / "met").read_text().splitlines()]
    assert len({process for process, _ in met}) == 4  # two, and two again after the failure
    assert len({meeting for _, meeting in met}) == 2
    said = document.lines[1].predicted
    assert said is not None
    assert document.lines[1].within == (said.low_s <= 30e-6 <= said.high_s)
    assert document.lines[2].predicted is None
    show(document, Output())
    assert "predicted" in capsys.readouterr().out


def test_what_no_prediction_covers_has_none() -> None:
    unknown = Device(0, "NVIDIA Z1", None, (9, 0), None, None, 2)
    assert prediction(AllreduceProblem(bytes=1024, gpus=2), unknown) is None
    assert prediction(AllreduceProblem(bytes=1024, gpus=8), EIGHT) is not None


def test_a_message_or_a_backend_that_cannot_be_is_refused_before_anything_starts(tmp_path: Path) -> None:
    command = measuring(tmp_path, 1e-6)
    small, large = ([AllreduceProblem(bytes=size, gpus=2)] for size in (1024, 1 << 39))
    other = Options(keep=False, backends=("torch",), command=command)
    with pytest.raises(InputError, match="nccl is the only one"):
        bench_allreduce(small, EIGHT, other, lambda _: None)
    with pytest.raises(InputError, match="GB of GPU memory"):
        bench_allreduce(large, EIGHT, Options(keep=False, command=command), lambda _: None)
    assert not (tmp_path / "met").exists()


@needs_torch
def test_the_worker_of_a_collective_says_what_is_missing_here() -> None:
    """The real process, on a machine without a GPU or with fewer: a failure in one line, not a hang."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with Together(2) as processes:
        problem = {"bytes": 1024, "gpus": 2}
        jobs = [
            Job(backend="nccl", kind="allreduce", problem=problem, device=rank, rank=rank, meeting="/dev/null/x")
            for rank in range(2)
        ]  # fmt: skip
        outcomes: list[Any] = processes.ask(jobs, 60)
    assert {outcome.status for outcome in outcomes} == {"failed"}
    assert all(outcome.note and "\n" not in outcome.note for outcome in outcomes)
