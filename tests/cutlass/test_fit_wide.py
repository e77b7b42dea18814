"""Configs drawn over the whole legal space of every architecture: any key at any of its values, nine releases.

`compiled/wide.jsonl.gz` is made by `tools/build_compiled.py`; no row of it was chosen. The rest of this file is about
kinds of kernel that came with it: mixed input on SM100, software scales whose granularity is left open.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import Any

import pytest
from test_fit_truth import differences

from conftest import DATA
from tilewright import Budget, fit, parse_config


def rows() -> list[dict[str, Any]]:
    with gzip.open(DATA / "compiled" / "wide.jsonl.gz", "rt", encoding="utf-8") as stream:
        return [json.loads(line) for line in stream]


def test_every_compiled_config_is_reproduced_and_none_is_left_without_an_answer() -> None:
    compiled = rows()
    for row in compiled:
        row["truth"].setdefault("error", None)
    assert {row["config"]["id"]: diff for row in compiled if (diff := differences(row))} == {}
    by_arch = Counter(row["config"]["arch"] for row in compiled)
    assert len(compiled) >= 600
    assert min(by_arch[arch] for arch in ("sm90", "sm100", "sm103", "sm120")) >= 50
    assert by_arch["sm121"] >= 15
    assert len({row["config"]["cutlass"] for row in compiled}) >= 9


def mixed(**keys: Any) -> Budget:
    base: dict[str, Any] = {"arch": "sm100", "op_class": "mixed_input", "a": "int8", "b": "bf16", "narrow": "a"}
    return fit(parse_config(base | {"schedule": "1sm", "tile": [128, 128, 64], "cutlass": "4.7.0"} | keys))


@pytest.mark.parametrize(
    ("keys", "rule"),
    [
        ({"narrow": "b", "a": "bf16", "b": "int4"}, "A matrix should be transformed."),
        ({"a": "bf16"}, "Mixed Input GEMM Kernel doesn't support regular gemm."),
        ({"layout_a": "col"}, "the MMA's type is void"),
        ({"b": "e4m3", "a": "int4", "layout_b": "row"}, "The unscaled element must be 2 bytes"),
        ({"tile": [128, 256, 64]}, "Can't support CtaN>128 tiles"),
        ({"tile": [256, 128, 64]}, "SM100_MMA_F16BF16_TS M-mode size"),
        ({"scale": "bf16"}, "Could not find a common tile-gmem vectorization."),
        ({"stages": 1}, "Specialization requires Stages set to value 2 or more."),
        ({"cutlass": "4.1.0"}, 'namespace "cutlass::gemm" has no member'),
    ],
)
def test_what_sm100_mixed_input_refuses(keys: dict[str, Any], rule: str) -> None:
    if keys.get("layout_a") == "col":
        keys = keys | {"schedule": "2sm", "tile": [256, 128, 64], "cluster": [2, 1, 1]}
    budget = mixed(**keys)
    assert budget.status == "illegal"
    assert budget.rules[0].startswith(rule), budget.rules


def test_a_converted_in_shared_memory_takes_stages_that_tensor_memory_would_hold() -> None:
    in_tmem, in_smem = mixed(), mixed(schedule="KernelTmaWarpSpecialized1SmMixedInputSmemSm100")
    assert (in_tmem.status, in_smem.status) == ("fits", "fits")
    assert in_tmem.stages is not None
    assert in_smem.stages is not None
    assert in_tmem.stages > in_smem.stages
    assert (in_tmem.threads, in_tmem.scheduler_stages) == (416, 3)


def test_mixed_operands_without_scales_and_a_plain_schedule_are_the_plain_builder_s() -> None:
    keys: dict[str, Any] = {"a": "e5m2", "b": "e4m3", "tile": [128, 128, 128], "d": "bf16", "cutlass": "4.7.0"}
    for arch in ("sm100", "sm120"):
        one, other = (fit(parse_config(keys | {"arch": arch, "op_class": op})) for op in ("mixed_input", "tensor_op"))
        assert one.smem_bytes == other.smem_bytes
        assert one.status == "fits"


@pytest.mark.parametrize("arch", ["sm90", "sm100", "sm120"])
def test_software_scales_have_a_usual_granularity(arch: str) -> None:
    keys: dict[str, Any] = {"arch": arch, "op_class": "blockwise", "a": "e4m3", "tile": [128, 128, 128]}
    keys["schedule"] = "1sm" if arch == "sm100" else "cooperative"
    left_open = fit(parse_config(keys))
    assert left_open == fit(parse_config(keys | {"scale_granularity": [1, 128, 128]}))
    assert left_open.status == "fits"


def test_a_rule_of_whole_kernels_is_compiled_where_one_was_and_inferred_elsewhere() -> None:
    keys: dict[str, Any] = {"arch": "sm120", "kind": "grouped", "a": "nvfp4", "tile": [64, 128, 128]}
    keys |= {"schedule": "pingpong", "epilogue_schedule": "tma_warp_specialized"}
    compiled, inferred = (fit(parse_config(keys | {"cutlass": release})) for release in ("4.7.0", "3.9.0"))
    assert (compiled.status, compiled.status_basis) == ("illegal", "compiled")
    assert (inferred.status, inferred.status_basis) == ("illegal", "inferred")
    assert compiled.rules == inferred.rules


def test_sm103_takes_pairs_of_element_and_scale_and_says_so_first() -> None:
    for a, b in (("e2m1", "mxfp4"), ("bf16", "mxfp4"), ("mxfp4", "e5m2")):
        keys: dict[str, Any] = {"arch": "sm103", "op_class": "block_scaled", "a": a, "b": b, "tile": [128, 128, 768]}
        rule = fit(parse_config(keys | {"schedule": "1sm"}), brief=True).rules[0]
        assert rule.startswith("Could not build a collective for given parameters.")


def test_block_scaled_tiles_of_256_columns_store_128_at_once_whatever_their_warps() -> None:
    """M of 64 in each CTA puts two warps beside each other; compiled for 4.7.0: 512-byte swizzle of D, not 256."""
    keys: dict[str, Any] = {"arch": "sm100", "op_class": "block_scaled", "a": "mxfp8_e4m3", "b": "mxfp6_e2m3"}
    keys |= {"d": "e2m1", "tile": [128, 256, 128], "cluster": [2, 1, 1], "cutlass": "4.7.0"}
    budget = fit(parse_config(keys | {"epilogue_schedule": "tma_warp_specialized_2sm"}))
    assert (budget.smem_bytes, budget.epilogue_bytes, budget.epilogue_tensor_bytes) == (211968, 9216, 8704)
    assert budget.epilogue_tile == (64, 128)


def test_a_static_scheduler_on_sm103_is_that_of_sm90_whose_responses_are_empty() -> None:
    """Compiled for 4.5.3: three empty responses of a byte each, the pointer to tensor memory right behind them."""
    keys: dict[str, Any] = {"arch": "sm103", "op_class": "block_scaled", "a": "mxfp4", "tile": [128, 128, 768]}
    keys |= {"c": "f32", "d": "e2m1", "cluster": [2, 2, 1], "schedule": "1sm", "swap_ab": True, "cutlass": "4.5.3"}
    keys |= {"epilogue_schedule": "no_smem_warp_specialized_2sm", "tile_scheduler": "static_persistent"}
    fields = {field.path: field for field in fit(parse_config(keys)).fields}
    response, pointer = fields["kernel.clc_response"], fields["kernel.tmem_base_ptr"]
    assert (response.offset, response.bytes, response.type_align, pointer.offset) == (448, 3, 1, 452)
