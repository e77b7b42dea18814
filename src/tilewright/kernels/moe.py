"""The fused MoE layer and the grouped GEMM as calls, and as torch custom ops that `torch.compile` can trace through."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tilewright.errors import InputError
from tilewright.kernels.choose import choose, choose_decode, row_by_row
from tilewright.kernels.decode import SUMMED, decode_rows
from tilewright.kernels.launch import MAX_EXPERTS, PLAIN, SILU, WEIGHTED, grouped, route, sum_experts
from tilewright.kernels.layout import WHOLE_ROW, PackedWeights
from tilewright.kernels.parts import torch_module
from tilewright.kernels.room import check_room, gemm_bytes, layer_bytes

LIBRARY = "tilewright"
_ALIGNMENT = 16
"""Bytes: activations are loaded 16 at a time."""


def _activations(x: Any, k: int) -> Any:
    """`x` as the kernel can read it: bf16 [tokens, k] with unit stride along K and aligned rows; copied if it is not.

    Raises:
        InputError: another type, shape or device.
    """
    torch = torch_module()
    if x.ndim != 2 or x.dtype != torch.bfloat16 or int(x.shape[1]) != k:
        raise InputError("x", f"Activations are bfloat16 [tokens, {k}], not {x.dtype} {list(x.shape)}.")
    if x.device.type != "cuda":
        raise InputError("x", f"The kernels run on an NVIDIA GPU; the activations are on {x.device}.")
    # A stride of 0 (an expanded row) is a legal one; only alignment and unit stride along K matter.
    aligned = x.data_ptr() % _ALIGNMENT == 0 and x.stride(0) * x.element_size() % _ALIGNMENT == 0
    return x if x.stride(1) == 1 and aligned and x.stride(0) >= 0 else x.contiguous()


def _ids(topk_ids: Any, tokens: int) -> Any:
    torch = torch_module()
    if topk_ids.ndim != 2 or int(topk_ids.shape[0]) != tokens or topk_ids.dtype not in (torch.int32, torch.int64):
        raise InputError(
            "topk_ids", f"Routed experts are int32 or int64 [{tokens}, topk], not {topk_ids.dtype} "
            f"{list(topk_ids.shape)}."
        )  # fmt: skip
    return topk_ids.to(torch.int32).contiguous()


def _experts(weights: PackedWeights) -> int:
    if weights.experts > MAX_EXPERTS:
        raise InputError("experts", f"{weights.experts} experts on one GPU are more than {MAX_EXPERTS}.")
    return weights.experts


def _sms(device: Any) -> int:
    return int(torch_module().cuda.get_device_properties(device).multi_processor_count)


def grouped_gemm(x: Any, weights: PackedWeights, topk_ids: Any) -> Any:
    """bf16 [tokens * topk, width]: row `t * topk + i` is token t times the matrix of its i-th expert.

    `weights` with `gated` gives SiLU(gate) * up. Rows whose expert is outside 0..experts-1 are zero.

    Raises:
        InputError: shapes, types or devices do not go together, or the GPU has no room for the answer.
    """
    torch = torch_module()
    x = _activations(x, weights.k)
    check_room(torch, x.device, int(topk_ids.numel()), gemm_bytes(int(topk_ids.numel()), weights.width))
    ids = _ids(topk_ids, int(x.shape[0]))
    rows, topk = int(ids.numel()), int(ids.shape[1])
    out = torch.zeros((rows, weights.width), dtype=torch.bfloat16, device=x.device)
    if rows == 0:
        return out
    mode = SILU if weights.gated else PLAIN
    if row_by_row(rows, _experts(weights)):
        build = choose_decode(rows, weights.rows, weights.steps, _sms(x.device))
        decode_rows(x, weights, ids, out, build, per_token=topk, mode=mode)
        return out
    config = choose(rows, weights.experts)
    routing = route(ids, weights.experts, config.block_rows)
    grouped(x, weights, routing, out, config, rows_per_token=topk, mode=mode)
    return out


def fused_moe(x: Any, w13: PackedWeights, w2: PackedWeights, topk_weights: Any, topk_ids: Any) -> Any:
    """bf16 [tokens, hidden]: for each token the sum over its experts of router weight * down(SiLU(gate) * up).

    Args:
        x: bf16 [tokens, hidden]; another stride than 1 along hidden costs a copy.
        w13, w2: `layout.pack` of gate and up (`gated`) and of down.
        topk_weights, topk_ids: [tokens, topk]. Experts outside 0..experts-1 (on other GPUs) add nothing.

    Raises:
        InputError: shapes, types or devices do not go together, or the GPU has no room for what lies between.
    """
    torch = torch_module()
    if not w13.gated or w2.gated or w13.width != w2.k or w13.experts != w2.experts or w2.rows % WHOLE_ROW:
        raise InputError("w2", "w13 is packed with gated=True, w2 is not, and w2's K is half of w13's rows.")
    x = _activations(x, w13.k)
    tokens, routed = int(x.shape[0]), int(topk_ids.numel())
    alone = row_by_row(routed, _experts(w13))
    check_room(torch, x.device, routed, layer_bytes(routed, tokens, w2.rows, w2.k, row_by_row=alone))
    ids = _ids(topk_ids, tokens)
    if list(topk_weights.shape) != list(ids.shape):
        raise InputError("topk_weights", f"Router weights are {list(ids.shape)}, not {list(topk_weights.shape)}.")
    router = topk_weights.to(torch.float32).contiguous()
    out = torch.empty((tokens, w2.rows), dtype=torch.bfloat16, device=x.device)
    rows, topk = int(ids.numel()), int(ids.shape[1])
    if rows == 0:
        return out.zero_()
    middle = torch.empty((rows, w13.width), dtype=torch.bfloat16, device=x.device)
    if alone:
        # Two launches: nothing is sorted, and the second sums over a token's experts itself.
        sms = _sms(x.device)
        first_build = choose_decode(rows, w13.rows, w13.steps, sms)
        second_build = choose_decode(tokens, w2.rows, w2.steps * topk, sms)
        decode_rows(x, w13, ids, middle, first_build, per_token=topk, mode=SILU)
        decode_rows(middle, w2, ids, out, second_build, per_token=topk, mode=SUMMED, router=router)
        return out
    first = choose(rows, w13.experts)
    second = choose(rows, w2.experts)
    routing = route(ids, w13.experts, first.block_rows)
    grouped(x, w13, routing, middle, first, rows_per_token=topk, mode=SILU)
    if second.block_rows != first.block_rows:
        routing = route(ids, w2.experts, second.block_rows)
    parts = torch.empty((rows, w2.rows), dtype=torch.bfloat16, device=x.device)
    grouped(middle, w2, routing, parts, second, mode=WEIGHTED, router=router)
    sum_experts(parts, ids, out, w2.experts)
    return out


@lru_cache(maxsize=1)
def register_ops() -> Any:
    """Register `torch.ops.tilewright.nvfp4_fused_moe` (with its fake) and return it; once a process.

    The op takes tensors only: (x, w13_data, w13_scale, w2_data, w2_scale, topk_weights, topk_ids, inter) with the
    `data` and `global_scale` of `PackedWeights`; `inter` is w2's K, which its padding hides.
    """
    torch = torch_module()

    def run(
        x: Any, w13_data: Any, w13_scale: Any, w2_data: Any, w2_scale: Any, topk_weights: Any, topk_ids: Any, inter: int
    ) -> Any:
        hidden = int(x.shape[1])
        w13 = PackedWeights(w13_data, w13_scale, 2 * inter, hidden, True)
        w2 = PackedWeights(w2_data, w2_scale, hidden, inter, False)
        return fused_moe(x, w13, w2, topk_weights, topk_ids)

    schema = (
        "(Tensor x, Tensor w13_data, Tensor w13_scale, Tensor w2_data, Tensor w2_scale, Tensor topk_weights, "
        "Tensor topk_ids, int inter) -> Tensor"
    )
    name = f"{LIBRARY}::nvfp4_fused_moe"
    torch.library.define(name, schema)
    torch.library.impl(name, "CUDA", run)

    def fake(x: Any, *_: Any) -> Any:
        return x.new_empty(x.shape, dtype=torch.bfloat16)

    torch.library.register_fake(name, fake)
    return torch.ops.tilewright.nvfp4_fused_moe.default
