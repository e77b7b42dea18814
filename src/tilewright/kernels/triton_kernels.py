"""The Triton kernels: an NVFP4 grouped GEMM in two kinds (W4A16 decoded in registers, W4A4 by `tl.dot_scaled`), and the
small ones around it. Imported where Triton is installed, and only when they run or are compiled.

Block-scaled MMAs take the weights as the left operand: their many rows fill the tensor cores' tall side and the few
tokens its short one.
"""

# Triton reads the source of these functions and its names are not Python's: nothing here can be typed.
# pyright: basic, reportMissingImports=false
from __future__ import annotations

import triton
import triton.language as tl

# Decoded codes are 2^-126 times what they mean, scales 2^119 times: bf16 holds both, and the product is 2^-7 too small.
_SCALE_UP = tl.constexpr(2.0**119)
_CODE_UP = tl.constexpr(2.0**126)
_REST = tl.constexpr(128.0)
_E2M1_MOST = tl.constexpr(6.0)
_E4M3_MOST = tl.constexpr(448.0)
_LEAST_NORMAL = tl.constexpr(1.1754943508222875e-38)


@triton.jit
def bf16_of(nibble):
    """The e2m1 codes in the low four bits of int16, as bf16 times 2^-126: exponent and mantissa lie where bf16 has its
    own lowest ones, so that code 1 (0.5) is a subnormal and needs no case of its own."""
    bits = ((nibble & 8) << 12) | ((nibble & 7) << 6)
    return bits.to(tl.int16).to(tl.bfloat16, bitcast=True)


@triton.jit
def _unpacked(packed):
    """(low nibbles, high nibbles) of uint8 as bf16 times 2^-126: `bf16_of` for four bytes at a time, in PTX. Triton's
    own code for it takes 16-bit arithmetic and about three times the instructions."""
    return tl.inline_asm_elementwise(
        asm="""
        {
        .reg .b32 pair, a, b;
        prmt.b32 pair, $4, 0, 0x4140;
        shl.b32 a, pair, 6;
        shl.b32 b, pair, 12;
        and.b32 b, b, 0x80008000;
        lop3.b32 $0, a, 0x01C001C0, b, 0xEA;
        shl.b32 a, pair, 2;
        shl.b32 b, pair, 8;
        and.b32 b, b, 0x80008000;
        lop3.b32 $2, a, 0x01C001C0, b, 0xEA;
        prmt.b32 pair, $4, 0, 0x4342;
        shl.b32 a, pair, 6;
        shl.b32 b, pair, 12;
        and.b32 b, b, 0x80008000;
        lop3.b32 $1, a, 0x01C001C0, b, 0xEA;
        shl.b32 a, pair, 2;
        shl.b32 b, pair, 8;
        and.b32 b, b, 0x80008000;
        lop3.b32 $3, a, 0x01C001C0, b, 0xEA;
        }
        """,
        constraints="=&r,=&r,=&r,=&r,r",
        args=[packed],
        dtype=(tl.bfloat16, tl.bfloat16),
        is_pure=True,
        pack=4,
    )


@triton.jit
def _widened(value):
    """bf16 as float32 by its bits (the interpreter's own conversion loses subnormals)."""
    return (value.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)


