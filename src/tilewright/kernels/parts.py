"""The optional packages that kernels and measurements need: torch, and the bindings to NVRTC and the driver."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilewright.errors import MissingPartError

EXTRA = "bench"
"""The extra that brings torch, Triton and the CUDA bindings."""


def torch_module() -> Any:
    """`torch`. Raises MissingPartError when it is not installed."""
    try:
        return import_module("torch")
    except ModuleNotFoundError:
        raise MissingPartError("PyTorch, which holds the kernels' tensors,", EXTRA) from None


def cuda_module(name: str) -> Any:
    """`cuda.bindings.<name>` (`driver`, `nvrtc`). Raises MissingPartError when it is not installed."""
    try:
        return import_module(f"cuda.bindings.{name}")
    except ModuleNotFoundError:
        raise MissingPartError("cuda-bindings, which compiles and launches CUDA C++,", EXTRA) from None
