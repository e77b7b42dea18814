"""FlashInfer's autotuner cache: the format of 0.7.4's save_configs, acceptance as its load_configs decides, buckets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tilewright.libraries.flashinfer.cache_report
from tilewright.errors import InputError
from tilewright.libraries.flashinfer.autotune_cache import Tuner, acceptance, bucket, parse_cache, read_cache

FIELDS = ("flashinfer_version", "cuda_version", "gpu")
NEW, OLD = Tuner("0.7.4", FIELDS, True, True), Tuner("0.6.10", FIELDS, False, False)
META = {"flashinfer_version": "0.7.4", "cuda_version": "13.0", "gpu": "NVIDIA B200"}
# As str((op, runner, shapes, extras)) writes it, dtypes of torch in the extras.
KEY = "('trtllm::fused_moe::gemm1', 'MoERunner', ((16, 3072), (256, 512, 384), (0,)), (torch.uint8, None, 8, 'a, b'))"


def cache_of(meta: object, entries: dict[str, object] | None = None) -> bytes:
    return json.dumps({"_metadata": meta, "_generation": "0" * 64, **(entries or {KEY: ["MoERunner", 7]})}).encode()


def test_entries_are_read_as_they_are_written() -> None:
    """Op, runner, shapes and a tactic that is a number or nested lists; integers of cuDNN are named as dropped."""
    cudnn = "('fp4_gemm', 'CudnnFp4GemmRunner', ((8192, 3072),), ())"
    dsl = "('moe', 'CuteDsl', ((1, 2),), ())"
    file = parse_cache(
        cache_of(META, {KEY: ["MoERunner", 7, ["x"]], cudnn: ["CudnnFp4GemmRunner", 2], dsl: ["CuteDsl", [1, [2, 3]]],
                        "junk": 1}), "f"
    )  # fmt: skip
    first, second, third = file.entries
    assert (first.op, first.runner, first.rows, first.tactic) == ("trtllm::fused_moe::gemm1", "MoERunner", 16, 7)
    assert first.shapes == [[16, 3072], [256, 512, 384], [0]]
    assert first.extras.endswith("'a, b')")
    assert "dropped" in second.problem
    assert third.tactic == [1, [2, 3]]
    assert file.unread == ["junk"]


@pytest.mark.parametrize(
    ("meta", "tuner", "running", "verdict", "word"),
    [
        (META, NEW, META, "yes", "equal"),
        ({**META, "gpu": "*"}, NEW, {**META, "gpu": "other"}, "yes", "equal"),
        ({**META, "gpu": "other"}, NEW, META, "no", "kept as it is"),
        ({**META, "cuda_version": "unknown"}, NEW, META, "no", "replaces"),
        ({**META, "cuda_version": "unknown"}, OLD, META, "no", "kept as it is"),
        ({"gpu": "NVIDIA B200"}, NEW, META, "no", "replaces"),
        (META, NEW, {"gpu": "NVIDIA B200"}, "unknown", "cuda_version"),
        ({**META, "gpu": "other"}, NEW, {"gpu": "NVIDIA B200"}, "no", "gpu"),
        (META, Tuner("0.6.2", (), False, False), META, "no", "reads no such file"),
    ],
)
def test_acceptance(meta: dict[str, str], tuner: Tuner, running: dict[str, str], verdict: str, word: str) -> None:
    """One definite difference skips the whole file and keeps it; an origin that its writer could not tell heals."""
    found = acceptance(parse_cache(cache_of(meta), "f"), tuner, running)
    assert found.verdict == verdict
    assert word in found.why


def test_buckets() -> None:
    """Rounded up in steps from 0.6.10 on, down to a power of two before; never above the largest."""
    assert [bucket(count, 8192, True) for count in (1, 3, 255, 257, 2049, 5000, 9000)] == [
        1, 4, 256, 512, 2560, 8192, 8192,
    ]  # fmt: skip
    assert [bucket(count, 8192, False) for count in (1, 3, 255, 5000, 9000)] == [1, 2, 128, 4096, 8192]


@given(st.binary(max_size=200))
def test_garbage_is_one_sentence(data: bytes) -> None:
    """Whatever it holds."""
    try:
        parse_cache(data, "f")
    except InputError as error:
        assert error.field == "cache"


def test_what_is_no_cache(tmp_path: Path) -> None:
    """Deep nesting, another object, a folder, nothing."""
    for content in (b"[" * 100_000, b"{}", b"[]", b'{"a": 1}', b"\xff"):
        (tmp_path / "f").write_bytes(content)
        with pytest.raises(InputError, match="--cache"):
            read_cache(str(tmp_path / "f"))
    for path in (str(tmp_path), str(tmp_path / "none"), "a\0"):
        with pytest.raises(InputError, match="--cache"):
            read_cache(path)


def test_a_field_that_is_not_compared_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A misspelt --running would otherwise be ignored; the sentence lists what this FlashInfer compares."""
    report = tilewright.libraries.flashinfer.cache_report
    monkeypatch.setattr(report, "read_tuner", lambda tree: NEW)
    tree: Any = None
    cache = parse_cache(cache_of(META), "f")
    assert report.cache_report(tree, cache, "f", [], META, []).accepted.verdict == "yes"
    with pytest.raises(InputError, match="cuda_version"):
        report.cache_report(tree, cache, "f", [], {"cuda_versoin": "13.0"}, [])
