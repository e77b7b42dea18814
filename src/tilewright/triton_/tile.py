"""Shared memory of a fused-MoE tile in two numbers, for those who reason about tiles and not about one kernel."""

from __future__ import annotations

from typing import Final

from tilewright.triton_.kernels import features_of, operands_of
from tilewright.triton_.model import TritonConfig
from tilewright.triton_.shared import shared_memory

_KERNEL: Final = "sglang-fused-moe"
_WARPS: Final = 8
MAX_STAGES: Final = 32


def fused_moe_bytes(block_m: int, block_n: int, block_k: int, operand_bytes: int, stages: int, sm: int = 120) -> int:
    """Most shared memory in bytes of one block on architecture `sm`; tile extents in elements, `operand_bytes` of one
    element of A and B: 1 for FP8, 2 for BF16."""
    dtype = "fp8_w8a8" if operand_bytes == 1 else None
    config = TritonConfig(None, _KERNEL, None, "", dtype, block_m, block_n, block_k, 1, _WARPS, stages)
    return shared_memory(config, operands_of(config, features_of(_KERNEL, None)[0], sm), sm).most


def max_stages(block_m: int, block_n: int, block_k: int, operand_bytes: int, limit: int, sm: int = 120) -> int:
    """Most stages whose buffers fit in `limit` bytes; 0 where not even two stages do."""
    found = 0
    for stages in range(2, MAX_STAGES + 1):
        if fused_moe_bytes(block_m, block_n, block_k, operand_bytes, stages, sm) > limit:
            break
        found = stages
    return found
