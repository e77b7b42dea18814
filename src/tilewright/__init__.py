"""Tilewright: which GEMM tile can this GPU run, how fast, and what should be changed first?

The public names below are imported on first use, so that `import tilewright` stays cheap.
"""

from __future__ import annotations

from tilewright._version import __version__

TYPE_CHECKING = False  # `typing` takes 10 ms to import; checkers know the name
if TYPE_CHECKING:
    from typing import Any

    from tilewright import plan
    from tilewright.cost.predict import predict
    from tilewright.cutlass.budget import Budget, Field, Fix
    from tilewright.cutlass.config import KernelConfig, parse_config
    from tilewright.cutlass.fit import fit
    from tilewright.diagnose.explain import explain
    from tilewright.errors import (
        AmbiguousNameError,
        ConfigError,
        InputError,
        MissingPartError,
        TilewrightError,
        ToolError,
        TreeError,
        UnknownNameError,
    )
    from tilewright.hardware.names import resolve_gpu
    from tilewright.models.names import resolve_model
    from tilewright.search.run import search_configs
    from tilewright.serving.advice import AdviceQuestion, advise
    from tilewright.serving.decode import predict_decode
    from tilewright.serving.layout import layout
    from tilewright.serving.prefill import predict_prefill
    from tilewright.serving.questions import DecodeQuestion, PrefillQuestion
    from tilewright.serving.validate import validate
    from tilewright.triton_.config import parse_triton
    from tilewright.triton_.fit import fit_triton
    from tilewright.triton_.model import TritonConfig, TritonVerdict
    from tilewright.tune.moe import tune_moe

_HOME = {
    "AdviceQuestion": "tilewright.serving.advice",
    "AmbiguousNameError": "tilewright.errors",
    "Budget": "tilewright.cutlass.budget",
    "ConfigError": "tilewright.errors",
    "Field": "tilewright.cutlass.budget",
    "Fix": "tilewright.cutlass.budget",
    "InputError": "tilewright.errors",
    "KernelConfig": "tilewright.cutlass.config",
    "MissingPartError": "tilewright.errors",
    "TilewrightError": "tilewright.errors",
    "ToolError": "tilewright.errors",
    "TreeError": "tilewright.errors",
    "UnknownNameError": "tilewright.errors",
    "DecodeQuestion": "tilewright.serving.questions",
    "PrefillQuestion": "tilewright.serving.questions",
    "TritonConfig": "tilewright.triton_.model",
    "TritonVerdict": "tilewright.triton_.model",
    "advise": "tilewright.serving.advice",
    "explain": "tilewright.diagnose.explain",
    "fit": "tilewright.cutlass.fit",
    "fit_triton": "tilewright.triton_.fit",
    "parse_triton": "tilewright.triton_.config",
    "layout": "tilewright.serving.layout",
    "parse_config": "tilewright.cutlass.config",
    "predict_decode": "tilewright.serving.decode",
    "predict_prefill": "tilewright.serving.prefill",
    "predict": "tilewright.cost.predict",
    "resolve_gpu": "tilewright.hardware.names",
    "resolve_model": "tilewright.models.names",
    "search_configs": "tilewright.search.run",
    "tune_moe": "tilewright.tune.moe",
    "validate": "tilewright.serving.validate",
}

__all__ = [
    "AdviceQuestion",
    "AmbiguousNameError",
    "Budget",
    "ConfigError",
    "DecodeQuestion",
    "Field",
    "Fix",
    "InputError",
    "KernelConfig",
    "MissingPartError",
    "PrefillQuestion",
    "TilewrightError",
    "ToolError",
    "TreeError",
    "TritonConfig",
    "TritonVerdict",
    "UnknownNameError",
    "__version__",
    "advise",
    "explain",
    "fit",
    "fit_triton",
    "layout",
    "parse_config",
    "parse_triton",
    "plan",
    "predict",
    "predict_decode",
    "predict_prefill",
    "resolve_gpu",
    "resolve_model",
    "search_configs",
    "tune_moe",
    "validate",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    home = _HOME.get(name)
    if name == "plan":  # the package of that name is the function too: see its docstring
        return import_module("tilewright.plan")
    if home is None:
        msg = f"module 'tilewright' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
