"""Which format each module of a checkpoint has, in every way in which checkpoints say it."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_helpers import SMALL

from tilewright.errors import InputError
from tilewright.models import component_formats, resolve_model, uniform_checkpoint, weights
from tilewright.models.config import parse_model_config
from tilewright.models.patterns import Patterns
from tilewright.models.quantisation import parse_quantisation


def formats(quantization: dict[str, Any], **config: Any) -> dict[str, set[str]]:
    model = parse_model_config({**SMALL, **config, "quantization_config": quantization}, "config.json")
    return {part: set(found) for part, found in component_formats(model).items()}


NVFP4_GROUP = {
    "weights": {"num_bits": 4, "type": "float", "group_size": 16, "strategy": "tensor_group"},
    "input_activations": {"num_bits": 4, "type": "float", "group_size": 16, "dynamic": "local"},
    "targets": ["Linear"],
}


def test_modelopt_nested_flat_and_compressed_tensors_say_the_same() -> None:
    nested = {"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}
    flat = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head"], "group_size": 16}
    packed = {
        "quant_method": "compressed-tensors",
        "format": "nvfp4-pack-quantized",
        "config_groups": {"group_0": NVFP4_GROUP},
        "ignore": ["lm_head"],
    }
    assert formats(nested) == formats(flat) == formats(packed)
    assert formats(flat)["experts_w13"] == {"nvfp4"}
    assert formats(flat)["router"] == formats(flat)["embedding"] == formats(flat)["lm_head"] == {"bf16"}


def test_a_nested_nvfp4_config_that_vllm_refuses_is_told() -> None:
    """Each of the three keys has to be there, null or not; a flat config needs none of them."""
    whole = {"quant_algo": "NVFP4", "kv_cache_quant_algo": None, "group_size": 16, "exclude_modules": ["lm_head"]}
    assert parse_quantisation({"quantization": whole}, "x").notes == ()
    for key in ("kv_cache_quant_algo", "group_size", "exclude_modules"):
        cut = {name: value for name, value in whole.items() if name != key}
        notes = parse_quantisation({"quantization": cut}, "x").notes
        assert f"without {key} in hf_quant_config.json vLLM refuses an NVFP4 checkpoint" in notes
    assert parse_quantisation({"quant_algo": "NVFP4", "ignore": ["lm_head"]}, "x").notes == ()


def test_nvfp4_whose_activations_are_not_quantised_is_w4a16() -> None:
    trap = {
        "quant_method": "modelopt",
        "quant_algo": "NVFP4",
        "config_groups": {"group_0": {**NVFP4_GROUP, "input_activations": None}},
        "ignore": ["lm_head"],
    }
    assert formats(trap)["experts_w2"] == {"nvfp4_w4a16"}
    honest = {**trap, "config_groups": {"group_0": NVFP4_GROUP}}
    assert formats(honest)["experts_w2"] == {"nvfp4"}


@pytest.mark.parametrize(
    ("ignore", "left"),
    [
        (["model.layers.0.mlp.experts*"], 0),
        (["model.layers.0*"], 0),
        (["model.layers.1.*"], 1),
        (["*.layers.1.mlp.*"], 1),
        (["language_model.model.layers.1.mlp"], 1),
        (["re:.*layers\\.1\\.mlp.*"], 1),
        (["re:model\\.layers\\.(0|7)\\."], 0),
    ],
)
def test_names_globs_and_expressions_leave_out_the_modules_they_mean(ignore: list[str], left: int) -> None:
    quantization = {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ignore}
    model = parse_model_config({**SMALL, "quantization_config": quantization}, "config.json")
    found = {row.layer: model.checkpoint.format_of(row, "bf16").name for row in weights(model) if "experts" in row.name}
    assert found == {left: "bf16", 1 - left: "nvfp4"}


def test_a_glob_without_a_dot_means_what_fnmatch_means() -> None:
    # "layers.7*" also means layers 70 to 79: real lists write "layers.7.*" for one layer.
    assert Patterns(["model.layers.7*"], "x").matches("model.layers.78.mlp.gate")
    assert not Patterns(["model.layers.7.*"], "x").matches("model.layers.78.mlp.gate")


def test_a_bare_word_means_a_part_of_the_path_and_not_a_piece_of_a_word() -> None:
    gate = Patterns(["gate"], "x")
    assert gate.matches("model.layers.0.block_sparse_moe.gate")
    assert not gate.matches("model.layers.0.mlp.gate_proj")


def test_mixed_precision_goes_layer_by_layer_and_may_name_the_head() -> None:
    quantization = {
        "quant_method": "modelopt",
        "quant_algo": "MIXED_PRECISION",
        "quantized_layers": {
            "model.layers.0.mlp.experts": {"quant_algo": "NVFP4", "group_size": 16},
            "model.layers.1.mlp.experts": {"quant_algo": "FP8"},
            "model.layers.0.self_attn.q_proj": {"quant_algo": "MXFP8"},
            "lm_head": {"quant_algo": "W4A16_NVFP4"},
        },
    }
    found = formats(quantization)
    assert found["experts_w13"] == {"nvfp4", "fp8"}
    assert found["attention"] == {"mxfp8", "bf16"}
    assert found["lm_head"] == {"nvfp4_w4a16"}


def test_compressed_tensors_groups_are_tried_in_order() -> None:
    fp8 = {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}, "input_activations": {"num_bits": 8}}
    quantization = {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {**NVFP4_GROUP, "targets": ["re:.*experts.*"]},
            "group_1": {**fp8, "targets": ["Linear"]},
        },
        "ignore": ["re:.*self_attn.*", "lm_head"],
    }
    found = formats(quantization)
    assert found["experts_w2"] == {"nvfp4"}
    assert found["attention"] == {"bf16"}


@pytest.mark.parametrize(
    ("quantization", "expected"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block"),
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4"),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "int4"),
        ({"quant_method": "awq", "bits": 4, "group_size": 64}, "int4"),
        ({"quant_method": "fbgemm_fp8"}, "fp8_channel"),
        ({"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}, "fp8_block"),
        ({"quant_method": "modelopt", "quant_algo": "MXFP8"}, "mxfp8"),
        ({"quant_algo": "W4A16_AWQ", "group_size": 128}, "int4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
    ],
)
def test_methods_are_known_by_their_names(quantization: dict[str, Any], expected: str) -> None:
    assert formats(quantization)["experts_w13"] == {expected}


@pytest.mark.parametrize(
    ("quantization", "field"),
    [
        ({"quant_method": "magic"}, "quant_method"),
        ({}, "quant_method"),
        ("nvfp4", "quantization_config"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP3"}, "quant_algo"),
        ({"quant_method": "modelopt"}, "quant_algo"),
        ({"quant_method": "modelopt", "quant_algo": ["NVFP4"]}, "quant_algo"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": "lm_head"}, "ignore"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": [1]}, "quantization_config"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size"),
        ({"quant_method": "fp8", "weight_block_size": 128}, "weight_block_size"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 3}}}}, "config_groups"),
        ({"quant_method": "gptq", "bits": 3}, "bits"),
    ],
)
def test_what_is_not_known_is_refused_by_name(quantization: Any, field: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_quantisation(quantization, "config.json", key="quantization_config")
    assert caught.value.field == field
    assert caught.value.msg.endswith(".")


@pytest.mark.parametrize("expression", ["(a+)+$", "(a|a)*b", "(.*)*x", ".*.*.*.*.*x", "(x{1,9}){2,}", "(unclosed", "*"])
def test_an_expression_that_could_run_away_is_refused_unrun(expression: str) -> None:
    with pytest.raises(InputError):
        Patterns([f"re:{expression}"], "config.json")


def test_the_slowest_expression_that_is_run_is_quick() -> None:
    patterns = Patterns(["re:.*a.*a.*a.*ab"], "config.json")
    start = time.perf_counter()
    assert not patterns.matches("model.layers.0." + "a" * 60)
    assert time.perf_counter() - start < 2


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=5), st.text(max_size=60))
def test_any_pattern_either_is_refused_or_answers(texts: list[str], name: str) -> None:
    try:
        patterns = Patterns(texts, "config.json")
    except InputError as error:
        assert error.msg.endswith(".")
        return
    assert patterns.matches(name) in (True, False)


def test_the_glm5_family_quantises_what_its_checkpoints_say() -> None:
    def of(name: str) -> dict[str, set[str]]:
        return {part: set(found) for part, found in component_formats(resolve_model(name)).items()}

    glm5, glm51, community = of("GLM-5-NVFP4"), of("GLM-5.1-NVFP4"), of("GLM-5-NVFP4-experts-only")
    assert glm5["dense_mlp"] == glm5["shared_experts"] == {"nvfp4"}
    assert glm51["dense_mlp"] == glm51["shared_experts"] == {"bf16"}
    assert all(found["attention"] == found["indexer"] == {"bf16"} for found in (glm5, glm51, community))
    assert glm5["mtp"] == glm51["mtp"] == {"bf16"}
    assert "mtp" not in community, "its prediction layer was stripped"


def test_a_uniform_checkpoint_is_made_of_named_components() -> None:
    model = resolve_model("GLM-5")
    made = uniform_checkpoint("nvfp4", ["experts"])
    found = component_formats(model, made)
    assert set(found["experts_w13"]) == set(found["experts_w2"]) == {"nvfp4"}
    assert set(found["shared_experts"]) == set(found["mtp"]) == {"bf16"}
    with pytest.raises(InputError, match="No component is called"):
        uniform_checkpoint("nvfp4", ["everything"])
    with pytest.raises(InputError, match="No weight format"):
        uniform_checkpoint("nvfp5", ["experts"])


def test_a_list_of_slow_expressions_is_given_up_with_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tilewright.models.patterns.MAX_EXPRESSION_SECONDS", 0.05)
    patterns = Patterns([f"re:.*a.*a.*a.*{i}$" for i in range(200)], "config.json")

    def match_all() -> None:
        for i in range(2000):
            patterns.matches(f"model.layers.{i}." + "a" * 60)

    with pytest.raises(InputError, match="takes more than"):
        match_all()
