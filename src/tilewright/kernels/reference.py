"""Plain references in float32: what a checkpoint's tensors mean, a grouped GEMM and the MoE layer. Slow and obvious."""

from __future__ import annotations

from typing import Any

from tilewright.kernels.layout import E2M1_VALUES, VALUES_A_SCALE, check_weights
from tilewright.kernels.parts import torch_module


def dequantise(codes: Any, scales: Any, global_scale: Any, *, gated: bool = False) -> Any:
    """Checkpoint tensors as float32 [experts, rows, K] (arguments as `layout.pack` takes them)."""
    torch = torch_module()
    experts, rows, k = check_weights(codes, scales, global_scale, gated)
    table = torch.tensor([*E2M1_VALUES, *(-value for value in E2M1_VALUES)], device=codes.device)
    nibbles = torch.stack([codes & 15, codes >> 4], dim=-1).reshape(experts, rows, k)
    block = scales.view(torch.float8_e4m3fn).float().repeat_interleave(VALUES_A_SCALE, dim=-1)
    factor = global_scale.float()
    factor = factor[:, None].expand(-1, 2) if factor.ndim == 1 else factor
    by_row = factor.repeat_interleave(rows // 2, dim=1) if gated else factor[:, :1].expand(-1, rows)
    return table[nibbles.long()] * block * by_row[..., None]


def grouped_gemm(x: Any, weights: Any, experts_of: Any, rows_per_token: int = 1) -> Any:
    """float32 [rows, N]: row `i` is x[i // rows_per_token] times the matrix of expert `experts_of[i]`, zero outside."""
    torch = torch_module()
    flat = experts_of.reshape(-1)
    out = torch.zeros((flat.numel(), weights.shape[1]), device=x.device)
    source = torch.arange(flat.numel(), device=x.device) // rows_per_token
    for expert in flat.unique().tolist():
        if 0 <= expert < weights.shape[0]:
            mine = flat == expert
            out[mine] = x[source[mine]].float() @ weights[expert].T
    return out


def fused_moe(x: Any, w13: Any, w2: Any, topk_ids: Any, topk_weights: Any) -> Any:
    """float32 [tokens, hidden]: sum over the routed experts of router weight * down(SiLU(gate) * up)."""
    torch = torch_module()
    both = grouped_gemm(x, w13, topk_ids, topk_ids.shape[1])
    gate, up = both.chunk(2, dim=1)
    # The layer hands its middle on in bf16, as every engine does.
    middle = (torch.nn.functional.silu(gate) * up).to(torch.bfloat16)
    out = grouped_gemm(middle, w2, topk_ids) * topk_weights.reshape(-1, 1).float()
    return out.reshape(*topk_ids.shape, -1).sum(1)
