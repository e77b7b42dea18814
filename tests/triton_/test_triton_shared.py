"""Shared memory of Triton tiles: the formula against compiled kernels, and the verdicts made of it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import ConfigError
from tilewright.triton_.config import DTYPES, KEYS, parse_triton
from tilewright.triton_.fit import CHECKED, fit_triton
from tilewright.triton_.kernels import KERNELS, features_of, operands_of
from tilewright.triton_.shared import shared_memory

ROWS = Path(__file__).parent.parent / "data" / "triton_rows.jsonl.gz"


def rows() -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(ROWS.read_bytes()).splitlines()]


def tile(**keys: Any) -> dict[str, Any]:
    return {
        "kernel": "sglang-fused-moe", "gpu": "gb10", "dtype": "fp8_w8a8", "block_m": 128, "block_n": 256,
        "block_k": 128, "num_warps": 8, "num_stages": 4, **keys,
    }  # fmt: skip


def test_every_compiled_kernel_takes_what_the_formula_says() -> None:
    """Exact where it says so, and within its bounds elsewhere; no row is out."""
    seen: Counter[str] = Counter()
    for row in rows():
        raw = {key: row[key] for key in KEYS if key in row}
        config = parse_triton(raw)
        operands = operands_of(config, features_of(config.kernel, None)[0], row["sm"])
        descriptor = row.get("descriptor", False)
        memory = shared_memory(config, replace(operands, b_descriptor=descriptor), CHECKED[row["sm"]])
        assert memory.least <= row["shared"] <= memory.most, (row, memory)
        seen["exact" if memory.least == memory.most else "bound"] += 1
        seen[f"sm{row['sm']}"] += 1
        seen[row["triton"]] += 1
    assert seen["exact"] > 2.5 * seen["bound"]
    assert min(seen["sm90"], seen["sm100"], seen["sm120"]) >= 200
    assert seen["3.7.1"] > 600
    assert seen["3.9.0"] >= 40


def test_a_tile_that_overflows_says_bytes_cause_and_the_cheapest_fix() -> None:
    verdict = fit_triton(parse_triton(tile()))
    assert (verdict.status, verdict.basis) == ("overflow", "exact")
    assert (verdict.smem_bytes, verdict.limit_bytes, verdict.excess_bytes) == (147_456, 101_376, 46_080)
    assert verdict.fixes[0].change == {"num_stages": 3}
    assert verdict.fixes[0].smem_bytes == 98_304
    assert verdict.cause is not None
    assert "147,456" in verdict.cause


def test_every_fix_fits_when_it_is_made() -> None:
    for warps in (4, 8):
        for block in (None, [128, 128]):
            raw = tile(block_n=128, num_stages=5, num_warps=warps, block_shape=block)
            fixes = fit_triton(parse_triton(raw)).fixes
            assert fixes
            for fix in fixes:
                mended = fit_triton(parse_triton({**raw, **fix.change}))
                assert mended.status == "fits"
                assert mended.smem_bytes is not None
                assert mended.smem_bytes <= fix.smem_bytes


def test_the_launcher_of_vllm_cuts_k_to_the_block_of_scales() -> None:
    wide = tile(kernel="vllm-fused-moe", block_m=64, block_n=128, block_k=256, num_stages=3, block_shape=[128, 128])
    narrow = {**wide, "block_k": 128}
    assert fit_triton(parse_triton(wide)).smem_bytes == fit_triton(parse_triton(narrow)).smem_bytes


def test_a_version_between_two_readings_answers_a_bound_where_they_differ() -> None:
    """vLLM multiplies small FP8 tiles transposed on SM90 from a version after 0.17 on: `mma` or `wgmma`."""
    small = tile(kernel="vllm-fused-moe", gpu="h200-sxm", block_m=16, block_n=128, num_warps=4)
    before, between, after = (
        fit_triton(parse_triton({**small, "version": version})) for version in ("0.17.0", "0.20.0", "0.27.1")
    )
    assert before.smem_bytes == 3 * (16 + 128) * 128
    assert after.smem_bytes == 4 * (16 + 128) * 128
    assert between.basis == "bound"
    assert (between.least_bytes, between.smem_bytes) == (before.smem_bytes, after.smem_bytes)


def test_what_was_not_held_against_a_compiler_is_not_guessed() -> None:
    verdict = fit_triton(parse_triton(tile(gpu="jetson-thor")))
    assert verdict.status == "unsupported"
    assert verdict.smem_bytes is None


def test_fp8_products_are_illegal_before_sm89() -> None:
    assert fit_triton(parse_triton(tile(gpu="a100-80gb-sxm"))).status == "illegal"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"kernel": "cutlass"}, "kernel"),
        ({"gpu": None}, "gpu"),
        ({"gpu": "voodoo 2"}, "gpu"),
        ({"dtype": "nvfp4"}, "dtype"),
        ({"block_m": 0}, "block_m"),
        ({"block_m": True}, "block_m"),
        ({"block_n": None}, "block_n"),
        ({"block_shape": [0, 128]}, "block_shape"),
        ({"block_shape": "128"}, "block_shape"),
        ({"dtype": "int4_w4a16"}, "block_shape"),
        ({"stages": 3}, "stages"),
        ({"num_stages": 10**30}, "num_stages"),
    ],
)
def test_a_wrong_key_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        fit_triton(parse_triton(tile(**change)))
    assert caught.value.field == field


@pytest.mark.parametrize("change", [{"block_m": 96}, {"block_k": 16}, {"num_warps": 3}])
def test_what_triton_refuses_is_illegal_and_named(change: dict[str, Any]) -> None:
    verdict = fit_triton(parse_triton(tile(**change)))
    assert verdict.status == "illegal"
    assert next(iter(change)) in (verdict.cause or "")


@given(
    st.sampled_from(sorted(KERNELS)), st.sampled_from(DTYPES),
    st.sampled_from(["gb10", "h200-sxm", "b200-sxm", "l40s"]),
    *(st.sampled_from([8, 16, 32, 64, 128, 256, 512]) for _ in range(3)), st.sampled_from([1, 2, 4, 8, 16]),
    st.integers(1, 8), st.sampled_from([None, [128, 128], [0, 64]]),
)  # fmt: skip
def test_bounds_are_ordered_and_more_stages_never_take_less(
    kernel: str, dtype: str, gpu: str, m: int, n: int, k: int, warps: int, stages: int, block: list[int] | None
) -> None:
    raw: dict[str, Any] = {
        "kernel": kernel, "dtype": dtype, "gpu": gpu, "block_m": m, "block_n": n, "block_k": k, "num_warps": warps,
        "num_stages": stages, "block_shape": block,
    }  # fmt: skip
    try:
        verdict = fit_triton(parse_triton(raw))
    except ConfigError:
        return
    if verdict.smem_bytes is None:
        return
    if verdict.least_bytes is not None:
        assert verdict.least_bytes <= verdict.smem_bytes
    if verdict.status == "fits":
        assert verdict.limit_bytes is not None
        assert verdict.smem_bytes <= verdict.limit_bytes
    if stages > 1:
        more = fit_triton(parse_triton({**raw, "num_stages": stages + 1}))
        assert more.smem_bytes is not None
        assert (more.smem_bytes or 0) >= (verdict.least_bytes or verdict.smem_bytes)


ANYTHING = st.one_of(st.none(), st.integers(), st.text(max_size=8), st.booleans(), st.lists(st.integers(), max_size=3))


@given(st.dictionaries(st.sampled_from([*KEYS, "x"]), ANYTHING))
def test_any_object_gets_a_verdict_or_a_named_field(raw: dict[str, Any]) -> None:
    try:
        fit_triton(parse_triton(raw))
    except ConfigError as error:
        assert error.field
        assert error.msg.endswith((".", "?"))
