"""`tilewright tune`: the fastest tile of a fused-MoE kernel, searched on this machine's GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.numbers import FiniteRange
from tilewright.cli.paths import PATH
from tilewright.errors import InputError
from tilewright.number_lists import whole_numbers
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from tilewright.tune.layer import Layer


@click.group(
    epilog="Example: tilewright tune moe --model GLM-5 --tp 8 --tokens 1,16,64 --compile-only --gpu h200",
    context_settings={"max_content_width": 100},
)
def command() -> None:
    """Find the fastest tile of a kernel on this machine's GPUs: in minutes, safe to kill, resumed where it was."""


def _layer(model: str | None, tp: int, ep: int, sizes: dict[str, int | None], dtype: str, out: Output) -> Layer:
    """The layer: of a model, or of the sizes."""
    from tilewright.tune.layer import Layer

    given = [name for name, value in sizes.items() if value is not None]
    if model is not None:
        if given:
            raise InputError(given[0], f"--{given[0]} comes with the model; drop it, or --model.")
        from tilewright.bench.shapes import moe_shard
        from tilewright.models.names import resolve_model

        found = resolve_model(model)
        problems, note = moe_shard(found, [1], tp=tp, ep=ep, dtype="bf16")
        if note:
            out.note(f"{found.name}, {note}.")
        shard = problems[0]
        return Layer(hidden=shard.hidden, inter=shard.inter, experts=shard.experts, topk=shard.topk, dtype=dtype)
    absent = [name for name, value in sizes.items() if value is None]
    if absent:
        raise InputError(absent[0], f"Give --model, or the sizes: --{absent[0]} is missing.")
    if tp != 1 or ep != 1:
        raise InputError("tp", "--tp and --ep go with --model; sizes are those of one GPU's shard.")
    return Layer(**{name: value or 0 for name, value in sizes.items()}, dtype=dtype)


def _devices(text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    found = whole_numbers(text, digits=4)
    if found is None:
        raise InputError("devices", f"--devices takes numbers like 0,1, not {text[:80]!r}.")
    return tuple(dict.fromkeys(found))


@command.command(
    "moe", epilog="Example: tilewright tune moe --model GLM-5 --tp 8 --tokens 1,16,64 --compile-only --gpu h200"
)
@click.option("--model", metavar="NAME", help="Take the layer of this model (`tilewright models` lists them).")
@click.option("--tp", type=click.IntRange(1), default=1, show_default=True, help="With --model: tensor-parallel ways.")
@click.option("--ep", type=click.IntRange(1), default=1, show_default=True, help="With --model: expert-parallel ways.")
@click.option("--hidden", type=int, help="Hidden size.")
@click.option("--inter", type=int, help="Intermediate size of one expert, of this GPU's shard.")
@click.option("--experts", type=int, help="Experts on this GPU.")
@click.option("--topk", type=int, help="Experts a token goes to.")
@click.option("--tokens", default="1..4096", show_default=True, metavar="A..B|T,...", help="Numbers of tokens.")
@click.option("--kernel", default="vllm-fused-moe", show_default=True, help="ours, vllm-fused-moe, sglang-fused-moe.")
@click.option("--dtype", help="bf16, fp8 (a scale a tensor), fp8-block (128x128); ours: nvfp4 (the only one).")
@click.option("--root", metavar="DIR_OR_WHEEL", help="The engine whose kernel is tuned; default: the installed one.")
@click.option("--gpu", metavar="GPU", help="With --compile-only: the GPU to prune and compile for.")
@click.option("--devices", metavar="N,...", help="GPUs to measure on, as CUDA numbers them; default: all.")
@click.option("--ray", metavar="ADDRESS", help="Spread trials over a Ray cluster: auto, local, or HOST:PORT.")
@click.option("--trials", type=click.IntRange(1, 10**6), help="Configs looked at each M; default: 5 % of the space.")
@click.option("--exhaustive", is_flag=True, help="Measure every config that can run.")
@click.option("--budget", type=FiniteRange(1, 10**7), metavar="SECONDS", help="Stop asking for trials after this long.")
@click.option(
    "--start", type=PATH, metavar="FILE", help="A tuned file of vLLM or SGLang: its tiles are looked at first."
)
@click.option(
    "--out", type=PATH, metavar="DIR", help="Write the files that the engine (or our kernel) reads into this folder."
)
@click.option("--format", "formats", multiple=True, help="Of vllm, sglang or tilewright; default: the kernel's.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@click.option("--store", type=PATH, metavar="FILE", help="The store; default $TILEWRIGHT_STORE, else your data folder.")
@click.option("--no-store", is_flag=True, help="Keep nothing.")
@click.option("--resume", is_flag=True, help="Use the trials that the store has of this GPU, driver, kernel and layer.")
@click.option("--compile-only", is_flag=True, help="Prune and compile; no GPU is needed and nothing is measured.")
@click.option("--builders", type=click.IntRange(1, 4096), help="Compiling processes; default: the cores that are left.")
@click.option(
    "--time-limit", type=FiniteRange(1, 86400), default=60.0, show_default=True, metavar="SECONDS",
    help="A trial that takes longer is ended, kept as hung, and its process replaced.",
)  # fmt: skip
@output_options
def moe(**asked: Any) -> None:
    """The fastest tiles of a fused-MoE kernel, for each number of tokens of a layer.

    What cannot run is left out by arithmetic, the rest is ordered by a model, about 5 % of it is measured, the best
    of that again. Every trial goes into the store as it ends: after Ctrl-C or a crash, --resume goes on. A kernel that
    hangs, faults or answers wrongly costs its own trial only. Needs PyTorch and Triton: pip install 'tilewright[tune]'.
    """
    from tilewright.report.tune_text import Progress, show
    from tilewright.tune.layer import check_kernel
    from tilewright.tune.moe import NotWrittenError, Tuner, tune_moe
    from tilewright.tune.settings import Settings
    from tilewright.tune.tokens import parse_tokens

    out = Output(asked["as_json"], asked["quiet"])
    dtype = check_kernel(asked["kernel"], asked["dtype"])
    counts = parse_tokens(asked["tokens"])
    sizes = {name: asked[name] for name in ("hidden", "inter", "experts", "topk")}
    layer = _layer(asked["model"], asked["tp"], asked["ep"], sizes, dtype, out)
    settings = Settings(
        kernel=asked["kernel"], layer=layer, tokens=counts, root=asked["root"], gpu=asked["gpu"],
        devices=_devices(asked["devices"]), trials=asked["trials"], exhaustive=asked["exhaustive"],
        budget_s=asked["budget"], out=asked["out"], formats=tuple(dict.fromkeys(asked["formats"])),
        force=asked["force"], store=asked["store"], keep=not asked["no_store"], resume=asked["resume"],
        start=asked["start"], ray=asked["ray"], compile_only=asked["compile_only"], builders=asked["builders"],
        limit_s=asked["time_limit"],
    )  # fmt: skip
    tuner = Tuner(settings, out.note)
    unwritten: InputError | None = None
    try:
        with Progress(out, len(counts), tuner.looks) as progress:
            document = tune_moe(tuner, progress)
    except NotWrittenError as error:
        document, unwritten = error.document, error
    except KeyboardInterrupt:
        if settings.keep and not settings.compile_only:
            out.note("What was measured is in the store: the same command with --resume goes on from there.")
        raise
    if out.json:
        out.document(document)
    else:
        show(document, out)
    if unwritten is not None:
        raise unwritten
