"""A Triton tile on the command line of `fit`: `--kernel` and what only a tile has; the rest are the flags of `fit`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from tilewright.cli.exit_status import EXIT_NO
from tilewright.cli.paths import PATH
from tilewright.report.output import Output

if TYPE_CHECKING:
    from tilewright.triton_.model import TritonVerdict

__all__ = ["TritonFlags", "answer_tile", "run_tile", "tile_schema", "triton_options"]

F = TypeVar("F", bound=Callable[..., Any])
_PREFIX: Final = "triton_"
_FLAGS: Final = {
    "kernel": ("NAME", "A Triton tile instead: vllm-fused-moe, sglang-fused-moe, vllm-fp8-linear, sglang-fp8-linear."),
    "dtype": ("NAME", "Of a Triton tile: bf16, fp16, fp8_w8a8, int8_w8a8, int8_w8a16 or int4_w4a16."),
    "block_shape": ("N,K", "Of a Triton tile: its block scales, e.g. 128,128; groups along K as 0,128."),
    "num_warps": ("N", "Of a Triton tile: warps of a block; default 4."),
    "version": ("X.Y.Z", "Of a Triton tile: the engine's version; default: the newest read."),
}


class TritonFlags:
    """The flags of one call: the tile as raw keys, and whether Triton itself is asked."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self.raw = {key: parameters[_PREFIX + key] for key in _FLAGS if parameters.get(_PREFIX + key) is not None}
        self.compile: bool = bool(parameters.get(_PREFIX + "compile"))
        self.python: str | None = parameters.get(_PREFIX + "python")
        if self.raw and "kernel" not in self.raw:
            raise click.UsageError(
                f"--{next(iter(self.raw)).replace('_', '-')} belongs to a Triton tile: add --kernel."
            )
        if self.python and not self.compile:
            raise click.UsageError("--python names the interpreter of --compile; add --compile.")


def triton_options(function: F) -> F:
    """Add the flags of a Triton tile; the command receives them as `tile: TritonFlags`."""

    @functools.wraps(function)
    def gather(*args: Any, **parameters: Any) -> Any:
        rest = {name: value for name, value in parameters.items() if not name.startswith(_PREFIX)}
        return function(*args, tile=TritonFlags(parameters), **rest)

    decorated: Any = gather
    decorated = click.option(
        "--python",
        _PREFIX + "python",
        type=PATH,
        metavar="PATH",
        help="With --compile: an interpreter that has Triton.",
    )(decorated)
    decorated = click.option(
        "--compile", _PREFIX + "compile", is_flag=True,
        help="Triton tiles: ask Triton itself, which compiles the kernel of the engine under --root (or installed).",
    )(decorated)  # fmt: skip
    for key, (metavar, text) in reversed(_FLAGS.items()):
        flag = "--" + key.replace("_", "-")
        decorated = click.option(flag, _PREFIX + key, metavar=metavar, default=None, help=text)(decorated)
    return decorated


def _numbers(text: Any, joint: str, count: int, field: str, example: str) -> list[int]:
    from tilewright.errors import ConfigError, shown

    parts = str(text).strip("[]() ").replace("x" if joint == "," else ",", joint).split(joint)
    if len(parts) != count or not all(part.strip().isdigit() and len(part.strip()) <= 9 for part in parts):
        raise ConfigError(field, f"{field}: {shown(text)} is not of the form {example}.")
    return [int(part) for part in parts]


def run_tile(
    flags: TritonFlags,
    given: Mapping[str, Any],
    gpu: str | None,
    root: str | None,
    brief: bool,
    check: bool,
    out: Output,
) -> int | None:
    """Answer the tile that was typed."""
    raw: dict[str, Any] = dict(flags.raw)
    for key, value in given.items():
        if key not in ("id", "tile", "stages"):
            raise click.UsageError(f"--{key.replace('_', '-')} is of CUTLASS configs; drop it beside --kernel.")
        if key == "tile":
            raw |= dict(
                zip(("block_m", "block_n", "block_k"), _numbers(value, "x", 3, "tile", "128x256x128"), strict=True)
            )
        elif key == "stages":
            raw["num_stages"] = _numbers(value, "x", 1, "stages", "4")[0]
        else:
            raw[key] = value
    raw["gpu"] = gpu
    if "num_warps" in raw:
        raw["num_warps"] = _numbers(raw["num_warps"], "x", 1, "num_warps", "8")[0]
    if "block_shape" in raw:
        raw["block_shape"] = _numbers(raw["block_shape"], ",", 2, "block_shape", "128,128")
    verdict = answer_tile(raw, flags, root, brief)
    if out.json:
        out.document(verdict)
    else:
        from tilewright.report.triton_text import show_tile

        show_tile(raw, verdict, out)
    return EXIT_NO if check and verdict.status != "fits" else None


def answer_tile(raw: Mapping[str, Any], flags: TritonFlags, root: str | None, brief: bool) -> TritonVerdict:
    """The verdict on the tile `raw` describes, by the formula or (`--compile`) by Triton."""
    from tilewright.triton_.config import parse_triton
    from tilewright.triton_.fit import fit_triton
    from tilewright.triton_.model import brief as without

    config = parse_triton(raw)
    if flags.compile:
        from tilewright.triton_.compile import compile_tile

        verdict = compile_tile(config, root, flags.python)
    else:
        verdict = fit_triton(config)
    return without(verdict) if brief else verdict


def tile_schema() -> dict[str, Any]:
    """JSON Schema of a Triton tile as an object: its keys, and what the flags' helps say of them."""
    from tilewright.triton_.config import KEYS
    from tilewright.triton_.kernels import KERNELS

    whole, switch = {"type": "integer", "minimum": 1}, {"type": "boolean"}
    kinds: dict[str, dict[str, Any]] = {
        "kernel": {"enum": sorted(KERNELS)},
        "block_shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 2, "maxItems": 2},
        **dict.fromkeys(("block_m", "block_n", "block_k", "group_m", "num_warps", "num_stages"), whole),
        **dict.fromkeys(("per_channel", "zero_points", "tma", "routed_weight"), switch),
    }
    properties: dict[str, Any] = {}
    for key in KEYS:
        properties[key] = dict(kinds.get(key, {"type": "string"}))
        if key in _FLAGS:
            properties[key]["description"] = _FLAGS[key][1].removeprefix("Of a Triton tile: ")
    required = ["kernel", "gpu", "block_m", "block_n", "block_k"]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
