"""vLLM's own kernels: its CUTLASS FP8 and FP4 GEMMs, and the Triton MoE layer `fused_experts`.

Written against the sources of 0.11.2 to 0.34.0 and not run.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, Final

from tilewright.bench.backends.base import (
    Backend,
    Capability,
    Prepared,
    UnsupportedError,
    accepted,
    answers_checked,
    by_kind,
    entry,
    needs,
    not_found,
    too_old,
)
from tilewright.bench.operands import copied, gemm_answer, gemm_operands, moe_answer, moe_operands, tiled_scales
from tilewright.bench.problem import W4A4, GemmProblem, MoeProblem

PACKAGE: Final = "vllm"
OPS: Final = "vllm._custom_ops"
FUSED: Final = (
    "vllm.model_executor.layers.fused_moe.fused_moe:fused_experts",
    "vllm.model_executor.layers.fused_moe:fused_experts",
)


def _fp8(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    call = entry(PACKAGE, f"{OPS}:cutlass_scaled_mm")
    accepted(call, PACKAGE, ("a", "b", "scale_a", "scale_b", "out_dtype"))
    o = gemm_operands(torch, problem, "cuda")
    scale_a, scale_b = o.x_scale.reshape(1, 1), o.w_scale.reshape(1, 1)
    calls = [
        lambda w=w: call(a=o.x, b=w.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16)
        for w in copied(o.w, copies)
    ]
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), {"call": "cutlass_scaled_mm"})


def _fp4(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    needs(torch.cuda.get_device_capability(), (10, 0), "vLLM's cutlass_scaled_fp4_mm")
    call = entry(PACKAGE, f"{OPS}:cutlass_scaled_fp4_mm")
    accepted(call, PACKAGE, ("a", "b", "block_scale_a", "block_scale_b", "alpha", "out_dtype"))
    o = gemm_operands(torch, problem, "cuda")
    x_scales, w_scales = tiled_scales(torch, o.x.scales), tiled_scales(torch, o.w.scales)
    alpha = (o.x.factor * o.w.factor).reshape(1)
    calls = [
        lambda codes=codes, scales=scales: call(
            a=o.x.codes, b=codes, block_scale_a=x_scales, block_scale_b=scales, alpha=alpha, out_dtype=torch.bfloat16
        )
        for codes, scales in zip(copied(o.w.codes, copies), copied(w_scales, copies), strict=True)
    ]
    config = {"call": "cutlass_scaled_fp4_mm"}
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), config)


def settings() -> Any:
    """vLLM's default settings made the current ones, which some releases' layers ask for; nothing where it has none."""
    try:
        make, current = entry(PACKAGE, "vllm.config:VllmConfig"), entry(PACKAGE, "vllm.config:set_current_vllm_config")
        return current(make())
    except UnsupportedError:
        return nullcontext()


def _moe(problem: MoeProblem, torch: Any, copies: int) -> Prepared:
    call = entry(PACKAGE, *FUSED)
    accepted(call, PACKAGE, ("hidden_states", "w1", "w2", "topk_weights", "topk_ids"))
    o = moe_operands(torch, problem, "cuda")

    def run(w13: Any, w2: Any) -> Any:
        with settings():
            return call(hidden_states=o.x, w1=w13, w2=w2, topk_weights=o.router, topk_ids=o.ids)

    calls = [
        lambda w13=w13, w2=w2: run(w13, w2) for w13, w2 in zip(copied(o.w13, copies), copied(o.w2, copies), strict=True)
    ]
    return Prepared(calls, answers_checked(calls, lambda: moe_answer(torch, o), torch), {"call": "fused_experts"})


def _gemm(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    return _fp8(problem, torch, copies) if problem.dtype == "fp8" else _fp4(problem, torch, copies)


def missing(capability: Capability) -> str | None:
    return not_found("vllm", PACKAGE) or too_old(capability, (8, 9), "FP8 in vLLM")


BACKEND = Backend(
    name="vllm",
    formats={"gemm": ("fp8", W4A4), "moe": ("bf16",)},
    missing=missing,
    prepare=by_kind(_gemm, _moe),
    package=PACKAGE,
)
