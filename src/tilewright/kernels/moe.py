"""The fused MoE layer and the grouped GEMM as calls, and as torch custom ops that `torch.compile` can trace through."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from tilewright.errors import InputError
from tilewright.kernels.arguments import activations_of, check_pair, experts_of, router_of
from tilewright.kernels.choose import Gpu, choose_decode, chosen_build, layer_build
from tilewright.kernels.config import GroupedConfig
from tilewright.kernels.decode import SUMMED, DecodeConfig, decode_rows
from tilewright.kernels.launch import MAX_EXPERTS, PLAIN, SILU, WEIGHTED, grouped, route, sum_experts
from tilewright.kernels.layout import PackedWeights
from tilewright.kernels.parts import on_its_device, torch_module
from tilewright.kernels.prefill import PrefillConfig, grouped_prefill, permuted, restored, stored_width
from tilewright.kernels.room import arranged_bytes, check_room, gemm_bytes, layer_bytes
from tilewright.kernels.tuned import preferred

LIBRARY = "tilewright"
_ALIGNMENT = 16
"""Bytes: activations are loaded 16 at a time."""


def _activations(x: Any, weights: PackedWeights) -> Any:
    if x.device.type != "cuda":
        raise InputError("x", f"The kernels run on an NVIDIA GPU; the activations are on {x.device}.")
    return activations_of(x, weights, _ALIGNMENT)


@lru_cache(maxsize=64)
def gpu_of(device: Any) -> Gpu:
    """What `choose` wants to know of a CUDA device."""
    properties = torch_module().cuda.get_device_properties(device)
    wgmma = (properties.major, properties.minor) == (9, 0)
    shared = int(properties.shared_memory_per_multiprocessor)
    return Gpu(int(properties.multi_processor_count), wgmma, str(properties.name), shared)


def _rows_here(rows: int, experts: int, global_experts: int | None) -> int:
    """Of `rows` routed rows those that fall on `experts` of `global_experts` on average, by which builds are chosen; at
    least one."""
    if global_experts is None:
        return max(1, rows)
    if global_experts < experts:
        raise InputError("global_experts", f"{global_experts} are fewer than the {experts} experts of the weights.")
    return max(1, -(-rows * experts // global_experts))


@on_its_device
def grouped_gemm(x: Any, weights: PackedWeights, topk_ids: Any, *, global_experts: int | None = None) -> Any:
    """bf16 [tokens * topk, width]: row `t * topk + i` is token t times the matrix of its i-th expert.

    `weights` with `gated` gives SiLU(gate) * up. Rows whose expert is outside 0..experts-1 are zero; where `topk_ids`
    has such, `global_experts` says over how many experts they are spread, for a better choice of build.

    Raises:
        InputError: shapes, types or devices do not go together, or the GPU has no room for the answer.
    """
    torch = torch_module()
    x = _activations(x, weights)
    rows, gpu = int(topk_ids.numel()), gpu_of(x.device)
    here = _rows_here(rows, weights.experts, global_experts)
    build = chosen_build(here, weights.rows, weights.k, weights.experts, gpu)
    copied = arranged_bytes(int(x.shape[0]), weights.k) if isinstance(build, PrefillConfig) else 0
    check_room(torch, x.device, rows, gemm_bytes(rows, weights.width) + copied)
    ids = experts_of(topk_ids, x, weights.experts, MAX_EXPERTS)
    topk = int(ids.shape[1])
    out = torch.zeros((rows, weights.width), dtype=torch.bfloat16, device=x.device)
    if rows == 0:
        return out
    mode = SILU if weights.gated else PLAIN
    build = preferred(build, gpu.name, weights.experts, weights.rows, weights.k, here)
    if isinstance(build, DecodeConfig):
        decode_rows(x, weights, ids, out, build, per_token=topk, mode=mode)
        return out
    row_tiles = build.row_tiles(weights.width, weights.gated) if isinstance(build, GroupedConfig) else 0
    routing = route(ids, weights.experts, build.block_rows, row_tiles)
    if isinstance(build, GroupedConfig):
        grouped(x, weights, routing, out, build, rows_per_token=topk, mode=mode)
        return out
    x = permuted(x, weights.steps, overlap=True)
    if not weights.gated:
        grouped_prefill(x, weights, routing, out, build, rows_per_token=topk)
        return out
    # Gated, the kernel writes the order of K that the next GEMM reads; alone, its answer is put back.
    stored = torch.zeros((rows, stored_width(weights)), dtype=torch.bfloat16, device=x.device)
    grouped_prefill(x, weights, routing, stored, build, rows_per_token=topk, mode=mode)
    return restored(stored, weights.width)


@on_its_device
def fused_moe(
    x: Any, w13: PackedWeights, w2: PackedWeights, topk_weights: Any, topk_ids: Any, *,
    global_experts: int | None = None,
) -> Any:  # fmt: skip
    """bf16 [tokens, hidden]: for each token the sum over its experts of router weight * down(SiLU(gate) * up).

    Args:
        x: bf16 [tokens, hidden]; another stride than 1 along hidden costs a copy.
        w13, w2: `layout.pack` of gate and up (`gated`) and of down.
        topk_weights, topk_ids: [tokens, topk]. Experts outside 0..experts-1 (on other GPUs) add nothing.
        global_experts: of all GPUs together under expert parallelism, where `topk_ids` are those of the whole model:
            the build is chosen for the rows that fall here on average. Answers do not depend on it.

    Raises:
        InputError: shapes, types or devices do not go together, or the GPU has no room for what lies between.
    """
    torch = torch_module()
    check_pair(w13, w2)
    x = _activations(x, w13)
    tokens, rows, gpu = int(x.shape[0]), int(topk_ids.numel()), gpu_of(x.device)
    here = _rows_here(rows, w13.experts, global_experts)
    build = layer_build(here, w13.rows, w13.steps, w2.steps, w13.experts, gpu)
    alone, arranged = isinstance(build, DecodeConfig), isinstance(build, PrefillConfig)
    needed = layer_bytes(rows, tokens, w2.rows, w2.k, row_by_row=alone, arranged=arranged)
    check_room(torch, x.device, rows, needed)
    ids = experts_of(topk_ids, x, w13.experts, MAX_EXPERTS)
    router = router_of(topk_weights, ids)
    out = torch.empty((tokens, w2.rows), dtype=torch.bfloat16, device=x.device)
    topk = int(ids.shape[1])
    if rows == 0:
        return out.zero_()
    if isinstance(build, DecodeConfig):
        # Two launches: nothing is sorted, and the second sums over a token's experts itself.
        middle = torch.empty((rows, w13.width), dtype=torch.bfloat16, device=x.device)
        second_build = choose_decode(tokens, w2.rows, w2.steps * topk, gpu.sms, place="summed")
        decode_rows(x, w13, ids, middle, build, per_token=topk, mode=SILU)
        decode_rows(middle, w2, ids, out, second_build, per_token=topk, mode=SUMMED, router=router, overlap=True)
        return out
    build = preferred(build, gpu.name, w13.experts, w13.rows, w13.k, here)
    row_tiles = 0
    if isinstance(build, GroupedConfig):
        row_tiles = max(build.row_tiles(each.width, each.gated) for each in (w13, w2))
    routing = route(ids, w13.experts, build.block_rows, row_tiles)
    parts = torch.empty((rows, w2.rows), dtype=torch.bfloat16, device=x.device)
    if isinstance(build, PrefillConfig):
        middle = torch.empty((rows, stored_width(w13)), dtype=torch.bfloat16, device=x.device)
        arranged_x = permuted(x, w13.steps, overlap=True)
        grouped_prefill(arranged_x, w13, routing, middle, build, rows_per_token=topk, mode=SILU)
        grouped_prefill(middle, w2, routing, parts, build, mode=WEIGHTED, router=router, ahead=True)
    else:
        middle = torch.empty((rows, w13.width), dtype=torch.bfloat16, device=x.device)
        grouped(x, w13, routing, middle, build, rows_per_token=topk, mode=SILU)
        grouped(middle, w2, routing, parts, build, mode=WEIGHTED, router=router, overlap=True)
    sum_experts(parts, ids, out, w2.experts)
    return out


@lru_cache(maxsize=1)
def register_ops() -> Any:
    """Register `torch.ops.tilewright.nvfp4_fused_moe` (with its fake) and return it; once a process.

    The op takes tensors only: (x, w13_data, w13_scale, w2_data, w2_scale, topk_weights, topk_ids, hidden,
    inter, global_experts=None) with the `data` and `global_scale` of `PackedWeights`; `hidden` and `inter` are w13's
    and w2's K, which padding hides.
    """
    torch = torch_module()

    def run(
        x: Any, w13_data: Any, w13_scale: Any, w2_data: Any, w2_scale: Any, topk_weights: Any, topk_ids: Any,
        hidden: int, inter: int, global_experts: int | None = None,
    ) -> Any:  # fmt: skip
        w13 = PackedWeights(w13_data, w13_scale, 2 * inter, hidden, True)
        w2 = PackedWeights(w2_data, w2_scale, hidden, inter, False)
        return fused_moe(x, w13, w2, topk_weights, topk_ids, global_experts=global_experts)

    schema = (
        "(Tensor x, Tensor w13_data, Tensor w13_scale, Tensor w2_data, Tensor w2_scale, Tensor topk_weights, "
        "Tensor topk_ids, int hidden, int inter, int? global_experts=None) -> Tensor"
    )
    name = f"{LIBRARY}::nvfp4_fused_moe"
    torch.library.define(name, schema)
    torch.library.impl(name, "CUDA", run)

    def fake(x: Any, *_: Any) -> Any:
        return x.new_empty(x.shape, dtype=torch.bfloat16)

    torch.library.register_fake(name, fake)
    return torch.ops.tilewright.nvfp4_fused_moe.default
