"""Models: their shapes, how a checkpoint quantises them, and what that takes in bytes."""

from __future__ import annotations

from tilewright.models.checkpoint import Checkpoint, uniform_checkpoint
from tilewright.models.inventory import Weight, parameters, weights
from tilewright.models.memory import (
    GpuMemory,
    Parallel,
    component_bytes,
    component_formats,
    disk_bytes,
    gpu_memory,
    kv_cache,
    weight_bytes,
)
from tilewright.models.names import load_model, resolve_model
from tilewright.models.records import Model

__all__ = [
    "Checkpoint",
    "GpuMemory",
    "Model",
    "Parallel",
    "Weight",
    "component_bytes",
    "component_formats",
    "disk_bytes",
    "gpu_memory",
    "kv_cache",
    "load_model",
    "parameters",
    "resolve_model",
    "uniform_checkpoint",
    "weight_bytes",
    "weights",
]
