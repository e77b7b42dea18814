"""`tilewright predict`: one question answered in full, or a stream of them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tilewright.cli.jsonl import answer_stream, decode_object, error_line, open_stream, read_lines
from tilewright.cli.paths import PATH
from tilewright.report.output import Output, output_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from tilewright.cost.estimate import Estimate, Refusal

_WHOLE_MODEL = ("decode", "prefill")
_OPERATIONS = ("gemm", "moe", "allreduce", *_WHOLE_MODEL)
_FLAGS = (
    ("gpu", str, "GPU: a key, product or device name (tilewright gpus lists them)."),
    ("dtype", str, "nvfp4, fp8, fp8_block, bfloat16, w4a16_mxfp4, int4_wo ..."),
    ("backend", str, "A kernel table, a family (cutlass, triton, marlin), b12x; nccl, custom for collectives."),
    ("m", int, "gemm: tokens."),
    ("n", int, "gemm: output features."),
    ("k", int, "gemm: input features."),
    ("tokens", int, "moe: tokens of the expert-parallel group."),
    ("hidden", int, "moe: hidden size."),
    ("inter", int, "moe: intermediate size of one expert, not divided by tp."),
    ("topk", int, "moe: experts a token."),
    ("experts", int, "moe: experts of the layer, not divided by ep."),
    ("tp", int, "moe, decode, prefill: tensor-parallel ways."),
    ("ep", int, "moe, decode, prefill: expert-parallel ways."),
    ("distribution", str, "moe: balanced, power_law_1.2, power_law_<alpha>, uniform."),
    ("gpus", int, "allreduce, decode, prefill: number of GPUs."),
    ("bytes", int, "allreduce: bytes of the message."),
    ("collective", str, "allreduce: all_reduce, all_gather, reduce_scatter, alltoall."),
    ("topology", str, "allreduce: same_numa or cross_numa."),
    ("model", str, "decode, prefill: the model. moe: the model whose layer it is, in place of the sizes."),
    ("checkpoint", str, "decode, prefill, moe: one of the model's checkpoints."),
    ("engine", str, "decode, prefill: sglang or vllm."),
    ("pp", int, "decode, prefill: pipeline stages."),
    ("dcp", int, "decode, prefill: decode-context-parallel ways."),
    ("moe-backend", str, "decode, prefill: cutlass, b12x, marlin, triton ..."),
    ("concurrency", int, "decode: requests that run together."),
    ("context", int, "decode: tokens in each request's cache."),
    ("prompt-tokens", int, "prefill: tokens of the prompt."),
)


def _question_options(function: Any) -> Any:
    for name, kind, text in reversed(_FLAGS):
        function = click.option(f"--{name}", type=kind, help=text)(function)
    return function


@click.command(
    epilog="Example: tilewright predict moe --gpu rtx-pro-6000-server --model GLM-5-NVFP4 --tp 8 --tokens 64"
)
@click.argument("op", required=False, type=click.Choice(_OPERATIONS))
@_question_options
@click.option("--tuned/--untuned", default=None, help="allreduce: whether NCCL is tuned for PCIe.")
@click.option(
    "--from", "source", type=PATH, metavar="FILE", help="One JSON question a line ('-': stdin), one answer a line."
)
@click.option("--basis", type=click.Choice(["auto", "modelled"]), default="auto", help="modelled: never look a row up.")
@click.option(
    "--coefficients",
    type=PATH,
    metavar="DIR",
    help="Coefficients of 'tilewright calibrate' instead of the packaged ones.",
)
@output_options
def command(
    op: str | None,
    source: str | None,
    basis: str,
    coefficients: str | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """How long a GEMM, an expert layer, a collective or a whole model takes, what limits it, and how sure that is.

    Times come from published measurements where they cover the shape (measured), else from a model of the hardware
    fitted to them (modelled, with bounds that hold for nine of ten held-out rows).
    """
    out = Output(as_json, quiet)
    asked = {name: value for name, value in given.items() if value is not None}
    answer = answerer(basis, coefficients)
    if source is not None:
        if op is not None or asked:
            raise click.UsageError("--from takes the questions from the file; drop the operation and its flags.")
        with open_stream(source) as stream:
            if as_json:
                count, refused = answer_stream(stream, answer, sys.stdout.buffer, on_error=_refusal)
            else:
                count, refused = _lines(stream, answer, out)
        out.note(f"Questions: {count}; refused: {refused}.")
        return
    if op is None:
        raise click.UsageError("Give an operation (gemm, moe, allreduce, decode, prefill) or --from FILE.")
    estimate = answer({"op": op, **asked})
    if as_json:
        out.document(estimate)
    else:
        from tilewright.report.predict_text import show

        show({"op": op, **asked}, estimate, out)


def answerer(basis: Any, coefficients: str | None) -> Callable[[dict[str, Any]], Estimate]:
    """What answers one question; whole models' code is loaded when the first such question comes."""
    from tilewright.cost.collective_estimate import estimate_collective
    from tilewright.cost.kernel_estimate import estimate_kernel
    from tilewright.cost.kernel_models import load
    from tilewright.cost.questions import AllreduceQuestion, parse_question
    from tilewright.errors import InputError, shown

    loaded = load(coefficients)
    tables = basis == "auto"

    def answer(raw: dict[str, Any]) -> Estimate:
        op = raw.get("op")
        if op not in _OPERATIONS:
            raise InputError("op", f"op must be one of {', '.join(_OPERATIONS)}, not {shown(op)}.")
        if op in _WHOLE_MODEL:
            return _whole_model(raw, basis)
        if op == "moe" and raw.get("model") is not None:
            from tilewright.serving.layer_question import with_layer_of_model

            raw = with_layer_of_model(raw)
        question = parse_question(raw)
        if type(question) is AllreduceQuestion:
            return estimate_collective(question, tables=tables)
        return estimate_kernel(question, loaded, tables=tables)  # pyright: ignore[reportArgumentType]

    return answer


def _refusal(raw: Any, error: Any) -> Refusal:
    """The answer to a line that was refused, with its `id` where that is a string."""
    from tilewright.cost.estimate import Refusal

    line = error_line(raw, error)
    return Refusal(id=line.id, error=line.error)


def _whole_model(raw: dict[str, Any], basis: Any) -> Estimate:
    from tilewright.serving import DecodeQuestion, parse_serving_question, predict_decode, predict_prefill

    question = parse_serving_question(raw)
    if isinstance(question, DecodeQuestion):
        return predict_decode(question, basis=basis)
    return predict_prefill(question, basis=basis)


def _lines(stream: Any, answer: Callable[[dict[str, Any]], Estimate], out: Output) -> tuple[int, int]:
    """The stream for a reader: a line of text for each question."""
    from tilewright.cutlass.budget import LineError
    from tilewright.errors import InputError
    from tilewright.report.predict_text import line

    count = refused = 0
    for number, data in read_lines(stream):
        count += 1
        raw = decode_object(number, data) if isinstance(data, bytes) else data
        message = raw.message if isinstance(raw, LineError) else ""
        if not isinstance(raw, LineError):
            try:
                out.line(line(raw, answer(raw)))
                continue
            except InputError as error:
                message = error.msg
        refused += 1
        out.line(f"error  line {number}: {message}")
    return count, refused
