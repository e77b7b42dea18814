"""The tools: one a command, answered by the function that the command calls, with the command's `--json` document.

A tool's schemas come from the command's options (`arguments.py`) and the document's type (`report/schema.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any, Final

import click
import msgspec

from tilewright.errors import InputError
from tilewright.mcp_ import calls
from tilewright.mcp_.access import Access
from tilewright.mcp_.arguments import Inputs, of_config, of_options, of_structs

__all__ = ["TOOLS", "Tool", "ToolsDocument", "confined", "inputs_of", "output_schema", "tools_document"]

Run = Callable[[dict[str, Any]], Any]


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """One tool."""

    name: str
    document: str
    """The document it answers with, `tilewright/<document>/1`."""
    text: str
    """What it answers and when to call it, for the model that reads the list of tools."""
    inputs: Callable[[], Inputs]
    run: Run
    paths: tuple[str, ...] = ()
    """Arguments that are paths to read; they reach `run` resolved and inside the roots."""
    models: tuple[str, ...] = ()
    """Arguments that are a model's name, or the path of its config.json."""
    writes: tuple[str, ...] = ()
    """Arguments that are folders to write; there only where the server was started with a folder for it."""


def _command(module: str) -> click.Command:
    command: click.Command = import_module(f"tilewright.cli.{module}").command
    return command


@cache
def inputs_of(name: str, writing: bool) -> Inputs:
    """What the tool takes; arguments that write are left out unless the server may write."""
    tool = TOOLS[name]
    inputs = tool.inputs()
    if writing or not tool.writes:
        return inputs
    hidden = set(tool.writes)
    properties = {key: value for key, value in inputs.schema["properties"].items() if key not in hidden}

    def check(raw: Any) -> dict[str, Any]:
        for key in hidden & set(raw):
            raise InputError(key, f"{key}: this server writes nothing; start it with --allow-write DIR to let it.")
        return inputs.check(raw)

    return Inputs({**inputs.schema, "properties": properties}, check)


def output_schema(name: str) -> dict[str, Any]:
    """JSON Schema of what the tool answers: that of its document, said to be an object at the root."""
    from tilewright.report.schema import json_schema

    schema = json_schema(TOOLS[name].document)
    return {"type": "object", **{key: value for key, value in schema.items() if key not in ("$schema", "$id")}}


def confined(tool: Tool, arguments: dict[str, Any], access: Access) -> dict[str, Any]:
    """`arguments` with every path resolved and held to `access`. Raises InputError."""
    out = dict(arguments)
    for name in tool.paths:
        if isinstance(out.get(name), str):
            out[name] = access.reading(out[name], name)
    for name in tool.models:
        value = out.get(name)
        if isinstance(value, str) and _path_like(value, access):
            out[name] = access.reading(value, name)
    for name in tool.writes:
        if isinstance(out.get(name), str):
            out[name] = access.writing(out[name], name)
    return out


def _path_like(text: str, access: Access) -> bool:
    """Whether a model's name may be taken for a path: then it is one, and held to the roots."""
    if text.startswith((".", "~", "/")) or "\\" in text or "\0" in text or text.endswith(".json"):
        return True
    return len(text) <= 255 and any((root / text).exists() for root in access.roots)


# -- what each takes ----------------------------------------------------------------------------------------------

_LAYER: Final = ("gpu", "model", "tp", "ep", "e", "n", "hidden", "topk", "dtype", "block_shape", "tokens", "triton")
_LAYOUT: Final = (
    "model", "checkpoint", "gpu", "gpus", "engine", "engine_version", "context", "prompt_tokens", "concurrency",
    "goal", "slo_ttft", "slo_tpot", "kv_dtype", "mem_fraction", "attention", "moe_backend", "speculative_tokens",
    "acceptance_length",
)  # fmt: skip
_PLAN: Final = (
    "model", "gpu", "gpus", "engine", "engine_version", "library", "observe", "log_file", "tp", "pp", "ep", "out",
    "force",
)  # fmt: skip
_ADVISE: Final = (
    "engine", "root", "engine_version", "model", "gpu", "gpus", "checkpoint", "tp", "pp", "ep", "dcp", "attention_dp",
    "goal", "concurrency", "context", "prompt_tokens", "kv_dtype", "mem_fraction",
)  # fmt: skip
_MODELS: Final = ("name", "gpu_name", "tp", "ep", "pp", "dcp", "attention_dp", "fraction", "kv_layout", "mtp")


