"""Shared memory of the Triton kernels of vLLM and SGLang, as Triton lays it out.

What is in it, by the instruction that multiplies (all of it held against compiled kernels, tests/data/triton_rows):

- Operand tiles. The software pipeliner keeps one buffer less than `num_stages` with `mma` (the last tile is read into
  registers) and all `num_stages` with `wgmma` and `tcgen05`, which read shared memory themselves and asynchronously
  (triton/lib/Dialect/TritonGPU/Transforms/Pipeliner). One stage keeps one buffer.
- A load that gives a thread fewer than 4 bytes cannot be a `cp.async`; its tile is stored once, after the load.
- Weights that are converted before the product (int8 or int4 to BF16) keep `num_stages - 1` buffers as they are
  loaded, and one converted tile where the instruction reads shared memory or the conversion crosses threads.
- Block scales that must change threads pass through shared memory while the operand buffers live: 4 bytes a row or
  column.
- Barriers of `tcgen05`: two of 8 bytes; one without pipelining.
- The epilogue may reorder the output tile through shared memory once the operand buffers are free. How much it takes
  depends on layouts that no closed form gives, so that where the buffers are smaller than the output tile the answer
  is a bound.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.triton_.model import Instruction, Operands, TritonConfig

WARP: Final = 32
ASYNC_BYTES: Final = 4
"""Least bytes a thread of a `cp.async` (PTX ISA, cp.async: 4, 8 or 16)."""
BARRIER_BYTES: Final = 8
"""One mbarrier (PTX ISA, mbarrier: 64 bits)."""
SCALE_BYTES: Final = 4
"""One scale factor in FP32, as both engines keep block scales."""
_BYTES: Final = {"bf16": 2, "fp16": 2, "fp8e4nv": 1, "i8": 1, "u8": 1}
WRITTEN_AS_HELD: Final = 32
"""Elements of the output a thread from which on `mma` tiles whose buffers have half the output's bytes leave no trace
of an exchange: so in every compiled row, without a proof."""
PADDED: Final = 16
"""Least extent of a tile that no instruction pads."""
WGMMA_ROWS: Final = 64
"""Rows of one warp group's `wgmma` (PTX ISA, wgmma.mma_async: m64)."""
TCGEN05_WARPS: Final = (4, 8)
"""Warps with which Triton reads tensor memory (triton/lib/Dialect/TritonNvidiaGPU, getTmemCompatibleLayout)."""


@dataclass(frozen=True)
class SharedMemory:
    """Bytes of one block: between `least` and `most`, which are equal where the formula is exact."""

    instruction: Instruction
    least: int
    most: int
    parts: tuple[tuple[str, int], ...]


def instruction(config: TritonConfig, operands: Operands, sm: int) -> Instruction:
    """What Triton multiplies this tile with on architecture `sm` (90, 100, 120)."""
    rows = config.block_n if operands.swap_ab else config.block_m
    if sm == 90 and rows >= WGMMA_ROWS and config.num_warps % 4 == 0:
        return "wgmma"
    # There is no integer tcgen05.mma in Triton: int8 goes to mma.sync.
    if sm in (100, 103) and rows >= WGMMA_ROWS and config.num_warps in TCGEN05_WARPS and operands.a != "i8":
        return "tcgen05"
    return "mma"


