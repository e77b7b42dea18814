"""Which function of an engine's source a tile is for, found and cut out of a tree."""

from __future__ import annotations

import posixpath
from typing import Final

from tilewright.collectives.tree import SourceTree
from tilewright.errors import TreeError, shown
from tilewright.triton_.extract import Kernel, extract_kernel
from tilewright.triton_.kernels import KERNELS, Features
from tilewright.triton_.model import TritonConfig

_FOLDERS: Final = {
    "vllm-fused-moe": ("model_executor/layers/fused_moe",),
    "sglang-fused-moe": ("kernels/ops/moe", "srt/layers/moe"),
    "vllm-fp8-linear": ("model_executor/layers/quantization/utils",),
    "sglang-fp8-linear": ("kernels/ops/gemm", "srt/layers/quantization"),
}


def function_names(config: TritonConfig) -> tuple[str, ...]:
    """Names that the function for `config` has had, newest first."""
    names = KERNELS[config.kernel].names
    if config.kernel.endswith("fused-moe"):
        return (names[1],) if config.block_shape and config.block_shape[0] == 0 else (names[0],)
    return ("_w8a8_block_int8_matmul",) if config.dtype == "int8_w8a8" else names


def find_kernel(tree: SourceTree, package: str, config: TritonConfig) -> Kernel:
    """The kernel of the engine in `tree` (its package in the folder `package`) that `config` is for.

    Raises:
        TreeError: it is not there, or cannot be cut out.
    """
    names = function_names(config)
    for folder in _FOLDERS[config.kernel]:
        base = posixpath.join(package, folder) if package else folder
        for path in tree.files((".py",), base):
            text = tree.read_text(path)
            for name in names:
                if f"def {name}(" in text:
                    found = extract_kernel(text, name, path)
                    if found is not None:
                        return found
    msg = f"No Triton function {' or '.join(names)} is in {shown(tree.name)}; pass the engine's wheel or site-packages."
    raise TreeError("root", msg)


def read_features(kernel: Kernel) -> Features:
    """What this kernel of an engine can do, as its own parameters and text say."""
    names = set(kernel.parameters)
    return Features(
        swap_ab=bool(names & {"swap_ab", "SWAP_AB"}),
        scalar_columns="pid_n * BLOCK_SIZE_N // group_n" in kernel.source,
        tma_b="USE_TMA_B" in names,
    )
