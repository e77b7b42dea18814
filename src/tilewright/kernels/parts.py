"""The optional packages that kernels and measurements need: torch, and the bindings to NVRTC and the driver."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from importlib import import_module
from typing import Any, Concatenate, ParamSpec, TypeVar

from tilewright.errors import MissingPartError

EXTRA = "bench"
"""The extra that brings torch, Triton and the CUDA bindings."""
P = ParamSpec("P")
R = TypeVar("R")


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


def on_its_device(call: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """`call` with the GPU of its first argument, a tensor, as the current one: kernels are loaded and run there."""

    @wraps(call)
    def there(x: Any, *args: P.args, **kwargs: P.kwargs) -> R:
        cuda = torch_module().cuda
        if not x.is_cuda or x.device.index == cuda.current_device():
            return call(x, *args, **kwargs)
        with cuda.device(x.device):
            return call(x, *args, **kwargs)

    return there
