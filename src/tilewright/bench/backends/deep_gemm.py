"""DeepGEMM's dense GEMMs: bf16, and FP8 with a scale for 1 x 128 activations and 128 x 128 weights.

Written against the sources of 1.0.0, 2.6.1 and SGLang's fork 0.2.5; of that fork 0.1.3 ran on an H200, bf16 and FP8.
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
RECIPE: Final = (1, BLOCK, BLOCK)
"""Rows of x, rows of w and values of K that share a scale."""
ELSEWHERE: Final = "Unsupported architecture"
"""What its C++ raises on a GPU that it has no kernel for (csrc/apis/gemm.hpp)."""


def _out(torch: Any, problem: GemmProblem, device: Any) -> Any:
    return torch.full((problem.m, problem.n), float("nan"), dtype=torch.bfloat16, device=device)


def _told(call: Any) -> Any:
    """`call`, which says it where this GPU has no kernel."""

    def run(*operands: Any) -> None:
        try:
            call(*operands)
        except RuntimeError as error:
            if ELSEWHERE not in str(error):
                raise
            msg = "this release of DeepGEMM has no kernel for this GPU"
            raise UnsupportedError(msg) from None

    return run


def arranged(x_scales: Any, w_scales: Any, problem: GemmProblem) -> tuple[Any, Any]:
    """Both operands' scales as the kernels read them, made once, as engines make those of weights: left in FP32 rows,
    every call would transpose or pack them again."""
    try:
        arrange = entry(PACKAGE, "deep_gemm:transform_sf_into_required_layout")
    except UnsupportedError:  # before 2.0: only x's, and their columns lie together
        return entry(PACKAGE, "deep_gemm:get_col_major_tma_aligned_tensor")(x_scales), w_scales
    return (
        arrange(sf=x_scales, mn=problem.m, k=problem.k, recipe=RECIPE, is_sfa=True),
        arrange(sf=w_scales, mn=problem.n, k=problem.k, recipe=RECIPE, is_sfa=False),
    )


def _bf16(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    call = _told(entry(PACKAGE, "deep_gemm:bf16_gemm_nt"))
    o = gemm_operands(torch, problem, "cuda")
    out = _out(torch, problem, o.x.device)

    def run(w: Any) -> Any:
        call(o.x, w, out)
        return out

    calls = [lambda w=w: run(w) for w in copied(o.w, copies)]
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), {"call": "bf16_gemm_nt"})


def _fp8(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    found = entry(PACKAGE, *FP8)
    call = _told(found)
    if problem.n % BLOCK or problem.k % BLOCK:
        raise UnsupportedError(f"DeepGEMM's scales are for whole blocks: n and k are multiples of {BLOCK}")
    # Scales of 1 are exact in every format that a release or a GPU turns them into (FP32, or powers of two).
    o = gemm_operands(torch, problem, "cuda")
    x_scales = torch.ones((problem.m, problem.k // BLOCK), device=o.x.device)
    w_scales = torch.ones((problem.n // BLOCK, problem.k // BLOCK), device=o.x.device)
    o = replace(o, x_scale=x_scales[0, 0], w_scale=w_scales[0, 0])
    x_scales, w_scales = arranged(x_scales, w_scales, problem)
    out = _out(torch, problem, o.x.device)

    def run(w: Any) -> Any:
        call((o.x, x_scales), (w, w_scales), out)
        return out

    calls = [lambda w=w: run(w) for w in copied(o.w, copies)]
    config = {"call": getattr(found, "__name__", FP8[0].partition(":")[2]), "scales": "1x128, 128x128"}
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
