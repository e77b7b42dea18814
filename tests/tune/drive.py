"""A tuning run over fake workers, as a program of its own that a test can kill: `drive.py STORE TOKENS SECONDS`."""

from __future__ import annotations

import sys
from pathlib import Path

from tune_fakes import FAKE

from tilewright.hardware.names import resolve_gpu
from tilewright.tune.fleet import LocalFleet
from tilewright.tune.layer import Layer, Problem
from tilewright.tune.order import machine_of
from tilewright.tune.run import Outcome, Run
from tilewright.tune.search import Plan, search
from tilewright.tune.space import prune
from tilewright.tune.trials import Context, Trial, TrialStore

LAYER = Layer(hidden=2048, inter=256, experts=64, topk=4, dtype="bf16")
CONTEXT = Context(
    gpu="h200-sxm", device_name="NVIDIA H200", driver="1", versions={}, kernel="vllm-fused-moe", source="fake"
)
PLAN = Plan(trials=40, again=3, finalists=2, repeats=2)


class Quiet:
    """Prints each trial, so that a test can follow."""

    def trial(self, problem: Problem, trial: Trial, reused: bool) -> None:
        print("reused" if reused else "measured", trial.fault or "ok", flush=True)

    def outcome(self, outcome: Outcome) -> None:
        print("best", outcome.best.config if outcome.best else None, flush=True)


def tune(store_path: str, tokens: list[int], limit_s: float, devices: int = 1, resume: bool = True) -> list[Outcome]:
    configs = prune("vllm-fused-moe", LAYER, 90, 232_448, clamp=True).kept
    machine = machine_of(resolve_gpu("h200-sxm"))
    problems = [Problem(kernel="vllm-fused-moe", layer=LAYER, tokens=count) for count in tokens]
    with TrialStore.append_to(Path(store_path)) as store:
        fleet = LocalFleet(list(range(devices)), None, lambda request: [], command=FAKE, limit_s=limit_s)
        try:
            run = Run(fleet, store, CONTEXT, Quiet())
            return run.tune(problems, lambda item: search(item, configs, machine, PLAN), resume=resume)
        finally:
            fleet.close()


if __name__ == "__main__":
    tune(sys.argv[1], [int(part) for part in sys.argv[2].split(",")], float(sys.argv[3]))
