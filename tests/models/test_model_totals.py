"""Parameters and bytes, added up from shapes, against what is published and against real config files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from model_helpers import DATA, SMALL, real_configs, write_model

from tilewright.models import component_formats, disk_bytes, load_model, parameters, resolve_model, weights
from tilewright.models.catalogue import build_model, entries

KEYS = [entry.key for entry in entries()]
# "30B", "1T", "1.6T" as published are rounded to the digits they show.
ROUNDED = {"Qwen3-30B-A3B": 1.0, "Nemotron-3-Nano-30B-A3B": 2.0, "Kimi-K2": 50.0, "DeepSeek-V4-Pro": 50.0}


@pytest.mark.parametrize("key", [key for key in KEYS if build_model(key).published_total_b is not None])
def test_total_is_within_one_percent_of_the_published_count(key: str) -> None:
    model = build_model(key)
    assert model.published_total_b is not None
    published = model.published_total_b.value
    allowed = ROUNDED.get(key, published * 0.01)
    assert abs(parameters(model) / 1e9 - published) <= allowed


DERIVED: dict[str, dict[str, float]] = {
    item["key"]: item["derived_param_check"]
    for item in json.loads(gzip.decompress((DATA / "facts" / "models.json.gz").read_bytes()))["models"]
    if item["derived_param_check"]
}


@pytest.mark.parametrize("key", DERIVED)
def test_total_equals_the_check_that_the_facts_derived_on_their_own(key: str) -> None:
    derived, model = DERIVED[key], build_model(key)
    # The facts leave norms and biases out, and count an indexer in every layer of GLM-5.2.
    tolerance = 0.6 if key == "GLM-5.2" else 0.06
    assert parameters(model) / 1e9 == pytest.approx(derived["total_B"], abs=tolerance)
    assert parameters(model, active=True) / 1e9 == pytest.approx(derived["active_B_incl_embed_and_head"], abs=tolerance)


SAME = [
    ("GLM-5-NVFP4", "nvidia/GLM-5-NVFP4"),
    ("GLM-5.1-NVFP4", "nvidia/GLM-5.1-NVFP4"),
    ("GLM-5.2-NVFP4", "nvidia/GLM-5.2-NVFP4"),
    ("GLM-5-FP8", "zai-org/GLM-5-FP8"),
    ("GLM-5.2-FP8", "zai-org/GLM-5.2-FP8"),
    ("DeepSeek-V3", "deepseek-ai/DeepSeek-V3"),
    ("DeepSeek-V3.1-NVFP4", "nvidia/DeepSeek-V3.1-NVFP4"),
    ("DeepSeek-V3.2-NVFP4", "nvidia/DeepSeek-V3.2-NVFP4"),
    ("Qwen3-235B-A22B-NVFP4", "nvidia/Qwen3-235B-A22B-NVFP4"),
    ("Qwen3-30B-A3B-FP8", "Qwen/Qwen3-30B-A3B-FP8"),
    ("Qwen3.5-397B-A17B-NVFP4", "nvidia/Qwen3.5-397B-A17B-NVFP4"),
    ("Qwen3.5-122B-A10B-NVFP4", "nvidia/Qwen3.5-122B-A10B-NVFP4"),
    ("gpt-oss-120b", "openai/gpt-oss-120b"),
    ("Kimi-K2.5-NVFP4", "nvidia/Kimi-K2.5-NVFP4"),
    ("Kimi-K2.6-NVFP4", "nvidia/Kimi-K2.6-NVFP4"),
    ("Llama-4-Maverick", "meta-llama/Llama-4-Maverick-17B-128E-Instruct"),
    ("Mixtral-8x7B", "mistralai/Mixtral-8x7B-v0.1"),
    ("Nemotron-3-Nano-30B-A3B-NVFP4", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"),
    ("Nemotron-3-Super-120B-A12B-NVFP4", "nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4"),
    ("Nemotron-3-Ultra-550B-A55B", "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16"),
    ("DeepSeek-V4-Flash", "deepseek-ai/DeepSeek-V4-Flash"),
    ("DeepSeek-V4-Flash-NVFP4", "nvidia/DeepSeek-V4-Flash-NVFP4"),
]


@pytest.mark.parametrize(("name", "repository"), SAME)
def test_the_catalogue_and_the_real_config_file_describe_the_same_bytes(
    name: str, repository: str, tmp_path: Path
) -> None:
    row = real_configs()[repository]
    extra = {"hf_quant_config": row["hf_quant_config"]} if "hf_quant_config" in row else {}
    real, packaged = load_model(write_model(tmp_path, row["config"], **extra)), resolve_model(name)
    assert parameters(real, mtp=True) == parameters(packaged, mtp=True)
    assert component_formats(real) == component_formats(packaged)
    assert disk_bytes(real) == disk_bytes(packaged)
    assert real.checkpoint.kv_cache == packaged.checkpoint.kv_cache


def test_every_real_config_is_read_or_refused_with_its_reason(tmp_path: Path) -> None:
    from tilewright.errors import InputError

    refused: dict[str, str] = {}
    for repository, row in real_configs().items():
        extra = {"hf_quant_config": row["hf_quant_config"]} if "hf_quant_config" in row else {}
        folder = write_model(tmp_path / repository.replace("/", "--"), row["config"], **extra)
        try:
            assert parameters(load_model(folder)) > 0
        except InputError as error:
            refused[repository] = error.msg
    assert {name.partition("/")[2] for name in refused} == {
        "gemma-4-26B-A4B",
        "Gemma-4-26B-A4B-NVFP4",
        "Gemma-4-31B-IT-NVFP4",
        "Kimi-K3",
        "Llama-3_3-Nemotron-Super-49B-v1",
    }
    assert all("is not covered, because" in msg for msg in refused.values())


@pytest.mark.parametrize(
    ("repository", "billions"),
    [
        ("meta-llama/Meta-Llama-3.1-405B", 405.85),
        ("meta-llama/Meta-Llama-3.1-8B", 8.03),
        ("mistralai/Mixtral-8x22B-v0.1", 140.62),
        ("Qwen/Qwen3-8B", 8.19),
        ("Qwen/Qwen3-0.6B", 0.60),
        ("meta-llama/Llama-4-Scout-17B-16E-Instruct", 107.77),
    ],
)
def test_dense_and_other_models_outside_the_catalogue(repository: str, billions: float, tmp_path: Path) -> None:
    model = load_model(write_model(tmp_path, real_configs()[repository]["config"]))
    assert parameters(model) / 1e9 == pytest.approx(billions, abs=0.01)


def test_a_small_model_adds_up_by_hand(tmp_path: Path) -> None:
    model = load_model(write_model(tmp_path, SMALL))
    attention = 256 * (4 * 64) * 2 + 256 * (2 * 64) * 2 + 2 * 64
    experts = 8 * 3 * 256 * 128
    layer = attention + experts + 8 * 256 + 2 * 256
    assert parameters(model) == 2 * layer + 2 * 1000 * 256 + 256
    assert parameters(model, active=True) == parameters(model) - 2 * (8 - 2) * 3 * 256 * 128
    assert disk_bytes(model) == 2 * parameters(model)


def test_indexers_are_counted_only_where_a_layer_has_its_own() -> None:
    for key, layers in (("GLM-5", 78), ("GLM-5.2", 21)):
        model = build_model(key)
        assert sum(layer.indexer for layer in model.main_layers) == layers
        assert len({row.layer for row in weights(model) if row.component == "indexer" and not row.mtp}) == layers


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [
        ("CortexLM/GLM-5.1-NVFP4-MTP", 441),
        ("GLM-5.1-NVFP4-experts-only", 434 * 1.073741824),  # said in GB, is GiB
        ("GLM-5.1-NVFP4-REAP-160", 285 * 1.073741824),
        ("GLM-5.2-NVFP4-REAP-168", 317.9),
        ("GLM-4.6-NVFP4", 220),
    ],
)
def test_published_sizes_of_checkpoints_come_out(name: str, gigabytes: float) -> None:
    assert disk_bytes(resolve_model(name)) / 1e9 == pytest.approx(gigabytes, rel=0.01)
