"""Questions about whole models: what they refuse, and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.cli.main import invoke
from tilewright.errors import InputError, UnknownNameError
from tilewright.report.schema import checker
from tilewright.serving.decode import predict_decode
from tilewright.serving.prefill import predict_prefill
from tilewright.serving.questions import DecodeQuestion, PrefillQuestion, parse_serving_question
from tilewright.serving.scenario import scenario_of

DECODE = {"op": "decode", "model": "GLM-5", "gpu": "rtx_pro_6000_server", "gpus": 8}


def test_the_contracts_own_questions_are_read_and_answered() -> None:
    raw: dict[str, Any] = {
        "id": "a", "op": "decode", "model": "GLM-5", "checkpoint": {"format": "nvfp4", "quantized": ["experts"]},
        "gpu": "rtx_pro_6000_server", "gpus": 8, "engine": "sglang", "engine_version": None, "attention": "dense",
        "tp": 8, "pp": 1, "ep": 1, "dcp": 1, "kv_dtype": "bf16", "moe_backend": "cutlass", "concurrency": 16,
        "context": 0, "speculative_tokens": 0, "acceptance_length": None,
    }  # fmt: skip
    question = parse_serving_question(raw)
    assert isinstance(question, DecodeQuestion)
    assert scenario_of(question).checkpoint.formats == ("nvfp4",)
    prefill = parse_serving_question({**raw, "op": "prefill", "prompt_tokens": 8192})
    assert isinstance(prefill, PrefillQuestion)


@pytest.mark.parametrize(
    ("change", "field", "says"),
    [
        ({"op": "decod"}, "op", "decode, prefill"),
        ({"modle": 1}, "modle", "a decode question (model?); its fields are"),
        ({"gpus": 0}, "gpus", "from 1"),
        ({"gpus": -8}, "gpus", "from 1"),
        ({"gpus": True}, "gpus", "expected a whole number, not true"),
        ({"concurrency": 10**9}, "concurrency", "131,072"),
        ({"context": -1}, "context", "from 0"),
        ({"tp": 3}, "gpus", "multiple of tp x pp = 3"),
        ({"gpus": 7, "pp": 2}, "pp", "divide gpus"),
        ({"ep": 3}, "ep", "divide tp"),
        ({"acceptance_length": 4.5, "speculative_tokens": 3}, "acceptance_length", "from 1 to"),
        ({"acceptance_length": 2}, "acceptance_length", "= 1"),
        ({"attention": "linear"}, "attention", "dense or sparse"),
        ({"kv_dtype": "fp7"}, "kv_dtype", "nearest are: fp8"),
        ({"kv_dtype": "nvfp4"}, "kv_dtype", "use fp8 or bf16"),
        ({"engine": "sglan"}, "engine", "sglang"),
        ({"model": "GLM-55"}, "model", "GLM-5"),
        ({"gpu": "rtx_pro_6000_serve"}, "gpu", "rtx-pro-6000-server"),
        ({"checkpoint": "nvidia/GLM-5-NVFP"}, "checkpoint", "nvidia/GLM-5-NVFP4"),
        ({"checkpoint": {"format": "nvfp5"}}, "format", "nvfp4"),
        ({"checkpoint": {"format": "nvfp4", "quantized": ["expert"]}}, "quantized", "experts"),
        ({"moe_backend": "cutless"}, "moe_backend", "cutlass"),
        ({"model": "MiniMax-M2.5", "tp": 8}, "tp", "no multiple of block_n"),
        ({"model": "Qwen3-235B-A22B", "dcp": 8}, "dcp", "at most 2"),
    ],
)
def test_bad_questions_name_the_field_and_what_is_legal(change: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        scenario_of(parse_serving_question({**DECODE, **change}))
    assert caught.value.field == field
    assert says in caught.value.msg
    assert "\n" not in caught.value.msg


def test_a_missing_prompt_is_named() -> None:
    with pytest.raises(InputError, match="prompt_tokens is missing"):
        parse_serving_question({**DECODE, "op": "prefill"})


def test_an_index_that_contradicts_its_config_is_refused(tmp_path: Path) -> None:
    config = {
        "model_type": "qwen3_moe", "hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 1000,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "num_experts": 16,
        "num_experts_per_tok": 2, "moe_intermediate_size": 128, "intermediate_size": 512, "torch_dtype": "bfloat16",
    }  # fmt: skip
    names = {
        f"model.layers.{layer}.mlp.experts.{expert}.gate_proj.weight": "model-1.safetensors"
        for layer in range(2)
        for expert in range(8)
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": names}))
    question = DecodeQuestion(model=str(tmp_path), gpu="h200")
    with pytest.raises(InputError, match="16 experts a layer, the weight files hold 8"):
        scenario_of(question)


KEYS = st.sampled_from([*DECODE, "tp", "checkpoint", "kv_dtype", "x"])
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9) | st.lists(st.integers())


@given(st.dictionaries(KEYS, VALUES, max_size=6))
def test_any_object_gives_a_question_or_one_sentence(raw: dict[str, Any]) -> None:
    try:
        scenario_of(parse_serving_question(raw))
    except InputError as error:
        assert error.msg
        assert "\n" not in error.msg


def test_an_unknown_backend_is_an_unknown_name() -> None:
    with pytest.raises(UnknownNameError):
        scenario_of(DecodeQuestion(model="GLM-5", gpu="h200", gpus=16, moe_backend="zzz"))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"concurrency": "16"}, "concurrency: expected a whole number, not '16'."),
        ({"checkpoint": {"format": "nvfp4", "quantized": "experts"}}, "expected a list, not 'experts'."),
        ({"acceptance_length": "x"}, "acceptance_length: expected a number, not 'x'."),
        ({"engine_version": "banana"}, "is no version number"),
        ({"engine_version": "1e400"}, "'1e400' is no version number"),
        ({"engine_version": "1,,2"}, "is no version number"),
        ({"engine_version": "1.."}, "is no version number"),
    ],
)
def test_a_refusal_shows_what_stood_there_in_plain_words(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_serving_question({**DECODE, **change})
    assert says in caught.value.msg
    assert "`" not in caught.value.msg


def test_nulls_inside_a_checkpoint_mean_absent() -> None:
    asked = {**DECODE, "checkpoint": {"format": "nvfp4", "quantized": None}}
    assert parse_serving_question(asked) == parse_serving_question({**DECODE, "checkpoint": {"format": "nvfp4"}})
    none = {**DECODE, "checkpoint": {"format": None, "quantized": None}}
    assert parse_serving_question(none) == parse_serving_question({**DECODE, "checkpoint": None})


def test_a_prefill_says_what_does_not_fit_and_is_less_sure_of_other_gpus() -> None:
    asked = {"op": "prefill", "model": "GLM-5", "prompt_tokens": 4096, "gpus": 8}
    here = predict_prefill(parse_prefill({**asked, "gpu": "rtx-pro-6000-server"}))
    assert "it does not fit" in here.why
    fits = predict_prefill(parse_prefill({**asked, "model": "DeepSeek-R1", "gpu": "h200"}))
    assert "does not fit" not in fits.why
    assert fits.high_s / fits.low_s > 1.3 * here.high_s / here.low_s
    assert "bounds are wider" in fits.why


def parse_prefill(raw: dict[str, Any]) -> PrefillQuestion:
    question = parse_serving_question(raw)
    assert isinstance(question, PrefillQuestion)
    return question


def test_the_stream_refuses_under_its_own_schema_and_names_every_operation(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "questions.jsonl"
    lines = [{**DECODE, "id": "a", "model": "GLM-55"}, {"id": "b", "op": "decoded"}, {"id": "c", "op": ["decode"]}]
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n[\n")
    assert invoke(["predict", "--from", str(file), "--json", "--quiet"]) == 0
    answers = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert [item["id"] for item in answers] == ["a", "b", "c", None]
    assert {(item["schema"], item["status"]) for item in answers} == {("tilewright/predict/1", "error")}
    assert [item["error"]["field"] for item in answers] == ["model", "op", "op", "line"]
    for word in ("gemm", "moe", "allreduce", "decode", "prefill"):
        assert word in answers[1]["error"]["message"]
    check = checker("predict")
    for item in answers:
        check(item)


def test_a_term_that_runs_wholly_beside_another_is_gone_and_said_to_be() -> None:
    """What the subtraction leaves of it is rounding and no time of 1e-19 seconds."""
    answers = [
        predict_decode(DecodeQuestion(model="GLM-5-NVFP4", gpu=gpu, gpus=8, tp=8, concurrency=requests))
        for requests in (1, 2, 4, 8, 16, 32, 64)
        for gpu in ("rtx_pro_6000_server", "b200_sxm")
    ]
    assert all(term.time_s > 1e-9 for answer in answers for term in answer.terms)
    for answer in answers:
        shown = any(term.name == "shared experts" for term in answer.terms)
        assert shown != ("shared experts run beside" in answer.why)


def test_the_hardware_never_allows_less_than_what_is_predicted() -> None:
    answer = predict_decode(
        DecodeQuestion(
            model="GLM-4.5-Air", gpu="h20", gpus=8, tp=8, concurrency=913, context=4398, engine="vllm",
            speculative_tokens=1,
        )
    )  # fmt: skip
    assert answer.limit_s is not None
    assert answer.limit_s <= answer.time_s
