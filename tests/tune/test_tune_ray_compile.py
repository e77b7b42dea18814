"""Trials that really compile, over a local Ray cluster without a GPU: a process is killed, a node joins, a node goes.

Runs where Ray and Triton are installed. Ray is told that each node has a GPU; a trial compiles both kernels for SM90
and is worth what the compiler says (`compile_worker.py`).
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import drive
import pytest

from tilewright.hardware.names import resolve_gpu
from tilewright.store.result import key_of
from tilewright.tune.build import builds
from tilewright.tune.fleet import Fleet, LocalFleet
from tilewright.tune.layer import Problem
from tilewright.tune.moe_call import own_kernel
from tilewright.tune.order import machine_of
from tilewright.tune.request import Request
from tilewright.tune.run import Outcome, Run
from tilewright.tune.search import Plan, search
from tilewright.tune.space import prune
from tilewright.tune.trials import Trial, TrialStore

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

COMPILING = (sys.executable, str(Path(__file__).with_name("compile_worker.py")))
PLAN = Plan(trials=14, again=3, finalists=2, repeats=1)
PROBLEMS = [Problem(kernel="vllm-fused-moe", layer=drive.LAYER, tokens=count) for count in (1, 16)]
MARK = "TILEWRIGHT_TEST_CLUSTER"
LIMIT_S = 300


def builds_of(request: Request) -> list[dict[str, Any]]:
    return builds(
        request.problem.kernel, request.problem.layer, request.problem.tokens, request.config, 90, own_kernel()
    )


def actors_of(mark: str) -> list[int]:
    """Processes of this test's own cluster in which a `Measurer` lives."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if (
                entry.name.isdigit()
                and b"ray::Measurer" in (entry / "cmdline").read_bytes()
                and f"{MARK}={mark}".encode() in (entry / "environ").read_bytes().split(b"\0")
            ):
                found.append(int(entry.name))
    return found


class Trouble(drive.Quiet):
    """At the fifth trial a worker's process is killed, at the tenth a node joins, at the fifteenth another one goes."""

    def __init__(self, cluster: Any, node: Any, mark: str) -> None:
        self.cluster, self.node, self.mark = cluster, node, mark
        self.count = self.killed = 0

    def trial(self, problem: Problem, trial: Trial, reused: bool) -> None:
        self.count += 1
        if self.count == 5:
            os.kill(actors_of(self.mark)[0], signal.SIGKILL)
            self.killed += 1
        elif self.count == 10:
            self.cluster.add_node(num_cpus=1, num_gpus=1)
        elif self.count == 15:
            self.cluster.remove_node(self.node, allow_graceful=False)

    def outcome(self, outcome: Outcome) -> None:
        """Not needed."""


def tuned(fleet: Fleet, path: Path, watcher: Any) -> tuple[list[Outcome], Run]:
    """Both problems searched over `fleet` into the store `path`."""
    configs = prune("vllm-fused-moe", drive.LAYER, 90, 232_448, clamp=True).kept
    machine = machine_of(resolve_gpu("h200-sxm"))
    end = time.monotonic() + LIMIT_S
    try:
        with TrialStore.append_to(path) as store:
            run = Run(fleet, store, drive.CONTEXT, watcher)
            outcomes = run.tune(
                PROBLEMS, lambda item: search(item, configs, machine, PLAN), resume=False,
                stop=lambda: time.monotonic() > end,
            )  # fmt: skip
        return outcomes, run
    finally:
        fleet.close()


def content(path: Path) -> Counter[tuple[Any, ...]]:
    """What a store holds, without who measured it and when."""
    with TrialStore.read(path) as store:
        return Counter(
            (problem.tokens, key_of(trial.config), trial.rung, trial.fault, trial.time_s, trial.up_s)
            for _, problem, trial in store.everything()
        )


def test_a_cluster_that_loses_and_gains_workers_ends_with_the_store_of_one_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every trial is there once, the winners are the same, and compilers ran on the cluster's CPUs."""
    pytest.importorskip("triton", reason="Triton compiles the trials")
    ray = pytest.importorskip("ray", reason="Ray spreads the trials")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    from tilewright.tune.ray_fleet import RayFleet

    monkeypatch.setenv("TILEWRIGHT_TUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    monkeypatch.setenv(MARK, str(tmp_path))
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "num_gpus": 1})
    trouble = Trouble(cluster, cluster.add_node(num_cpus=1, num_gpus=1), str(tmp_path))
    try:
        fleet = RayFleet(cluster.address, builds_of, command=COMPILING, limit_s=120)
        outcomes, run = tuned(fleet, tmp_path / "ray.sqlite", trouble)
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert trouble.killed == 1
    assert fleet.lost >= 1
    assert len(run.workers) >= 3
    cubins = sum(1 for _ in (tmp_path / "cache" / "triton").rglob("*.cubin"))
    assert cubins > 10
    alone, _ = tuned(
        LocalFleet([0], None, lambda request: [], command=COMPILING, limit_s=120),
        tmp_path / "one.sqlite",
        drive.Quiet(),
    )
    assert sum(1 for _ in (tmp_path / "cache" / "triton").rglob("*.cubin")) == cubins  # all were made on the cluster
    assert {outcome.problem.tokens: outcome.best.config for outcome in outcomes if outcome.best} == {
        outcome.problem.tokens: outcome.best.config for outcome in alone if outcome.best
    }
    assert len(outcomes) == len(alone) == len(PROBLEMS)
    assert content(tmp_path / "ray.sqlite") == content(tmp_path / "one.sqlite")
