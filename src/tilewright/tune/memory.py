"""What measuring a layer takes of the GPU's memory, told before anything starts. Bytes.

`bench` has a check of its own for what it allocates (`bench/problem.py`, memory_bytes): other copies of the weights,
and a reference in bf16 that tuning does not make.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tilewright.bench.timing import COLD_BYTES
from tilewright.errors import InputError
from tilewright.hardware.gpu import GIGA
from tilewright.kernels.layout import CHUNK_BYTES, GROUP_ROWS, STEP_K, TILE_GROUPS
from tilewright.kernels.room import MOST_ROWS
from tilewright.tune.layer import Layer, hit_experts
from tilewright.tune.moe_call import PARTS, extents
from tilewright.tune.space import FUSED_MOE

if TYPE_CHECKING:
    from tilewright.bench.device import Device

COLD_COPIES_OF: Final = 2
"""All copies together over what must lie between two uses of the same weights (`bench/timing.py`, COLD_BYTES)."""
MOST_COPIES: Final = 32
LEAST_TURNS: Final = 8
MOST_TURNS: Final = 32
"""Routings that calls go round over: at few tokens each hits other experts. As many as one graph has calls, at most
(`tune/clock.py`, MOST_CALLS)."""
MOST_HIT: Final = 0.9
"""Share of the experts beyond which another routing hits the same ones: copies of the weights make L2 cold then."""
KEPT_BYTES: Final = 4 << 30
"""Operands of other numbers of tokens that are kept beside those in use."""
CONTEXT_BYTES: Final = 1 << 30
"""CUDA's context, loaded kernels and torch's own: about half of it on an H200; the rest is room for pieces."""
BF16: Final = 2
FP32: Final = 4
INT64: Final = 8
"""Bytes of one number."""


def weight_bytes(layer: Layer) -> int:
    """Bytes of both GEMMs' weights, padded where our layout pads them (`kernels/layout.py`)."""
    if layer.dtype == "nvfp4":
        chunks = 0
        for part in PARTS:
            n, k = extents(layer, part)
            chunks += -(-n // (GROUP_ROWS * TILE_GROUPS)) * TILE_GROUPS * -(-k // STEP_K)
        return layer.experts * chunks * CHUNK_BYTES
    return round(3 * layer.experts * layer.hidden * layer.inter * layer.weight_bits / 8)


def copies_of(layer: Layer, free: int) -> int:
    """Copies of the weights, so that together they are far larger than L2 (`bench/timing.py`), in half of `free`."""
    each = weight_bytes(layer)
    return max(1, min(MOST_COPIES, -(-COLD_COPIES_OF * COLD_BYTES // each), free // 2 // each))


def turns_of(layer: Layer, tokens: int) -> int:
    """Different routings worth having, so that what calls read between two uses of the same weights is far larger than
    L2; two where every call hits every expert anyway."""
    hit = hit_experts(layer, tokens)
    if hit > MOST_HIT * layer.experts:
        return 2
    # The smaller of the two GEMMs is the one that L2 could hold.
    touched = hit * min(n * k for n, k in (extents(layer, part) for part in PARTS)) * layer.weight_bits / 8
    return max(LEAST_TURNS, min(MOST_TURNS, math.ceil(COLD_BYTES / touched)))


def case_bytes(layer: Layer, tokens: int) -> int:
    """Bytes of the operands and answers of one number of tokens, at their most while the right answer is made.

    Both GEMMs' inputs, outputs and right answers in bf16, one answer and its input in float32 on the way, and for each
    routing the experts, and the rows by expert for each BLOCK_SIZE_M.
    """
    rows = tokens * layer.topk
    total = transient = 0
    for part in PARTS:
        n, k = extents(layer, part)
        inputs = (tokens if part == "up" else rows) * k
        total += BF16 * (inputs + 2 * rows * n)
        # The product in float32 beside its input, the matrix of one expert, and the answer's bf16 made of it; NaNs are
        # looked for in a copy of one byte a value.
        transient = max(transient, (FP32 + BF16 + 1) * rows * n + FP32 * (inputs + n * k))
    routes = len(FUSED_MOE["BLOCK_SIZE_M"]) * (rows + layer.experts * max(FUSED_MOE["BLOCK_SIZE_M"]))
    return total + transient + turns_of(layer, tokens) * FP32 * (routes + rows) + 4 * INT64 * rows


def needed_bytes(layer: Layer, tokens: Sequence[int], free: int) -> int:
    """Bytes that a run takes at its most: the weights in all copies, the operands in use and those kept beside them."""
    cases = [case_bytes(layer, count) for count in tokens]
    kept = min(sum(cases), KEPT_BYTES)
    return CONTEXT_BYTES + weight_bytes(layer) * copies_of(layer, free) + max(*cases, kept)


def most_tokens(layer: Layer, free: int) -> int:
    """Largest number of tokens that fits in `free` bytes; 0 where the weights alone do not."""
    low, high = 0, MOST_ROWS // layer.topk
    while low < high:
        middle = (low + high + 1) // 2
        if needed_bytes(layer, [middle], free) <= free:
            low = middle
        else:
            high = middle - 1
    return low


def check_memory(layer: Layer, tokens: Sequence[int], devices: Sequence[Device]) -> None:
    """Refuse a layer that the memory that is free on one of `devices` cannot hold at the largest of `tokens`.

    Raises:
        InputError: it says what is needed, what is free, and what fits.
    """
    most = max(tokens)
    if most * layer.topk > MOST_ROWS:
        msg = (
            f"--tokens {most:,} times {layer.topk:,} experts each are more rows than one call takes ({MOST_ROWS:,}); "
            f"up to {MOST_ROWS // layer.topk:,} tokens are possible."
        )
        raise InputError("tokens", msg)
    told = [(device.free_bytes, device) for device in devices if device.free_bytes is not None]
    for free, device in sorted(told, key=lambda pair: pair[0]):  # the tightest says what fits on all
        if needed_bytes(layer, tokens, free) <= free:
            continue
        label = f"{device.name} (GPU {device.index})"
        fits = most_tokens(layer, free)
        if fits:
            msg = (
                f"--tokens {most:,} needs {needed_bytes(layer, tokens, free) / GIGA:,.1f} GB of GPU memory with "
                f"{weight_bytes(layer) / GIGA:,.1f} GB of weights, and {label} has {free / GIGA:,.1f} GB free: up to "
                f"{fits:,} tokens fit."
            )
            raise InputError("tokens", msg)
        each = weight_bytes(layer) // layer.experts
        room = max(0, free - needed_bytes(layer, [1], free) + weight_bytes(layer)) // each
        fitting = f"about {room:,} experts fit, or a higher --tp or --ep" if room else "not one expert fits"
        msg = (
            f"--experts {layer.experts:,} of {layer.hidden:,} x {layer.inter:,} are {weight_bytes(layer) / GIGA:,.1f} "
            f"GB of weights, and {label} has {free / GIGA:,.1f} GB free: {fitting}."
        )
        raise InputError("experts", msg)
