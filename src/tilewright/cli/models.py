"""`tilewright models`: the model catalogue, one model with its checkpoints, or a config.json of your own."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from tilewright.hardware.names import resolve_gpu
from tilewright.models.kv import KV_LAYOUTS
from tilewright.models.memory import Parallel
from tilewright.models.names import resolve_model
from tilewright.report.models_document import memory_of, model_document, models_document
from tilewright.report.models_text import print_memory, print_model, print_models
from tilewright.report.output import Output, output_options

_OF_MEMORY = frozenset({"fraction", "kv_layout", "mtp", "dcp", "pp"})
"""Options that only the memory of a GPU depends on."""
_OF_LAYOUT = frozenset({"tp", "ep", "attention_dp"})
"""Options that the memory and the GEMMs of a layout depend on."""


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
    _refuse_what_does_nothing(name, gpu_name, gemms)
    if name is None:
        if as_json:
            out.document(models_document())
        else:
            print_models(out)
        return
    model = resolve_model(name)
    memory: dict[str, Any] | None = None
    parallel = Parallel(tp=tp, ep=ep, pp=pp, dcp=dcp, attention_dp=attention_dp)
    if gemms:
        from tilewright.report.gemms_text import print_gemms
        from tilewright.serving.gemms import GemmsDocument, model_gemms, token_counts

        gpu = None if gpu_name is None else resolve_gpu(gpu_name)
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
    print_model(out, model)
    if memory is not None:
        print_memory(out, memory)


def _refuse_what_does_nothing(name: str | None, gpu: str | None, gemms: bool) -> None:
    """Raises UsageError for an option that was given and would change nothing in the answer."""
    ctx = click.get_current_context()
    given = [item for item in ctx.command.params if ctx.get_parameter_source(item.name) is ParameterSource.COMMANDLINE]
    for option in given:
        if option.name in ("as_json", "quiet", "name"):
            continue
        flag = option.opts[0]
        if name is None:
            raise click.UsageError(f"{flag} needs the NAME of a model.")
        if option.name in _OF_MEMORY and (gpu is None or gemms):
            raise click.UsageError(f"{flag} is about the memory of a GPU: it goes with --gpu, and not with --gemms.")
        if option.name in _OF_LAYOUT and gpu is None and not gemms:
            raise click.UsageError(f"{flag} is about a layout: it goes with --gpu GPU or with --gemms.")
        if option.name == "tokens" and not gemms:
            raise click.UsageError("--tokens goes with --gemms.")
