"""The warpgroup-MMA kernel on a Hopper GPU: every mode, both widths, padded rows and K, experts of other GPUs."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tilewright import kernels
from tilewright.kernels import reference
from tilewright.kernels.launch import PLAIN, SILU, WEIGHTED, route
from tilewright.kernels.prefill import PrefillConfig, grouped_prefill, permuted, restored, stored_width

HAS_TORCH = importlib.util.find_spec("torch") is not None


def no_hopper() -> bool:
    import torch

    return not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0)


pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed"),
    pytest.mark.skipif(HAS_TORCH and no_hopper(), reason="wgmma is Hopper's (compute capability 9.0)"),
]
SEEN = 0.004
"""Norm of the deviation over the reference's: bf16 rounding is 0.0017 of it."""

CASES = [
    pytest.param(4, 256, 128, 40, 2, PrefillConfig(32, 16, 16, 3), id="one step of K"),
    pytest.param(8, 512, 1024, 100, 4, PrefillConfig(64, 48, 16, 4), id="two widths"),
    pytest.param(4, 320, 272, 77, 1, PrefillConfig(48, 32, 8, 2), id="padded rows and K"),
    pytest.param(5, 2880, 2880, 300, 2, PrefillConfig(160, 128, 16, 3), id="2880 wide"),
    pytest.param(3, 256, 6144, 1, 2, PrefillConfig(128, 96, 16, 3), id="one token"),
    pytest.param(16, 512, 256, 1500, 1, PrefillConfig(80, 56, 8, 3), id="four widths, many blocks"),
    pytest.param(2, 272, 2048, 513, 2, PrefillConfig(144, 112, 16, 3), id="more tokens than tiles"),
    pytest.param(40, 1280, 512, 900, 2, PrefillConfig(160, 144, 16, 3), id="tiles in parts"),
    pytest.param(24, 512, 640, 200, 2, PrefillConfig(24, 8, 8, 7), id="few tokens"),
]


def near(out: Any, want: Any) -> bool:
    return float((out.float() - want).norm() / want.norm()) < SEEN


@pytest.mark.parametrize(("experts", "rows", "k", "tokens", "topk", "build"), CASES)
def test_every_mode(experts: int, rows: int, k: int, tokens: int, topk: int, build: PrefillConfig) -> None:
    import torch

    torch.manual_seed(rows + k)
    torch.backends.cuda.matmul.allow_tf32 = False
    codes = torch.randint(0, 256, (experts, rows, k // 2), dtype=torch.uint8, device="cuda")
    scales = torch.randint(40, 80, (experts, rows, k // 16), dtype=torch.uint8, device="cuda")
    factor = torch.rand(experts, device="cuda") * 0.1 + 0.01
    x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
    ids = torch.rand(tokens, experts, device="cuda").topk(topk, 1).indices.int()
    ids[0, 0] = experts + 3  # on another GPU: left as it is
    router = torch.rand(tokens * topk, device="cuda")
    here = (ids < experts).reshape(-1)
    want = reference.grouped_gemm(x, reference.dequantise(codes, scales, factor), ids, topk)

    plain = kernels.pack(codes, scales, factor)
    routing = route(ids, experts, build.block_rows)
    arranged = permuted(x, plain.steps)
    for mode, expected in ((PLAIN, want), (WEIGHTED, want * router[:, None])):
        out = torch.full((tokens * topk, rows), 7.0, device="cuda", dtype=torch.bfloat16)
        grouped_prefill(arranged, plain, routing, out, build, rows_per_token=topk, mode=mode, router=router)
        assert near(out[here], expected[here])
        assert bool((out[~here] == 7.0).all())

    gated = kernels.pack(codes, scales, factor, gated=True)
    gate, up = want.chunk(2, 1)
    stored = torch.full((tokens * topk, stored_width(gated)), float("nan"), device="cuda", dtype=torch.bfloat16)
    grouped_prefill(arranged, gated, routing, stored, build, rows_per_token=topk, mode=SILU)
    whole = restored(stored, stored_width(gated))
    assert near(whole[here, : rows // 2], (torch.nn.functional.silu(gate) * up)[here])
    # The next GEMM reads padded columns: they have to be zeros.
    assert bool((whole[here, rows // 2 :] == 0).all())


def test_a_token_that_is_nan_stays_alone() -> None:
    """A tile's empty places hold whatever the stage held before: not even NaN may get from there into a sum."""
    import torch

    experts, rows, k, tokens, topk = 8, 256, 1024, 200, 2
    codes = torch.randint(0, 256, (experts, rows, k // 2), dtype=torch.uint8, device="cuda")
    scales = torch.randint(40, 80, (experts, rows, k // 16), dtype=torch.uint8, device="cuda")
    factor = torch.rand(experts, device="cuda")
    ids = torch.rand(tokens, experts, device="cuda").topk(topk, 1).indices.int()
    x = torch.randn(tokens, k, device="cuda", dtype=torch.bfloat16)
    x[::3] = float("nan")
    packed, build = kernels.pack(codes, scales, factor), PrefillConfig(64, 48, 8, 3)
    out = torch.empty(tokens * topk, rows, device="cuda", dtype=torch.bfloat16)
    for _ in range(3):
        grouped_prefill(permuted(x, packed.steps), packed, route(ids, experts, build.block_rows), out, build,
                        rows_per_token=topk)  # fmt: skip
        assert torch.equal(out.isnan().all(1), x.isnan().all(1).repeat_interleave(topk))
        assert torch.equal(out.isnan().any(1), out.isnan().all(1))


@pytest.mark.parametrize(("tokens", "topk"), [(300, 4), (5000, 8)])
def test_a_layer_of_one_gpu_of_four_replayed(tokens: int, topk: int) -> None:
    """Its kernels overlap, so each replay has other tokens and other experts: what the one before left is wrong."""
    import torch

    torch.manual_seed(tokens)
    torch.backends.cuda.matmul.allow_tf32 = False
    experts, hidden, inter = 8, 512, 256

    def drawn(rows: int, k: int) -> tuple[Any, Any, Any]:
        codes = torch.randint(0, 256, (experts, rows, k // 2), dtype=torch.uint8, device="cuda")
        scales = torch.randint(40, 80, (experts, rows, k // 16), dtype=torch.uint8, device="cuda")
        return codes, scales, torch.rand(experts, device="cuda") * 0.1 + 0.01

    up, down = drawn(2 * inter, hidden), drawn(hidden, inter)
    w13, w2 = kernels.pack(*up, gated=True), kernels.pack(*down)
    plain = [reference.dequantise(*each) for each in (up, down)]
    x = torch.zeros(tokens, hidden, device="cuda", dtype=torch.bfloat16)
    ids = torch.zeros(tokens, topk, device="cuda", dtype=torch.int32)
    router = torch.rand(tokens, topk, device="cuda")
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    kernels.fused_moe(x, w13, w2, router, ids, global_experts=4 * experts)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream):
        out = kernels.fused_moe(x, w13, w2, router, ids, global_experts=4 * experts)
    for _ in range(10):
        x.copy_(torch.randn(tokens, hidden, device="cuda"))
        ids.copy_(torch.rand(tokens, 4 * experts, device="cuda").topk(topk, 1).indices.int())
        graph.replay()
        assert near(out, reference.fused_moe(x, *plain, ids, router))
