"""Whether a call's tensors fit the GPU, asked before the first is allocated."""

from __future__ import annotations

from typing import Any, Final

from tilewright.errors import InputError
from tilewright.kernels.layout import STEP_K, VALUES_A_SCALE

BF16_BYTES: Final = 2
ID_BYTES: Final = 4
"""An expert's number or a routed row's as the kernels take it, and a router weight: int32, float32."""
ASKED_FROM: Final = 1 << 30
"""Bytes from which the driver is asked what is free: smaller calls are not slowed by it, and fail as any allocation."""
MOST_ROWS: Final = 2**31 - 1
"""Routed rows of one call: the kernels count them in int32."""


def _padded(k: int) -> int:
    return -(-k // STEP_K) * STEP_K


def layer_bytes(
    rows: int, tokens: int, width: int, inter: int, *, row_by_row: bool, arranged: bool = False
) -> int:  # fmt: skip
    """Bytes that the expert layer allocates at most at one time.

    The middle [rows, inter], each row's part of the answer [rows, width] where rows are sorted, the answer
    [tokens, width], and what routing needs (expert, router weight, sorted row, its block's expert a row). `arranged`:
    K of the input is copied into another order and, as that of the middle, padded.
    """
    parts = 0 if row_by_row else rows * width
    copied = arranged_bytes(tokens, width) if arranged else 0
    middle = _padded(inter) if arranged else inter
    return BF16_BYTES * (rows * middle + parts + tokens * width) + copied + 4 * ID_BYTES * rows


def arranged_bytes(tokens: int, k: int) -> int:
    """Bytes of [tokens, k] activations in the order of K that the warpgroup-MMA kernel reads, padded."""
    return BF16_BYTES * tokens * _padded(k)


def gemm_bytes(rows: int, width: int) -> int:
    """Bytes that one grouped GEMM allocates at most: its answer [rows, width] and the routing."""
    return BF16_BYTES * rows * width + 4 * ID_BYTES * rows


def quantised_bytes(rows: int, k: int, activations: str) -> int:
    """Bytes of [rows, k] activations quantised to NVFP4 for a product (codes, block scales, a float32 a row), if so."""
    if activations != "nvfp4":
        return 0
    padded = _padded(k)
    return rows * (padded // 2 + padded // VALUES_A_SCALE + ID_BYTES)


def check_room(torch: Any, device: Any, rows: int, needed: int) -> None:
    """Refuse a call that the GPU cannot hold.

    Nothing is asked while a CUDA graph is captured: its memory is the graph's own.

    Raises:
        InputError: `rows` or `needed` bytes are too many; it says how much is free.
    """
    if rows > MOST_ROWS:
        raise InputError("topk_ids", f"{rows:,} routed rows are more than one call takes ({MOST_ROWS:,}).")
    if needed < ASKED_FROM or torch.cuda.is_current_stream_capturing():
        return
    # What torch holds and does not use is free too, if perhaps in pieces.
    unused = int(torch.cuda.memory_reserved(device)) - int(torch.cuda.memory_allocated(device))
    free = int(torch.cuda.mem_get_info(device)[0]) + unused
    if needed > free:
        raise InputError(
            "x",
            f"{rows:,} routed rows need {needed / 1e9:.1f} GB beside the weights and {free / 1e9:.1f} GB are free on "
            f"{device}; pass fewer tokens at a time.",
        )
