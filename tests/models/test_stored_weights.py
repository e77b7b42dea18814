"""What weight files hold, read from their headers, and what is said when the config disagrees."""

from __future__ import annotations

from pathlib import Path

import pytest
from model_helpers import SMALL, write_model, write_safetensors

from tilewright.errors import InputError
from tilewright.models import load_model, weights


def tensors_of(folder: Path, experts: int | None = None) -> dict[str, tuple[str, list[int]]]:
    """The tensors that a checkpoint of the model in the folder has, one a matrix."""
    model = load_model(folder)
    out: dict[str, tuple[str, list[int]]] = {}
    for row in weights(model):
        names = [row.name]
        if row.component.startswith("experts_"):
            count = experts or row.count
            names = [row.name.replace("experts.0.", f"experts.{i}.") for i in range(count)]
        for name in names:
            out[f"{name}.weight"] = ("BF16", [row.out, row.inn])
    return out


def test_headers_that_agree_with_the_config_raise_no_problem(tmp_path: Path) -> None:
    folder = write_model(tmp_path, SMALL)
    write_safetensors(folder / "model-00001-of-00001.safetensors", tensors_of(folder))
    model = load_model(folder)
    assert model.stored is not None
    assert model.stored.experts == 8
    assert model.stored.layers == 2
    assert model.problems == ()


def test_a_stale_expert_count_is_found_in_the_headers(tmp_path: Path) -> None:
    # cases C72: a pruned checkpoint whose config still says 256 experts where 168 are stored.
    folder = write_model(tmp_path, SMALL)
    write_safetensors(folder / "model.safetensors", tensors_of(folder, experts=5))
    (problem,) = load_model(folder).problems
    assert "the config says 8 experts a layer, the weight files hold 5" in problem


def test_the_index_alone_shows_it_too(tmp_path: Path) -> None:
    index = {
        "metadata": {"total_size": 12},
        "weight_map": {
            f"model.layers.{i}.mlp.experts.{e}.up_proj.weight": "a.safetensors" for i in (0, 1) for e in range(6)
        },
    }
    folder = write_model(tmp_path, SMALL)
    (folder / "model.safetensors.index.json").write_text(__import__("json").dumps(index))
    model = load_model(folder)
    assert model.stored is not None
    assert model.stored.experts == 6
    assert "hold 6" in model.problems[0]


def test_four_bit_weights_without_a_quantisation_config_are_said(tmp_path: Path) -> None:
    folder = write_model(tmp_path, SMALL)
    tensors = tensors_of(folder)
    tensors["model.layers.0.mlp.experts.0.gate_proj.weight_scale_2"] = ("F32", [])
    write_safetensors(folder / "model.safetensors", tensors)
    assert any("packed 4-bit" in problem for problem in load_model(folder).problems)


def test_bytes_that_the_config_does_not_describe_are_said(tmp_path: Path) -> None:
    folder = write_model(tmp_path, SMALL)
    tensors = tensors_of(folder)
    tensors["extra.weight"] = ("F32", [4096, 4096])
    write_safetensors(folder / "model.safetensors", tensors)
    assert any("the config describes" in problem for problem in load_model(folder).problems)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "header does not fit"),
        (b"\x00" * 7, "header does not fit"),
        (b"\xff" * 8, "header does not fit"),
        ((1000).to_bytes(8, "little") + b"{}", "header does not fit"),
        ((2).to_bytes(8, "little") + b"[]", "one JSON object"),
        ((9).to_bytes(8, "little") + b'{"a": {}}', "no dtype and shape"),
        ((38).to_bytes(8, "little") + b'{"a":{"dtype":"BF16","shape":[-1, 99]}}'[:38], "not valid JSON"),
    ],
)
def test_broken_weight_files_are_one_sentence(content: bytes, says: str, tmp_path: Path) -> None:
    folder = write_model(tmp_path, SMALL)
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=says):
        load_model(folder)


def test_only_headers_are_read(tmp_path: Path) -> None:
    folder = write_model(tmp_path, SMALL)
    path = folder / "model.safetensors"
    write_safetensors(path, tensors_of(folder))
    with path.open("r+b") as stream:  # a terabyte that is not there
        stream.truncate(1 << 40)
    assert load_model(folder).problems == ()
