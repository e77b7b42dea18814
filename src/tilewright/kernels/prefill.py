"""The grouped GEMM of many tokens on Hopper: `nvfp4_prefill.cu`, its builds and its launch."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any, Final

from tilewright.errors import InputError
from tilewright.kernels.config import MOST_SHARED, macros
from tilewright.kernels.launch import PLAIN, SILU, Routing, launch, load_kernel
from tilewright.kernels.layout import CHUNK_BYTES, GROUP_ROWS, STEP_K, PackedWeights
from tilewright.kernels.parts import torch_module

WARPGROUP: Final = 128
TILE_ROWS: Final = 256
"""Weight rows of a tile: two warpgroups of two 64-row MMAs each."""
THREADS: Final = 3 * WARPGROUP
"""Two warpgroups multiply, one loads."""
STORED_ROWS: Final = 128
"""Columns to which the middle of a layer is padded: a step of K of the next GEMM."""
MAX_TOKENS: Final = 160
"""Widest tile: beyond it ptxas (CUDA 13.0) spills, then finds no registers and serialises the MMAs."""
WIDTH_MULTIPLE: Final = 8
"""Tokens: wgmma's N is a multiple of it (PTX ISA, wgmma.mma_async), and eight rows repeat the swizzle."""
MAX_WIDTHS: Final = 4
"""MMA widths of one build, three where the widest is above `_FOUR_WIDTHS`: with more, ptxas spills."""
_FOUR_WIDTHS: Final = 128
_COPY_TOKENS: Final = 32
_ROW_PADDING: Final = 16
"""Bytes behind a staged row: neighbouring rows start in other banks."""
_TABLE_HEAD: Final = 12
"""Bytes of a tile's table beside three words a token (nvfp4_prefill.cu, Table)."""
_STATIC_REST: Final = 64
"""Bytes: the plan of tiles, rounded up; tables and barriers come on top."""
_RING_ALIGNMENT: Final = 1024
"""Bytes: the 128-byte swizzle repeats every eight rows."""
_PERMUTE_THREADS: Final = 256
_PERMUTE_PIECES: Final = 4
"""Of 16 bytes that a thread makes (nvfp4_permute.cu, PIECES)."""
_MOST_PIECES: Final = 2**32
"""The kernel counts pieces of 16 bytes of `x` in 32 bits."""


