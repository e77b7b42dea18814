"""Configs for tests: a small valid one to break, and real ones as their repositories publish them."""

from __future__ import annotations

import gzip
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent.parent / "data"

SMALL: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 128,
    "vocab_size": 1000,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
"""A mixture of experts that is small enough to add up by hand."""


@lru_cache(maxsize=1)
def real_configs() -> dict[str, dict[str, Any]]:
    """Repository -> {config, hf_quant_config}: copies kept by ai-dynamo/aiconfigurator (Apache-2.0), see NOTICE."""
    with gzip.open(DATA / "model_configs.jsonl.gz", "rt", encoding="utf-8") as stream:
        return {row["name"]: row for row in map(json.loads, stream)}


def write_model(folder: Path, config: Any, **files: Any) -> Path:
    """A folder with a config.json and other JSON files in it (`hf_quant_config=...`)."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def write_safetensors(path: Path, tensors: dict[str, tuple[str, list[int]]]) -> None:
    """A file with the header of these tensors and no data: only headers are read."""
    header = json.dumps(
        {name: {"dtype": dtype, "shape": shape, "data_offsets": [0, 0]} for name, (dtype, shape) in tensors.items()}
    ).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header)
