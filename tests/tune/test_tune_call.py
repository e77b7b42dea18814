"""What a launch of an engine's kernel is compiled with."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.tune.layer import Layer
from tilewright.tune.moe_call import compilation, own_kernel, row_by_row

LAYER = Layer(hidden=6144, inter=256, experts=256, topk=8)
CONFIG = {
    "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 1, "num_warps": 4, "num_stages": 4,
}  # fmt: skip


def test_few_rows_go_as_they_come_where_the_engine_does_that() -> None:
    """vLLM with `naive_block_assignment` sorts no rows up to a quarter as many of them as experts; others always do."""
    own = own_kernel()
    vllm = replace(
        own,
        parameters=(*own.parameters, "naive_block_assignment"),
        constants=own.constants | {"naive_block_assignment"},
    )
    assert [row_by_row(vllm, LAYER, tokens) for tokens in (1, 8, 9, 64)] == [True, True, False, False]
    assert not row_by_row(own, LAYER, 1)
    few, many = (compilation(vllm, LAYER, tokens, "up", CONFIG, 90) for tokens in (8, 9))
    assert few["constants"]["naive_block_assignment"] is True
    assert few["constants"]["sorted_token_ids_ptr"] is None
    assert many["constants"]["naive_block_assignment"] is False
    assert many["signature"]["sorted_token_ids_ptr"] == "*i32"


@pytest.mark.parametrize("dtype", ["bf16", "fp8_w8a8", "fp8_block"])
def test_a_launch_computes_the_layer(dtype: str) -> None:
    """Both GEMMs of our Triton kernel under Triton's interpreter, where torch and Triton are installed; no GPU."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    script = Path(__file__).with_name("interpret.py")
    done = subprocess.run([sys.executable, str(script), dtype], capture_output=True, text=True, timeout=120, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == 8
    assert all(float(line.split()[-1]) < 0.005 for line in lines)  # that of bf16 answers
