"""Tilewright's own Triton fused-MoE GEMM, with the meta-parameters that vLLM's and SGLang's kernel is tuned by.

It is not theirs: it was written for tuning where neither engine is installed, takes its arguments by the names that
their launchers use (so that one binder serves all three), and cuts the work the same way: one program a tile of
BLOCK_SIZE_M routed rows of one expert by BLOCK_SIZE_N columns, BLOCK_SIZE_K at a time, programs in groups of
GROUP_SIZE_M row blocks. Imported, or read as text, only where Triton is installed.
"""

# Triton reads the source of this function and its names are not Python's: nothing here can be typed.
# ruff: noqa: N803 - the names are those of the engines' launchers
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def fused_moe_kernel(
    a_ptr, b_ptr, c_ptr, a_scale_ptr, b_scale_ptr, topk_weights_ptr,
    sorted_token_ids_ptr, expert_ids_ptr, num_tokens_post_padded_ptr,
    N, K, EM, num_valid_tokens, top_k,
    stride_am, stride_ak, stride_be, stride_bk, stride_bn, stride_cm, stride_cn,
    stride_asm, stride_ask, stride_bse, stride_bsk, stride_bsn,
    group_n: tl.constexpr, group_k: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr, BLOCK_SIZE_N: tl.constexpr, BLOCK_SIZE_K: tl.constexpr, GROUP_SIZE_M,
    MUL_ROUTED_WEIGHT: tl.constexpr, use_fp8_w8a8: tl.constexpr, even_Ks: tl.constexpr,
):  # fmt: skip
    """c[row] = (topk_weight[row] *) a[row // top_k] @ b[expert of row]^T for the routed rows of one block of
    `sorted_token_ids`; rows at and above `num_valid_tokens` are padding. FP8: scales a tensor and expert (group_n 0),
    or by blocks of group_n x group_k of the weights and runs of group_k of the activations."""
    program = tl.program_id(0)
    blocks_m = tl.cdiv(EM, BLOCK_SIZE_M)
    blocks_n = tl.cdiv(N, BLOCK_SIZE_N)
    # GROUP_SIZE_M row blocks share each column block while it is in L2.
    group = program // (GROUP_SIZE_M * blocks_n)
    height = tl.minimum(blocks_m - group * GROUP_SIZE_M, GROUP_SIZE_M)
    inside = program % (GROUP_SIZE_M * blocks_n)
    block_m = group * GROUP_SIZE_M + inside % height
    block_n = inside // height
    if block_m * BLOCK_SIZE_M >= tl.load(num_tokens_post_padded_ptr):
        return
    row = tl.load(sorted_token_ids_ptr + block_m * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M)).to(tl.int64)
    real = row < num_valid_tokens
    expert = tl.load(expert_ids_ptr + block_m).to(tl.int64)
    # Columns past the end wrap around: no mask in the loop, and nothing of them is stored.
    column = ((block_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)) % N).to(tl.int64)
    inner = tl.arange(0, BLOCK_SIZE_K)
    token = row // top_k
    a_at = a_ptr + token[:, None] * stride_am + inner[None, :] * stride_ak
    b_at = b_ptr + expert * stride_be + inner[:, None] * stride_bk + column[None, :] * stride_bn
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    if use_fp8_w8a8 and group_n > 0:
        a_scale_at = a_scale_ptr + token * stride_asm
        b_scale_at = b_scale_ptr + expert * stride_bse + (column // group_n) * stride_bsn
    for step in range(tl.cdiv(K, BLOCK_SIZE_K)):
        if even_Ks:
            a = tl.load(a_at, mask=real[:, None], other=0.0)
            b = tl.load(b_at)
        else:
            left = K - step * BLOCK_SIZE_K
            a = tl.load(a_at, mask=real[:, None] & (inner[None, :] < left), other=0.0)
            b = tl.load(b_at, mask=inner[:, None] < left, other=0.0)
        if use_fp8_w8a8 and group_n > 0:
            at = step * BLOCK_SIZE_K // group_k
            a_scale = tl.load(a_scale_at + at * stride_ask, mask=real, other=0.0)
            b_scale = tl.load(b_scale_at + at * stride_bsk)
            total += tl.dot(a, b) * a_scale[:, None] * b_scale[None, :]
        else:
            total = tl.dot(a, b, acc=total)
        a_at += BLOCK_SIZE_K * stride_ak
        b_at += BLOCK_SIZE_K * stride_bk
    if use_fp8_w8a8 and group_n == 0:
        total *= tl.load(a_scale_ptr) * tl.load(b_scale_ptr + expert)
    if MUL_ROUTED_WEIGHT:
        total *= tl.load(topk_weights_ptr + row, mask=real, other=0.0)[:, None]
    out_column = block_n * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    c_at = c_ptr + row[:, None] * stride_cm + out_column[None, :] * stride_cn
    tl.store(c_at, total.to(c_ptr.dtype.element_ty), mask=real[:, None] & (out_column[None, :] < N))
