"""`predict moe --model`: a model's expert layer asked for by name is the same question as its sizes."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.errors import InputError
from tilewright.serving.layer_question import with_layer_of_model


def test_a_model_stands_for_the_sizes_of_its_layer() -> None:
    raw = {"op": "moe", "id": "a", "gpu": "rtx-pro-6000-server", "model": "GLM-5-NVFP4", "tp": 8, "tokens": 64}
    assert with_layer_of_model(raw) == {
        "op": "moe", "id": "a", "gpu": "rtx-pro-6000-server", "tp": 8, "tokens": 64,
        "hidden": 6144, "inter": 2048, "topk": 8, "experts": 256, "dtype": "nvfp4",
    }  # fmt: skip


def test_the_checkpoint_decides_the_format_and_a_given_dtype_wins() -> None:
    raw = {"op": "moe", "gpu": "h200", "model": "GLM-5", "tokens": 1}
    fp8 = with_layer_of_model({**raw, "checkpoint": "zai-org/GLM-5-FP8"})
    assert fp8["dtype"] == "fp8_block"
    assert "checkpoint" not in fp8
    spec = {"format": "nvfp4", "quantized": ["experts"]}
    assert with_layer_of_model({**raw, "checkpoint": spec})["dtype"] == "nvfp4"
    assert with_layer_of_model({**raw, "checkpoint": spec, "dtype": "fp8"})["dtype"] == "fp8"


def test_a_layer_without_gates_takes_the_table_of_such_layers() -> None:
    found = with_layer_of_model({"op": "moe", "gpu": "h200", "model": "Nemotron-3-Nano-30B-A3B", "tokens": 1})
    assert found["backend"] == "moe_torch_flow_nongated"
    assert (found["experts"], found["topk"]) == (128, 6)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"model": "no-such-model"}, "model"),
        ({"model": 3}, "model"),
        ({"inter": 5}, "inter"),
        ({"checkpoint": "nope"}, "checkpoint"),
        ({"checkpoint": ["nvfp4"]}, "checkpoint"),
        ({"tp": 3}, "tp"),
        ({"ep": 3}, "ep"),
    ],
)
def test_what_does_not_go_with_a_model_is_named(more: dict[str, object], field: str) -> None:
    with pytest.raises(InputError) as caught:
        with_layer_of_model({"op": "moe", "gpu": "h200", "model": "GLM-5", "tokens": 1, **more})
    assert caught.value.field == field


def test_the_command_answers_the_same_for_the_name_and_for_the_sizes(cli: Any) -> None:
    common = ("predict", "moe", "--gpu", "rtx-pro-6000-server", "--tp", "8", "--tokens", "64", "--json")
    sizes = ("--hidden", "6144", "--inter", "2048", "--topk", "8", "--experts", "256", "--dtype", "nvfp4")
    by_name, by_size = cli(*common, "--model", "GLM-5-NVFP4"), cli(*common, *sizes)
    assert by_name.code == by_size.code == 0
    assert by_name.json["time_s"] == by_size.json["time_s"] > 0
