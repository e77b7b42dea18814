"""The CUDA C++ kernels on a real GPU where the layer's own tests do not look: widths of published models, the seam
between rows taken one by one and rows sorted by expert, calls that no GPU holds."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tilewright import kernels
from tilewright.errors import InputError
from tilewright.kernels import reference
from tilewright.kernels.choose import row_by_row

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
SEEN = 0.004
"""Norm of the deviation over the reference's: bf16 rounding is 0.0017 of it."""


def drawn(torch: Any, experts: int, rows: int, k: int) -> tuple[Any, Any, Any]:
    codes = torch.randint(0, 256, (experts, rows, k // 2), dtype=torch.uint8, device="cuda")
    scales = torch.randint(40, 80, (experts, rows, k // 16), dtype=torch.uint8, device="cuda")
    return codes, scales.view(torch.float8_e4m3fn), torch.rand(experts, device="cuda") * 0.05 + 0.01


@pytest.mark.parametrize(
    ("experts", "rows", "k", "topk"),
    [
        pytest.param(8, 512, 7168, 4, id="DeepSeek-V3 TP8 w13"),
        pytest.param(8, 7168, 256, 4, id="DeepSeek-V3 TP8 w2"),
        pytest.param(8, 384, 4096, 4, id="Qwen3-235B TP8 w13"),
        pytest.param(8, 4096, 192, 4, id="Qwen3-235B TP8 w2"),
        pytest.param(8, 5760, 2880, 4, id="gpt-oss-120b w13"),
        pytest.param(8, 2880, 2880, 4, id="gpt-oss-120b w2"),
    ],
)
@pytest.mark.parametrize("tokens", [1, 3, 17, 130])
def test_a_grouped_gemm_of_published_widths(experts: int, rows: int, k: int, topk: int, tokens: int) -> None:
    import torch

    torch.manual_seed(rows + k + tokens)
    torch.backends.cuda.matmul.allow_tf32 = False
    tensors = drawn(torch, experts, rows, k)
    x = torch.randn(tokens, k, device="cuda").bfloat16()
    ids = torch.rand(tokens, experts, device="cuda").topk(topk, 1).indices.int()
    want = reference.grouped_gemm(x, reference.dequantise(*tensors), ids, topk)
    out = kernels.grouped_gemm(x, kernels.pack(*tensors), ids).float()
    assert float((out - want).norm() / want.norm()) < SEEN


def test_both_ways_agree_where_one_hands_over_to_the_other() -> None:
    import torch

    torch.manual_seed(0)
    experts, hidden, inter, topk = 64, 1024, 128, 2
    w13 = kernels.pack(*drawn(torch, experts, 2 * inter, hidden), gated=True)
    w2 = kernels.pack(*drawn(torch, experts, hidden, inter))
    last = max(tokens for tokens in range(1, 200) if row_by_row(tokens * topk, experts))
    x = torch.randn(last + 1, hidden, device="cuda").bfloat16()
    ids = torch.rand(last + 1, experts, device="cuda").topk(topk, 1).indices.int()
    router = torch.rand(last + 1, topk, device="cuda")
    alone = kernels.fused_moe(x[:last], w13, w2, router[:last], ids[:last]).float()
    together = kernels.fused_moe(x, w13, w2, router, ids)[:last].float()
    assert float((alone - together).norm() / together.norm()) < SEEN


def test_a_call_that_no_gpu_holds_is_refused() -> None:
    import torch

    tokens = 2**27
    w13 = kernels.pack(*drawn(torch, 8, 128, 256), gated=True)
    w2 = kernels.pack(*drawn(torch, 8, 256, 64))
    x = torch.randn(1, 256, device="cuda").bfloat16().expand(tokens, -1)
    ids = torch.zeros((1, 4), dtype=torch.int32, device="cuda").expand(tokens, -1)
    router = torch.ones((1, 4), device="cuda").expand(tokens, -1)
    with pytest.raises(InputError, match="pass fewer tokens"):
        kernels.fused_moe(x, w13, w2, router, ids)
    with pytest.raises(InputError, match="pass fewer tokens"):
        kernels.grouped_gemm(x, kernels.pack(*drawn(torch, 8, 1024, 256)), ids)
