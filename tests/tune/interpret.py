"""Our Triton kernel under Triton's interpreter, without a GPU: `interpret.py DTYPE` prints the error of each launch.

An engine's kernel where its tree is given: `interpret.py fp8_block vllm-fused-moe ROOT`. The interpreter has float32:
stored values are widened, which changes none of them; scales are those of the format.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

import torch
import triton.language as tl

from tilewright.tune.layer import Layer
from tilewright.tune.moe_call import PARTS, engine_kernel, grid, own_kernel, row_by_row, values_of
from tilewright.tune.stage import Stage

CONFIG = {
    "BLOCK_SIZE_M": 16, "BLOCK_SIZE_N": 64, "BLOCK_SIZE_K": 128, "GROUP_SIZE_M": 2, "num_warps": 4, "num_stages": 2,
}  # fmt: skip


def function_of(kernel: Any, folder: str) -> Any:
    path = Path(folder) / "kernel.py"
    path.write_text(kernel.source)
    spec: Any = importlib.util.spec_from_file_location("kernel", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, kernel.name)


def main() -> None:
    layer = Layer(hidden=256, inter=256, experts=32, topk=2, dtype=sys.argv[1])
    kernel = engine_kernel(sys.argv[2], layer, sys.argv[3]) if len(sys.argv) > 3 else own_kernel()
    with tempfile.TemporaryDirectory() as folder:
        function = function_of(kernel, folder)
        for tokens in (1, 4, 5, 40):
            stage = Stage(torch, layer, False, device="cpu")
            case = stage.case(tokens)
            few = row_by_row(kernel, layer, tokens)
            block_m = CONFIG["BLOCK_SIZE_M"]
            places, blocks, total = (case.as_they_come(block_m) if few else case.aligned(block_m))[0]
            for part in PARTS:
                out = torch.full(case.outputs[part].shape, float("nan"))
                tensors = {
                    "a": case.inputs[part].float(), "b": stage.weights[part][0].float(), "c": out,
                    "a_scale": case.input_scales[part], "b_scale": stage.scales[part], "weights": case.router,
                    "sorted": places, "experts": blocks, "padded": total,
                }  # fmt: skip
                values = values_of(kernel, layer, tokens, part, CONFIG, 90, tensors)
                if "compute_type" in values:
                    values["compute_type"] = tl.float32
                function[(grid(layer, tokens, part, CONFIG),)](**values)
                right = case.answer(part).float()
                print(tokens, part, "as they come" if few else "sorted", float((out - right).norm() / right.norm()))


if __name__ == "__main__":
    main()
