"""Which calls that `bench` makes the releases of FlashInfer, vLLM and SGLang have, and with which parameters.

    python tools/build_bench_calls.py PACKAGE=VERSION=FOLDER... [--out tests/data/bench_calls.json]

FOLDER holds the package's source (a wheel or an sdist unpacked). Files are parsed, never imported. A call that a
release does not have is written as null. Tests hold the adapters against what is written.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path

REPO = Path(__file__).parent.parent
CALLS = {
    "flashinfer": {
        "mm_bf16": ["flashinfer/gemm/gemm_base.py", "flashinfer/gemm.py"],
        "bmm_fp8": ["flashinfer/gemm/gemm_base.py", "flashinfer/gemm.py"],
        "mm_fp4": ["flashinfer/gemm/gemm_base.py", "flashinfer/gemm.py"],
        "cutlass_fused_moe": ["flashinfer/fused_moe/core.py"],
    },
    "vllm": {
        "cutlass_scaled_mm": ["vllm/_custom_ops.py"],
        "cutlass_scaled_fp4_mm": ["vllm/_custom_ops.py"],
        "fused_experts": ["vllm/model_executor/layers/fused_moe/fused_moe.py"],
        "fused_marlin_moe": [
            "vllm/model_executor/layers/fused_moe/experts/marlin_moe.py",
            "vllm/model_executor/layers/fused_moe/fused_marlin_moe.py",
        ],
        "prepare_nvfp4_moe_layer_for_marlin": ["vllm/model_executor/layers/quantization/utils/marlin_utils_fp4.py"],
        "set_current_vllm_config": ["vllm/config/vllm.py", "vllm/config/__init__.py", "vllm/config.py"],
    },
    "sglang": {
        "fused_experts_impl": [
            "sglang/srt/layers/moe/moe_runner/triton_utils/fused_moe.py",
            "sglang/srt/layers/moe/fused_moe_triton/fused_moe.py",
        ],
        "set_global_server_args_for_scheduler": ["sglang/srt/server_args.py"],
    },
}
"""Package -> call -> where it may be."""


def parameters(path: Path, name: str) -> list[str] | None:
    """Parameters of the last top-level function `name` of a file; None where it has none."""
    if not path.is_file():
        return None
    tree = ast.parse(path.read_bytes())
    found = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == name]
    if not found:
        return None
    arguments = found[-1].args
    return [item.arg for item in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="+", metavar="PACKAGE=VERSION=FOLDER")
    parser.add_argument("--out", default=str(REPO / "tests" / "data" / "bench_calls.json"))
    arguments = parser.parse_args()
    table: dict[str, dict[str, dict[str, dict[str, object] | None]]] = {}
    for release in arguments.releases:
        package, version, folder = release.split("=", 2)
        calls: dict[str, dict[str, object] | None] = {}
        for name, places in CALLS[package].items():
            found = [(place, parameters(Path(folder) / place, name)) for place in places]
            where = next(((place, names) for place, names in found if names is not None), None)
            calls[name] = None if where is None else {"file": where[0], "parameters": where[1]}
        table.setdefault(package, {})[version] = calls
    Path(arguments.out).write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
