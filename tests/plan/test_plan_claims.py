"""Every claim W1 to W18 (and D1, D2) is refuted with the right figure, computed by the model, for those who meet it."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.models import resolve_model
from tilewright.models.formats import weight_format
from tilewright.plan.claims import Reader, entries, figure_value, meets, refute
from tilewright.plan.make import make_plan, make_target
from tilewright.versions import within

GLM: dict[str, Any] = {
    "arch": "sm120",
    "formats": frozenset({"nvfp4", "bf16"}),
    "experts": "nvfp4",
    "moe": True,
    "dense_quantised": True,
    "library": "flashinfer",
    "engine": "sglang",
    "engine_version": None,
    "gpus": 8,
    "pcie": True,
    "smem_optin": 101376,
    "smem_per_sm": 102400,
}
READER = Reader(**GLM)
BY_ID = {entry.id: entry for entry in entries()}


def values(claim: str, reader: Reader = READER) -> dict[str, int | None]:
    return {name: figure_value(figure, reader) for name, figure in BY_ID[claim].figures.items()}


def grouped(tile: tuple[int, int, int], version: str = "4.2.1", **more: Any) -> Any:
    config = {
        "cutlass": version, "arch": "sm120", "kind": "grouped", "op_class": "block_scaled", "a": "nvfp4", "b": "nvfp4",
        "tile": list(tile), "fusion": "finalize", "final_output": "bf16", **more,
    }  # fmt: skip
    return fit(parse_config(config))


def test_every_claim_of_the_case_list_is_there_once() -> None:
    assert [entry.id for entry in entries()] == [f"W{n}" for n in range(1, 19)] + ["D1", "D2"]


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.id)
def test_a_refutation_uses_every_figure_it_has_and_leaves_no_gap(entry: Any) -> None:
    claim = refute(entry, READER)
    assert "{" not in claim.refutation
    assert claim.evidence[0].source
    named = set(re.findall(r"{(\w+)}", entry.refutation))
    assert named <= set(entry.figures)
    if entry.when.engine_versions:
        assert within("0.5.1", entry.when.engine_versions) in (True, False)


def test_w1_the_limit_is_the_same_on_sm120_and_sm121_and_not_sm100s() -> None:
    assert values("W1") == {"limit120": 101376, "limit121": 101376, "limit100": 232448}


def test_w2_no_release_heals_the_tile() -> None:
    found = values("W2")
    assert {found[key] for key in ("v421", "v441", "v442", "v450", "v470")} == {102400}
    assert found["limit"] == 101376


def test_w3_the_operands_stages_are_multiples_of_1024_already() -> None:
    found = values("W3")
    assert found == {"a_stage": 8192, "b_stage": 16384, "tail": 2048}


def test_w4_two_tiles_with_k_128_and_256_fit() -> None:
    assert values("W4") == {"t128": 93184, "t256": 93184, "limit": 101376}


def test_w5_the_table_of_pull_request_2927_is_wrong_both_ways() -> None:
    assert values("W5") == {"t256d": 89088, "t256f": 93184, "t2d": 98304, "t2f": 102400, "limit": 101376}


def test_w6_two_stages_not_one() -> None:
    assert values("W6") == {"stages": 2, "bytes": 89088}
    assert grouped((128, 128, 256), stages=1).status == "illegal"


def test_w7_mxfp8_needs_more_than_any_sm12x_has() -> None:
    """Case C04: A, B and scales alone are the whole limit."""
    assert values("W7") == {"bytes": 111616, "limit": 101376}
    config = {
        "cutlass": "4.5.0", "arch": "sm121", "kind": "dense", "op_class": "block_scaled", "a": "mxfp8_e4m3",
        "b": "mxfp8_e4m3", "c": "void", "d": "bf16", "tile": [128, 256, 128], "stages": 2,
    }  # fmt: skip
    budget = fit(parse_config(config))
    assert (budget.smem_bytes, budget.mainloop_tensor_bytes) == (111616, 101376)


def test_w8_dense_tiles_counted_in_elements_fit() -> None:
    assert values("W8") == {"a": 83968, "b": 93184, "limit": 101376}


def test_w9_three_triton_stages_fit_where_four_do_not() -> None:
    fp8 = Reader(**{**GLM, "formats": frozenset({"fp8"}), "experts": "fp8"})
    assert values("W9", fp8) == {"s4": 147456, "s3": 98304, "s2": 49152, "limit": 101376}
    assert meets(BY_ID["W9"].when, fp8)
    assert not meets(BY_ID["W9"].when, Reader(**{**GLM, "experts": "fp8", "smem_optin": 232448}))


def test_w10_one_stage_and_no_epilogue_is_not_a_kernel() -> None:
    assert values("W10") == {"bytes": 102400}


def test_w11_the_retraction_is_what_the_measurements_say() -> None:
    from tilewright.data.measurements import measurement

    table = measurement("qwen35_397b_k64_retraction").table
    gains = [(table[f"K=64 {mtp}"][i] / table[f"stock {mtp}"][i] - 1) * 100 for mtp in ("MTP3", "MTP0") for i in (0, 1)]
    assert [round(gain, 1) for gain in gains] == [6.2, -0.6, 2.7, -0.8]
    assert "2.5 to 6 %" in refute(BY_ID["W11"], READER).refutation


@pytest.mark.parametrize(("experts", "hit"), [("fp8", True), ("nvfp4", False), ("bf16", True), (None, False)])
def test_w12_is_for_formats_that_have_tile_files(experts: str | None, hit: bool) -> None:
    assert meets(BY_ID["W12"].when, Reader(**{**GLM, "experts": experts})) is hit


@pytest.mark.parametrize(
    ("engine", "version", "hit"),
    [("sglang", None, True), ("sglang", "0.5.23", True), ("sglang", "0.6.1", False), ("vllm", "0.5.1", False)],
)
def test_w13_is_for_sglang_0_5(engine: str, version: str | None, hit: bool) -> None:
    reader = Reader(**{**GLM, "engine": engine, "engine_version": version})
    assert meets(BY_ID["W13"].when, reader) is hit


def test_w14_is_for_vllm_on_gpus_that_do_have_fp4() -> None:
    from tilewright.hardware.names import resolve_gpu

    assert meets(BY_ID["W14"].when, Reader(**{**GLM, "engine": "vllm"}))
    assert not meets(BY_ID["W14"].when, Reader(**{**GLM, "engine": "vllm", "arch": "sm90"}))
    assert (resolve_gpu("rtx-pro-6000-server").peak("nvfp4").value or 0) > 0
    assert resolve_gpu("h200").peak("nvfp4").value == 0


def test_w15_a_kernel_that_fits_failed_with_error_internal_too() -> None:
    """Case C01: example 79d takes 87,040 bytes."""
    assert values("W15") == {"fits": 87040}


def test_w16_needs_several_gpus_without_nvlink() -> None:
    assert meets(BY_ID["W16"].when, READER)
    assert not meets(BY_ID["W16"].when, Reader(**{**GLM, "gpus": 1}))
    assert not meets(BY_ID["W16"].when, Reader(**{**GLM, "pcie": False}))


def test_w17_a_block_has_1024_bytes_less_than_an_sm() -> None:
    found = values("W17")
    assert found == {"sm": 102400, "limit": 101376, "over": 102400}


def test_w18_sm120_kernels_use_tma_and_demand_a_single_cluster() -> None:
    budget = grouped((128, 128, 128), cluster=[2, 1, 1])
    assert budget.status == "illegal"
    assert "multicast" in budget.rules[0]
    assert "Tma" in (grouped((128, 128, 128)).mainloop_policy or "")


def test_d1_the_155_kb_count_a_whole_fp32_tile() -> None:
    found = values("D1")
    assert found == {"stage": 27648, "epi": 17408, "em": 64, "en": 32, "bytes": 102400}
    assert 128 * 256 * 4 == 131072


def test_d2_nvfp4_takes_0_5625_bytes_a_weight() -> None:
    assert weight_format("nvfp4").bytes_per_parameter == 0.5625
    assert weight_format("mxfp4").bytes_per_parameter == 0.53125


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "claims"),
    [
        ("GLM-5-NVFP4", "rtx-pro-6000-server", "sglang", "W1 W2 W3 W4 W8 W10 W11 W13 W15 W16 W17 W18 D1 D2"),
        ("GLM-5-NVFP4", "h200", "sglang", "W13 D2"),
        ("GLM-5-NVFP4", "b200", "vllm", "D2"),
        ("Qwen/Qwen3-235B-A22B-FP8", "5090", "sglang", "W1 W9 W12 W13 W16 W17 W18"),
        ("gpt-oss-120b", "gb10", "vllm", "W1 W14 W15 W17 W18"),
    ],
)
def test_the_reader_meets_the_claims_that_are_about_them(model: str, gpu: str, engine: str, claims: str) -> None:
    plan = make_plan(make_target(model=model, gpu=gpu, gpus=8, engine=engine))
    assert " ".join(claim["id"] for claim in plan.baseline["claims"]) == claims


def test_models_that_the_cases_name_are_known() -> None:
    assert resolve_model("GLM-5-NVFP4").key == "GLM-5"
