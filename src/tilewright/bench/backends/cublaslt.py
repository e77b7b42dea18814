"""cuBLASLt's FP8 GEMM, as torch._scaled_mm calls it: one scale an operand."""

from __future__ import annotations

from typing import Any, Final

from tilewright.bench.backends.base import (
    Backend,
    Capability,
    Prepared,
    UnsupportedError,
    answers_checked,
    not_found,
    too_old,
)
from tilewright.bench.operands import copied, gemm_answer, gemm_operands
from tilewright.bench.problem import GemmProblem, Problem

WHOLE: Final = 16
"""n and k are multiples of this (torch/_meta_registrations.py, meta_scaled_mm)."""


def prepare(problem: Problem, torch: Any, copies: int) -> Prepared:
    """The calls of `problem` on torch's current device."""
    assert isinstance(problem, GemmProblem)
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


def missing(capability: Capability) -> str | None:
    return not_found("torch", "torch") or too_old(capability, (8, 9), "FP8")


BACKEND = Backend(name="cublaslt", formats={"gemm": ("fp8",)}, missing=missing, prepare=prepare, package="torch")
