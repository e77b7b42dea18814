"""Exported files held against an engine's own lookup, followed in a small source of the same form."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilewright.libraries.tuned.world import Device
from tilewright.tune.export import write
from tilewright.tune.layer import Layer
from tilewright.tune.seen import root_of, seen
from tilewright.tune.trials import Trial

VLLM = """
import json
import os
import vllm.envs as envs
from vllm.platforms import current_platform


def get_moe_configs(E, N, dtype):
    device_name = current_platform.get_device_name().replace(" ", "_")
    if "H200" in device_name.split("_"):
        device_name = "NVIDIA_H200"
    path = os.path.join(envs.VLLM_TUNED_CONFIG_FOLDER, f"E={E},N={N},device_name={device_name}.json")
    if os.path.exists(path):
        with open(path) as f:
            table = json.load(f)
            table.pop("triton_version", None)
            return {int(key): val for key, val in table.items()}
    return None


def try_get_optimal_moe_config(w1_shape, w2_shape, top_k, dtype, M, block_shape=None):
    E, _, N = w2_shape
    configs = get_moe_configs(E, N, dtype)
    if configs:
        return configs[min(configs.keys(), key=lambda x: abs(x - M))]
    return {"BLOCK_SIZE_M": 64, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 32, "GROUP_SIZE_M": 8}
"""
LAYER = Layer(hidden=2048, inter=256, experts=64, topk=4)
H200 = Device("NVIDIA H200", (9, 0), 232_448)


def trial(columns: int) -> Trial:
    config = {
        "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": columns, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4,
        "num_stages": 3,
    }  # fmt: skip
    return Trial(config=config, rung="final", at="2026-12-02T00:00:00Z", time_s=1e-4, up_s=6e-5, down_s=4e-5)


@pytest.fixture(name="engine")
def engine_tree(tmp_path: Path) -> str:
    """A folder with the lookup of an engine in it."""
    file = tmp_path / "engine" / "vllm" / "model_executor" / "layers" / "fused_moe" / "fused_moe.py"
    file.parent.mkdir(parents=True)
    file.write_text(VLLM)
    return str(tmp_path / "engine")


def test_the_engines_lookup_answers_what_was_written(tmp_path: Path, engine: str) -> None:
    """Each number of tokens its own tile; then the label is set."""
    out = str(tmp_path / "out")
    files = write("vllm", LAYER, H200.name, "3.6.0", {1: [trial(64)], 64: [trial(128)]}, out, force=False)
    [file], why = seen("vllm", engine, LAYER, H200, "3.6.0", out, files)
    assert why == ""
    assert file.seen_by == "vLLM"


def test_a_file_that_the_engine_does_not_look_for_is_told(tmp_path: Path, engine: str) -> None:
    """Another GPU's name, or a lookup that is not there: no label, and why."""
    out = str(tmp_path / "out")
    files = write("vllm", LAYER, H200.name, "3.6.0", {1: [trial(64)]}, out, force=False)
    other = Device("NVIDIA H100 80GB HBM3", (9, 0), 232_448)
    [file], why = seen("vllm", engine, LAYER, other, "3.6.0", out, files)
    assert file.seen_by == ""
    assert "does not read the files" in why
    [file], why = seen("vllm", str(tmp_path / "out"), LAYER, H200, "3.6.0", out, files)
    assert file.seen_by == ""
    assert "could not be followed" in why


def test_which_source_is_followed() -> None:
    """That of --root for its own engine; none where the engine is not installed."""
    assert root_of("vllm", "vllm-fused-moe", "tree") == "tree"
    assert root_of("sglang", "vllm-fused-moe", "tree") is None
