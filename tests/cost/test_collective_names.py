"""All-reduces by the names that their tables give them, and how launching without a CUDA graph tells."""

from __future__ import annotations

import json
from typing import Any

import pytest

ROWS = (
    ("SGLang_CustomAllReduce_graph", 2, 4.544),
    ("SGLang_CustomAllReduce_eager", 2, 18.685),
    ("SGLang_CustomAllReduce_graph", 4, 12.570),
    ("SGLang_CustomAllReduce_eager", 4, 37.576),
    ("sglang", 2, 4.544),
)
"""Backend, GPUs, us of 128 BF16 elements on RTX PRO 6000 Server: aiconfigurator-core 0.12.0, sglang 0.5.14."""


@pytest.mark.parametrize(("backend", "gpus", "time_us"), ROWS)
def test_a_row_of_the_table_answers_to_the_name_it_has_there(
    cli: Any, tmp_path: Any, backend: str, gpus: int, time_us: float
) -> None:
    question = {"op": "allreduce", "gpu": "rtx_pro_6000_server", "gpus": gpus, "bytes": 256, "backend": backend}
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps(question))
    answer = json.loads(cli("predict", "--from", str(path), "--json").out)
    assert answer["basis"] == "measured"
    assert answer["time_s"] * 1e6 == pytest.approx(time_us, rel=1e-3)
    assert ("eager" in answer["why"]) == ("eager" in backend)
