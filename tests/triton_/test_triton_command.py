"""Triton tiles on the command line: flags, streams, and the kernel that `--compile` hands to Triton."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import MissingPartError, ToolError, TreeError
from tilewright.triton_.compile import ask_triton
from tilewright.triton_.config import parse_triton
from tilewright.triton_.extract import extract_kernel
from tilewright.triton_.functions import read_features
from tilewright.triton_.kernels import operands_of
from tilewright.triton_.launch import job

TILE = ("--kernel", "sglang-fused-moe", "--gpu", "gb10", "--dtype", "fp8_w8a8", "--tile", "128x256x128", "--num-warps",
        "8")  # fmt: skip

KERNEL = '''
import os
import torch
import triton
import triton.language as tl

os.environ["MARK"] = "ran"


@triton.jit
def zeros(c_ptr, offs, BLOCK_SIZE_M: tl.constexpr):
    tl.store(c_ptr + offs, tl.zeros((BLOCK_SIZE_M,), dtype=tl.float32))


@triton.autotune(configs=[os.system("touch /tmp/never")], key=[])
@triton.jit
def fused_moe_kernel(a_ptr, b_ptr, c_ptr, a_scale_ptr, stride_ak, stride_am, N, BLOCK_SIZE_M: tl.constexpr,
                     BLOCK_SIZE_K: tl.constexpr, swap_ab: tl.constexpr, EXTRA: tl.constexpr = 3):
    """Text that must not be kept."""
    zeros(c_ptr, tl.arange(0, BLOCK_SIZE_M), BLOCK_SIZE_M)


@triton.jit
def other(a_ptr):
    pass
'''


def test_one_tile_by_flags(cli: Any) -> None:
    over = cli("fit", *TILE, "--stages", "4", "--check")
    assert over.code == 1
    assert "147,456 of 101,376" in over.out
    assert "Fix: num_stages 3 (98,304 bytes)" in over.out
    fits = cli("fit", *TILE, "--stages", "3", "--json", "--check")
    assert fits.code == 0
    assert fits.json["schema"] == "tilewright/fit/1"
    assert (fits.json["status"], fits.json["smem_bytes"], fits.json["basis"]) == ("fits", 98_304, "exact")


def test_tiles_and_configs_in_one_stream_are_answered_in_order(cli: Any, tmp_path: Path) -> None:
    lines = [
        {"id": "t", "kernel": "vllm-fused-moe", "gpu": "gb10", "block_m": 64, "block_n": 128, "block_k": 64},
        {"id": "c", "arch": "sm120", "a": "nvfp4", "tile": [128, 128, 128]},
        {"id": "bad", "kernel": "vllm-fused-moe", "gpu": "gb10", "block_m": 64, "block_n": 128, "block_k": 64, "x": 1},
    ]
    file = tmp_path / "tiles.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
    result = cli("fit", "--from", str(file), "--json")
    assert result.code == 0
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [item["id"] for item in answers] == ["t", "c", "bad"]
    assert [item["status"] for item in answers] == ["fits", "fits", "error"]
    assert answers[0]["smem_bytes"] == 2 * (64 + 128) * 64 * 2
    assert answers[2]["error"]["field"] == "x"


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--dtype", "fp8_w8a8"), "--kernel"),
        ((*TILE, "--cluster", "1x1x1"), "CUTLASS"),
        ((*TILE, "--python", "python3"), "--compile"),
        (("--compile",), "--kernel"),
        ((*TILE, "--m", "3"), "--search"),
        ((*TILE, "--block-shape", "128"), "128,128"),
        (("--kernel", "sglang-fused-moe", "--tile", "128x256x128"), "gpu"),
    ],
)
def test_a_wrong_flag_says_what_to_do(cli: Any, words: tuple[str, ...], part: str) -> None:
    result = cli("fit", *words)
    assert result.code == 2
    assert part in result.err
    assert "Traceback" not in result.err


def test_a_kernel_is_cut_out_with_what_it_calls_and_nothing_else() -> None:
    kernel = extract_kernel(KERNEL, "fused_moe_kernel", "k.py")
    assert kernel is not None
    tree = ast.parse(kernel.source)
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert names == ["zeros", "fused_moe_kernel"]
    assert [ast.unparse(node) for node in tree.body[:2]] == ["import triton", "import triton.language as tl"]
    assert len(tree.body) == 4
    assert "os." not in kernel.source
    assert "must not be kept" not in kernel.source
    assert read_features(kernel).swap_ab
    assert extract_kernel(KERNEL, "absent", "k.py") is None


@pytest.mark.parametrize(
    ("source", "part"),
    [
        ("@triton.jit\ndef k(a=open('x')):\n    pass\n", "no plain jit function"),
        ("@triton.jit\ndef k(a):\n    a.__class__\n", "reaches into Python"),
        ("@triton.jit\ndef k(*a):\n    pass\n", "no plain jit function"),
        ("def k(:\n", "does not parse"),
        ("@triton.jit\ndef k(a):\n" + "    " + "(" * 5000, "does not parse"),
    ],
)
def test_a_kernel_that_is_more_than_a_kernel_is_refused(source: str, part: str) -> None:
    with pytest.raises(TreeError) as caught:
        extract_kernel(source, "k", "k.py")
    assert part in caught.value.msg


def test_the_launch_gives_every_parameter_a_type_or_a_constant() -> None:
    kernel = extract_kernel(KERNEL, "fused_moe_kernel", "k.py")
    assert kernel is not None
    config = parse_triton(
        {
            "kernel": "vllm-fused-moe",
            "gpu": "h200-sxm",
            "dtype": "fp8_w8a8",
            "block_m": 16,
            "block_n": 128,
            "block_k": 64,
        }
    )
    work = job(kernel, config, operands_of(config, read_features(kernel), 90), 90)
    assert set(work["signature"]) | set(work["constants"]) == set(kernel.parameters)
    assert work["signature"]["a_ptr"] == "*fp8e4nv"
    assert work["constants"]["stride_ak"] == 1
    assert work["constants"]["swap_ab"] is True
    assert work["constants"]["EXTRA"] == 3


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    home = tmp_path / "vllm" / "model_executor" / "layers" / "fused_moe"
    home.mkdir(parents=True)
    (tmp_path / "vllm" / "__init__.py").write_text("")
    (home / "fused_moe.py").write_text(KERNEL)
    return tmp_path


CONFIG = {"kernel": "vllm-fused-moe", "gpu": "gb10", "block_m": 16, "block_n": 64, "block_k": 64}


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton is installed")
def test_without_triton_the_extra_is_named(cli: Any, engine: Path) -> None:
    with pytest.raises(MissingPartError):
        ask_triton(parse_triton(CONFIG), 120, str(engine), None)
    result = cli("fit", *TILE, "--stages", "3", "--compile", "--root", str(engine))
    assert result.code == 2  # SGLang is not in that tree
    assert "sglang" in result.err
    assert os.environ.get("MARK") is None


def test_a_compiler_that_hangs_is_ended(engine: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow.sh"
    slow.write_text("#!/bin/sh\nsleep 60\n")
    slow.chmod(0o755)
    with pytest.raises(ToolError, match="did not finish"):
        ask_triton(parse_triton(CONFIG), 120, str(engine), str(slow), timeout_s=0.5)


def test_a_compiler_that_dies_is_reported(engine: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken.sh"
    broken.write_text("#!/bin/sh\necho boom >&2\nexit 9\n")
    broken.chmod(0o755)
    with pytest.raises(ToolError, match="boom"):
        ask_triton(parse_triton(CONFIG), 120, str(engine), str(broken))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="needs the extra `triton`")
def test_triton_compiles_the_small_kernel(engine: Path) -> None:
    done = ask_triton(parse_triton(CONFIG), 120, str(engine), sys.executable)
    assert done.shared_bytes >= 0
