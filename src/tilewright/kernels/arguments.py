"""What a caller may pass to the layers: one check for each argument, the same for CUDA C++ and Triton."""

from __future__ import annotations

from typing import Any, Protocol

from tilewright.errors import InputError
from tilewright.kernels.parts import torch_module


class Weights(Protocol):
    """What both layouts of weights tell of themselves (`PackedWeights`, `TritonWeights`)."""

    @property
    def gated(self) -> bool: ...
    @property
    def width(self) -> int: ...
    @property
    def k(self) -> int: ...
    @property
    def experts(self) -> int: ...
    @property
    def device(self) -> Any: ...


def activations_of(x: Any, weights: Weights, alignment: int = 1) -> Any:
    """`x`, bf16 [tokens, K of `weights`], with unit stride along K and rows that begin at multiples of `alignment`
    bytes; a copy if it has not.

    Raises:
        InputError: another type, shape or device than the weights'.
    """
    torch, k = torch_module(), weights.k
    if x.ndim != 2 or x.dtype != torch.bfloat16 or int(x.shape[1]) != k:
        raise InputError("x", f"Activations are bfloat16 [tokens, {k}], not {x.dtype} {list(x.shape)}.")
    check_device("weights", weights.device, x)
    # A stride of 0 (an expanded row) is a legal one.
    aligned = x.data_ptr() % alignment == 0 and x.stride(0) * x.element_size() % alignment == 0
    return x if x.stride(1) == 1 and aligned and x.stride(0) >= 0 else x.contiguous()


def check_device(name: str, device: Any, x: Any) -> None:
    """Raises InputError when what is called `name` lies elsewhere than `x`: the kernels are given bare addresses."""
    if device != x.device:
        raise InputError(name, f"{name} is on {device} and x on {x.device}; move both to one device.")


def experts_of(topk_ids: Any, x: Any, experts: int, most: int) -> Any:
    """`topk_ids` as int32 [tokens of `x`, topk], contiguous; numbers past int32 stay outside 0..experts-1.

    Raises:
        InputError: another type, shape or device than x's, or more experts than `most`.
    """
    torch, tokens = torch_module(), int(x.shape[0])
    check_device("topk_ids", topk_ids.device, x)
    if topk_ids.ndim != 2 or int(topk_ids.shape[0]) != tokens or topk_ids.dtype not in (torch.int32, torch.int64):
        raise InputError(
            "topk_ids", f"Routed experts are int32 or int64 [{tokens}, topk], not {topk_ids.dtype} "
            f"{list(topk_ids.shape)}."
        )  # fmt: skip
    if experts > most:
        raise InputError("experts", f"{experts} experts on one GPU are more than {most}.")
    if topk_ids.dtype == torch.int64:
        topk_ids = topk_ids.clamp(-1, experts)
    return topk_ids.to(torch.int32).contiguous()


def router_of(topk_weights: Any, ids: Any) -> Any:
    """`topk_weights` as float32 of the shape of `ids`, contiguous. Raises InputError when shapes or devices differ."""
    check_device("topk_weights", topk_weights.device, ids)
    if list(topk_weights.shape) != list(ids.shape):
        raise InputError("topk_weights", f"Router weights are {list(ids.shape)}, not {list(topk_weights.shape)}.")
    return topk_weights.to(torch_module().float32).contiguous()


def check_pair(w13: Weights, w2: Weights) -> None:
    """Raises InputError when the two matrices are not those of one layer."""
    if not w13.gated or w2.gated or w13.width != w2.k or w13.k != w2.width or w13.experts != w2.experts:
        raise InputError(
            "w2", "w13 is packed with gated=True, w2 is not; w2's K is half of w13's rows, its rows w13's K."
        )
    if w13.device != w2.device:
        raise InputError("w2", f"w2 is on {w2.device} and w13 on {w13.device}; move both to one device.")
