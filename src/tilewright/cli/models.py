"""`tilewright models`: the model catalogue, one model with its checkpoints, or a config.json of your own."""

from __future__ import annotations

from typing import Any

import click

from tilewright.data.figures import Figure
from tilewright.errors import InputError
from tilewright.hardware.gpu import Gpu
from tilewright.models.catalogue import build_model, entries
from tilewright.models.checkpoint import COMPONENTS, Checkpoint
from tilewright.models.inventory import parameters
from tilewright.models.kv import KV_LAYOUTS, kv_cache
from tilewright.models.legality import legal_tp
from tilewright.models.memory import Parallel, component_bytes, component_formats, disk_bytes, gpu_memory
from tilewright.models.names import resolve_model
from tilewright.models.records import GroupedOutput, Mla, Model
from tilewright.report.figures import SourceList, figure_json
from tilewright.report.output import Output, output_options
from tilewright.serving.defaults import memory_share

SCHEMA = "tilewright/models/1"
GB = 10**9
GIB = 1 << 30
BILLION = 10**9


def _billions(count: int) -> str:
    return f"{count / BILLION:,.2f}"


def _attention_text(model: Model) -> str:
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


def _moe_text(model: Model) -> str:
    moe = model.moe
    if moe is None:
        return "dense"
    text = f"{moe.experts} experts of {moe.inter:,}, top {moe.topk}"
    if moe.shared_inter:
        text += f", shared {moe.shared_inter:,}"
    return text + (f", latent {moe.latent:,}" if moe.latent else "")


def _layers_text(model: Model) -> str:
    kinds = {
        "MoE": model.moe_layers,
        "dense": sum(layer.mlp == "dense" for layer in model.main_layers),
        "sliding-window": sum(layer.mixer == "sliding" for layer in model.main_layers),
        "linear-attention": sum(layer.mixer == "linear" for layer in model.main_layers),
        "Mamba": sum(layer.mixer == "mamba" for layer in model.main_layers),
    }
    parts = [f"{count} {name}" for name, count in kinds.items() if count]
    text = f"{len(model.main_layers)}: {', '.join(parts)}"
    return text + (f"; {len(model.mtp_layers)} multi-token prediction" if model.mtp_layers else "")


def _cache_bytes(model: Model) -> dict[str, int | None]:
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
        "attention": _attention_text(model),
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
        "kv_bytes_per_token": _cache_bytes(model),
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


def _print_all(out: Output) -> None:
    rows: list[list[str]] = []
    for entry in entries():
        model = build_model(entry.key)
        published = model.published_total_b
        rows.append(
            [
                model.key,
                _billions(parameters(model)),
                "unknown" if published is None else f"{published.value:,}",
                _billions(parameters(model, active=True)),
                str(len(model.main_layers)),
                _moe_text(model),
                str(len(model.checkpoints)),
            ]
        )
    out.table(
        ["model", "total B", "published", "active B", "layers", "experts", "checkpoints"], rows, right=[1, 2, 3, 4, 6]
    )
    out.line()
    out.line("total and active: exact sums over the config's shapes, multi-token prediction left out.")
    out.line("'tilewright models NAME' shows one model; NAME may be a Hugging Face id or a path to a config.json.")


def _formats_text(formats: dict[str, int]) -> str:
    total = sum(formats.values())
    if len(formats) == 1:
        return next(iter(formats))
    return ", ".join(f"{name} {count / total:.0%}" for name, count in formats.items())


def _print_checkpoint(out: Output, model: Model, checkpoint: Checkpoint, sources: SourceList) -> None:
    sizes, formats = component_bytes(model, checkpoint), component_formats(model, checkpoint)
    total = sum(sizes.values())
    source = f" {sources.mark([checkpoint.source])}" if checkpoint.source else ""
    out.heading(f"Checkpoint {checkpoint.name or model.name}{source}")
    out.table(
        ["part", "stored as", "GB", "share"],
        [
            [COMPONENTS[name], _formats_text(formats[name]), f"{size / GB:,.2f}", f"{size / total:.1%}"]
            for name, size in sizes.items()
        ],
        right=[2, 3],
    )
    published = checkpoint.stored_gb
    said = f"; published: {published.value:,} GB" if published is not None else ""
    out.line(f"{total:,} bytes = {total / GB:,.1f} GB = {total / GIB:,.1f} GiB, scales included (exact){said}.")
    for note in checkpoint.notes:
        out.line(f"Note: {note}.")


