"""The Triton layer as a torch custom op, and either layer as a module that `torch.compile` traces through whole."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from tilewright.kernels.layout import PackedWeights
from tilewright.kernels.moe import LIBRARY, register_ops
from tilewright.kernels.parts import torch_module
from tilewright.kernels.triton_layout import TritonWeights
from tilewright.kernels.triton_moe import fused_moe_triton
from tilewright.kernels.triton_tiles import Activations

TRITON_OP = f"{LIBRARY}::nvfp4_fused_moe_triton"
_SCHEMA = (
    "(Tensor x, Tensor w13_codes, Tensor w13_scales, Tensor w13_factor, Tensor w2_codes, Tensor w2_scales, "
    "Tensor w2_factor, Tensor topk_weights, Tensor topk_ids, int hidden, int inter, str activations) -> Tensor"
)


@lru_cache(maxsize=1)
def register_triton_op() -> Any:
    """Register `torch.ops.tilewright.nvfp4_fused_moe_triton` (with its fake) and return it; once a process.

    The op takes tensors only: the parts of both `TritonWeights`, the scales as uint8 (checks of torch do arithmetic on
    what they are given, and there is none in FP8); `hidden` and `inter` are w13's and w2's K, which padding
    hides.
    """
    torch = torch_module()

    def run(
        x: Any, w13_codes: Any, w13_scales: Any, w13_factor: Any, w2_codes: Any, w2_scales: Any, w2_factor: Any,
        topk_weights: Any, topk_ids: Any, hidden: int, inter: int, activations: str,
    ) -> Any:  # fmt: skip
        first, second = (scales.view(torch.float8_e4m3fn) for scales in (w13_scales, w2_scales))
        w13 = TritonWeights(w13_codes, first, w13_factor, 2 * inter, hidden, True)
        w2 = TritonWeights(w2_codes, second, w2_factor, hidden, inter, False)
        kind = cast(Activations, activations)  # checked by the layer
        return fused_moe_triton(x, w13, w2, topk_weights, topk_ids, activations=kind)

    def fake(x: Any, *_: Any) -> Any:
        return x.new_empty(x.shape, dtype=torch.bfloat16)

    torch.library.define(TRITON_OP, _SCHEMA)
    torch.library.impl(TRITON_OP, ("cuda", "cpu"), run)  # cpu: Triton's interpreter
    torch.library.register_fake(TRITON_OP, fake)
    return torch.ops.tilewright.nvfp4_fused_moe_triton.default


def moe_module(
    w13: PackedWeights | TritonWeights, w2: PackedWeights | TritonWeights, *, activations: Activations = "bf16",
    global_experts: int | None = None,
) -> Any:  # fmt: skip
    """A `torch.nn.Module` with forward(x, topk_weights, topk_ids) -> bf16 [tokens, hidden] over these weights.

    Weights of `pack` run the CUDA C++ layer (`global_experts` is for it), those of `pack_triton` the Triton one
    (`activations` is for it). The weights are buffers: `.to()` and `state_dict` see them. Nothing in it breaks a
    graph of `torch.compile`.
    """
    torch = torch_module()
    if isinstance(w13, TritonWeights) and isinstance(w2, TritonWeights):
        op = register_triton_op()
        parts = {
            "w13_codes": w13.codes, "w13_scales": w13.scales.view(torch.uint8), "w13_factor": w13.factor,
            "w2_codes": w2.codes, "w2_scales": w2.scales.view(torch.uint8), "w2_factor": w2.factor,
        }  # fmt: skip
        last: tuple[Any, ...] = (w13.k, w2.k, activations)
    elif isinstance(w13, PackedWeights) and isinstance(w2, PackedWeights):
        op = register_ops()
        parts = {"w13_data": w13.data, "w13_scale": w13.global_scale, "w2_data": w2.data, "w2_scale": w2.global_scale}
        last = (w13.k, w2.k, global_experts)
    else:
        msg = "w13 and w2 are both of `pack` or both of `pack_triton`."
        raise TypeError(msg)
    base: Any = torch.nn.Module

    class Nvfp4Moe(base):
        """One expert layer; `topk_weights` and `topk_ids` are [tokens, topk]."""

        def __init__(self) -> None:
            super().__init__()  # pyright: ignore[reportUnknownMemberType]
            for name, tensor in parts.items():
                self.register_buffer(name, tensor)

        def forward(self, x: Any, topk_weights: Any, topk_ids: Any) -> Any:
            return op(x, *(getattr(self, name) for name in parts), topk_weights, topk_ids, *last)

    return Nvfp4Moe()
