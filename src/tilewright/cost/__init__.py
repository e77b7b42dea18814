"""Times and limits of GEMMs and MoE layers from bytes, operations and the hardware's rates."""

from __future__ import annotations

from tilewright.cost.limits import GemmLimit, MoeLimit, gemm_limit, moe_layer_limits, moe_sweep
from tilewright.cost.routing import TileUse, expected_experts_hit, moe_tile_use, tile_use, tokens_for_rows

__all__ = [
    "GemmLimit",
    "MoeLimit",
    "TileUse",
    "expected_experts_hit",
    "gemm_limit",
    "moe_layer_limits",
    "moe_sweep",
    "moe_tile_use",
    "tile_use",
    "tokens_for_rows",
]
