"""Which tile the Triton kernels run with: a small table over routed rows an expert."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tilewright.errors import InputError
from tilewright.kernels.layout import STEP_K

Activations = Literal["bf16", "nvfp4"]
"""How activations meet the weights: as they are (W4A16), or quantised to NVFP4 first (W4A4)."""


@dataclass(frozen=True, slots=True)
class Tile:
    """`block_n` weight rows, `block_m` routed rows, `block_k` values of K a turn of the loop (a multiple of 128: scales
    lie in steps of that). `weights_left`: which operand decoded weights are (W4A16 only)."""

    block_n: int
    block_m: int
    block_k: int
    warps: int
    stages: int
    weights_left: bool = False


def tile_of(rows: int, experts: int, activations: Activations) -> Tile:
    """The tile for `rows` routed rows over `experts` experts, by the rows that an expert gets on average.

    W4A16: the best of 6 to 9 tiles on an H200, before rows that fill up a block were left unread (docs/notes/bench.md).
    W4A4: not run anywhere; what shared memory and registers leave on SM120.
    """
    average = rows / max(1, min(rows, experts))
    if activations == "nvfp4":
        if average <= 16:
            return Tile(128, 16, 256, 4, 4)
        if average <= 64:
            return Tile(128, 32, 256, 4, 3)
        return Tile(128, 64, 256, 8, 3)
    if average <= 16:
        return Tile(128, 16, 128, 8, 4)
    if average <= 256:
        return Tile(128, 32, 128, 8, 3)
    return Tile(128, 64, 128, 8, 3, weights_left=True)


def for_steps(tile: Tile, steps: int) -> Tile:
    """`tile` for weights of so many 128-value steps: with one step a turn where its turns do not divide them.

    Raises:
        InputError: its `block_k` is no multiple of 128.
    """
    if tile.block_k < STEP_K or tile.block_k % STEP_K:
        raise InputError("tile", f"block_k of a tile is a multiple of {STEP_K}, not {tile.block_k}.")
    return tile if steps % (tile.block_k // STEP_K) == 0 else replace(tile, block_k=STEP_K)