def shared_memory(config: TritonConfig, operands: Operands, sm: int) -> SharedMemory:
    """Shared memory of one block in bytes."""
    kind = instruction(config, operands, sm)
    threads = config.num_warps * WARP
    stages, k = config.num_stages, operands.block_k
    a_tile = config.block_m * k * _BYTES[operands.a]
    b_tile = config.block_n * k * _BYTES[operands.b]
    b_wide = config.block_n * k * _BYTES[operands.a]
    piped = stages > 1
    own = max(1, stages - (1 if kind == "mma" else 0)) if piped else 1
    parts: list[tuple[str, int]] = []
    slack = 0

    def buffers(tile: int, copies: int) -> int:
        return copies if tile >= ASYNC_BYTES * threads else 1

    parts.append(("A", buffers(a_tile, own) * a_tile))
    if config.dtype == "int4_w4a16":
        # The packed nibbles are read twice (offs_k // 2), too narrow to be copied: only the converted tile is kept.
        parts.append(("B, converted", b_wide))
        if kind == "tcgen05" and piped:
            slack += b_tile // 2
    elif operands.a in ("bf16", "fp16") and operands.b in ("i8", "u8"):
        loaded = stages - 1 if piped else 0
        converted = operands.weight_only_groups or kind != "mma"
        if loaded and (b_tile >= ASYNC_BYTES * threads or not converted):
            parts.append(("B, as loaded", buffers(b_tile, loaded) * b_tile))
        if converted:
            parts.append(("B, converted", b_wide))
        elif not loaded:
            parts.append(("B", b_tile))
    elif operands.b_descriptor:
        # Bulk copies by descriptor have no least width; each buffer has a barrier of its own.
        parts.append(("B", own * b_tile))
        parts.append(("barriers of B", own * BARRIER_BYTES))
    else:
        parts.append(("B", buffers(b_tile, own) * b_tile))
    if kind == "tcgen05" and not piped and operands.weight_only_groups:
        slack += b_wide
    if kind == "tcgen05" and config.dtype == "int4_w4a16":
        slack += b_wide
    if config.zero_points and kind != "mma" and config.block_n <= PADDED:
        # Zero points of narrow tiles are turned to the layout of the weights through a tile of their own.
        slack += b_wide
    if min(config.block_m, config.block_n) < PADDED and kind != "mma":
        # Smaller tiles are padded to what the instruction takes, where it does not take them as they are.
        wide_m, wide_n = max(config.block_m, PADDED), max(config.block_n, PADDED)
        slack += own * k * (wide_m * _BYTES[operands.a] + wide_n * _BYTES[operands.b]) - own * (a_tile + b_tile)
    operand_bytes = sum(size for _, size in parts)
    scales = _scales(config, operands, kind, threads) if piped else 0
    if scales:
        parts.append(("scales in exchange", scales))
    if config.tma:
        slack += 2 * own * BARRIER_BYTES  # both operands by descriptor, a barrier for each buffer
    if operands.b_descriptor and scales % BARRIER_BYTES:
        slack += 2 * BARRIER_BYTES  # what comes after a 4-byte scale is aligned again
    if kind == "tcgen05":
        parts.append(("barriers", (2 if piped else 1) * BARRIER_BYTES))
    total = sum(size for _, size in parts)
    output = config.block_m * config.block_n * 2
    narrow_b = buffers(b_tile, own) != own and not operands.b_descriptor
    tight = piped and buffers(a_tile, own) == own and not narrow_b
    # Warps of mma.sync write what they hold, unless a thread has so little of it that stores would be narrow.
    held = config.block_m * config.block_n >= WRITTEN_AS_HELD * threads
    if kind == "mma" and tight and held and operands.a == operands.b and 2 * total >= output:
        output = 0
    most = max(total + slack, output + (2 * BARRIER_BYTES if kind == "tcgen05" else 0))
    least = total
    if not tight or not piped:
        # Where no operand is pipelined they may share one place, or that of the scales' exchange, or be read into
        # registers.
        none_piped = not piped or (buffers(a_tile, own) != own and narrow_b)
        least = min(total, max(size for _, size in parts)) if none_piped else operand_bytes
    if kind == "tcgen05" and config.block_n <= PADDED:
        least = min(least, total - scales)  # so narrow a tile may be scaled after the exchange of another
    return SharedMemory(kind, least, most, tuple(parts))


def _scales(config: TritonConfig, operands: Operands, kind: Instruction, threads: int) -> int:
    """Bytes through which block scales change threads inside the loop; 0 where every thread has its own."""
    if not config.block_shape or not config.block_shape[0] or not operands.a_scales:
        return 0
    linear = config.kernel.endswith("fp8-linear")
    columns = linear or not operands.scalar_columns or config.block_n > config.block_shape[0]
    rows_bytes, columns_bytes = SCALE_BYTES * config.block_m, SCALE_BYTES * config.block_n
    if kind == "tcgen05":
        # A thread holds one row of tensor memory and all its columns; four warps hold 128 rows.
        rows = rows_bytes if config.block_m > threads else 0
        if columns:
            return rows + columns_bytes
        return rows + (SCALE_BYTES if config.kernel.startswith("vllm") else 0)
    # Scales are loaded one a thread; where that fills the block, no warp has those of another.
    rows = rows_bytes if config.block_m >= threads else 0
    return max(rows, columns_bytes if columns and config.block_n >= threads else 0)
