"""The Triton kernels of the backend `triton`. Imported where Triton is installed, and only when they run."""

# Triton reads the source of these functions and its names are not Python's: nothing here can be typed.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def gemm_kernel(
    x, w, out, m, n, k, scale,
    block_m: tl.constexpr, block_n: tl.constexpr, block_k: tl.constexpr, group: tl.constexpr, whole_k: tl.constexpr,
):  # fmt: skip
    """out[m, n] = scale * x[m, k] @ w[n, k]^T, FP32 sums. Programs go down `group` row tiles before the next column of
    tiles, so that those that run together share operands in L2."""
    program = tl.program_id(0)
    tiles_m = tl.cdiv(m, block_m)
    tiles_n = tl.cdiv(n, block_n)
    in_group = group * tiles_n
    first = program // in_group * group
    height = tl.minimum(tiles_m - first, group)
    rows = (first + program % in_group % height) * block_m + tl.arange(0, block_m)
    columns = (program % in_group // height) * block_n + tl.arange(0, block_n)
    inner = tl.arange(0, block_k)
    # Rows past the end read the last row: no mask in the loop, and nothing of them is stored.
    x_at = x + tl.minimum(rows, m - 1).to(tl.int64)[:, None] * k + inner[None, :]
    w_at = w + tl.minimum(columns, n - 1).to(tl.int64)[None, :] * k + inner[:, None]
    total = tl.zeros((block_m, block_n), dtype=tl.float32)
    for at in range(0, k, block_k):
        if whole_k:
            a = tl.load(x_at)
            b = tl.load(w_at)
        else:
            a = tl.load(x_at, mask=inner[None, :] < k - at, other=0.0)
            b = tl.load(w_at, mask=inner[:, None] < k - at, other=0.0)
        total = tl.dot(a, b, total)
        x_at += block_k
        w_at += block_k
    out_at = out + rows.to(tl.int64)[:, None] * n + columns[None, :]
    tl.store(out_at, (total * scale).to(tl.bfloat16), mask=(rows < m)[:, None] & (columns < n)[None, :])


@triton.jit
def copy_kernel(source, target, count, block: tl.constexpr):
    """target[i] = source[i] for i < count."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    tl.store(target + at, tl.load(source + at, mask=at < count), mask=at < count)


@triton.jit
def read_kernel(source, sums, count, block: tl.constexpr):
    """sums[program] = sum of the int32 that the program read; together they read each of `count` once."""
    step = tl.num_programs(0).to(tl.int64) * block
    total = tl.zeros((block,), dtype=tl.int32)
    for first in range(tl.program_id(0).to(tl.int64) * block, count, step):
        at = first + tl.arange(0, block)
        total += tl.load(source + at, mask=at < count, other=0)
    tl.store(sums + tl.program_id(0), tl.sum(total))
