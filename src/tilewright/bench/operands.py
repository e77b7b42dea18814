"""The numbers that a problem is run on: random, the same on every run, and what the right answer is."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import Any, Final

from tilewright.bench import reference
from tilewright.bench.problem import W4A4, GemmProblem, MoeProblem, as_dict, routing
from tilewright.store.result import canonical

FP8_MOST: Final = 448.0


@dataclass(frozen=True, slots=True)
class Nvfp4:
    """One or more matrices as a checkpoint holds them: codes uint8 [.., rows, K / 2], scales float8_e4m3fn
    [.., rows, K / 16], `factor` float32 [..]; `..` is nothing or experts."""

    codes: Any
    scales: Any
    factor: Any


@dataclass(frozen=True, slots=True)
class GemmOperands:
    """`x` [m, k] and `w` [n, k] (bf16, fp8, or `Nvfp4`); real values of fp8 are x * x_scale and w * w_scale."""

    x: Any
    w: Any
    x_scale: Any = None
    w_scale: Any = None


@dataclass(frozen=True, slots=True)
class MoeOperands:
    """`x` bf16 [tokens, hidden]; `w13` [experts, 2 inter, hidden], gate above up, `w2` [experts, hidden, inter] (bf16
    or `Nvfp4`); `ids` int32 and `router` float32 [tokens, topk]."""

    x: Any
    w13: Any
    w2: Any
    ids: Any
    router: Any


def _generator(torch: Any, problem: GemmProblem | MoeProblem, device: Any) -> Any:
    return torch.Generator(device=device).manual_seed(zlib.crc32(canonical(as_dict(problem))))


def _normal(torch: Any, shape: tuple[int, ...], generator: Any, device: Any) -> Any:
    """Standard normal bf16 divided by the square root of the last extent: products keep the size of what goes in."""
    made = torch.empty(shape, dtype=torch.bfloat16, device=device)
    return made.normal_(std=1 / math.sqrt(shape[-1]), generator=generator)


def _fp8(torch: Any, values: Any) -> tuple[Any, Any]:
    scale = values.float().abs().max() / FP8_MOST
    return (values.float() / scale).to(torch.float8_e4m3fn), scale


def gemm_operands(torch: Any, problem: GemmProblem, device: Any) -> GemmOperands:
    """Operands of a GEMM on `device`."""
    generator = _generator(torch, problem, device)
    x = torch.empty((problem.m, problem.k), dtype=torch.bfloat16, device=device).normal_(generator=generator)
    w = _normal(torch, (problem.n, problem.k), generator, device)
    if problem.dtype == "fp8":
        (x, x_scale), (w, w_scale) = _fp8(torch, x), _fp8(torch, w)
        return GemmOperands(x, w, x_scale, w_scale)
    if problem.dtype == "nvfp4":
        return GemmOperands(x, Nvfp4(*reference.quantise(torch, w)))
    if problem.dtype == W4A4:
        return GemmOperands(Nvfp4(*reference.quantise(torch, x)), Nvfp4(*reference.quantise(torch, w)))
    return GemmOperands(x, w)


def gemm_answer(torch: Any, operands: GemmOperands) -> Any:
    """The right answer, float32 [m, n]."""
    x, w = (
        reference.dequantise(torch, item.codes, item.scales, item.factor) if isinstance(item, Nvfp4) else item
        for item in (operands.x, operands.w)
    )
    out = reference.gemm(x, w)
    return out if operands.x_scale is None else out * (operands.x_scale * operands.w_scale)


def _experts(torch: Any, shape: tuple[int, int, int], generator: Any, device: Any, nvfp4: bool) -> Any:
    if not nvfp4:
        return _normal(torch, shape, generator, device)
    experts, rows, k = shape
    codes = torch.empty((experts, rows, k // 2), dtype=torch.uint8, device=device)
    scales = torch.empty((experts, rows, k // reference.BLOCK), dtype=torch.float8_e4m3fn, device=device)
    factor = torch.empty(experts, dtype=torch.float32, device=device)
    for expert in range(experts):  # one at a time: all of them in FP32 would take eight times the memory
        codes[expert], scales[expert], factor[expert] = reference.quantise(
            torch, _normal(torch, (rows, k), generator, device)
        )
    return Nvfp4(codes, scales, factor)


def moe_operands(torch: Any, problem: MoeProblem, device: Any) -> MoeOperands:
    """Operands of a MoE layer on `device`."""
    generator = _generator(torch, problem, device)
    nvfp4 = problem.dtype in ("nvfp4", W4A4)
    x = torch.empty((problem.tokens, problem.hidden), dtype=torch.bfloat16, device=device).normal_(generator=generator)
    w13 = _experts(torch, (problem.experts, 2 * problem.inter, problem.hidden), generator, device, nvfp4)
    w2 = _experts(torch, (problem.experts, problem.hidden, problem.inter), generator, device, nvfp4)
    ids = torch.tensor(routing(problem), dtype=torch.int32, device=device)
    router = torch.rand(ids.shape, generator=generator, device=device) + 0.1
    return MoeOperands(x, w13, w2, ids, router / router.sum(1, keepdim=True))


def moe_answer(torch: Any, operands: MoeOperands) -> Any:
    """The right answer, float32 [tokens, hidden]."""

    def matrix(weights: Any, expert: int) -> Any:
        if isinstance(weights, Nvfp4):
            return reference.dequantise(torch, weights.codes[expert], weights.scales[expert], weights.factor[expert])
        return weights[expert]

    def both(expert: int) -> tuple[Any, Any]:
        return matrix(operands.w13, expert), matrix(operands.w2, expert)

    return reference.moe(torch, operands.x, both, operands.ids, operands.router)


def copied(tensor: Any, copies: int) -> list[Any]:
    """`tensor` and as many clones as make `copies` of it: the same values at other addresses, so that L2 is cold."""
    return [tensor, *(tensor.clone() for _ in range(copies - 1))]


SCALE_ROWS: Final = 128
SCALE_COLUMNS: Final = 4
"""A tile of scales as cuBLAS and CUTLASS lay them out ("128x4"; cuBLAS documentation, 1D block scaling factors)."""


def tiled_scales(torch: Any, scales: Any) -> Any:
    """Block scales [rows, columns] in the order in which block-scaled MMAs read them, of the same type: tiles of
    128 x 4, padded with zeros; row r and column c of a tile lie at (r % 32) * 16 + r // 32 * 4 + c."""
    rows, columns = scales.shape
    up, across = -(-rows // SCALE_ROWS), -(-columns // SCALE_COLUMNS)
    padding = (0, across * SCALE_COLUMNS - columns, 0, up * SCALE_ROWS - rows)
    padded = torch.nn.functional.pad(scales.view(torch.uint8), padding)
    tiles = padded.reshape(up, 4, 32, across, SCALE_COLUMNS).permute(0, 3, 2, 1, 4)
    return tiles.reshape(up * SCALE_ROWS, across * SCALE_COLUMNS).contiguous().view(scales.dtype)
