"""DeepGEMM's dense GEMMs: bf16, and FP8 with a scale for 1 x 128 activations and 128 x 128 weights.

Written against the source of 2.8.0 (and the names of 1.x) and not run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tilewright.bench.backends.base import (
    Backend,
    Capability,
    Prepared,
    UnsupportedError,
    answers_checked,
    entry,
    not_found,
    too_old,
)
from tilewright.bench.operands import copied, gemm_answer, gemm_operands
from tilewright.bench.problem import GemmProblem, Problem

PACKAGE: Final = "deep-gemm"
BLOCK: Final = 128
FP8: Final = ("deep_gemm:fp8_gemm_nt", "deep_gemm:gemm_fp8_fp8_bf16_nt")
"""From 2.0 on, and before."""


def _out(torch: Any, problem: GemmProblem, device: Any) -> Any:
    return torch.full((problem.m, problem.n), float("nan"), dtype=torch.bfloat16, device=device)


def _bf16(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    call = entry(PACKAGE, "deep_gemm:bf16_gemm_nt")
    o = gemm_operands(torch, problem, "cuda")
    out = _out(torch, problem, o.x.device)

    def run(w: Any) -> Any:
        call(o.x, w, out)
        return out

    calls = [lambda w=w: run(w) for w in copied(o.w, copies)]
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), {"call": "bf16_gemm_nt"})


def _fp8(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    call = entry(PACKAGE, *FP8)
    if problem.n % BLOCK or problem.k % BLOCK:
        raise UnsupportedError(f"DeepGEMM's scales are for whole blocks: n and k are multiples of {BLOCK}")
    # Scales of 1 are exact in every format that a release or a GPU turns them into (FP32, or powers of two).
    o = gemm_operands(torch, problem, "cuda")
    x_scales = torch.ones((problem.m, problem.k // BLOCK), device=o.x.device)
    w_scales = torch.ones((problem.n // BLOCK, problem.k // BLOCK), device=o.x.device)
    o = replace(o, x_scale=x_scales[0, 0], w_scale=w_scales[0, 0])
    out = _out(torch, problem, o.x.device)

    def run(w: Any) -> Any:
        call((o.x, x_scales), (w, w_scales), out)
        return out

    calls = [lambda w=w: run(w) for w in copied(o.w, copies)]
    config = {"call": getattr(call, "__name__", FP8[0].partition(":")[2]), "scales": "1x128, 128x128"}
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), config)


def prepare(problem: Problem, torch: Any, copies: int) -> Prepared:
    """The calls of `problem` on torch's current device. Raises UnsupportedError where this release cannot."""
    assert isinstance(problem, GemmProblem)
    return _bf16(problem, torch, copies) if problem.dtype == "bf16" else _fp8(problem, torch, copies)


def missing(capability: Capability) -> str | None:
    return not_found("deep_gemm", PACKAGE) or too_old(capability, (9, 0), "DeepGEMM")


BACKEND = Backend(
    name="deep_gemm", formats={"gemm": ("bf16", "fp8")}, missing=missing, prepare=prepare, package=PACKAGE
)
