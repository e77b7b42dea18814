"""Trials over a local Ray cluster: a worker is killed midway, one joins, a build and a kernel fail, nothing is lost."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import drive
import msgspec
import pytest
from tune_fakes import fake_command  # noqa: F401 - a fixture

from tilewright.errors import InputError, TilewrightError
from tilewright.hardware.names import resolve_gpu
from tilewright.store.result import key_of
from tilewright.tune.layer import Problem
from tilewright.tune.order import machine_of
from tilewright.tune.run import Outcome, Run
from tilewright.tune.search import search
from tilewright.tune.space import prune
from tilewright.tune.trials import Context, Trial, TrialStore

pytestmark = pytest.mark.filterwarnings("ignore")

BUILDS = 'import sys\nfor line in sys.stdin: print(\'{"status":"ok"}\', flush=True)'


class Watching(drive.Quiet):
    """Kills a worker at the tenth trial and adds a node at the twentieth."""

    def __init__(self, ray: Any, cluster: Any) -> None:
        self.ray, self.cluster = ray, cluster
        self.fleet: Any = None
        self.count = 0

    def trial(self, problem: Problem, trial: Trial, reused: bool) -> None:
        self.count += 1
        if self.count == 10:
            self.ray.kill(next(iter(self.fleet._actors.values())))
        if self.count == 20:
            self.cluster.add_node(num_cpus=1, num_gpus=1)

    def outcome(self, outcome: Outcome) -> None:
        """Not needed."""


def test_only_gpus_like_the_one_that_is_tuned_for_take_part() -> None:
    """Another model, driver or compiler: its times are not those of this run, whatever the store would call them."""
    from tilewright.tune.ray_fleet import Place, against

    context = Context(
        gpu="h200-sxm", device_name="NVIDIA H200", driver="580.1", versions={"torch": "2.11.0", "triton": "3.6.0"},
        kernel="vllm-fused-moe", source="text",
    )  # fmt: skip
    same = Place(label="a/gpu0", device="NVIDIA H200", driver="580.1", versions=context.versions)
    assert against(context, same) is None
    assert against(context, Place(label="a/gpu0")) is None  # no driver: its first trial says so
    replace = msgspec.structs.replace
    assert "it is a NVIDIA B200" in (against(context, replace(same, device="NVIDIA B200")) or "")
    assert "driver is 570.9" in (against(context, replace(same, driver="570.9")) or "")
    assert "triton 3.5.1, this run 3.6.0" in (
        against(context, replace(same, versions={**same.versions, "triton": "3.5.1"})) or ""
    )
    assert "torch not at all" in (against(context, replace(same, versions={"triton": "3.6.0"})) or "")


@pytest.mark.slow
def test_a_cluster_of_other_gpus_is_refused_and_none_is_asked_twice(
    tmp_path: Path, fake: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two actors that say that they have another GPU: both are left out, each once, and the run ends with why."""
    ray = pytest.importorskip("ray")
    from tilewright.tune import ray_fleet

    monkeypatch.setenv("TILEWRIGHT_TUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    place = msgspec.json.encode(ray_fleet.Place(label="elsewhere/gpu0", device="NVIDIA B200"))

    class Elsewhere(ray_fleet.Measurer):
        def where(self) -> bytes:
            return place

    monkeypatch.setattr(ray_fleet, "Measurer", Elsewhere)
    monkeypatch.setattr(ray_fleet, "LOOK_S", 0.2)
    ray.init(address="local", num_cpus=2, num_gpus=2, log_to_driver=False, logging_level="ERROR")
    told: list[str] = []
    try:
        fleet = ray_fleet.RayFleet("auto", None, command=fake, context=drive.CONTEXT, tell=told.append)
        error = fleet.done.get(timeout=60)
        time.sleep(1.5)  # the cluster is looked at again and again
        fleet.close()
    finally:
        ray.shutdown()
    assert isinstance(error, InputError)
    assert "No GPU of the cluster can take part" in error.msg
    assert len(told) == 2
    assert "it is a NVIDIA B200" in told[0]


@pytest.mark.slow
def test_a_host_without_a_gpu_asks_the_cluster_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a run is for is the cluster's GPU then; one that tells nothing, and a cluster without any, are refused."""
    ray = pytest.importorskip("ray")
    from tilewright.tune import ray_fleet

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    told = msgspec.json.encode(
        ray_fleet.Told(name="NVIDIA H200", capability=(9, 0), free_bytes=140 * 10**9, driver="580.1")
    )
    ray.init(address="local", num_cpus=1, num_gpus=2, log_to_driver=False, logging_level="ERROR")
    try:
        device = ray_fleet.cluster_gpu("auto", lambda: told)
        assert (device.gpu, device.capability, device.count) == ("h200-sxm", (9, 0), 2)
        with pytest.raises(InputError, match=r"No GPU of the Ray cluster at 'auto' answers: .*NVIDIA driver"):
            ray_fleet.cluster_gpu("auto", without_a_driver)
    finally:
        ray.shutdown()
    with pytest.raises(InputError, match="has no GPU"):
        ray_fleet.cluster_gpu("local", lambda: told)
    assert not ray.is_initialized()


def without_a_driver() -> bytes:
    raise TilewrightError("No NVIDIA driver answers on this machine.")


@pytest.mark.slow
def test_workers_are_lost_and_added_midway(
    tmp_path: Path, fake: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two GPUs that Ray is told of; the answers come from fake workers, the builds from a fake compiler."""
    ray = pytest.importorskip("ray")
    cluster_utils = pytest.importorskip("ray.cluster_utils")
    from tilewright.tune.ray_fleet import RayFleet

    monkeypatch.setenv("TILEWRIGHT_TUNE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FAKE_SLOW_S", "0.05")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 1})
    cluster.add_node(num_cpus=1, num_gpus=1)
    problems = [Problem(kernel="vllm-fused-moe", layer=drive.LAYER, tokens=count) for count in (1, 16, 256)]
    configs = prune("vllm-fused-moe", drive.LAYER, 90, 232_448, clamp=True).kept
    machine = machine_of(resolve_gpu("h200-sxm"))
    watching = Watching(ray, cluster)
    try:
        fleet = RayFleet(
            cluster.address, lambda request: [{"kind": key_of(request.config)}], command=fake, limit_s=10,
            build_command=(sys.executable, "-c", BUILDS),
        )  # fmt: skip
        watching.fleet = fleet
        begun = time.monotonic()
        with TrialStore.append_to(tmp_path / "s.sqlite") as store:
            run = Run(fleet, store, drive.CONTEXT, watching)
            outcomes = run.tune(
                problems, lambda item: search(item, configs, machine, drive.PLAN), resume=False,
                stop=lambda: time.monotonic() > begun + 120,
            )  # fmt: skip
        fleet.close()
    finally:
        ray.shutdown()
        cluster.shutdown()
    assert sorted(outcome.problem.tokens for outcome in outcomes) == [1, 16, 256]
    assert all(outcome.best and outcome.best.config["BLOCK_SIZE_N"] == 128 for outcome in outcomes)
    assert len(run.workers) >= 2
    with TrialStore.read(tmp_path / "s.sqlite") as store:
        looks = Counter(
            (problem.tokens, key_of(trial.config)) for _, problem, trial in store.everything() if trial.rung == "look"
        )
    assert set(looks.values()) == {1}