def _print_one(out: Output, model: Model) -> None:
    sources = SourceList()
    ids = f"  ({', '.join(model.hf_ids)})" if model.hf_ids else ""
    out.heading(f"{model.name}{ids}")
    for problem in model.problems:
        out.line(f"Problem: {problem}.")
    total, active = parameters(model), parameters(model, active=True)
    mtp = parameters(model, mtp=True) - total
    lines = [
        ("config", f"{model.family or 'unknown family'} {sources.mark([model.source])}"),
        ("width", f"{model.hidden:,}, vocabulary {model.vocab:,}"),
        ("layers", _layers_text(model)),
        ("attention", _attention_text(model)),
        ("experts", _moe_text(model)),
        ("parameters", f"{_billions(total)} B, of them {_billions(active)} B for a token (exact, from the config)"),
    ]
    if mtp:
        lines.append(("", f"{_billions(mtp)} B more in multi-token prediction"))
    for label, figure in (("published", model.published_total_b), ("published active", model.published_active_b)):
        if figure is not None:
            note = f"; {figure.note}" if figure.note else ""
            lines.append((label, f"{figure.value:,} B {sources.mark(figure.sources)}{note}"))
    caches = [f"{layout} {size:,}" for layout, size in _cache_bytes(model).items()]
    lines.append(("KV cache", f"{', '.join(caches)} bytes a token (exact, all heads)" if caches else "unknown"))
    if model.stored is not None:
        size = "unknown size" if model.stored.total_bytes is None else f"{model.stored.total_bytes:,} bytes"
        lines.append(("weight files", f"{model.stored.tensors:,} tensors, {size} ({model.stored.source})"))
    width = max(len(label) for label, _ in lines)
    for label, text in lines:
        out.line(f"  {label.ljust(width)}  {text}")
    out.line()
    _print_checkpoint(out, model, model.checkpoint, sources)
    out.line()
    _print_parallel(out, model)
    others = [item for item in model.checkpoints if item is not model.checkpoint]
    if others:
        out.line()
        out.heading("Other checkpoints")
        out.table(
            ["name", "formats", "GB", "source"],
            [
                [
                    item.name,
                    ", ".join(item.formats) or model.dtype,
                    f"{disk_bytes(model, item) / GB:,.1f}",
                    sources.mark([item.source]),
                ]
                for item in others
            ],
            right=[2],
        )
    notes = [*model.notes, *(f"{item.value} ({item.source}) is wrong: {item.why}" for item in model.rejected)]
    if notes:
        out.line()
        out.heading("Notes")
        for note in notes:
            out.line(f"  {note}")
    for name, source in model.config_sources.items():
        out.line(f"  {name} is from {sources.mark([source])}")
    sources.print(out)


def _print_parallel(out: Output, model: Model) -> None:
    verdicts = legal_tp(model)
    legal = [str(item.tp) for item in verdicts if item.legal]
    out.line(f"Tensor parallel sizes that this checkpoint can be cut into: {', '.join(legal) or 'none'}.")
    refused = next((item for item in verdicts if not item.legal), None)
    if refused is not None:
        out.line(f"  {refused.tp} cannot: {'; '.join(refused.problems[:2])}.")


def _gpu(name: str) -> Gpu:
    from tilewright.hardware.names import resolve_gpu

    return resolve_gpu(name)


def memory_of(
    model: Model, gpu_name: str, parallel: Parallel, fraction: float, layout: str, mtp: bool
) -> dict[str, Any]:
    """What one GPU of the layout holds, and what is left; the keys of `ModelMemoryDocument`."""
    gpu = _gpu(gpu_name)
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


