"""vLLM's own kernels: its CUTLASS FP8 and FP4 GEMMs, the Triton MoE layer `fused_experts`, and its Marlin MoE layer of
NVFP4 weights with bf16 activations.

Written against the sources of 0.11.2 to 0.34.0 (Marlin: from 0.17.0 on); `fused_experts` of 0.22.0 ran on an H200 in
bf16, the others not.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import lru_cache
from types import SimpleNamespace
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
MARLIN: Final = (
    "vllm.model_executor.layers.fused_moe.experts.marlin_moe:fused_marlin_moe",  # from 0.27 on
    "vllm.model_executor.layers.fused_moe.fused_marlin_moe:fused_marlin_moe",
)
REPACK: Final = "vllm.model_executor.layers.quantization.utils.marlin_utils_fp4:prepare_nvfp4_moe_layer_for_marlin"


def _fp8(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    needs(torch.cuda.get_device_capability(), (8, 9), "FP8")
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


@lru_cache(maxsize=1)
def settings() -> ExitStack:
    """vLLM's default settings made the current ones, which some releases' layers ask for, for as long as this process
    lives: making them takes milliseconds, and belongs to no call. Nothing where a release has none."""
    stack = ExitStack()
    try:
        make, current = entry(PACKAGE, "vllm.config:VllmConfig"), entry(PACKAGE, "vllm.config:set_current_vllm_config")
        stack.enter_context(current(make()))
    except UnsupportedError:
        pass
    return stack


def _marlin(problem: MoeProblem, torch: Any, copies: int) -> Prepared:
    """Marlin, which vLLM takes where a GPU has no FP4, and on request (`--moe-backend marlin`) elsewhere."""
    call, repack = entry(PACKAGE, *MARLIN), entry(PACKAGE, REPACK)
    names = ("w1_scale", "w2_scale", "topk_weights", "topk_ids", "quant_type_id", "global_scale1", "global_scale2")
    more = accepted(call, PACKAGE, ("hidden_states", "w1", "w2", "bias1", "bias2", *names), {"workspace": None})
    accepted(repack, PACKAGE, ("layer", "w13", "w13_scale", "w13_scale_2", "w2", "w2_scale", "w2_scale_2"))
    kind = entry(PACKAGE, "vllm.scalar_type:scalar_types").float4_e2m1f.id
    o = moe_operands(torch, problem, "cuda")
    settings()
    # What the repacking asks of the layer; older releases leave the kernel's workspace in it.
    layer = SimpleNamespace(
        num_experts=problem.experts, hidden_size=problem.hidden, intermediate_size_per_partition=problem.inter,
        params_dtype=torch.bfloat16,
    )  # fmt: skip
    made = repack(
        layer=layer, w13=o.w13.codes, w13_scale=o.w13.scales, w13_scale_2=o.w13.factor, w2=o.w2.codes,
        w2_scale=o.w2.scales, w2_scale_2=o.w2.factor, is_act_and_mul=True,
    )  # fmt: skip
    if "workspace" in more:
        more["workspace"] = getattr(layer, "workspace", None)
    w13, w13_scale, w13_factor, w2, w2_scale, w2_factor = made
    parts = zip(*(copied(part, copies) for part in (w13, w13_scale, w2, w2_scale)), strict=True)
    calls = [
        lambda first=first, s1=s1, second=second, s2=s2: call(
            hidden_states=o.x, w1=first, w2=second, bias1=None, bias2=None, w1_scale=s1, w2_scale=s2,
            topk_weights=o.router, topk_ids=o.ids, quant_type_id=kind, global_scale1=w13_factor,
            global_scale2=w2_factor, **more,
        )
        for first, s1, second, s2 in parts
    ]  # fmt: skip
    return Prepared(calls, answers_checked(calls, lambda: moe_answer(torch, o), torch), {"call": "fused_marlin_moe"})


def _moe(problem: MoeProblem, torch: Any, copies: int) -> Prepared:
    if problem.dtype == "nvfp4":
        return _marlin(problem, torch, copies)
    call = entry(PACKAGE, *FUSED)
    accepted(call, PACKAGE, ("hidden_states", "w1", "w2", "topk_weights", "topk_ids"))
    o = moe_operands(torch, problem, "cuda")
    settings()
    calls = [
        lambda w13=w13, w2=w2: call(hidden_states=o.x, w1=w13, w2=w2, topk_weights=o.router, topk_ids=o.ids)
        for w13, w2 in zip(copied(o.w13, copies), copied(o.w2, copies), strict=True)
    ]
    return Prepared(calls, answers_checked(calls, lambda: moe_answer(torch, o), torch), {"call": "fused_experts"})


def _gemm(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    return _fp8(problem, torch, copies) if problem.dtype == "fp8" else _fp4(problem, torch, copies)


def missing(capability: Capability) -> str | None:
    return not_found("vllm", PACKAGE) or too_old(capability, (8, 0), "bf16 in vLLM")


BACKEND = Backend(
    name="vllm",
    formats={"gemm": ("fp8", W4A4), "moe": ("bf16", "nvfp4")},
    missing=missing,
    prepare=by_kind(_gemm, _moe),
    package=PACKAGE,
)
