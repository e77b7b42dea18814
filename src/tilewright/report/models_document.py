"""What `models` answers: the catalogue, one model with its checkpoints, and what a GPU of a layout holds."""

from __future__ import annotations

from typing import Any

from tilewright.data.figures import Figure
from tilewright.errors import InputError
from tilewright.hardware.names import resolve_gpu
from tilewright.models.catalogue import build_model, entries
from tilewright.models.checkpoint import Checkpoint
from tilewright.models.inventory import parameters
from tilewright.models.kv import KV_LAYOUTS, kv_cache
from tilewright.models.legality import legal_tp
from tilewright.models.memory import Parallel, component_bytes, component_formats, disk_bytes, gpu_memory
from tilewright.models.records import GroupedOutput, Mla, Model
from tilewright.report.figures import figure_json
from tilewright.serving.defaults import memory_share

SCHEMA = "tilewright/models/1"


def attention_text(model: Model) -> str:
    """The attention in a line: its kind, heads, and what it picks where it is sparse."""
    attention = model.attention
    if isinstance(attention, Mla):
        text = f"MLA, {attention.heads} heads, latent {attention.kv_lora_rank} + {attention.qk_rope_head_dim}"
    elif isinstance(attention, GroupedOutput):
        text = f"one KV head of {attention.head_dim}, {attention.heads} query heads"
    else:
        text = f"{attention.heads} heads, {attention.kv_heads} KV heads of {attention.head_dim}"
    if model.indexer is not None:
        owners = sum(layer.indexer for layer in model.main_layers)
        text += f", sparse: top {model.indexer.topk:,}"
        text += f" (indexers in {owners} layers)" if owners else ""
    return text


def cache_bytes(model: Model) -> dict[str, int | None]:
    """Layout -> bytes a token on one GPU; layouts that the model's attention does not have are left out."""
    out: dict[str, int | None] = {}
    for layout in KV_LAYOUTS:
        if layout == "f16":
            continue
        try:
            out[layout] = kv_cache(model, layout).per_token
        except InputError:
            continue
    return out


def _checkpoint_json(model: Model, checkpoint: Checkpoint) -> dict[str, Any]:
    return {
        "name": checkpoint.name,
        "method": checkpoint.method,
        "source": checkpoint.source,
        "kv_cache": checkpoint.kv_cache or None,
        "bytes": disk_bytes(model, checkpoint),
        "component_bytes": component_bytes(model, checkpoint),
        "component_formats": component_formats(model, checkpoint),
        "published_size_gb": figure_json(checkpoint.stored_gb, "GB") if checkpoint.stored_gb else None,
        "experts": checkpoint.experts or None,
        "notes": list(checkpoint.notes),
    }


def _summary_json(model: Model) -> dict[str, Any]:
    """What a model is, without the bytes of its checkpoints."""
    unknown = Figure()
    return {
        "key": model.key,
        "name": model.name,
        "hf_ids": list(model.hf_ids),
        "family": model.family,
        "source": model.source,
        "hidden": model.hidden,
        "vocab": model.vocab,
        "layers": {
            "main": len(model.main_layers),
            "moe": model.moe_layers,
            "mtp": len(model.mtp_layers),
            "indexers": sum(layer.indexer for layer in model.main_layers),
        },
        "attention": attention_text(model),
        "moe": None
        if model.moe is None
        else {
            "experts": model.moe.experts,
            "topk": model.moe.topk,
            "inter": model.moe.inter,
            "shared_inter": model.moe.shared_inter,
            "latent": model.moe.latent or None,
        },
        "parameters": {
            "total": parameters(model),
            "active": parameters(model, active=True),
            "mtp": parameters(model, mtp=True) - parameters(model),
            "basis": "exact",
            "published_total_b": figure_json(model.published_total_b or unknown, "1e9"),
            "published_active_b": figure_json(model.published_active_b or unknown, "1e9"),
        },
        "checkpoint": model.checkpoint.name,
        "checkpoints": [item.name for item in model.checkpoints],
    }


def _model_json(model: Model) -> dict[str, Any]:
    return {
        **_summary_json(model),
        "config": model.config,
        "config_sources": model.config_sources,
        "kv_bytes_per_token": cache_bytes(model),
        "checkpoints": [_checkpoint_json(model, item) for item in model.checkpoints],
        "tensor_parallel": [
            {"tp": item.tp, "legal": item.legal, "problems": list(item.problems), "notes": list(item.notes)}
            for item in legal_tp(model)
        ],
        "stored": None
        if model.stored is None
        else {
            "source": model.stored.source,
            "tensors": model.stored.tensors,
            "bytes": model.stored.total_bytes,
            "experts": model.stored.experts or None,
            "layers": model.stored.layers or None,
        },
        "rejected": [{"value": item.value, "source": item.source, "why": item.why} for item in model.rejected],
        "notes": list(model.notes),
        "problems": list(model.problems),
    }


def models_document() -> dict[str, Any]:
    """The document of all models of the catalogue, without the bytes of their checkpoints."""
    return {"schema": SCHEMA, "models": [_summary_json(build_model(entry.key)) for entry in entries()]}


def model_document(model: Model, memory: dict[str, Any] | None = None) -> dict[str, Any]:
    """The document of one model; `memory` is what `memory_of` answers."""
    return {"schema": SCHEMA, "models": [_model_json(model)], **({"memory": memory} if memory else {})}


def memory_of(
    model: Model, gpu_name: str, parallel: Parallel, fraction: float, layout: str, mtp: bool
) -> dict[str, Any]:
    """What one GPU of the layout holds, and what is left; the keys of `ModelMemoryDocument`."""
    gpu = resolve_gpu(gpu_name)
    got = gpu_memory(model, gpu, parallel=parallel, fraction=fraction, kv_layout=layout, mtp=mtp)
    return {
        "gpu": gpu.key,
        "gpus": parallel.gpus,
        "tp": parallel.tp,
        "ep": parallel.ep,
        "pp": parallel.pp,
        "dcp": parallel.dcp,
        "attention_dp": parallel.attention_dp,
        "fraction": fraction,
        "total_bytes": got.total,
        "usable_bytes": got.usable,
        "weight_bytes": got.weights.runtime,
        "weight_bytes_stored": got.weights.stored,
        "weight_components": dict(got.weights.components),
        "left_bytes": got.left,
        "fits": got.fits,
        "kv_layout": got.kv.layout if got.kv else None,
        "kv_bytes_per_token": got.kv.per_token if got.kv else None,
        "kv_replicated": got.kv.replicated if got.kv else None,
        "kv_growing_bytes_per_token": got.kv.growing_per_token if got.kv else None,
        "kv_window": got.kv.window or None if got.kv else None,
        "tokens": got.tokens,
        "note": got.note or None,
        "engine_fractions": {name: memory_share(name, got.total, parallel.tp)[0] for name in ("sglang", "vllm")},
    }