def _fit_inputs() -> Inputs:
    return of_config({"brief": ({"type": "boolean"}, "Leave out fields, cause and fixes.")})


def _triton_inputs() -> Inputs:
    from tilewright.cli.triton_options import tile_schema

    return Inputs(tile_schema(), dict)


def _predict_inputs() -> Inputs:
    from tilewright.cost.questions import AllreduceQuestion, GemmQuestion, MoeQuestion
    from tilewright.serving.questions import DecodeQuestion, PrefillQuestion

    helps = {str(item.name): str(getattr(item, "help", "") or "") for item in _command("predict").params}
    made = of_structs((GemmQuestion, MoeQuestion, AllreduceQuestion, DecodeQuestion, PrefillQuestion), helps, "op")
    basis = {"enum": ["auto", "modelled"], "description": helps["basis"]}
    return Inputs({**made.schema, "properties": {**made.schema["properties"], "basis": basis}}, made.check)


def _tactics_inputs() -> Inputs:
    return of_options(
        _command("tactics"),
        ("library", "root", "op", "arch", *(f"layer_{name}" for name in _LAYER)),
        {
            "never_runs": (bool, "flashinfer: only the tactics that can never run; the summary counts all."),
            "with_fields": (bool, "flashinfer: with every field and fix of each verdict, ten times as long."),
        },
        required=("library", "root"),
    )


def _collectives_inputs() -> Inputs:
    text = "Which could run this kernel config? Its keys are those of the tool fit."
    return of_options(
        _command("collectives"),
        ("root", "arch", "scaling", "array", "sparse", "operation"),
        {"config": (dict[str, Any], text)},
        required=("root",),
    )


def _options(
    module: str, names: tuple[str, ...], required: tuple[str, ...] = (), **extra: tuple[Any, str]
) -> Callable[[], Inputs]:
    return lambda: of_options(_command(module), names, extra, required)


