"""cuBLASLt's FP8 GEMM as torch._scaled_mm calls it, one scale an operand, and its NVFP4 GEMM by torch's scaled_mm.

FP8 ran on an H200. NVFP4 needs the block-scaled MMA of SM100 and later and was not run: its arguments were held against
torch 2.11 and 2.14.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.bench.backends.base import (
    Backend,
    Capability,
    Prepared,
    UnsupportedError,
    answers_checked,
    needs,
    not_found,
    too_old,
)
from tilewright.bench.operands import copied, gemm_answer, gemm_operands, tiled_scales
from tilewright.bench.problem import W4A4, GemmProblem, Problem

WHOLE: Final = 16
"""n and k are multiples of this (torch/_meta_registrations.py, meta_scaled_mm)."""
WHOLE_FP4: Final = 32
"""k is one of this: 16 bytes of codes."""


def _fp8(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    if problem.n % WHOLE or problem.k % WHOLE:
        msg = f"FP8 products take an n and a k that are multiples of {WHOLE}"
        raise UnsupportedError(msg)
    o = gemm_operands(torch, problem, "cuda")

    def call(w: Any) -> Any:
        return torch._scaled_mm(
            o.x, w.t(), scale_a=o.x_scale, scale_b=o.w_scale, out_dtype=torch.bfloat16, use_fast_accum=True
        )

    calls = [lambda w=w: call(w) for w in copied(o.w, copies)]
    config = {"call": "_scaled_mm", "scales": "tensor", "fast_accum": True}
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), config)


def _nvfp4(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    needs(torch.cuda.get_device_capability(), (10, 0), "a block-scaled MMA")
    functional = torch.nn.functional
    scaled_mm: Any = getattr(functional, "scaled_mm", None)
    if scaled_mm is None:
        msg = f"torch {torch.__version__} has no scaled_mm: NVFP4 products came with 2.10"
        raise UnsupportedError(msg)
    if problem.n % WHOLE or problem.k % WHOLE_FP4:
        msg = f"NVFP4 products take an n that is a multiple of {WHOLE} and a k that is one of {WHOLE_FP4}"
        raise UnsupportedError(msg)
    o = gemm_operands(torch, problem, "cuda")
    x = o.x.codes.view(torch.float4_e2m1fn_x2)
    x_scales, w_scales = (tiled_scales(torch, item.scales) for item in (o.x, o.w))
    block, tiles = functional.ScalingType.BlockWise1x16, functional.SwizzleType.SWIZZLE_32_4_4
    how = {
        "scale_recipe_a": block, "scale_recipe_b": block, "swizzle_a": tiles, "swizzle_b": tiles,
        "output_dtype": torch.bfloat16,
    }  # fmt: skip
    # Without the operands' factors: a GEMM applies them for nothing, and torch would multiply them in a kernel more.
    calls = [
        lambda codes=codes, scales=scales: scaled_mm(x, codes.t(), scale_a=x_scales, scale_b=scales, **how)
        for codes, scales in zip(
            (codes.view(torch.float4_e2m1fn_x2) for codes in copied(o.w.codes, copies)),
            copied(w_scales, copies),
            strict=True,
        )
    ]
    factor = o.x.factor * o.w.factor
    check = answers_checked(calls, lambda: gemm_answer(torch, o) / factor, torch)
    return Prepared(calls, check, {"call": "scaled_mm", "scales": "1x16", "factors": False})


def prepare(problem: Problem, torch: Any, copies: int) -> Prepared:
    """The calls of `problem` on torch's current device."""
    assert isinstance(problem, GemmProblem)
    return _nvfp4(problem, torch, copies) if problem.dtype == W4A4 else _fp8(problem, torch, copies)


def missing(capability: Capability) -> str | None:
    return not_found("torch", "torch") or too_old(capability, (8, 9), "FP8")


BACKEND = Backend(name="cublaslt", formats={"gemm": ("fp8", W4A4)}, missing=missing, prepare=prepare, package="torch")
