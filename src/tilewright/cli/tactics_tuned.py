"""`tilewright tactics vllm|sglang`: tuned tiles, built-in defaults, and which of them a layer gets."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tilewright.cli.exit_status import EXIT_NO
from tilewright.cli.paths import PATH
from tilewright.report.output import Output

if TYPE_CHECKING:
    from tilewright.libraries.tuned.engine import Question
    from tilewright.libraries.tuned.report import TunedReport

F = TypeVar("F", bound=Callable[..., Any])
_PREFIX: Final = "layer_"
_FLAGS: Final = {
    "gpu": ("GPU", "vllm, sglang: judge on this GPU; default: each file on its own device."),
    "model": ("NAME", "The layer: a model of `tilewright models`, a Hugging Face id or a folder."),
    "tp": ("N", "With --model: GPUs that share an expert's width; default 1."),
    "ep": ("N", "With --model: GPUs that share the experts; default 1."),
    "e": ("N", "The layer: experts on one GPU, in place of the model's."),
    "n": ("N", "The layer: an expert's width on one GPU (N of the file name)."),
    "hidden": ("N", "The layer: hidden size; default 4096 without a model."),
    "topk": ("N", "The layer: experts a token goes to; default 8 without a model."),
    "dtype": ("NAME", "The layer: bf16, fp8_w8a8, fp8_w8a16, int8_w8a8, int8_w8a16 or int4_w4a16."),
    "block_shape": ("N,K", "The layer: block scales, e.g. 128,128."),
    "tokens": ("N,N,...", "Numbers of tokens that are asked for; default 1 to 4,096."),
    "triton": ("X.Y.Z", "sglang: the installed Triton, which names the folder; default: the newest that has one."),
    "folder": ("DIR", "Your own files; default: $VLLM_TUNED_CONFIG_FOLDER or $SGLANG_MOE_CONFIG_DIR."),
}
NO_FILES: Final = ("nvfp4", "mxfp4", "modelopt_fp4", "fp4")
SELECTORS: Final = ("fp8_w8a8", "fp8_w8a16", "int8_w8a8", "int8_w8a16", "int4_w4a16", "float32")
_MAX_NUMBER: Final = 1 << 24
_MAX_TOKENS: Final = 64


def layer_options(function: F) -> F:
    """Add the flags of a layer; the command receives the typed ones as `layer: dict`."""

    @functools.wraps(function)
    def gather(*args: Any, **parameters: Any) -> Any:
        given = {key: parameters[_PREFIX + key] for key in _FLAGS if parameters.get(_PREFIX + key) is not None}
        if parameters.get(_PREFIX + "per_channel"):
            given["per_channel"] = True
        rest = {name: value for name, value in parameters.items() if not name.startswith(_PREFIX)}
        return function(*args, layer=given, **rest)

    decorated: Any = gather
    decorated = click.option(
        "--per-channel", _PREFIX + "per_channel", is_flag=True, help="The layer: sglang's per_channel_quant files."
    )(decorated)
    for key, (metavar, text) in reversed(_FLAGS.items()):
        flag = "--" + key.replace("_", "-")
        kind = PATH if metavar == "DIR" else None
        decorated = click.option(flag, _PREFIX + key, type=kind, metavar=metavar, default=None, help=text)(decorated)
    return decorated


def run_tuned(
    key: str, root: str, layer: Mapping[str, Any], known: dict[str, str] | None, check: bool, sarif: str | None,
    out: Output,
) -> int | None:  # fmt: skip
    """Read, show and check the tuned tiles of an engine; the exit status."""
    from tilewright.libraries.tuned.engine import SPECS
    from tilewright.report.tuned_text import failing_of, show_tuned

    spec = SPECS[key]
    report = read_tiles(key, root, layer)
    failing = failing_of(report, known)
    if sarif is not None:
        from tilewright.report.sarif import tuned_findings, write_sarif

        write_sarif(sarif, tuned_findings(failing))
        out.note(f"SARIF: {len(failing)} results in {sarif}.")
    if out.json:
        from tilewright.cli.tactics_compiled import with_new

        out.document(with_new(report, known, [tactic.name for tactic in failing]))
    else:
        show_tuned(spec.label, report, failing, known is not None, out)
    steps = report.lookup.steps if report.lookup else []
    stuck = any(
        verdict is not None and verdict.status in ("overflow", "illegal")
        for step in steps
        for verdict in (step.verdict, step.down_verdict)
    )
    return EXIT_NO if check and (failing or stuck) else None


def read_tiles(key: str, root: str, layer: Mapping[str, Any]) -> TunedReport:
    """Every tuned tile and built-in default of the engine at `root`, and what the layer gets where one is described.

    `layer` holds the flags of `layer_options` that were given, by name without dashes.
    """
    from tilewright.collectives.tree import open_tree
    from tilewright.libraries.tuned.devices import device_of_gpu
    from tilewright.libraries.tuned.engine import SPECS
    from tilewright.libraries.tuned.report import read_tuned
    from tilewright.libraries.tuned.request import DEFAULT_TOKENS, Request

    spec = SPECS[key]
    question, notes = _question(layer)
    if question is not None and "gpu" not in layer:
        raise click.UsageError("A layer's file depends on the GPU: add --gpu.")
    folder = layer.get("folder") or os.environ.get(spec.environment)
    request = Request(
        device=device_of_gpu(layer["gpu"]) if "gpu" in layer else None,
        question=question,
        tokens=_list(layer["tokens"], "tokens") if "tokens" in layer else DEFAULT_TOKENS,
        triton=layer.get("triton"),
        folder=folder,
        notes=notes,
    )
    if request.triton is not None and not all(part.isdigit() for part in request.triton.split(".")):
        raise click.UsageError(f"--triton takes a version such as 3.5.1, not {request.triton!r}.")
    with open_tree(root) as tree:
        return read_tuned(tree, spec, request)


def _question(layer: Mapping[str, Any]) -> tuple[Question | None, tuple[str, ...]]:
    """The layer that was described, and remarks on it; None where none was.

    Raises:
        InputError: it is no layer that a tuned file could be for.
    """
    from tilewright.errors import InputError, shown
    from tilewright.libraries.tuned.engine import Question

    described = {
        key for key in layer if key in ("model", "e", "n", "dtype", "block_shape", "hidden", "topk", "tp", "ep")
    }
    if not described:
        return None, ()
    dtype: str | None = layer.get("dtype")
    if dtype is not None and dtype.lower() in NO_FILES:
        msg = (
            f"dtype: {dtype} MoE layers read no tuned Triton file: neither engine has a selector for it, and their FP4 "
            "kernels are CUTLASS, CuTe DSL or Marlin. `tilewright tactics flashinfer` lists FlashInfer's."
        )
        raise InputError("dtype", msg)
    if dtype in ("bf16", "fp16", "bfloat16", "float16", "auto", None):
        dtype = None
    elif dtype not in SELECTORS:
        raise InputError("dtype", f"dtype: {shown(dtype)} is not known; legal are: bf16, {', '.join(SELECTORS)}.")
    tp, ep = (_number(layer.get(key, "1"), key) for key in ("tp", "ep"))
    experts = inter = None
    hidden, topk = 4096, 8
    notes: list[str] = []
    if "model" in layer:
        from tilewright.models import resolve_model

        model = resolve_model(layer["model"])
        if model.moe is None:
            raise InputError("model", f"model: {model.name} has no routed experts; tuned MoE files are not for it.")
        if model.moe.experts % ep or model.moe.inter % tp:
            msg = f"model: {model.moe.experts} experts of width {model.moe.inter} do not divide by ep {ep} and tp {tp}."
            raise InputError("model", msg)
        experts, inter = model.moe.experts // ep, model.moe.inter // tp
        hidden, topk = model.hidden, model.moe.topk
        if model.moe.shared_inter:
            notes.append(
                "With shared experts fused into the routed ones (SGLang, where it can), E is larger by their number: "
                f"ask again with --e {experts + 1}."
            )
    experts = _number(layer["e"], "e") if "e" in layer else experts
    inter = _number(layer["n"], "n") if "n" in layer else inter
    if experts is None or inter is None:
        raise InputError("layer", "A layer needs --model, or --e and --n (experts and expert width on one GPU).")
    hidden = _number(layer["hidden"], "hidden") if "hidden" in layer else hidden
    topk = _number(layer["topk"], "topk") if "topk" in layer else topk
    block: tuple[int, int] | None = None
    if "block_shape" in layer:
        pair = _list(str(layer["block_shape"]).strip("[] "), "block_shape", least=0)
        if len(pair) != 2:
            raise InputError("block_shape", f"block_shape: {shown(layer['block_shape'])} is not of the form 128,128.")
        block = (pair[0], pair[1])
    if dtype == "int4_w4a16" and block is None:
        block = (0, 128)
    return Question(experts, inter, hidden, topk, dtype, block, bool(layer.get("per_channel"))), tuple(notes)


def _number(text: Any, field: str, least: int = 1) -> int:
    from tilewright.errors import InputError, shown

    plain = str(text).strip()
    if not plain.isascii() or not plain.isdigit() or len(plain) > 9 or not least <= int(plain) <= _MAX_NUMBER:
        raise InputError(field, f"{field}: {shown(text)} is no number from {least} to {_MAX_NUMBER:,}.")
    return int(plain)


def _list(text: Any, field: str, least: int = 1) -> tuple[int, ...]:
    from tilewright.errors import InputError

    parts = str(text).split(",")
    if len(parts) > _MAX_TOKENS:
        raise InputError(field, f"{field}: {len(parts)} numbers are too many; give at most {_MAX_TOKENS}.")
    return tuple(_number(part, field, least) for part in parts)
