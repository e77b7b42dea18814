"""NVFP4 weights as the Triton kernels read them, made once from a checkpoint's layout.

One layout serves both kernels. Rows stay rows. K is padded to whole steps of 128 values. Within 16 values (those that
share a scale) byte j holds values j and j + 8 instead of 2 j and 2 j + 1: decoded, the low nibbles meet the first eight
activations of each 16 and the high nibbles the last eight, both read 16 bytes at a time; multiplied by the hardware,
the order inside 16 does not matter as long as the activations follow it. The scales of a step lie together, [experts,
steps, rows, 8], so that a tile reads them in one piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.kernels.layout import SIGN_BIT, STEP_K, VALUES_A_SCALE, check_weights
from tilewright.kernels.parts import torch_module

HALF = VALUES_A_SCALE // 2
SCALES_A_STEP = STEP_K // VALUES_A_SCALE


@dataclass(frozen=True, slots=True)
class TritonWeights:
    """One matrix per expert in the Triton kernels' layout.

    `codes` is uint8 [experts, rows, steps * 64], `scales` float8_e4m3fn [experts, steps, rows, 8], `factor` float32
    [experts, 2] (equal, or gate's and up's). `rows` counts the matrix's rows (with `gated` gate 0, up 0, gate 1, ...),
    `k` its columns before padding.
    """

    codes: Any
    scales: Any
    factor: Any
    rows: int
    k: int
    gated: bool

    @property
    def experts(self) -> int:
        return int(self.codes.shape[0])

    @property
    def device(self) -> Any:
        return self.codes.device

    @property
    def steps(self) -> int:
        """128-value steps of K, the last one padded with zeros."""
        return int(self.scales.shape[1])

    @property
    def width(self) -> int:
        """Columns of the output: half the rows where gate and up are joined."""
        return self.rows // 2 if self.gated else self.rows


def pack_triton(codes: Any, scales: Any, global_scale: Any, *, gated: bool = False) -> TritonWeights:
    """Checkpoint tensors in the Triton kernels' layout, on the device that `codes` is on.

    Arguments and errors are those of `layout.pack`.

    Raises:
        InputError: a shape or type is another, or a scale is negative.
    """
    torch = torch_module()
    experts, rows, k = check_weights(codes, scales, global_scale, gated)
    steps = -(-k // STEP_K)
    scale_bytes = scales.view(torch.uint8)
    order = _row_order(torch, rows, codes.device) if gated else None
    packed = torch.zeros((experts, rows, steps * STEP_K // 2), dtype=torch.uint8, device=codes.device)
    stored = torch.zeros((experts, steps, rows, SCALES_A_STEP), dtype=torch.uint8, device=codes.device)
    for expert in range(experts):  # one at a time: nibbles of all of them would take several times the memory
        of = codes[expert] if order is None else codes[expert][order]
        scale = scale_bytes[expert] if order is None else scale_bytes[expert][order]
        nibbles = torch.stack([of & 15, of >> 4], dim=-1).reshape(rows, k // VALUES_A_SCALE, 2, HALF)
        packed[expert, :, : k // 2] = (nibbles[:, :, 0] | nibbles[:, :, 1] << 4).reshape(rows, k // 2)
        scale = torch.nn.functional.pad(scale & ~SIGN_BIT, (0, steps * SCALES_A_STEP - k // VALUES_A_SCALE))
        stored[expert] = scale.reshape(rows, steps, SCALES_A_STEP).transpose(0, 1)
    factors = global_scale.to(device=codes.device, dtype=torch.float32)
    if factors.ndim == 1:
        factors = factors[:, None].expand(-1, 2)
    return TritonWeights(packed, stored.view(torch.float8_e4m3fn), factors.contiguous(), rows, k, gated)


def _row_order(torch: Any, rows: int, device: Any) -> Any:
    """Gate's and up's rows in turn: a tile's epilogue finds a gate beside its up."""
    return torch.arange(rows, device=device).reshape(2, rows // 2).T.reshape(-1)


def unpack_triton(packed: TritonWeights) -> Any:
    """The weights as float32 [experts, rows, K] in the checkpoint's order of rows, factor included."""
    torch = torch_module()
    from tilewright.kernels.layout import E2M1_VALUES

    table = torch.tensor([*E2M1_VALUES, *(-value for value in E2M1_VALUES)], device=packed.codes.device)
    halves = packed.codes.reshape(packed.experts, packed.rows, -1, HALF)
    nibbles = torch.stack([halves & 15, halves >> 4], dim=3).reshape(packed.experts, packed.rows, -1)
    scale = packed.scales.float().transpose(1, 2).reshape(packed.experts, packed.rows, -1)
    matrix = table[nibbles.long()] * scale.repeat_interleave(VALUES_A_SCALE, dim=-1)
    matrix = matrix[..., : packed.k]
    if not packed.gated:
        return matrix * packed.factor[:, :1, None]
    out = torch.empty_like(matrix)
    out[:, _row_order(torch, packed.rows, matrix.device)] = matrix
    return out * packed.factor.repeat_interleave(packed.rows // 2, dim=1)[..., None]
