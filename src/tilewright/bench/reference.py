"""What a kernel's answer is held against: NVFP4 as the format defines it, and products in plain FP32.

Shares no code with any kernel or with its repacking, so that a mistake cannot be made twice. Slow and obvious.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

E2M1: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of the codes 0 to 7 (OCP Microscaling Formats 1.0, table 5); bit 3 is the sign."""
BLOCK: Final = 16
"""Values along K that share a scale (NVFP4)."""
E4M3_MOST: Final = 448.0
_HALFWAY: Final = tuple((low + high) / 2 for low, high in pairwise(E2M1))

MAX_ERROR: Final = 0.02
"""Largest deviation over the reference's largest magnitude up to which an answer is right. Kernels that keep FP32 sums
and round to bf16 stay below 0.009 (docs/notes/bench.md)."""
NORM_ERROR: Final[dict[str, float]] = {"copy": 0.0, "read": 0.0, "allreduce": 0.01, "gemm": 0.01, "moe": 0.02}
"""Norm of the deviation over the reference's norm up to which an answer is right, by kind. Rounding to bf16 alone is
0.0017; a MoE layer rounds its middle, and some kernels each expert's part of the sum, once more."""


LAYER_W4A4: Final = 0.25
"""Both bounds for a layer that quantises its activations, which is held against one that does not: e2m1 alone costs a
norm of about 0.09 a product, 0.13 a layer (seen on random weights), and a wrong layer 1 or more."""


@dataclass(frozen=True, slots=True)
class Error:
    """How far an answer is from the reference. `largest`: deviation over the reference's largest magnitude; `norm`:
    norm of the deviation over the reference's; both NaN where the answer holds one."""

    largest: float
    norm: float

    def right(self, kind: str, *, quantising: bool = False) -> bool:
        """Whether an answer to a question of that kind is right; `quantising`: of a layer that quantises its
        activations itself. NaN never is."""
        if quantising:
            return self.largest <= LAYER_W4A4 and self.norm <= LAYER_W4A4
        return self.largest <= (0.0 if NORM_ERROR[kind] == 0 else MAX_ERROR) and self.norm <= NORM_ERROR[kind]


def error(out: Any, reference: Any) -> Error:
    """How far `out` is from `reference` (tensors of one shape)."""
    if out.shape != reference.shape:
        msg = f"The answer has the shape {list(out.shape)}, not {list(reference.shape)}."
        raise ValueError(msg)
    want = reference.double()
    apart = out.double() - want
    most, norm = float(want.abs().max()), float(want.norm())
    largest, deviation = float(apart.abs().max()), float(apart.norm())
    if most == 0:
        return Error(largest, deviation)
    return Error(largest / most, deviation / norm)


def quantise(torch: Any, weights: Any) -> tuple[Any, Any, Any]:
    """NVFP4 of float [rows, K], K a multiple of 16: (codes uint8 [rows, K / 2], even column in the low nibble; scales
    float8_e4m3fn [rows, K / 16]; global scale, float32 of no dimension, a factor). Round to nearest, ties to even."""
    rows, k = weights.shape
    values = weights.float()
    factor = values.abs().max() / (E2M1[-1] * E4M3_MOST)
    factor = torch.where(factor > 0, factor, torch.ones_like(factor))
    blocks = values.reshape(rows, k // BLOCK, BLOCK)
    scales = (blocks.abs().amax(-1) / (E2M1[-1] * factor)).to(torch.float8_e4m3fn)
    step = scales.float() * factor
    scaled = torch.where(step[..., None] > 0, blocks / step[..., None], torch.zeros_like(blocks)).reshape(rows, k)
    halfway = torch.tensor(_HALFWAY, device=weights.device)
    magnitude = scaled.abs().contiguous()
    below = torch.bucketize(magnitude, halfway)
    above = torch.bucketize(magnitude, halfway, right=True)  # differs from `below` halfway between two codes only
    code = torch.where(below % 2 == 0, below, above).to(torch.uint8)
    code |= (scaled < 0).to(torch.uint8) << 3
    return code[:, 0::2] | code[:, 1::2] << 4, scales, factor


def dequantise(torch: Any, codes: Any, scales: Any, factor: Any) -> Any:
    """float32 [rows, K] of what `quantise` gives."""
    table = torch.tensor([*E2M1, *(-value for value in E2M1)], device=codes.device)
    nibbles = torch.stack([codes & 15, codes >> 4], dim=-1).flatten(-2).long()
    return table[nibbles] * scales.float().repeat_interleave(BLOCK, dim=-1) * factor


def gemm(x: Any, weights: Any) -> Any:
    """float32 [m, n] of x [m, k] and weights [n, k]."""
    return x.float() @ weights.float().T


def moe(torch: Any, x: Any, weights_of: Any, ids: Any, router: Any) -> Any:
    """float32 [tokens, hidden]: sum over a token's experts of router weight * down(SiLU(gate) * up).

    `weights_of(expert)` gives (w13 [2 inter, hidden], w2 [hidden, inter]), gate above up. `ids`, `router`: [tokens,
    topk].
    """
    out = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert in ids.unique().tolist():
        w13, w2 = weights_of(expert)
        token, slot = (ids == expert).nonzero(as_tuple=True)
        gate, up = gemm(x[token], w13).chunk(2, dim=1)
        part = gemm(torch.nn.functional.silu(gate) * up, w2)
        out.index_add_(0, token, part * router[token, slot, None].float())
    return out
