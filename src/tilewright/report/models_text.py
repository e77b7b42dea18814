"""The answer of `models` as text."""

from __future__ import annotations

from typing import Any

from tilewright.models.catalogue import build_model, entries
from tilewright.models.checkpoint import COMPONENTS, Checkpoint
from tilewright.models.inventory import parameters
from tilewright.models.legality import legal_tp
from tilewright.models.memory import component_bytes, component_formats, disk_bytes
from tilewright.models.records import Model
from tilewright.report.figures import SourceList
from tilewright.report.models_document import attention_text, cache_bytes
from tilewright.report.output import Output

GB = 10**9
GIB = 1 << 30
BILLION = 10**9


def _billions(count: int) -> str:
    return f"{count / BILLION:,.2f}"


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


def print_models(out: Output) -> None:
    """The catalogue, a line a model."""
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


def print_model(out: Output, model: Model) -> None:
    """One model, its checkpoints, and the sizes that it can be cut into."""
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
        ("attention", attention_text(model)),
        ("experts", _moe_text(model)),
        ("parameters", f"{_billions(total)} B, of them {_billions(active)} B for a token (exact, from the config)"),
    ]
    if mtp:
        lines.append(("", f"{_billions(mtp)} B more in multi-token prediction"))
    for label, figure in (("published", model.published_total_b), ("published active", model.published_active_b)):
        if figure is not None:
            note = f"; {figure.note}" if figure.note else ""
            lines.append((label, f"{figure.value:,} B {sources.mark(figure.sources)}{note}"))
    caches = [f"{layout} {size:,}" for layout, size in cache_bytes(model).items()]
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


def print_memory(out: Output, row: dict[str, Any]) -> None:
    """What one GPU of a layout holds; `row` as `memory_of` answers."""
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
