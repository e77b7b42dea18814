"""Kernels for NVFP4 weights: a grouped GEMM and a fused MoE layer, CUDA C++ compiled at run time (extra `bench`).

`pack` (or `pack_experts`, from a checkpoint) makes the weights once, `fused_moe` and `grouped_gemm` use them, and
`register_ops` makes the layer a torch custom op. Importing this package imports neither torch nor CUDA.

State on 2026-12-02: the grouped GEMM ran on an H200 and agreed with a plain reference (docs/notes/nvfp4-moe-h200.md);
the fused layer and the custom op have not run, and nothing has on SM120 (compiled only). `tilewright bench` checks
every answer before it states a time.
"""

from __future__ import annotations

from tilewright.kernels.checkpoint import pack_experts
from tilewright.kernels.choose import choose
from tilewright.kernels.config import GroupedConfig
from tilewright.kernels.layout import PackedWeights, pack, unpack
from tilewright.kernels.moe import fused_moe, grouped_gemm, register_ops
from tilewright.kernels.ops import moe_module, register_triton_op
from tilewright.kernels.triton_layout import TritonWeights, pack_triton, unpack_triton
from tilewright.kernels.triton_moe import fused_moe_triton, grouped_gemm_triton
from tilewright.kernels.triton_tiles import Tile, tile_of

__all__ = [
    "GroupedConfig",
    "PackedWeights",
    "Tile",
    "TritonWeights",
    "choose",
    "fused_moe",
    "fused_moe_triton",
    "grouped_gemm",
    "grouped_gemm_triton",
    "moe_module",
    "pack",
    "pack_experts",
    "pack_triton",
    "register_ops",
    "register_triton_op",
    "tile_of",
    "unpack",
    "unpack_triton",
]