@triton.jit
def _finish(
    acc, factor0, factor1, router, ids, columns_at, out, rows, n,
    gated: tl.constexpr, weighted: tl.constexpr, block_n: tl.constexpr, block_m: tl.constexpr,
):  # fmt: skip
    """Sums [block_m, block_n] to bf16 rows of `out`: with `gated`, gate and up are neighbouring columns of the tile."""
    real = ids < rows
    if gated:
        gate, up = tl.split(tl.reshape(acc, (block_m, block_n // 2, 2)))
        gate = gate * factor0
        value = gate / (1.0 + tl.exp(-gate)) * (up * factor1)
        columns = columns_at // 2 + tl.arange(0, block_n // 2)
        width = n // 2
    else:
        value = acc * factor0
        columns = columns_at + tl.arange(0, block_n)
        width = n
    if weighted:
        value = value * tl.load(router + ids, mask=real, other=0.0)[:, None]
    at = out + ids.to(tl.int64)[:, None] * width + columns[None, :]
    tl.store(at, value.to(tl.bfloat16), mask=real[:, None] & (columns < width)[None, :])


@triton.jit
def _place(tile, block, ids_of, expert_of, rows, topk, n, block_n: tl.constexpr, block_m: tl.constexpr):
    """Of a tile: its expert, its routed rows, which of them are real (a block may not be full), their tokens, and its
    rows of the matrix (past the last one, the last one again)."""
    expert = tl.load(expert_of + block).to(tl.int64)
    ids = tl.load(ids_of + block * block_m + tl.arange(0, block_m))
    real = ids < rows
    token = tl.where(real, ids // topk, 0).to(tl.int64)
    row = tl.minimum(tile * block_n + tl.arange(0, block_n), n - 1)
    return expert, ids, real, token, row


@triton.jit
def w4a16_kernel(
    x, codes, scales, factors, ids_of, expert_of, block_count, router, out,
    x_stride, rows, topk, n, k, steps, tiles,
    gated: tl.constexpr, weighted: tl.constexpr, whole_k: tl.constexpr, wide: tl.constexpr, weights_left: tl.constexpr,
    block_n: tl.constexpr, block_m: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """out[row] = x[row // topk] @ weights[expert of row]^T: bf16 activations, e2m1 weights decoded in registers.

    A byte holds values j and j + 8 of its 16: the low nibbles are one product with the first eight of each 16
    activations, the high nibbles another with the last eight, and both need the same scale. `weights_left` makes the
    weights the left operand, which wgmma takes from registers; else they are the right one. `wide` multiplies in FP32,
    for Triton's interpreter, which has no bf16 arithmetic; the decoded values are the same.
    """
    tile = tl.program_id(0) % tiles
    block = tl.program_id(0) // tiles
    if block >= tl.load(block_count):
        return
    expert, ids, real, token, row = _place(
        tile, block, ids_of, expert_of, rows, topk, n, block_n=block_n, block_m=block_m
    )
    byte = tl.arange(0, block_k // 2)
    low_k = byte // 8 * 16 + byte % 8
    # Scales of one 128-value step lie together: [experts, steps, n, 8].
    group = tl.arange(0, block_k // 16)
    w = codes + expert * n * (steps * 64)
    s = scales + expert * n * (steps * 8)
    in_step = (group // 8) * (n * 8) + group % 8
    if weights_left:
        w_at = w + row.to(tl.int64)[:, None] * (steps * 64) + byte[None, :]
        s_at = s + row[:, None] * 8 + in_step[None, :]
        x_at = x + token[None, :] * x_stride + low_k[:, None]
        acc = tl.zeros((block_n, block_m), dtype=tl.float32)
    else:
        w_at = w + row.to(tl.int64)[None, :] * (steps * 64) + byte[:, None]
        s_at = s + row[None, :] * 8 + in_step[:, None]
        x_at = x + token[:, None] * x_stride + low_k[None, :]
        acc = tl.zeros((block_m, block_n), dtype=tl.float32)
    for first in range(0, k, block_k):
        packed = tl.load(w_at)
        scale = (tl.load(s_at).to(tl.float32) * _SCALE_UP).to(tl.bfloat16)
        if weights_left:
            scale = tl.broadcast_to(scale[:, :, None], (block_n, block_k // 16, 8))
            scale = tl.reshape(scale, (block_n, block_k // 2))
        else:
            scale = tl.broadcast_to(scale[:, None, :], (block_k // 16, 8, block_n))
            scale = tl.reshape(scale, (block_k // 2, block_n))
        # Rows that fill up a block are not read. Read as row 0, they made every thread block of the GPU read the same
        # few lines of L2. K is a multiple of 16: the first eight of a 16 are inside when its last eight are.
        inside = real[None, :] if weights_left else real[:, None]
        if not whole_k:
            inside = inside & ((low_k < k - first)[:, None] if weights_left else (low_k < k - first)[None, :])
        x_low = tl.load(x_at, mask=inside, other=0.0)
        x_high = tl.load(x_at + 8, mask=inside, other=0.0)
        if wide:
            scale = scale.to(tl.float32)
            nibbles = packed.to(tl.int16)
            low, high = _widened(bf16_of(nibbles)) * scale, _widened(bf16_of(nibbles >> 4)) * scale
            x_low, x_high = x_low.to(tl.float32), x_high.to(tl.float32)
        else:
            low, high = _unpacked(packed)
            low, high = low * scale, high * scale
        if weights_left:
            acc = tl.dot(low, x_low, acc)
            acc = tl.dot(high, x_high, acc)
        else:
            acc = tl.dot(x_low, low, acc)
            acc = tl.dot(x_high, high, acc)
        w_at += block_k // 2
        s_at += (block_k // 128) * (n * 8)
        x_at += block_k
    if weights_left:
        acc = tl.trans(acc)
    factor0 = tl.load(factors + expert * 2) * _REST
    factor1 = tl.load(factors + expert * 2 + 1) * _REST
    _finish(acc, factor0, factor1, router, ids, tile * block_n, out, rows, n, gated, weighted, block_n, block_m)


@triton.jit
def _decoded(packed, scale, rows: tl.constexpr, block_k: tl.constexpr):
    """Packed codes [rows, block_k / 2] and their scales as two float32 tiles, low nibbles and high."""
    scale = tl.broadcast_to(scale.to(tl.float32)[:, :, None], (rows, block_k // 16, 8))
    scale = tl.reshape(scale, (rows, block_k // 2))
    codes = packed.to(tl.int16)
    return _widened(bf16_of(codes)) * _CODE_UP * scale, _widened(bf16_of(codes >> 4)) * _CODE_UP * scale


@triton.jit
def w4a4_kernel(
    x, x_scales, x_factors, codes, scales, factors, ids_of, expert_of, block_count, router, out,
    rows, topk, n, steps, tiles,
    gated: tl.constexpr, weighted: tl.constexpr, wide: tl.constexpr, ahead: tl.constexpr,
    block_n: tl.constexpr, block_m: tl.constexpr, block_k: tl.constexpr,
):  # fmt: skip
    """As `w4a16_kernel`, with activations in NVFP4 as well: one block-scaled MMA of the hardware a tile.

    `x` uint8 [tokens, steps * 64], `x_scales` e4m3 [tokens, steps * 8], `x_factors` float32 [tokens]: `quantise_kernel`
    made them. Within 16 values both operands hold them in the same order, which the product does not see. `wide`
    decodes both and multiplies in FP32: Triton's interpreter takes every scale of `tl.dot_scaled` for ue8m0. `ahead`
    fetches the activations' scales, too few for an asynchronous copy, a turn early by hand; for tcgen05 (SM100) Triton
    takes them only straight from memory.
    """
    tile = tl.program_id(0) % tiles
    block = tl.program_id(0) // tiles
    if block >= tl.load(block_count):
        return
    expert, ids, real, token, row = _place(
        tile, block, ids_of, expert_of, rows, topk, n, block_n=block_n, block_m=block_m
    )
    byte = tl.arange(0, block_k // 2)
    group = tl.arange(0, block_k // 16)
    w_at = codes + expert * n * (steps * 64) + row.to(tl.int64)[:, None] * (steps * 64) + byte[None, :]
    s_at = scales + expert * n * (steps * 8) + (group // 8)[None, :] * (n * 8) + row[:, None] * 8 + (group % 8)[None, :]
    x_at = x + token[None, :] * (steps * 64) + byte[:, None]
    xs_at = x_scales + token[:, None] * (steps * 8) + group[None, :]
    acc = tl.zeros((block_n, block_m), dtype=tl.float32)
    xs = tl.load(xs_at, mask=real[:, None], other=0.0)
    for at in range(0, steps * 128, block_k):
        if ahead:
            inside = real[:, None] & (group[None, :] * 16 < steps * 128 - at - block_k)
            following = tl.load(xs_at + block_k // 16, mask=inside, other=0.0)
        else:
            xs = tl.load(xs_at, mask=real[:, None], other=0.0)
        w, ws, a = tl.load(w_at), tl.load(s_at), tl.load(x_at, mask=real[None, :], other=0)
        if wide:
            w_low, w_high = _decoded(w, ws, block_n, block_k)
            x_low, x_high = _decoded(tl.trans(a), xs, block_m, block_k)
            acc = tl.dot(w_low, tl.trans(x_low), acc)
            acc = tl.dot(w_high, tl.trans(x_high), acc)
        else:
            acc = tl.dot_scaled(w, ws, "e2m1", a, xs, "e2m1", acc)
        w_at += block_k // 2
        s_at += (block_k // 128) * (n * 8)
        x_at += block_k // 2
        xs_at += block_k // 16
        if ahead:
            xs = following
    factor0 = tl.load(factors + expert * 2)
    factor1 = tl.load(factors + expert * 2 + 1)
    acc = tl.trans(acc) * tl.load(x_factors + token)[:, None]
    _finish(acc, factor0, factor1, router, ids, tile * block_n, out, rows, n, gated, weighted, block_n, block_m)


@triton.jit
def e2m1_of(value):
    """The code of float32, to nearest and ties to even: how many of the eight magnitudes lie below it."""
    size = tl.abs(value)
    code = (size > 0.25).to(tl.int32) + (size >= 0.75).to(tl.int32) + (size > 1.25).to(tl.int32)
    code += (size >= 1.75).to(tl.int32) + (size > 2.5).to(tl.int32) + (size >= 3.5).to(tl.int32)
    code += (size > 5.0).to(tl.int32)
    return code | ((value < 0).to(tl.int32) << 3)


@triton.jit
def quantise_kernel(x, codes, scales, factors, x_stride, k, steps, groups: tl.constexpr):
    """NVFP4 of one row of bf16: a factor for the row, an e4m3 scale for 16 values, e2m1 codes; zeros up to the next
    whole step. A row that holds NaN or infinity gets a factor that is none, and so do its products."""
    row = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, groups)
    inside = tl.arange(0, 8)
    at = group[:, None] * 16 + inside[None, :]
    low = tl.load(x + row * x_stride + at, mask=at < k, other=0.0).to(tl.float32)
    high = tl.load(x + row * x_stride + at + 8, mask=at + 8 < k, other=0.0).to(tl.float32)
    most = tl.maximum(tl.max(tl.abs(low), axis=1), tl.max(tl.abs(high), axis=1))
    factor = tl.div_rn(tl.max(most, axis=0), _E2M1_MOST * _E4M3_MOST)
    # Maxima drop NaN; 0 * x keeps what is not a number.
    odd = tl.sum(tl.sum(low * 0.0 + high * 0.0, axis=1), axis=0)
    factor = tl.where(factor >= _LEAST_NORMAL, factor, 1.0)
    scale = tl.minimum(tl.div_rn(most, tl.broadcast_to(factor * _E2M1_MOST, (groups,))), _E4M3_MOST).to(tl.float8e4nv)
    step = scale.to(tl.float32) * factor
    zero = (step == 0)[:, None]
    step = tl.where(step > 0, step, 1.0)[:, None]
    low = tl.where(zero, 0.0, tl.div_rn(low, tl.broadcast_to(step, (groups, 8))))
    high = tl.where(zero, 0.0, tl.div_rn(high, tl.broadcast_to(step, (groups, 8))))
    packed = e2m1_of(low) | (e2m1_of(high) << 4)
    here = group < steps * 8
    byte = group[:, None] * 8 + inside[None, :]
    tl.store(codes + row * (steps * 64) + byte, packed.to(tl.uint8), mask=here[:, None])
    tl.store(scales + row * (steps * 8) + group, scale, mask=here)
    tl.store(factors + row, factor + odd)


@triton.jit
def route_kernel(
    topk_ids, ids, expert_of, block_count, counts, rows, experts,
    block_m: tl.constexpr, limit: tl.constexpr, most: tl.constexpr, chunk: tl.constexpr,
):  # fmt: skip
    """Routed rows sorted by expert in blocks of `block_m`, by one program. `counts`: int32 [most], zeros before and
    after. Rows of experts outside 0..experts-1 are left out; places of a block that is not full hold `rows`."""
    expert = tl.arange(0, most)
    for first in range(0, rows, chunk):
        at = first + tl.arange(0, chunk)
        of = tl.load(topk_ids + at, mask=at < rows, other=-1)
        tl.atomic_add(counts + of, 1, mask=(of >= 0) & (of < experts))
    tl.debug_barrier()
    mine = tl.load(counts + expert)
    blocks = (mine + block_m - 1) // block_m
    ends = tl.cumsum(blocks, axis=0)
    starts = ends - blocks
    tl.debug_barrier()
    tl.store(counts + expert, starts * block_m)
    tl.store(block_count, tl.sum(blocks))
    for first in range(0, limit * block_m, chunk):
        at = first + tl.arange(0, chunk)
        tl.store(ids + at, tl.zeros((chunk,), tl.int32) + rows, mask=at < limit * block_m)
    longest = tl.max(blocks)
    for i in range(longest):
        tl.store(expert_of + starts + i, expert, mask=i < blocks)
    tl.debug_barrier()
    for first in range(0, rows, chunk):
        at = first + tl.arange(0, chunk)
        of = tl.load(topk_ids + at, mask=at < rows, other=-1)
        real = (of >= 0) & (of < experts)
        place = tl.atomic_add(counts + of, 1, mask=real)
        tl.store(ids + place, at, mask=real)
    tl.debug_barrier()
    tl.store(counts + expert, tl.zeros((most,), tl.int32))


@triton.jit
def sum_kernel(parts, topk_ids, out, width, experts, topk: tl.constexpr, block: tl.constexpr):
    """out[token] = sum of the token's `topk` rows of `parts` whose expert is one of ours; FP32 sums, in order."""
    token = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * block + tl.arange(0, block)
    total = tl.zeros((block,), dtype=tl.float32)
    for i in range(topk):
        of = tl.load(topk_ids + token * topk + i)
        ours = tl.where((of >= 0) & (of < experts), width, 0)
        total += tl.load(parts + (token * topk + i) * width + at, mask=at < ours, other=0.0).to(tl.float32)
    tl.store(out + token * width + at, total.to(tl.bfloat16), mask=at < width)
