"""The work of one measured or asked kernel, by operation: what calibration and prediction both start from."""

from __future__ import annotations

from tilewright.cost.backends import grouped_routing, is_gated, keeps_rows
from tilewright.cost.gemm_features import GemmWork, gemm_work
from tilewright.cost.kernel_dtypes import KernelDtype, KernelRates
from tilewright.cost.moe_features import MoeWork, moe_work
from tilewright.cost.moe_load import TILE_ROWS, moe_load

__all__ = ["group_work"]


def group_work(
    op: str, backend: str, sizes: tuple[int, ...], distribution: str, dtype: KernelDtype, rates: KernelRates
) -> GemmWork | MoeWork:
    """`sizes`: (m, n, k), or (tokens, hidden, inter, topk, experts, tp, ep)."""
    if op == "gemm":
        m, n, k = sizes
        return gemm_work(m, n, k, dtype, rates)
    tokens, hidden, inter, topk, experts, tp, ep = sizes
    load = moe_load(tokens, topk, experts, ep, distribution, grouped_routing(backend, hidden, topk, experts))
    if ep > 1 and keeps_rows(backend):
        # Rows of other ranks' experts are computed too: only the weights are shared out.
        rows = float(tokens * topk)
        load = load._replace(rows=rows, tiles=tuple(max(load.hit, 1.0) + rows / size for size in TILE_ROWS))
    return moe_work(load, tokens, hidden, inter, topk, tp, ep, is_gated(backend), dtype, rates)
