"""The keys of a kernel config as command-line flags, one implementation for every command that takes a config.

    @click.command(...)
    @config_options
    @output_options
    def command(given: dict[str, Any], as_json: bool, quiet: bool) -> int | None:
        config = parse_config(given)

`given` holds the flags that were typed, and only those, under their key of DESIGN 4.2. Values stay the strings that
were typed: `parse_config` is the one place that checks them, so that a flag and a JSON line get the same message.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import click

from tilewright.cutlass.config import KEYS

__all__ = ["config_options", "describe", "raw_config"]

F = TypeVar("F", bound=Callable[..., Any])

_PREFIX: Final = "config_"
"""Prefix of the parameters' names, so that no key (`a`, `id`, ...) meets a command's own parameters."""

_FORMAT: Final = "FORMAT"
_LAYOUT: Final = "row|col"

# key -> (metavar, help); every key of KernelConfig but the booleans. The legal values are listed by the message that
# a wrong one gets (`cutlass/config.py`), so these stay one line each.
_FLAGS: Final[dict[str, tuple[str, str]]] = {
    "id": ("TEXT", "Any name; the answer repeats it."),
    "cutlass": ("X.Y.Z", "CUTLASS version; default: the newest known."),
    "arch": ("ARCH", "sm90, sm100, sm103, sm120 or sm121."),
    "kind": ("dense|grouped", "One GEMM, or many in one launch (MoE)."),
    "op_class": (
        "CLASS",
        "tensor_op, block_scaled, sparse, block_scaled_sparse, blockwise or mixed_input; default: from the operands.",
    ),
    "a": (_FORMAT, "Operand A: nvfp4, mxfp4, mxfp8_e4m3, e4m3, bf16, ..."),
    "b": (_FORMAT, "Operand B; default: as A."),
    "acc": (_FORMAT, "Accumulator: f32, f16 or int32."),
    "c": (_FORMAT, "Source operand of the epilogue, or void."),
    "d": (_FORMAT, "Output, or void; a block-scaled one generates scale factors."),
    "layout_a": (_LAYOUT, "Layout of A."),
    "layout_b": (_LAYOUT, "Layout of B."),
    "layout_c": (_LAYOUT, "Layout of C."),
    "layout_d": (_LAYOUT, "Layout of D."),
    "align_a": ("N", "Alignment of A in elements."),
    "align_b": ("N", "Alignment of B in elements."),
    "align_c": ("N", "Alignment of C in elements."),
    "align_d": ("N", "Alignment of D in elements."),
    "tile": ("MxNxK", "TileShape_MNK in elements, e.g. 128x256x128."),
    "cluster": ("MxNxK", "Cluster shape in tiles, e.g. 2x1x1."),
    "schedule": ("NAME", "auto, cooperative, pingpong, 1sm, 2sm, ..., or a builder tag (Kernel...)."),
    "epilogue_schedule": ("NAME", "auto, or a tag of cutlass::epilogue in snake case."),
    "fusion": (
        "NAME",
        "linear_combination, finalize, activation, block_scale_out, per_row_bias, per_col_bias or "
        "per_row_bias_activation_aux.",
    ),
    "final_output": (_FORMAT, "Type that finalize scatters: bf16, f16 or f32."),
    "activation": ("NAME", "silu, gelu or relu."),
    "epilogue_tile": ("auto|MxN", "Epilogue tile."),
    "stages": ("auto|N", "Pipeline stages: as many as the carveout leaves, or a number."),
    "scale_granularity": ("MxNxK", "blockwise: elements that share a scale, e.g. 1x128x128."),
    "scale_major": ("mn|k", "blockwise: major mode of the scales."),
    "narrow": ("a|b", "mixed_input: which operand is the narrow one."),
    "scale": (_FORMAT, "mixed_input: type of the scales."),
    "zero": (_FORMAT, "mixed_input: type of the zero points."),
    "tile_scheduler": ("NAME", "default, static_persistent or stream_k."),
    "layout_sfd": (_LAYOUT, "block_scale_out: layout of the generated scale factors."),
}

_SWITCHES: Final = {"swap_ab": "Exchange A and B, as TensorRT-LLM does (tokens on N)."}


def raw_config(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The typed flags among a command's `parameters`, as a raw mapping for `parse_config`."""
    return {
        key: parameters[_PREFIX + key]
        for key in KEYS
        if _PREFIX + key in parameters and parameters[_PREFIX + key] is not None
    }


def config_options(function: F) -> F:
    """Add every config key as a flag (`--op-class`, `--tile`, `--swap-ab/--no-swap-ab`, ...).

    The command receives the typed ones as one parameter, `given: dict[str, Any]`.
    """

    @functools.wraps(function)
    def gather(*args: Any, **parameters: Any) -> Any:
        given = raw_config(parameters)
        rest = {name: value for name, value in parameters.items() if not name.startswith(_PREFIX)}
        return function(*args, given=given, **rest)

    decorated: Any = gather
    for key in reversed(KEYS):
        flag = key.replace("_", "-")
        if key in _SWITCHES:
            option = click.option(f"--{flag}/--no-{flag}", _PREFIX + key, default=None, help=_SWITCHES[key])
        else:
            metavar, text = _FLAGS[key]
            option = click.option(f"--{flag}", _PREFIX + key, metavar=metavar, default=None, help=text)
        decorated = option(decorated)
    return decorated


def describe(key: str) -> str:
    """What the config key `key` means, in one line: the help of its flag."""
    return _SWITCHES[key] if key in _SWITCHES else _FLAGS[key][1]