@dataclass(frozen=True, slots=True)
class PrefillConfig:
    """One build of `nvfp4_prefill.cu`: `tokens` of the widest tile, the `narrow` width of the shortest, how far it is
    `between` one width and the next, `stages`."""

    tokens: int = 160
    narrow: int = 128
    between: int = 16
    stages: int = 3

    @property
    def widths(self) -> range:
        """MMA widths that are built, narrowest first."""
        return range(self.narrow, self.tokens + 1, max(1, self.between))

    @property
    def block_rows(self) -> int:
        """Routed rows of a tile."""
        return self.tokens

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: the ring, what stages a store (the wider of the modes'), and the ring's alignment."""
        ring = self.stages * (2 * self.tokens * STEP_K + TILE_ROWS // GROUP_ROWS * CHUNK_BYTES)
        return ring + _COPY_TOKENS * (2 * TILE_ROWS + 2 * _ROW_PADDING) + _RING_ALIGNMENT

    @property
    def legal(self) -> bool:
        """Whether ptxas keeps its MMAs asynchronous and a thread block has the shared memory."""
        parts = (self.tokens, self.narrow, self.between)
        whole = all(part > 0 and part % WIDTH_MULTIPLE == 0 for part in parts) and self.widths[-1:] == range(
            self.tokens, self.tokens + 1
        )
        most = MAX_WIDTHS if self.tokens <= _FOUR_WIDTHS else MAX_WIDTHS - 1
        static = (self.stages + 2) * (_TABLE_HEAD + 3 * 4 * self.tokens) + self.stages * 16 + _STATIC_REST
        fits = self.stages >= 2 and self.shared_bytes + static <= MOST_SHARED
        return whole and fits and self.tokens <= MAX_TOKENS and len(self.widths) <= most

    def defines(self, mode: int) -> tuple[str, ...]:
        """Compiler options of this build."""
        names = {
            "BT": self.tokens, "NARROW": self.narrow, "BETWEEN": self.between, "STAGES": self.stages, "MODE": mode,
        }  # fmt: skip
        return macros(names)


class _Prefill(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in (
            "x", "weights", "global_scale", "ids", "experts", "block_count", "router", "out"
        )),
        *((name, ctypes.c_int32) for name in (
            "rows", "rows_per_token", "k_steps", "row_tiles", "groups", "n_out", "out_stride", "ahead"
        )),
    )  # fmt: skip


class _Permute(ctypes.Structure):
    _fields_ = (
        ("x", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("x_stride", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in ("tokens", "k", "k_steps")),
    )


def permuted(x: Any, steps: int, *, overlap: bool = False) -> Any:
    """`x` ([tokens, k] bf16) as the kernel reads it: K padded to `steps` x 128, pairs of each 64 values transposed.

    `overlap`: it may run beside the kernel before, which did not make `x` (that is `route`).
    """
    torch = torch_module()
    tokens = int(x.shape[0])
    out = torch.empty((tokens, steps * STEP_K), dtype=torch.bfloat16, device=x.device)
    kernel = load_kernel("nvfp4_permute.cu", "nvfp4_permute", (), 0, _PERMUTE_THREADS, x.device.index)
    arguments = _Permute(
        x.data_ptr(), out.data_ptr(), x.stride(0) * x.element_size(), tokens, int(x.shape[1]), steps
    )  # fmt: skip
    pieces = tokens * steps * (STEP_K // 8)
    launch(kernel, -(-pieces // (_PERMUTE_THREADS * _PERMUTE_PIECES)), arguments, overlap=overlap)
    return out


def stored_width(weights: PackedWeights) -> int:
    """Columns of the middle that mode SILU writes: the width padded to whole tiles, which are whole steps of K."""
    return -(-weights.width // STORED_ROWS) * STORED_ROWS


def restored(middle: Any, width: int) -> Any:
    """`middle` of mode SILU in the plain order of columns, [rows, width]."""
    rows, stored = (int(extent) for extent in middle.shape)
    return middle.view(rows, stored // 64, 8, 4, 2).transpose(2, 3).reshape(rows, stored)[:, :width].contiguous()


def grouped_prefill(
    x: Any, weights: PackedWeights, routing: Routing, out: Any, config: PrefillConfig, *,
    rows_per_token: int = 1, mode: int = PLAIN, router: Any = None, ahead: bool = False,
) -> None:  # fmt: skip
    """One grouped GEMM of `permuted` activations into `out`, bf16 [routing.rows, width].

    Mode SILU writes the permuted activations of the next GEMM: [routing.rows, width padded to 128]. `ahead`: all but
    `x` was there before the kernel before this one began, so that weights are read while that one ends. InputError for
    more of `x` than the kernel counts.
    """
    if int(x.shape[0]) * weights.steps * (STEP_K // 8) >= _MOST_PIECES:
        raise InputError("x", f"{int(x.shape[0]):,} rows of K = {weights.k} are more than one call takes; pass fewer.")
    device = x.device
    kernel = load_kernel(
        "nvfp4_prefill.cu", "nvfp4_prefill", config.defines(mode), config.shared_bytes, THREADS, device.index
    )  # fmt: skip
    group_width = GROUP_ROWS // 2 if weights.gated else GROUP_ROWS
    groups = -(-weights.width // group_width)
    row_tiles = -(-groups // (TILE_ROWS // GROUP_ROWS))
    arguments = _Prefill(
        x.data_ptr(), weights.data.data_ptr(), weights.global_scale.data_ptr(), routing.ids.data_ptr(),
        routing.experts.data_ptr(), routing.block_count.data_ptr(), router.data_ptr() if router is not None else 0,
        out.data_ptr(), routing.rows, rows_per_token, weights.steps, row_tiles, weights.groups, weights.width,
        int(out.shape[1]), int(ahead),
    )  # fmt: skip
    assert mode != SILU or int(out.shape[1]) == stored_width(weights)
    launch(kernel, min(kernel.resident_blocks, routing.block_limit * row_tiles), arguments, overlap=True)
