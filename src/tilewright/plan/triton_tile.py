"""Shared memory of the Triton fused-MoE kernels of vLLM and SGLang, for FP8 and wider operands.

`num_stages` buffers are pipelined with one of them in registers, so (stages - 1) x (BM + BN) x BK x bytes: what the
reports of `OutOfResources: shared memory, Required: ...` show for 128x256x128 (147,456 with 4 stages, cases C06 to
C08). The exact model of these kernels is a later step of this project; this serves the plan's arithmetic.
"""

from __future__ import annotations


def fused_moe_bytes(block_m: int, block_n: int, block_k: int, operand_bytes: int, stages: int) -> int:
    """Shared memory in bytes of one block; tile extents in elements, `operand_bytes` of one element of A and B."""
    return max(stages - 1, 1) * (block_m + block_n) * block_k * operand_bytes


def max_stages(block_m: int, block_n: int, block_k: int, operand_bytes: int, limit: int) -> int:
    """Most stages whose buffers fit in `limit` bytes; 0 where not even one buffer fits."""
    one = fused_moe_bytes(block_m, block_n, block_k, operand_bytes, 2)
    return limit // one + 1 if one <= limit else 0
