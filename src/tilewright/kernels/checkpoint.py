"""A checkpoint's NVFP4 tensors as `layout.pack` takes them: ModelOpt's and compressed-tensors' names and factors.

Both store the same bytes: codes uint8 [out, in / 2] (low nibble first) and float8_e4m3fn scales [out, in / 16], linear.
They differ in names, and in the global scale: ModelOpt's `weight_scale_2` multiplies, compressed-tensors'
`weight_global_scale` divides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.errors import InputError, shown
from tilewright.kernels.layout import PackedWeights, pack
from tilewright.kernels.parts import torch_module

MODELOPT = ("weight", "weight_scale", "weight_scale_2")
COMPRESSED_TENSORS = ("weight_packed", "weight_scale", "weight_global_scale")


def read_linear(tensors: Mapping[str, Any], prefix: str) -> tuple[Any, Any, Any]:
    """(codes, scales, global factor) of the linear layer `prefix`, whichever of the two formats it is in.

    Raises:
        InputError: a tensor is missing, or the global scale is not one number.
    """
    torch = torch_module()
    names = COMPRESSED_TENSORS if f"{prefix}.{COMPRESSED_TENSORS[0]}" in tensors else MODELOPT
    for name in names:
        if f"{prefix}.{name}" not in tensors:
            raise InputError(
                f"{prefix}.{name}",
                f"There is no tensor {shown(f'{prefix}.{name}')}; an NVFP4 layer has {', '.join(MODELOPT)} (ModelOpt) "
                f"or {', '.join(COMPRESSED_TENSORS)} (compressed-tensors).",
            )
    codes, scales, factor = (tensors[f"{prefix}.{name}"] for name in names)
    if factor.numel() != 1:
        raise InputError(
            f"{prefix}.{names[2]}", f"The global scale {names[2]} is one number, not {list(factor.shape)}."
        )
    factor = factor.reshape(()).to(torch.float32)
    least = "above 0" if names is COMPRESSED_TENSORS else "from 0 up"  # the reciprocal of a factor, or the factor
    if not bool(factor.isfinite()) or factor < 0 or (names is COMPRESSED_TENSORS and factor == 0):
        raise InputError(
            f"{prefix}.{names[2]}", f"The global scale {names[2]} is a number {least}, not {float(factor)}."
        )
    return codes, scales, 1 / factor if names is COMPRESSED_TENSORS else factor


def _stacked(parts: Sequence[tuple[Any, Any, Any]], prefix: str) -> tuple[Any, Any, Any]:
    torch = torch_module()
    for part in parts:
        if part[0].shape != parts[0][0].shape or part[1].shape != parts[0][1].shape:
            raise InputError(prefix, f"The experts of {shown(prefix)} do not all have the same shape.")
    codes, scales, factors = zip(*parts, strict=True)
    return torch.stack(codes), torch.stack([scale.view(torch.uint8) for scale in scales]), torch.stack(factors)


def pack_experts(
    tensors: Mapping[str, Any], prefix: str, experts: Sequence[int], *, device: Any = None
) -> tuple[PackedWeights, PackedWeights]:
    """(w13, w2) of the experts `experts` under `prefix` (such as `model.layers.3.mlp.experts`), packed.

    Reads `{prefix}.{expert}.{gate,up,down}_proj`. Gate's and up's global scales may differ: each is kept.

    Raises:
        InputError: a tensor is missing or has another shape or type.
    """
    torch = torch_module()
    read = {
        name: _stacked([read_linear(tensors, f"{prefix}.{expert}.{name}_proj") for expert in experts], prefix)
        for name in ("gate", "up", "down")
    }
    if read["gate"][0].shape != read["up"][0].shape:
        raise InputError(prefix, f"gate_proj and up_proj of {shown(prefix)} differ in shape.")
    both = [torch.cat([read["gate"][i], read["up"][i]], dim=1).to(device) for i in range(2)]
    factors = torch.stack([read["gate"][2], read["up"][2]], dim=1).to(device)
    down = [part.to(device) for part in read["down"]]
    return pack(both[0], both[1], factors, gated=True), pack(down[0], down[1], down[2])
