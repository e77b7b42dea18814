"""A cache in FP8 that a version of the engine has no attention for on a GPU, and the one that it can read instead."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.hardware.gpu import Gpu
from tilewright.libraries.engine_flags.concepts import value_for
from tilewright.libraries.engine_flags.model import FlagSet
from tilewright.models.records import Mla, Model
from tilewright.serving.scenario import Scenario

__all__ = ["SM12X", "SPARSE_BACKEND", "needs_sparse_backend", "readable", "reads_fp8"]

SM12X: Final = frozenset({"sm120", "sm121"})
SPARSE_BACKEND: Final = "flashinfer_sparse_mla"
"""The backend of sparse attention that an FP8 cache needs in SGLang on SM12x (evidence `sparse_mla_fp8kv`)."""


def needs_sparse_backend(model: Model, engine: str, gpu: Gpu) -> bool:
    """Whether an FP8 cache of this model needs a backend of its own here: models with an indexer on SM12x in SGLang."""
    sparse = isinstance(model.attention, Mla) and model.indexer is not None
    return sparse and engine == "sglang" and gpu.arch in SM12X


def reads_fp8(flags: FlagSet, model: Model, gpu: Gpu) -> bool:
    """Whether the version has an attention for an FP8 cache of the model on the GPU."""
    if not needs_sparse_backend(model, flags.engine, gpu):
        return True
    return value_for(flags, "sparse_decode_backend", SPARSE_BACKEND) is not None


def readable(flags: FlagSet, scenario: Scenario) -> Scenario:
    """The scenario with a BF16 cache, and a note, where it has one in FP8 that the version cannot read."""
    if scenario.kv_layout != "fp8" or reads_fp8(flags, scenario.model, scenario.gpu):
        return scenario
    named = f"SGLang {flags.version}" if flags.version else "this SGLang"
    lacks = f"an FP8 cache needs the {SPARSE_BACKEND} backend on {scenario.gpu.arch.upper()}, which {named} lacks"
    if value_for(flags, "kv_dtype", "bf16") is None:
        return replace(scenario, assumed=(*scenario.assumed, lacks))
    return replace(scenario, kv_layout="bf16", assumed=(*scenario.assumed, f"{lacks}: BF16 instead"))
