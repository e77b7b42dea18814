"""`bench` on a real GPU. Needs torch and Triton beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.gpu
pytest.importorskip("torch")


@pytest.fixture
def measured(cli: Any, tmp_path: Path) -> Any:
    """Run `bench ARGS` into a store of its own; (the document, the results that the store then holds)."""
    store = str(tmp_path / "results.sqlite")

    def run(*args: str) -> tuple[Any, Any]:
        result = cli("bench", *args, "--store", store, "--budget", "0.2", "--json", "--quiet")
        assert result.code == 0, result.err
        kept = cli("results", "list", "--store", store, "--json")
        return json.loads(result.out), json.loads(kept.out)["results"]

    return run


def test_gemms_of_odd_sizes_are_right_and_kept(measured: Any) -> None:
    document, kept = measured(
        "gemm", "--m", "1,77", "--n", "272", "--k", "528", "--dtype", "bf16,fp8", "--backend", "torch",
        "--backend", "triton", "--backend", "cublaslt",
    )  # fmt: skip
    results = [line["result"] for line in document["lines"]]
    assert {(item["backend"], item["problem"]["dtype"]) for item in results} == {
        ("torch", "bf16"), ("triton", "bf16"), ("triton", "fp8"), ("cublaslt", "fp8"),
    }  # fmt: skip
    assert [item["note"] for item in results if item["status"] != "ok"] == []
    assert all(item["time_s"] > 0 and item["error"] < 0.02 for item in results)
    assert sum(item["result"]["kind"] == "gemm" for item in kept) == len(results)


def test_expert_layers_are_right(measured: Any) -> None:
    document, _ = measured(
        "moe", "--hidden", "512", "--inter", "256", "--experts", "16", "--topk", "4", "--tokens", "1,33",
        "--dtype", "bf16,nvfp4",
    )  # fmt: skip
    results = [line["result"] for line in document["lines"]]
    assert {item["backend"] for item in results} >= {"torch"}
    assert [item["note"] for item in results if item["backend"] == "torch" and item["status"] != "ok"] == []


def test_reading_never_beats_what_the_memory_can_do(measured: Any) -> None:
    document, _ = measured("copy", "--bytes", "1GB")
    assert {line["result"]["status"] for line in document["lines"]} == {"ok"}
    published = [line["of_published_limit"] for line in document["lines"]]
    assert all(share is None or 0.3 < share <= 1.02 for share in published)


def test_what_does_not_fit_is_refused_before_it_is_tried(cli: Any) -> None:
    result = cli("bench", "gemm", "--m", "1", "--n", "1048576", "--k", "1048576", "--no-store")
    assert result.code == 2
    assert "GB free" in result.err
