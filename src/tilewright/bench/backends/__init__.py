"""Who can run a problem. Each file is one backend; none is imported before it is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Final

from tilewright.bench.backends.base import Backend, Capability, Prepared
from tilewright.errors import InputError, nearest, shown

__all__ = ["NAMES", "Backend", "Capability", "Prepared", "backend"]

_MODULES: Final[dict[str, str]] = {
    "tilewright": "tilewright_",
    "torch": "torch_",
    "cublaslt": "cublaslt",
    "triton": "triton_",
    "humming": "humming",
    "flashinfer": "flashinfer",
    "vllm": "vllm",
    "sglang": "sglang",
    "deep_gemm": "deep_gemm",
}
NAMES: Final = tuple(_MODULES)


def backend(name: str) -> Backend:
    """The backend of that name. Raises InputError with the nearest names."""
    module = _MODULES.get(name)
    if module is None:
        close = ", ".join(nearest(name, NAMES) or NAMES)
        raise InputError("backend", f"--backend {shown(name)} is none; the nearest are: {close}.")
    return import_module(f"tilewright.bench.backends.{module}").BACKEND
