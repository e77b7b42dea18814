"""What `bench` measured as rows that kernel models are fitted to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilewright.calibrate.results import groups_of, joined
from tilewright.cli.main import invoke
from tilewright.store import Result, Store


def gemm(m: int, time_s: float, n: int = 4096, **change: Any) -> Result:
    base: dict[str, Any] = {
        "kind": "gemm", "backend": "torch", "at": "2026-12-02T13:00:00Z", "status": "ok", "time_s": time_s,
        "problem": {"m": m, "n": n, "k": 4096, "dtype": "bf16"}, "environment": {"gpu": "h200-sxm"},
    }  # fmt: skip
    return Result(**{**base, **change})


def test_the_best_config_counts_and_doubtful_times_do_not() -> None:
    layer = {"tokens": 4, "hidden": 64, "inter": 32, "experts": 8, "topk": 2, "dtype": "nvfp4"}
    results = [
        gemm(1, 30e-6, config={"tile": 1}), gemm(1, 20e-6, config={"tile": 2}), gemm(1, 22e-6, config={"tile": 2}),
        gemm(1, 5e-6, marks=["throttled: heat (driver)"]), gemm(1, 5e-6, status="wrong"),
        gemm(1, 5e-6, environment={"gpu": "Voodoo 2"}), gemm(1, 5e-6, problem={"m": "x"}), gemm(2, 25e-6),
        gemm(0, 1e-6, kind="moe", problem=layer),
        gemm(0, 1e-6, kind="moe", problem={**layer, "distribution": "one_expert"}),
        gemm(0, 1e-6, kind="copy", problem={"bytes": 16}),
    ]  # fmt: skip
    groups = {group.op: group for group in groups_of(results)}
    assert [(item.sizes, item.time_s) for item in groups["gemm"].samples] == [
        ((1, 4096, 4096), pytest.approx(21e-6)), ((2, 4096, 4096), 25e-6),
    ]  # fmt: skip
    assert (groups["gemm"].gpu, groups["gemm"].dtype) == ("h200-sxm", "bfloat16")
    assert [item.sizes for item in groups["moe"].samples] == [(4, 64, 32, 2, 8, 1, 1)]
    assert groups["moe"].dtype == "w4a16_nvfp4"


def test_a_store_calibrates_and_predict_uses_it(cli: Any, tmp_path: Path) -> None:
    pytest.importorskip("lightgbm")
    store = tmp_path / "results.sqlite"
    with Store.append_to(store) as opened:
        opened.append(
            gemm(m, 4e-6 + max(2 * n * 4096 / 4e12, 2 * m * n * 4096 / 700e12), n=n)
            for m in (1, 4, 16, 64, 256, 1024, 4096, 8192)
            for n in (512, 1024, 2048, 4096, 8192, 16384)
        )
    out = str(tmp_path / "coefficients")
    result = cli("calibrate", "--results", str(store), "--out", out, "--json")
    assert result.code == 0, result.err
    (entry,) = result.json["entries"]
    assert (entry["op"], entry["backend"], entry["rows"]) == ("gemm", "torch", 48)


def test_without_rows_it_says_what_to_give(cli: Any, tmp_path: Path) -> None:
    empty = cli("calibrate", "--out", str(tmp_path / "a"))
    assert empty.code == 2
    assert "--results STORE" in empty.err
    store = tmp_path / "results.sqlite"
    with Store.append_to(store) as opened:
        opened.append([gemm(1, 1e-6, status="failed")])
    none = cli("calibrate", "--results", str(store), "--out", str(tmp_path / "b"))
    assert none.code == 2
    assert "no usable time" in none.err


def test_a_kernel_of_both_sources_is_one_group() -> None:
    ours, theirs = groups_of([gemm(1, 20e-6), gemm(2, 21e-6)]), groups_of([gemm(2, 30e-6), gemm(3, 31e-6)])
    (group,) = joined(theirs, ours)
    assert [(sample.sizes[0], sample.time_s) for sample in group.samples] == [(1, 20e-6), (2, 30e-6), (3, 31e-6)]


def test_rows_that_are_refused_leave_no_folder_behind(tmp_path: Path) -> None:
    rows, out = tmp_path / "rows.csv", tmp_path / "coefficients"
    rows.write_text("fw_version,kernel_source,gemm_dtype,m,n,k,latency_ms\nv,k,fp8,1,2,3,nan\n")
    assert invoke(["calibrate", "--rows", str(rows), "--out", str(out)]) == 2
    assert not out.exists()
