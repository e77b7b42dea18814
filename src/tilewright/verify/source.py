"""The C++ around one kernel: the config's real types, a problem they can take, and `runner.inc`, which does the rest.

Only what `probe` writes reaches the compiler: the three types, integers and flags. Three depths: every kernel can be
built and its shared memory asked of the driver; most can be launched; where the answer is simple the output is compared
element by element. What is not launched says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.resources import files
from typing import Final

from tilewright.cutlass.config import KernelConfig
from tilewright.formats.elements import ELEMENTS
from tilewright.probe.cpp import KernelTypes
from tilewright.probe.unit import preamble

__all__ = ["Depth", "depth_of", "problems", "runner_source"]

K_TILES: Final = 8
"""Tiles of K in the problem: more than most pipelines have stages, so that buffers are used again."""
GROUPS: Final = 3
_ONE: Final = {"ue4m3": 0x38, "ue8m0": 0x7F}
"""The code of 1.0 in the formats of block scales (OCP MX, e4m3 without a sign)."""
_ACTIVATIONS: Final = {None: 0, "silu": 1, "gelu": 2, "relu": 3}
_POISON: Final = 0xFF
"""What the output holds before: NaN in every float format here, -1 in integers."""
_MANTISSA: Final = {"f32": 23, "bf16": 7, "f16": 10, "e4m3": 3, "e5m2": 2}
_SCALE_CONFIG: Final = re.compile(r"cutlass::detail::Sm\d+BlockwiseScaleConfig<[^>]*>")


@dataclass(frozen=True)
class Depth:
    """How far `verify` can take a config. `why` says what it does not do, empty where it does all."""

    launch: bool
    values: bool
    why: str = ""


def depth_of(config: KernelConfig) -> Depth:
    """What can be asked of the kernel of `config` without knowing more of its arguments than its types say."""
    if config.op_class in ("sparse", "block_scaled_sparse"):
        return Depth(False, False, "not launched: a 2:4 sparse operand has to be compressed first")
    if config.op_class == "mixed_input" and config.scale is not None:
        return Depth(False, False, "not launched: the group scales of mixed input are not laid out here")
    if config.d == "void" and config.fusion != "finalize":
        return Depth(False, False, "not launched: the kernel has no output")
    if config.fusion == "block_scale_out" or _scaled(config.d):
        return Depth(True, False, "values not compared: the output has block scales of its own")
    if config.fusion != "finalize" and _bits(config.d) < 8:
        return Depth(True, False, "values not compared: the output is packed below a byte")
    return Depth(True, True)


def _scaled(name: str) -> bool:
    return name in ELEMENTS and ELEMENTS[name].scale is not None


def _bits(name: str) -> int:
    return ELEMENTS[name].bits if name in ELEMENTS else 0


def problems(config: KernelConfig) -> list[tuple[int, int, int]]:
    """M, N and K of the kernel's own problem, one a group: whole tiles, and half a tile in grouped kernels.

    `swap_ab` needs nothing: the kernel's M and N are meant, and the ragged extent is the one of the tokens.
    """
    m, n, k = config.tile
    rows, columns = 2 * m * config.cluster[0], n * config.cluster[1]
    if config.kind != "grouped":
        return [(rows, columns, K_TILES * k)]
    out: list[tuple[int, int, int]] = []
    for extent in (2, 4, 1):  # halves of a tile: one, two, and a ragged one
        if config.swap_ab:
            out.append((rows, max(16, columns * extent // 2), K_TILES * k))
        else:
            out.append((max(16, m * config.cluster[0] * extent // 2), columns, K_TILES * k))
    return out


def _literal(value: bool) -> str:
    return "true" if value else "false"


def runner_source(config: KernelConfig, types: KernelTypes, headers: frozenset[str]) -> str:
    """The translation unit of the program for one kernel."""
    depth = depth_of(config)
    scale = next((ELEMENTS[name].scale for name in (config.a, config.b) if ELEMENTS[name].scale), None)
    blockwise = _SCALE_CONFIG.search(types.mainloop)
    output = config.final_output if config.fusion == "finalize" else config.d
    first, second = (config.b, config.a) if config.swap_ab else (config.a, config.b)
    rows = ", ".join(f"{{{m}, {n}, {k}}}" for m, n, k in problems(config))
    activation = config.activation if config.fusion in ("activation", "per_row_bias_activation_aux") else None
    if config.fusion == "activation" and activation is None:
        activation = "silu"
    if config.fusion == "per_row_bias_activation_aux" and activation is None:
        activation = "relu"
    signed = not any(name.startswith("uint") for name in (config.a, config.b))
    return (
        preamble(types.needs_scatter, sorted(headers))
        + f"""
namespace tw {{
using E = {types.epilogue};
using M = {types.mainloop};
using K = {types.kernel};
struct NoConfig {{}};
using ScaleConfig = {blockwise[0] if blockwise else "NoConfig"};
constexpr bool kGrouped = {_literal(config.kind == "grouped")};
constexpr bool kFinalize = {_literal(config.fusion == "finalize")};
constexpr bool kSwap = {_literal(config.swap_ab)};
constexpr bool kHasC = {_literal(config.c != "void" and config.fusion != "finalize")};
constexpr bool kSignedOperands = {_literal(signed)};
constexpr bool kIntegerA = {_literal("int" in first)}, kIntegerB = {_literal("int" in second)};
constexpr bool kScaleIsFloat = {_literal(blockwise is not None)};
constexpr int kScaleOne = {_ONE.get(scale or "", 0)};
constexpr int kActivation = {_ACTIVATIONS[activation]};
constexpr int kPoison = {_POISON};
constexpr double kStep = 1.0 / {1 << _MANTISSA.get(output or "", 0)};
constexpr int kProblems[][3] = {{{rows}}};
}}  // namespace tw
#define TW_LAUNCH {int(depth.launch)}
#define TW_VALUES {int(depth.values)}
"""
        + files("tilewright.verify").joinpath("runner.inc").read_text("utf-8")
    )