_LIST: Final[tuple[Tool, ...]] = (
    Tool(
        name="fit", document="fit", inputs=_fit_inputs, run=calls.fit,
        text="Shared memory, pipeline stages and legality of one CUTLASS kernel config, exact to the byte: does it "
        "fit, why not, and which changes would make it fit. Give at least arch, a and tile.",
    ),
    Tool(
        name="fit_triton", document="fit", inputs=_triton_inputs, run=calls.fit_triton,
        text="Whether a Triton tile of vLLM's or SGLang's fused-MoE or FP8 linear kernel fits a GPU's shared memory.",
    ),
    Tool(
        name="tactics", document="tactics", inputs=_tactics_inputs, run=calls.tactics,
        paths=("root",), models=("model",),
        text="Every kernel (FlashInfer) or tuned Triton tile (vLLM, SGLang) that an installed library may launch, read "
        "from its sources by parsing, each with its verdict.",
    ),
    Tool(
        name="collectives", document="collectives", inputs=_collectives_inputs, run=calls.collectives, paths=("root",),
        text="Mainloop and epilogue collectives that the CUTLASS headers under a folder or wheel define, the builders "
        "that give them, and with config which of them could run a kernel and why the others cannot.",
    ),
    Tool(
        name="predict", document="predict", inputs=_predict_inputs, run=calls.predict, models=("model",),
        text="How long a GEMM, an expert layer, a collective, a decode step or a prefill takes on a GPU, what limits "
        "it, and between which bounds; measured where published tables cover it, else modelled.",
    ),
    Tool(
        name="layout", document="layout", run=calls.layout, models=("model",),
        inputs=_options("layout", _LAYOUT, every=(bool, "Also the layouts that do not fit or are refused, and why.")),
        text="How to spread a model over GPUs: each tensor, pipeline, expert and data parallel split that fits, with "
        "memory, tokens a second and time to first token, ranked.",
    ),
    Tool(
        name="explain", document="explain", run=calls.explain, paths=("file",),
        inputs=_options("explain", (), file=(str, "A log under a root of this server."), text=(str, "The log itself.")),
        text="What a log of SGLang, vLLM, FlashInfer, TensorRT-LLM, Triton, NCCL or a compiler says: causes, the exact "
        "arithmetic where it is shared memory, what helps, and errors that are not known.",
    ),
    Tool(
        name="plan", document="plan", run=calls.plan, paths=("library", "observe", "log_file"), models=("model",),
        inputs=_options("plan", _PLAN, required=("model", "gpu")), writes=("out", "force"),
        text="One ranked optimisation plan for a model on GPUs: findings with evidence, cause, fix, expected gain, how "
        "to confirm and undo; ideas rejected and claims refuted.",
    ),
    Tool(
        name="gpus", document="gpus", inputs=_options("gpus", ("name",)), run=calls.gpus,
        text="GPUs and their limits, each figure with its kind and source; give a name, the list of all is long.",
    ),
    Tool(
        name="models", document="models", inputs=_options("models", _MODELS), run=calls.models, models=("name",),
        text="Models, their shapes and quantised checkpoints; with gpu_name what one GPU of a layout holds.",
    ),
    Tool(
        name="inspect", document="inspect", run=calls.inspect, paths=("path",),
        inputs=_options("inspect", ("path", "gpu")),
        text="What a GPU binary, library, wheel or folder holds (kernels, registers, shared memory, architectures) "
        "and why an image does not load on a GPU.",
    ),
    Tool(
        name="flags", document="flags", run=calls.flags, paths=("root", "diff"),
        inputs=_options(
            "flags", ("engine", "names", "root", "engine_version", "diff", "show_uses"),
            launch=(str, "Is this launch command accepted?"),
        ),
        text="Flags that an installed vLLM or SGLang has (or a packaged release of it), and whether a launch command "
        "is accepted.",
    ),
    Tool(
        name="advise", document="flags-advice", run=calls.advise, paths=("root",), models=("model",),
        inputs=_options("flags", _ADVISE, required=("model", "gpu"), launch=(str, "The launch line as it is today.")),
        text="Which flags of SGLang or vLLM to set for a model, GPUs, a load and a goal: what each is predicted to "
        "bring, what of a launch line does nothing or is gone, and a line that the engine's parser accepts.",
    ),
)  # fmt: skip

TOOLS: Final[dict[str, Tool]] = {tool.name: tool for tool in _LIST}


class ToolDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One tool as clients see it."""

    name: str
    document: str
    description: str
    read_only: bool
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]


class ToolsDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/mcp/1"):
    """`mcp --list`: the tools, and the folders that they may read and write."""

    roots: list[str]
    write: str | None
    tools: list[ToolDocument]


def tools_document(access: Access) -> ToolsDocument:
    """Every tool as a server with this `access` offers it."""
    writing = access.write is not None
    tools = [
        ToolDocument(
            name=name,
            document=f"tilewright/{tool.document}/1",
            description=tool.text,
            read_only=not (writing and tool.writes),
            input_schema=inputs_of(name, writing).schema,
            output_schema=output_schema(name),
        )
        for name, tool in TOOLS.items()
    ]
    return ToolsDocument(
        roots=[str(root) for root in access.roots], write=str(access.write) if writing else None, tools=tools
    )
