"""Names and paths resolve to models; bad ones are asked back or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_helpers import SMALL, real_configs, write_model

from tilewright.errors import AmbiguousNameError, InputError, UnknownNameError
from tilewright.models import resolve_model
from tilewright.models.catalogue import entries


@pytest.mark.parametrize(
    ("name", "key", "checkpoint"),
    [
        ("GLM-5", "GLM-5", "zai-org/GLM-5"),
        ("glm-5", "GLM-5", "zai-org/GLM-5"),
        ("zai-org/GLM-5", "GLM-5", "zai-org/GLM-5"),
        ("GLM-5-NVFP4", "GLM-5", "nvidia/GLM-5-NVFP4"),
        ("glm_5_nvfp4", "GLM-5", "nvidia/GLM-5-NVFP4"),
        ("nvidia/GLM-5-NVFP4", "GLM-5", "nvidia/GLM-5-NVFP4"),
        ("zai-org/GLM-5-FP8", "GLM-5", "zai-org/GLM-5-FP8"),
        ("Kimi-K2.5", "Kimi-K2", "moonshotai/Kimi-K2-Instruct"),
        ("nvidia/Kimi-K2.5-NVFP4", "Kimi-K2", "nvidia/Kimi-K2.5-NVFP4"),
        ("MiniMax-M2.7", "MiniMax-M2/M2.5/M2.7", "MiniMaxAI/MiniMax-M2.5"),
        ("GLM-4.7", "GLM-4.6/4.7", "zai-org/GLM-4.6"),
        ("deepseek-v3", "DeepSeek-V3", "deepseek-ai/DeepSeek-V3"),
        ("Nemotron-3-Nano-30B-A3B-NVFP4", "Nemotron-3-Nano-30B-A3B", "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4"),
    ],
)
def test_names_resolve_with_their_checkpoint(name: str, key: str, checkpoint: str) -> None:
    model = resolve_model(name)
    assert (model.key, model.checkpoint.name) == (key, checkpoint)


def test_every_name_and_checkpoint_of_the_catalogue_resolves_to_its_model() -> None:
    for entry in entries():
        for name in (*entry.names, *entry.checkpoints):
            assert resolve_model(name).key == entry.key


def test_an_owner_that_is_typed_must_be_right() -> None:
    with pytest.raises(UnknownNameError):
        resolve_model("somebody/GLM-5")


def test_unknown_names_come_with_the_nearest_and_a_way_on() -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve_model("GLM-5-NVPF4")
    assert "GLM-5-NVFP4" in caught.value.choices
    assert "config.json" in caught.value.msg


def test_a_file_and_its_folder_are_the_same_model(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "my-model", real_configs()["Qwen/Qwen3-8B"]["config"])
    by_folder, by_file = resolve_model(str(folder)), resolve_model(str(folder / "config.json"))
    assert by_folder.name == by_file.name == "my-model"
    assert by_folder.hidden == by_file.hidden == 4096


def test_a_quantisation_beside_the_config_is_read_when_the_config_has_none(tmp_path: Path) -> None:
    quant = {"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    model = resolve_model(write_model(tmp_path, SMALL, hf_quant_config=quant))
    assert model.checkpoint.formats == ("nvfp4",)
    assert model.checkpoint.kv_cache == "fp8"
    own = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    model = resolve_model(write_model(tmp_path, {**SMALL, "quantization_config": own}, hf_quant_config=quant))
    assert model.checkpoint.formats == ("fp8_block",)


def test_an_id_is_found_in_hugging_faces_own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--some-org--Some-Model"
    old, new = "a" * 40, "b" * 40
    write_model(repository / "snapshots" / old, {**SMALL, "num_hidden_layers": 1})
    write_model(repository / "snapshots" / new, {**SMALL, "num_hidden_layers": 3})
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(old)
    model = resolve_model("some-org/Some-Model")
    assert (model.name, len(model.layers)) == ("Some-Model", 1)
    with pytest.raises(UnknownNameError, match="nothing is fetched"):
        resolve_model("some-org/Another-Model")


@pytest.mark.parametrize("name", ["./nowhere", "/no/such/config.json", "~/nowhere/at/all", "a/b/c", "x.json"])
def test_paths_that_are_not_there_are_said_to_be_missing(name: str) -> None:
    with pytest.raises(InputError, match="does not exist"):
        resolve_model(name)


@given(st.text(max_size=200))
def test_any_text_gives_a_model_or_one_sentence(text: str) -> None:
    try:
        resolve_model(text)
    except InputError as error:
        assert error.msg.endswith(".")
        assert "\n" not in error.msg


def test_the_command_lists_shows_and_refuses(cli: Any, tmp_path: Path) -> None:
    listed = cli("models")
    assert listed.code == 0
    assert all(entry.key in listed.out for entry in entries())
    shown = cli("models", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--tp", "8").out
    assert "routed experts, gate and up (w13)  nvfp4" in shown
    assert "100,152" in shown
    assert "54.76 GiB" in shown
    document = cli("models", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--tp", "4", "--json").json
    assert document["schema"] == "tilewright/models/1"
    assert document["memory"]["fits"] is False
    assert document["models"][0]["parameters"]["published_total_b"]["sources"]
    assert len(cli("models", "--json").json["models"]) == 26
    own = cli("models", str(write_model(tmp_path / "own", SMALL)))
    assert own.code == 0
    assert "as trained" in own.out
    for arguments in (
        ("models", "GLM-6"),
        ("models", "/dev/null"),
        ("models", "GLM-5", "--gpu", "rtx pro 6000"),
        ("models", "GLM-5", "--gpu", "h200", "--tp", "0"),
        ("models", "--gpu", "h200"),
        ("models", "GLM-5", "--gpu", "h200", "--fraction", "nan"),
    ):
        result = cli(*arguments)
        assert result.code == 2, arguments
        assert result.err.count("\n") == 1
        assert not result.out


def test_a_model_and_a_format_mean_its_checkpoint_in_that_format() -> None:
    assert resolve_model("DeepSeek-R1-NVFP4").checkpoint.name == "nvidia/DeepSeek-R1-0528-FP4-v2"
    assert resolve_model("deepseek-r1-fp4").checkpoint.formats == ("nvfp4",)
    with pytest.raises(AmbiguousNameError, match=r"MiniMax-M2\.5-NVFP4, nvidia/MiniMax-M2\.7-NVFP4"):
        resolve_model("MiniMax-M2-NVFP4")
    with pytest.raises(UnknownNameError):
        resolve_model("gpt-oss-120b-nvfp4")


def test_an_entry_of_several_releases_is_called_by_the_one_that_was_meant() -> None:
    assert resolve_model("MiniMax-M2").name == "MiniMax-M2"
    assert resolve_model("MiniMaxAI/MiniMax-M2.5").name == "MiniMax-M2.5"
    assert resolve_model("MiniMax-M2.5") is resolve_model("minimax-m2.5")


def test_memory_says_what_engines_take_and_what_windows_do(cli: Any, tmp_path: Path) -> None:
    shown = cli("models", "gpt-oss-120b", "--gpu", "rtx-pro-6000-server").out
    assert "routed experts, gate and up (w13) " in shown.partition("Memory of one")[2]
    assert "keep 128 tokens, so beyond those it takes 36,864 bytes a token" in shown
    assert "SGLang 0.869 here (its own rule), vLLM 0.92" in shown
    own = cli("models", str(write_model(tmp_path / "mine", SMALL)))
    assert "Checkpoint mine, as trained" in own.out
