"""Decode and prefill of whole models: published figures, directions that physics fixes, sums that must add up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.cost.predict import predict
from tilewright.cost.questions import AllreduceQuestion
from tilewright.models.catalogue import entries
from tilewright.serving import DecodeQuestion, PrefillQuestion, predict_decode, predict_prefill
from tilewright.serving.coefficients import coefficients
from tilewright.serving.decode import decode_step
from tilewright.serving.scenario import scenario_of

GLM5: dict[str, Any] = {
    "model": "GLM-5", "checkpoint": "community/GLM-5-NVFP4-experts-only", "gpu": "rtx-pro-6000-server", "gpus": 8,
    "engine": "sglang", "attention": "dense", "kv_dtype": "bf16",
}  # fmt: skip
PUBLISHED = {1: 50.4, 2: 95.2, 4: 164.2, 8: 276.9, 16: 427.4, 32: 659.7, 64: 1010.6}


def tok_s(**more: Any) -> float:
    got = predict_decode(DecodeQuestion(**{**GLM5, **more})).tok_s
    assert got is not None
    return got


def test_the_driving_case_comes_out() -> None:
    errors = [abs(tok_s(concurrency=n, moe_backend="cutlass") / value - 1) for n, value in PUBLISHED.items()]
    assert sum(errors) / len(errors) <= 0.15


def test_b12x_and_cutlass_cross_between_8_and_64_requests() -> None:
    assert tok_s(concurrency=8, moe_backend="b12x") > tok_s(concurrency=8, moe_backend="cutlass")
    assert tok_s(concurrency=64, moe_backend="b12x") < 0.8 * tok_s(concurrency=64, moe_backend="cutlass")


def test_two_pipeline_stages_are_about_twice_as_slow_at_few_requests() -> None:
    ratio = tok_s(concurrency=1, tp=8) / tok_s(concurrency=1, tp=4, pp=2)
    assert 1.5 <= ratio <= 2.4


@pytest.mark.parametrize("requests", [1, 8, 24])
def test_expert_parallelism_costs_a_few_percent_on_two_pcie_cards(requests: int) -> None:
    base: dict[str, Any] = {
        "model": "DeepSeek-V4-Flash", "checkpoint": "nvidia/DeepSeek-V4-Flash-NVFP4", "gpu": "rtx-pro-6000-server",
        "gpus": 2, "engine": "vllm", "concurrency": requests,
    }  # fmt: skip
    off, on = (predict_decode(DecodeQuestion(**base, ep=ep)).tok_s for ep in (1, 2))
    assert off is not None
    assert on is not None
    assert 1.0 < off / on < 1.10


def test_speculation_gains_at_one_request_what_was_published() -> None:
    plain = tok_s(concurrency=1)
    drafted = tok_s(checkpoint="community/GLM-5-NVFP4-experts-only-MTP", speculative_tokens=5, acceptance_length=2.5)
    assert 1.4 < drafted / plain < 2.3  # 93.6 against 50.4: 1.86


def test_terms_add_up_and_idle_time_stands_apart() -> None:
    answer = predict_decode(DecodeQuestion(**GLM5, concurrency=16, context=16384))
    assert sum(term.time_s for term in answer.terms) == pytest.approx(answer.time_s)
    names = [term.name for term in answer.terms]
    assert "idle between steps" in names
    assert "routed experts" in names
    assert "idle" in answer.why
    assert answer.limit_s is not None
    assert answer.low_s < answer.time_s < answer.high_s
    assert answer.limit_s < answer.time_s
    assert answer.basis == "modelled"


def test_a_modelled_wait_is_no_part_of_a_measured_all_reduce() -> None:
    """The all-reduces take what the kernel table says; the wait for the slowest GPU is a row of its own."""
    answer = predict_decode(DecodeQuestion(**GLM5, concurrency=1))
    terms = {term.name: term for term in answer.terms}
    question = AllreduceQuestion(gpu="rtx-pro-6000-server", gpus=8, bytes=6144 * 2)
    assert terms["all-reduces"].basis == "measured"
    assert terms["all-reduces"].time_s == pytest.approx(2 * 78 * predict(question).time_s)
    waiting = terms["collectives, waiting for the slowest GPU"]
    assert waiting.basis == "modelled"
    assert waiting.time_s > 0


def test_a_term_of_which_a_part_was_measured_is_modelled() -> None:
    step = decode_step(scenario_of(DecodeQuestion(**GLM5, concurrency=16)))
    some = step.sums.measured["projections"]
    assert 0 < some < step.sums.times["projections"]
    terms = {term.name: term.basis for term in predict_decode(DecodeQuestion(**GLM5, concurrency=16)).terms}
    assert terms["attention projections"] == "modelled"


def test_without_cuda_graphs_launches_cost_time() -> None:
    with_graphs, without = tok_s(), tok_s(cuda_graphs=False)
    assert without < with_graphs
    terms = predict_decode(DecodeQuestion(**GLM5, cuda_graphs=False)).terms
    assert any("launches" in term.name for term in terms)


def test_another_cluster_of_copies_shares_the_requests() -> None:
    one = predict_decode(DecodeQuestion(**{**GLM5, "gpus": 8, "concurrency": 8}))
    two = predict_decode(DecodeQuestion(**{**GLM5, "gpus": 16, "tp": 8, "concurrency": 16}))
    assert two.time_s == pytest.approx(one.time_s)
    assert two.tok_s == pytest.approx(2 * (one.tok_s or 0))


def test_sparse_attention_stops_growing_with_context_and_dense_does_not() -> None:
    base = {**GLM5, "engine": "vllm", "kv_dtype": "fp8"}

    def growth(attention: str) -> float:
        times = [
            predict_decode(DecodeQuestion(**{**base, "attention": attention}, context=n)).time_s for n in (4096, 131072)
        ]
        return times[1] - times[0]

    assert growth("dense") > 2 * growth("sparse") > 0


@pytest.mark.parametrize("model", [entry.key for entry in entries()])
def test_every_model_of_the_catalogue_is_answered(model: str) -> None:
    answer = predict_decode(DecodeQuestion(model=model, gpu="b200-sxm", gpus=1, concurrency=4, context=2000))
    assert 0 < answer.low_s < answer.time_s < answer.high_s
    first = predict_prefill(PrefillQuestion(model=model, gpu="b200-sxm", gpus=1, prompt_tokens=3000))
    assert first.time_s > answer.time_s / 20
    assert first.tok_s is None


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 300), st.integers(0, 200_000), st.integers(1, 100))
def test_more_requests_or_more_context_never_shorten_a_step(requests: int, context: int, more: int) -> None:
    scenario = scenario_of(DecodeQuestion(**GLM5))
    step = decode_step(scenario.at(requests, context))
    slack = 1.03  # kernel tables are measurements: neighbours may cross by their noise
    assert decode_step(scenario.at(requests + more, context)).time_s * slack >= step.time_s
    assert decode_step(scenario.at(requests, context + 1000 * more)).time_s >= step.time_s
    assert step.time_s > (step.limit_s or 0)


def test_coefficients_act_where_they_should() -> None:
    scenario = scenario_of(DecodeQuestion(**GLM5, concurrency=4))
    coefs = coefficients()
    base = decode_step(scenario, coefs)
    slower = decode_step(scenario, replace(coefs, gap_s=coefs.gap_s + 1e-3))
    assert slower.time_s - base.time_s == pytest.approx(1e-3)
    assert slower.idle_s - base.idle_s == pytest.approx(1e-3)


def test_prefill_grows_faster_than_its_prompt_and_in_chunks() -> None:
    def time(**more: Any) -> float:
        return predict_prefill(PrefillQuestion(**{**GLM5, **more})).time_s

    short, long = time(prompt_tokens=8192), time(prompt_tokens=131072)
    assert long > 16 * short * 0.95
    assert time(prompt_tokens=8192, chunk_tokens=1024) > short
    assert time(prompt_tokens=1 << 24) > long


def test_the_same_question_of_an_unfitted_gpu_has_wider_bounds() -> None:
    ours = predict_decode(DecodeQuestion(**GLM5))
    theirs = predict_decode(DecodeQuestion(**{**GLM5, "gpu": "h200"}))
    assert theirs.high_s / theirs.time_s >= ours.high_s / ours.time_s
    assert "wider" in theirs.why


def test_what_the_answer_rests_on_is_said() -> None:
    far = predict_decode(DecodeQuestion(**GLM5, context=1_000_000)).why
    assert "beyond the 202,752 tokens" in far
    assert "fit in the cache at once" in far
    assert "does not fit" in predict_decode(DecodeQuestion(**{**GLM5, "gpus": 2})).why


def test_verification_in_one_block_depends_on_the_engines_version() -> None:
    base: dict[str, Any] = {
        "model": "Qwen3.5-397B-A17B", "checkpoint": "nvidia/Qwen3.5-397B-A17B-NVFP4", "gpu": "rtx-pro-6000-server",
        "gpus": 4, "speculative_tokens": 3, "context": 65536,
    }  # fmt: skip

    def step(engine: str, version: str | None) -> float:
        return predict_decode(DecodeQuestion(**base, engine=engine, engine_version=version)).time_s

    assert step("sglang", "0.5.9") > 1.5 * step("sglang", "0.5.23")
    assert step("sglang", None) == step("sglang", "0.5.9")
    assert step("vllm", "0.17.1rc1") > 1.3 * step("vllm", "0.17.0rc1")
    assert step("vllm", "0.33.0") == step("vllm", None) == step("vllm", "0.17.0rc1")
