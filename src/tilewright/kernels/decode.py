"""The grouped GEMM and the expert layer of one to a few tokens: `nvfp4_decode.cu`, its builds and its launch."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from tilewright.kernels.config import macros
from tilewright.kernels.launch import PLAIN, launch, load_kernel
from tilewright.kernels.layout import GROUP_ROWS, PackedWeights
from tilewright.kernels.parts import torch_module

SUMMED = 3
"""Mode: the weighted sum over a token's experts, one row a token."""
_BLOCK_ROWS = 16
_SLOT_BYTES = 1152
"""Bytes of a 128-value step of 16 rows: 1,024 of codes and 128 of scales."""


@dataclass(frozen=True, slots=True)
class DecodeConfig:
    """One build of `nvfp4_decode.cu`: 16-row `blocks` of a tile, `warps` that share K, `stages` each has in flight."""

    blocks: int = 2
    warps: int = 16
    stages: int = 3

    @property
    def threads(self) -> int:
        return self.warps * 32

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory."""
        return self.warps * self.stages * self.blocks * _SLOT_BYTES

    @property
    def legal(self) -> bool:
        """Whether the kernel has the build: at the end each thread writes one row of the tile."""
        rows = self.blocks * _BLOCK_ROWS
        return self.blocks in (1, 2, 4) and 1 <= self.warps <= 32 and self.threads >= rows and self.stages >= 1

    def defines(self, mode: int) -> tuple[str, ...]:
        """Compiler options of this build."""
        names = {"MI": self.blocks, "WARPS": self.warps, "STAGES": self.stages, "MODE": mode}
        return macros(names)


class _Decode(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("x", "weights", "global_scale", "topk", "router", "out")),
        ("x_stride", ctypes.c_uint64),
        *((name, ctypes.c_int32) for name in (
            "rows", "per_token", "k", "k_steps", "row_tiles", "groups", "n_out", "experts"
        )),
    )  # fmt: skip


def decode_rows(
    x: Any, weights: PackedWeights, topk_ids: Any, out: Any, config: DecodeConfig, *,
    per_token: int = 1, mode: int = PLAIN, router: Any = None, overlap: bool = False,
) -> None:  # fmt: skip
    """Row i of `out` is row i // per_token of `x` times the matrix of expert topk_ids[i]; rows of no expert are left.

    `topk_ids` is int32 and contiguous. Mode SUMMED: `x` has a row for each of them, `out` one for `per_token` of them.
    """
    torch = torch_module()
    device = x.device
    defines = config.defines(mode)
    kernel = load_kernel(
        "nvfp4_decode.cu", "nvfp4_decode", defines, config.shared_bytes, config.threads, device.index
    )  # fmt: skip
    assert topk_ids.dtype == torch.int32
    stored_width = GROUP_ROWS // 2 if weights.gated else GROUP_ROWS
    # A group of 64 rows has four 16-row blocks; the last group may be partly padding, which is computed and not stored.
    row_tiles = -(-weights.width // stored_width) * (GROUP_ROWS // _BLOCK_ROWS) // config.blocks
    rows = int(topk_ids.numel())
    arguments = _Decode(
        x.data_ptr(), weights.data.data_ptr(), weights.global_scale.data_ptr(), topk_ids.data_ptr(),
        router.data_ptr() if router is not None else 0, out.data_ptr(), x.stride(0) * x.element_size(),
        rows, per_token, weights.k, weights.steps, row_tiles, weights.groups, weights.width, weights.experts,
    )  # fmt: skip
    launch(kernel, (rows // per_token if mode == SUMMED else rows) * row_tiles, arguments, overlap=overlap)
