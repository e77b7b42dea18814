"""What is asked of a worker, and the trial that its outcome makes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tilewright.bench.job import Job, Outcome
from tilewright.tune.layer import Problem, fields_of
from tilewright.tune.space import Config
from tilewright.tune.trials import FAULTS, Fault, Rung, Trial


@dataclass(frozen=True)
class Request:
    """Measure `config` on `problem`. `cutoff_s`: give up after one look where it takes longer."""

    problem: Problem
    config: Config
    rung: Rung = "look"
    samples: int = 3
    cutoff_s: float | None = None


def job_of(request: Request, device: int, kernel_file: str = "") -> Job:
    """The request as it goes to a measuring process."""
    return Job(
        backend=request.problem.kernel, kind="tune", device=device,
        problem={
            "problem": fields_of(request.problem), "config": request.config, "samples": request.samples,
            "cutoff_s": request.cutoff_s, "kernel_file": kernel_file,
        },
    )  # fmt: skip


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def trial_of(request: Request, outcome: Outcome, worker: str) -> Trial:
    """What is kept of an outcome."""
    figures: dict[str, Any] = dict(outcome.figures)
    told = figures.pop("fault", "")
    fault: Fault = ""
    if outcome.status == "timeout":
        fault = "timeout"
    elif outcome.status == "wrong":
        fault = "wrong"
    elif outcome.status != "ok":
        fault = told if told in (*FAULTS, "setup") else "crash"
    up_s, down_s = figures.pop("up_s", None), figures.pop("down_s", None)
    return Trial(
        config=request.config, rung=request.rung, at=now(), fault=fault, time_s=None if fault else outcome.time_s,
        up_s=up_s, down_s=down_s, samples=outcome.samples, stopped="stopped" in outcome.marks, error=outcome.error,
        worker=worker, note=outcome.note,
        figures={name: value if not isinstance(value, float) else round(value, 6) for name, value in figures.items()},
    )  # fmt: skip
