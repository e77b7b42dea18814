"""What `bench` measured on one H200 (`results export` of 2026-12-02), read back by what uses measurements."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.bench.device import Device
from tilewright.bench.problem import Problem, problem_of
from tilewright.bench.run import published_limit_s
from tilewright.hardware.names import resolve_gpu

DATA = Path(__file__).parents[1] / "data" / "bench_h200.jsonl.gz"
H200 = Device(0, "NVIDIA H200", resolve_gpu("h200-sxm"), (9, 0), 140 * 10**9, "580.159.04", 1)
LIBRARIES = {("gemm", "torch"), ("gemm", "cublaslt"), ("moe", "torch")}
"""What the packaged kernel models are about: cuBLAS and grouped_mm, not our kernels."""


def results() -> list[dict[str, Any]]:
    with gzip.open(DATA, "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


@pytest.fixture
def store(tmp_path: Path, cli: Any) -> str:
    """The measurements in a store of this machine."""
    lines, path = tmp_path / "results.jsonl", str(tmp_path / "results.sqlite")
    lines.write_bytes(gzip.decompress(DATA.read_bytes()))
    assert cli("results", "import", str(lines), "--store", path).code == 0
    return path


def test_nothing_is_faster_than_the_published_limit() -> None:
    shares: list[float] = []
    for result in results():
        if result["status"] != "ok":
            continue
        problem: Problem = problem_of(result["kind"], result["problem"])
        limit = published_limit_s(problem, H200)
        assert limit is not None
        shares.append(limit / result["time_s"])
    assert len(shares) > 150
    assert 0.9 < max(shares) <= 1.0


def test_each_answer_was_held_against_a_reference() -> None:
    for result in results():
        if result["status"] == "ok":
            assert 0 <= result["error"] < 0.02
            assert result["samples"] >= 9
            assert {"sm_mhz", "power_w", "temperature_c"} <= set(result["figures"])
            assert {"gpu", "driver", "cuda", "versions"} <= set(result["environment"])


def test_predictions_bound_what_libraries_were_measured_at(cli: Any) -> None:
    """`predict` fits no H200 table for these: its bounds are those of the model."""
    asked = 0
    for result in results():
        if result["status"] != "ok" or (result["kind"], result["backend"]) not in LIBRARIES:
            continue
        options = [word for key, value in result["problem"].items() for word in (f"--{key}", str(value))]
        answer = cli("predict", result["kind"], "--gpu", "h200", *options, "--json")
        assert answer.code == 0, answer.err
        assert answer.json["low_s"] <= result["time_s"] <= answer.json["high_s"], result["problem"]
        asked += 1
    assert asked >= 100


def test_a_figure_measured_again_is_the_same() -> None:
    """Two machines of the kind and four runs; those whose clocks moved are marked, and left out."""
    times: dict[str, list[float]] = {}
    for result in results():
        if result["status"] == "ok" and not result["marks"] and result["kind"] in ("gemm", "moe"):
            key = json.dumps([result["backend"], result["problem"]])
            times.setdefault(key, []).append(result["time_s"])
    repeated = [found for found in times.values() if len(found) > 2]
    assert len(repeated) > 20
    close = [found for found in repeated if max(found) / min(found) < 1.03]
    assert len(close) / len(repeated) > 0.8


def test_results_are_compared_and_listed(store: str, cli: Any) -> None:
    rows = cli("results", "compare", "--store", store, "--kind", "gemm", "--baseline", "humming", "--json").json["rows"]
    thin = next(row for row in rows if row["problem"]["m"] == 16)
    assert thin["reference"] == "humming"
    assert thin["ratio"]["tilewright"] == pytest.approx(28.30 / 21.52, rel=1e-3)
    failed = cli("results", "list", "--store", store, "--status", "failed", "--json").json["results"]
    assert {item["result"]["backend"] for item in failed} == {"humming"}


def test_kernels_with_enough_rows_are_calibrated_and_others_named(store: str, cli: Any, tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    done = cli("calibrate", "--results", store, "--out", str(tmp_path / "coefficients"), "--json")
    assert done.code == 0, done.err
    (entry,) = done.json["entries"]
    assert (entry["backend"], entry["dtype"], entry["rows"], entry["shapes"]) == ("torch", "bfloat16", 41, 3)
    assert entry["error"]["mean"] < 0.25
    assert "cublaslt fp8: 2 rows of 1 shapes, too few" in done.err
