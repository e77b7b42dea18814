"""Config files from strangers: every absurd or hostile one is one sentence that names the field, and nothing runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from model_helpers import SMALL, real_configs, write_model

from tilewright.errors import InputError
from tilewright.models import load_model, parameters
from tilewright.models.config import parse_model_config
from tilewright.models.reading import MAX_CONFIG_BYTES


def refused(config: dict[str, Any]) -> InputError:
    with pytest.raises(InputError) as caught:
        parse_model_config(config, "config.json")
    assert caught.value.msg.endswith(".")
    assert "\n" not in caught.value.msg
    assert len(caught.value.msg) < 600
    return caught.value


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden_size", -1),
        ("hidden_size", 0),
        ("hidden_size", "256"),
        ("hidden_size", 256.0),
        ("hidden_size", True),
        ("hidden_size", float("nan")),
        ("hidden_size", [256]),
        ("num_hidden_layers", 10**12),
        ("num_hidden_layers", 10**400),
        ("num_attention_heads", -4),
        ("num_key_value_heads", 3),
        ("num_experts", 10**9),
        ("num_experts_per_tok", 9),
        ("moe_intermediate_size", float("inf")),
        ("vocab_size", {}),
        ("vocab_size", 2**60),
        ("head_dim", 0),
        ("decoder_sparse_step", 0),
        ("mlp_only_layers", [[1]]),
        ("mlp_only_layers", [7]),
        ("mlp_only_layers", "all"),
        ("layer_types", ["full_attention"]),
        ("layer_types", [{}, {}]),
        ("layer_types", ["full_attention", "hyena"]),
        ("model_type", 5),
        ("tie_word_embeddings", "no"),
        ("attention_bias", 1),
        ("full_attention_interval", 99),
        ("kv_lora_rank", "512"),
    ],
)
def test_an_absurd_value_is_refused_by_the_name_of_its_field(field: str, value: object) -> None:
    error = refused({**SMALL, field: value})
    assert error.field == field
    assert field in error.msg


@pytest.mark.parametrize(
    "field", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "num_experts_per_tok"]
)
def test_a_missing_field_is_named(field: str) -> None:
    error = refused({key: value for key, value in SMALL.items() if key != field})
    assert field in error.msg
    assert "missing" in error.msg


def test_models_that_the_record_cannot_describe_are_refused_not_guessed() -> None:
    assert "it has an encoder" in refused({**SMALL, "model_type": "t5"}).msg
    assert "it has an encoder" in refused({**SMALL, "model_type": "x", "is_encoder_decoder": True}).msg
    assert "block_configs" in refused({**SMALL, "block_configs": []}).msg


def test_an_unknown_family_is_read_and_said_to_be_unknown() -> None:
    model = parse_model_config({**SMALL, "model_type": "brand_new"}, "config.json")
    assert any("not one of the known families" in note for note in model.notes)
    assert any("no dtype" in note for note in parse_model_config({**SMALL, "torch_dtype": None}, "x").notes)


def test_code_that_a_config_names_is_never_run(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    evil = f"from pathlib import Path\nPath({str(marker)!r}).touch()\n"
    folder = write_model(tmp_path / "evil", {**SMALL, "auto_map": {"AutoConfig": "configuration_evil.EvilConfig"}})
    for name in ("configuration_evil.py", "modeling_evil.py", "__init__.py", "conftest.py"):
        (folder / name).write_text(evil, encoding="utf-8")
    model = load_model(folder)
    assert any("it was not run" in note for note in model.notes)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not valid JSON"),
        (b"{", "not valid JSON"),
        (b'{"hidden_size": 1,}', "line 1"),
        (b"[1, 2]", "one JSON object, not a list"),
        (b"null", "one JSON object"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"hidden_size": ' + b"9" * 5000 + b"}", "thousands of digits"),
        (b"\x00" * 64, "not valid JSON"),
    ],
)
def test_files_that_are_no_config_are_one_sentence(content: bytes, says: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(InputError, match=says) as caught:
        load_model(tmp_path)
    assert caught.value.msg.count("\n") == 0


def test_huge_files_pipes_loops_and_folders_are_refused_unread(tmp_path: Path) -> None:
    big = tmp_path / "big.json"
    with big.open("wb") as stream:
        stream.truncate(MAX_CONFIG_BYTES + 1)
    with pytest.raises(InputError, match=f"more than {MAX_CONFIG_BYTES:,}"):
        load_model(big)
    os.mkfifo(tmp_path / "pipe.json")
    with pytest.raises(InputError, match="not a regular file"):
        load_model(tmp_path / "pipe.json")
    (tmp_path / "loop.json").symlink_to(tmp_path / "loop.json")
    with pytest.raises(InputError, match="cannot be opened"):
        load_model(tmp_path / "loop.json")
    with pytest.raises(InputError, match=r"holds no config\.json"):
        load_model(tmp_path)
    (tmp_path / "dir").mkdir()
    (tmp_path / "dir" / "config.json").mkdir()
    with pytest.raises(InputError, match="not a regular file"):
        load_model(tmp_path / "dir")
    with pytest.raises(InputError, match="does not exist"):
        load_model(tmp_path / "none.json")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_garbage_in_any_field_gives_a_model_or_one_sentence(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(real_configs())))
    config = json.loads(json.dumps(real_configs()[name]["config"]))
    inner = config.get("text_config", config)
    for _ in range(data.draw(st.integers(1, 3))):
        target = data.draw(st.sampled_from([config, inner]))
        target[data.draw(st.sampled_from(sorted(target)))] = data.draw(JSON_VALUES)
    try:
        assert parameters(parse_model_config(config, "config.json")) > 0
    except InputError as error:
        assert error.msg.endswith(".")
        assert "\n" not in error.msg


@settings(max_examples=100, deadline=None)
@given(
    st.dictionaries(st.sampled_from([*SMALL, "quantization_config", "text_config"]) | st.text(max_size=8), JSON_VALUES)
)
def test_any_object_gives_a_model_or_one_sentence(config: dict[str, Any]) -> None:
    try:
        parse_model_config(config, "config.json")
    except InputError as error:
        assert error.msg.endswith(".")


def test_an_infinity_that_real_configs_contain_does_not_stop_the_reader(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({**SMALL, "time_step_limit": [0.0, float("inf")]}))
    assert "Infinity" in (tmp_path / "config.json").read_text()
    assert parameters(load_model(tmp_path)) > 0