def _print_memory(out: Output, row: dict[str, Any]) -> None:
    out.line()
    out.heading(f"Memory of one {row['gpu']} (the fullest of {row['gpus']})")

    width = max(len(COMPONENTS[name]) for name in row["weight_components"]) + 3

    def line(label: str, size: int, text: str = "") -> None:
        out.line(f"  {label.ljust(width)}{size / GIB:>9,.2f} GiB{'  ' + text if text else ''}")

    line("usable", row["usable_bytes"], f"{row['fraction']:g} of {row['total_bytes'] / GIB:,.2f} GiB (--fraction)")
    line("weights", row["weight_bytes"], "exact, scales padded as block-scaled kernels read them")
    for name, size in row["weight_components"].items():
        if size >= GIB // 100:
            line(f"  {COMPONENTS[name]}", size)
    line("left", row["left_bytes"], "for the KV cache, activations and graphs")
    if not row["fits"]:
        out.line("  The weights do not fit: use more GPUs, a smaller checkpoint, or pipeline stages.")
    elif row["kv_layout"] is None:
        out.line(f"  {row['note']}")
    else:
        shared = ", the same on every rank" if row["kv_replicated"] else ""
        out.line(
            f"  at most {row['tokens']:,} tokens of KV cache ({row['kv_layout']}, {row['kv_bytes_per_token']:,} bytes "
            f"a token{shared}); activations and graphs take their part of it."
        )
        window, growing = row["kv_window"], row["kv_growing_bytes_per_token"]
        if window and growing < row["kv_bytes_per_token"]:
            out.line(
                f"  That is one long sequence: its sliding-window layers keep {window:,} tokens, so beyond those it "
                f"takes {growing:,} bytes a token. Many short sequences take {row['kv_bytes_per_token']:,} each."
            )
    theirs = row["engine_fractions"]
    out.line(
        f"  Engines take other fractions by default: SGLang {theirs['sglang']:g} here (its own rule), vLLM "
        f"{theirs['vllm']:g}; 'plan' and 'layout' count with the engine's."
    )


@click.command(epilog="Example: tilewright models GLM-5-NVFP4 --gpu rtx-pro-6000-server --tp 8")
@click.argument("name", required=False)
@click.option("--gpu", "gpu_name", metavar="GPU", help="Show what one GPU of this kind holds, and what is left.")
@click.option("--tp", default=1, show_default=True, help="Tensor-parallel GPUs.")
@click.option("--ep", default=1, show_default=True, help="Expert-parallel groups among them.")
@click.option("--pp", default=1, show_default=True, help="Pipeline stages.")
@click.option("--dcp", default=1, show_default=True, help="Ranks that share one KV cache (decode context parallel).")
@click.option("--attention-dp", default=1, show_default=True, help="Copies of the attention among the GPUs.")
@click.option("--fraction", default=0.9, show_default=True, help="Share of the memory for weights and KV cache.")
@click.option("--kv", "kv_layout", type=click.Choice(KV_LAYOUTS), help="Cache layout; default: the checkpoint's.")
@click.option("--mtp", is_flag=True, help="Load multi-token prediction as well.")
@click.option("--gemms", is_flag=True, help="Every (M, N, K) that a layer runs on one GPU of the layout.")
@click.option("--tokens", default="1,16,64,256,8192", show_default=True, help="Token counts for --gemms.")
@output_options
def command(
    name: str | None,
    gpu_name: str | None,
    tp: int,
    ep: int,
    pp: int,
    dcp: int,
    attention_dp: int,
    fraction: float,
    kv_layout: str | None,
    mtp: bool,
    gemms: bool,
    tokens: str,
    as_json: bool,
    quiet: bool,
) -> None:
    """Models, their shapes and how their checkpoints quantise them, each figure with its source.

    NAME is a catalogue key, a checkpoint, a Hugging Face id, the path of a config.json, or a folder that holds one
    (nothing in it is executed; of weight files only the headers are read).
    """
    out = Output(json=as_json, quiet=quiet)
    if name is None:
        if gpu_name is not None:
            raise click.UsageError("--gpu needs the NAME of a model.")
        if gemms:
            raise click.UsageError("--gemms needs the NAME of a model.")
        if as_json:
            out.document(models_document())
        else:
            _print_all(out)
        return
    model = resolve_model(name)
    memory: dict[str, Any] | None = None
    parallel = Parallel(tp=tp, ep=ep, pp=pp, dcp=dcp, attention_dp=attention_dp)
    if gemms:
        from tilewright.report.gemms_text import print_gemms
        from tilewright.serving.gemms import GemmsDocument, model_gemms, token_counts

        gpu = None if gpu_name is None else _gpu(gpu_name)
        lines = model_gemms(model, None, parallel, token_counts(tokens), gpu)
        made = GemmsDocument(
            model=model.name,
            checkpoint=model.checkpoint.name,
            tp=tp,
            ep=ep,
            attention_dp=attention_dp,
            gpu=gpu.key if gpu else None,
            gemms=lines,
        )
        if as_json:
            out.document(made)
        else:
            print_gemms(out, made)
        return
    if gpu_name is not None:
        memory = memory_of(model, gpu_name, parallel, fraction, kv_layout or "", mtp)
    if as_json:
        out.document(model_document(model, memory))
        return
    _print_one(out, model)
    if memory is not None:
        _print_memory(out, memory)
