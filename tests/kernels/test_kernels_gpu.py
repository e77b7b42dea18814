"""Both expert layers on a real GPU: edge cases against a plain reference, checkpoints, the custom op, graphs."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from tilewright import kernels
from tilewright.errors import InputError
from tilewright.kernels import reference

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore"),  # torch.compile warns of what torch itself deprecates
    pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed"),
]
SEEN = 0.004
"""Norm of the deviation over the reference's: 0.0025 at most on an H200, of which rounding to bf16 is 0.0017."""
LAYERS = {"cuda": (kernels.pack, kernels.fused_moe), "triton": (kernels.pack_triton, kernels.fused_moe_triton)}


def weights(torch: Any, experts: int, rows: int, k: int, seed: int, *, pair: bool = False) -> tuple[Any, Any, Any]:
    draw = torch.Generator("cuda").manual_seed(seed)
    codes = torch.randint(0, 256, (experts, rows, k // 2), dtype=torch.uint8, device="cuda", generator=draw)
    scales = torch.randint(40, 80, (experts, rows, k // 16), dtype=torch.uint8, device="cuda", generator=draw)
    factor = torch.rand((experts, 2) if pair else (experts,), device="cuda", generator=draw) * 0.05
    return codes, scales.view(torch.float8_e4m3fn), factor


class Case:
    """One layer's checkpoint tensors, inputs and right answer."""

    def __init__(self, experts: int, hidden: int, inter: int, tokens: int, topk: int) -> None:
        import torch

        self.torch, self.experts, self.hidden, self.inter = torch, experts, hidden, inter
        torch.manual_seed(experts + hidden + tokens)
        self.up = weights(torch, experts, 2 * inter, hidden, 1, pair=True)
        self.down = weights(torch, experts, hidden, inter, 2)
        self.x = torch.randn(tokens, hidden, device="cuda").bfloat16()
        self.ids = torch.rand(tokens, experts, device="cuda").topk(topk, 1).indices.int()
        self.router = torch.rand(tokens, topk, device="cuda")

    def want(self) -> Any:
        up, down = reference.dequantise(*self.up, gated=True), reference.dequantise(*self.down)
        return reference.fused_moe(self.x, up, down, self.ids, self.router)

    def packed(self, name: str) -> tuple[Any, Any]:
        pack, _ = LAYERS[name]
        return pack(*self.up, gated=True), pack(*self.down)

    def got(self, name: str, x: Any = None) -> Any:
        return LAYERS[name][1](self.x if x is None else x, *self.packed(name), self.router, self.ids)

    def apart(self, out: Any) -> float:
        want = self.want()
        return float((out.float() - want).norm() / want.norm())


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize(
    ("experts", "hidden", "inter", "tokens", "topk"),
    [(16, 512, 256, 33, 4), (8, 2880, 2880, 5, 4), (4, 128, 48, 7, 2), (32, 512, 128, 1, 8), (3, 176, 64, 9, 2),
     (256, 1024, 64, 300, 8), (256, 512, 128, 3, 8), (64, 2880, 192, 1, 4)],
)  # fmt: skip
def test_layers_are_right(name: str, experts: int, hidden: int, inter: int, tokens: int, topk: int) -> None:
    """Odd token counts, experts without a token, sizes that are no multiple of a tile, one token, 2880-wide layers."""
    case = Case(experts, hidden, inter, tokens, topk)
    assert case.apart(case.got(name)) < SEEN


@pytest.mark.parametrize("name", LAYERS)
def test_all_tokens_on_one_expert_and_experts_on_other_gpus(name: str) -> None:
    case = Case(8, 256, 64, 257, 2)
    case.ids[:] = case.torch.tensor([3, 5], device="cuda")
    assert case.apart(case.got(name)) < SEEN
    case.ids[::2] = -1
    case.ids[1::4, 0] = 99
    out = case.got(name)
    assert case.apart(out) < SEEN
    assert not out[::2].any()


@pytest.mark.parametrize("name", LAYERS)
def test_strides_and_emptiness(name: str) -> None:
    case = Case(16, 512, 256, 33, 4)
    plain = case.got(name)
    wide = case.torch.zeros(33, 520, device="cuda", dtype=case.torch.bfloat16)
    wide[:, :512] = case.x
    assert case.torch.equal(case.got(name, wide[:, :512]), plain)
    assert case.torch.equal(case.got(name, case.x.T.contiguous().T), plain)
    case.ids, case.router = case.ids[:0], case.router[:0]
    assert case.got(name, case.x[:0]).shape == (0, 512)


@pytest.mark.parametrize("name", LAYERS)
def test_a_nan_scale_reaches_its_outputs_and_no_others(name: str) -> None:
    case = Case(16, 512, 256, 33, 4)
    hot = int(case.ids[0, 0])
    case.down[1].view(case.torch.uint8)[hot, 5, 3] = 0x7F
    bad = case.got(name).isnan()
    assert bad[0, 5]
    assert bad.any(0).nonzero().flatten().tolist() == [5]
    assert case.torch.equal(bad[:, 5], (case.ids == hot).any(1))


@pytest.mark.parametrize("modelopt", [True, False])
def test_both_checkpoint_formats_give_the_same_layer(modelopt: bool) -> None:
    case = Case(16, 512, 256, 33, 4)
    names = ("weight", "weight_scale", "weight_scale_2")
    if not modelopt:
        names = ("weight_packed", "weight_scale", "weight_global_scale")
    tensors: dict[str, Any] = {}
    for expert in range(16):
        gate, up = ([part[expert, at] for part in case.up[:2]] for at in (slice(0, 256), slice(256, 512)))
        parts = {
            "gate": (*gate, case.up[2][expert, 0]), "up": (*up, case.up[2][expert, 1]),
            "down": tuple(part[expert] for part in case.down),
        }  # fmt: skip
        for part, (codes, scales, factor) in parts.items():
            stored = (codes.cpu(), scales.cpu(), factor.cpu() if modelopt else (1 / factor).cpu().reshape(1))
            tensors |= {
                f"m.{expert}.{part}_proj.{name}": value for name, value in zip(names, stored, strict=True)
            }  # fmt: skip
    w13, w2 = kernels.pack_experts(tensors, "m", range(16), device="cuda")
    assert case.apart(kernels.fused_moe(case.x, w13, w2, case.router, case.ids)) < SEEN


@pytest.mark.parametrize("name", LAYERS)
def test_the_module_compiles_whole_and_can_be_captured(name: str) -> None:
    case = Case(16, 512, 256, 33, 4)
    torch = case.torch
    layer = kernels.moe_module(*case.packed(name))
    out = layer(case.x, case.router, case.ids)
    assert case.apart(out) < SEEN
    with torch.no_grad():
        compiled = torch.compile(layer, fullgraph=True)
        assert torch.equal(compiled(case.x, case.router, case.ids), out)
        # Nine tokens run another kernel than all of them: equal to what the layer gives for nine.
        few = (case.x[:9], case.router[:9], case.ids[:9])
        assert torch.equal(compiled(*few), layer(*few))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = layer(case.x, case.router, case.ids)
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(again, out)


def test_the_cuda_op_passes_torchs_own_checks() -> None:
    case = Case(16, 512, 256, 33, 4)
    w13, w2 = case.packed("cuda")
    arguments = (case.x, w13.data, w13.global_scale, w2.data, w2.global_scale, case.router, case.ids, 512, 256)
    checks = case.torch.library.opcheck(kernels.register_ops(), arguments)
    assert set(checks.values()) == {"SUCCESS"}


def test_nvfp4_activations_are_refused_where_the_hardware_has_no_block_scales() -> None:
    case = Case(16, 512, 256, 33, 4)
    w13, w2 = case.packed("triton")
    able = case.torch.cuda.get_device_capability() >= (10, 0)
    try:
        out = kernels.fused_moe_triton(case.x, w13, w2, case.router, case.ids, activations="nvfp4")
    except InputError as error:
        assert not able
        assert "10.0" in error.msg
    else:
        assert able
        assert case.apart(out) < 0.25
