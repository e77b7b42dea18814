"""Kernels for NVFP4 weights: a grouped GEMM and a fused MoE layer, in CUDA C++ compiled at run time and in Triton
(extra `bench`). docs/kernels.md shows how to use them.

`pack` (or `pack_experts`, from a checkpoint) makes the weights once, `fused_moe` and `grouped_gemm` use them; the
Triton layer has `pack_triton`, `fused_moe_triton` and `grouped_gemm_triton`. `moe_module` makes either a torch module
around a custom op. Importing this package imports neither torch nor CUDA.

Both layers, the custom op and checkpoints of both formats ran on an H200 and agreed with a plain reference; on SM100
and SM120 they are compiled, not run. `tilewright bench` checks every answer before it states a time.
"""

from __future__ import annotations

from tilewright.kernels.checkpoint import pack_experts
from tilewright.kernels.choose import choose
from tilewright.kernels.config import GroupedConfig
from tilewright.kernels.layout import PackedWeights, pack, unpack
from tilewright.kernels.moe import fused_moe, grouped_gemm, register_ops
from tilewright.kernels.ops import moe_module, register_triton_op
from tilewright.kernels.prefill import PrefillConfig
from tilewright.kernels.triton_layout import TritonWeights, pack_triton, unpack_triton
from tilewright.kernels.triton_moe import fused_moe_triton, grouped_gemm_triton
from tilewright.kernels.triton_tiles import Tile, tile_of

__all__ = [
    "GroupedConfig",
    "PackedWeights",
    "PrefillConfig",
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
