"""SGLang's own kernels: the FP8 GEMM of its kernel package, and the Triton MoE layer.

Written against the sources of 0.4.9.post6 to 0.5.23 and not run.
"""

from __future__ import annotations

from functools import lru_cache
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
from tilewright.bench.operands import copied, gemm_answer, gemm_operands, moe_answer, moe_operands
from tilewright.bench.problem import GemmProblem, MoeProblem

PACKAGE: Final = "sglang"
FUSED: Final = (
    "sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe:fused_experts_impl",  # from 0.5.12 on
    "sglang.srt.layers.moe.fused_moe_triton.fused_moe:fused_experts_impl",
)


class Alone:
    """A tensor-parallel group of this process alone: layers ask how wide theirs is."""

    world_size = 1


def _gemm(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    needs(torch.cuda.get_device_capability(), (8, 9), "FP8")
    call = entry(PACKAGE, "sgl_kernel:fp8_scaled_mm")
    accepted(call, PACKAGE, ("mat_a", "mat_b", "scales_a", "scales_b", "out_dtype"))
    o = gemm_operands(torch, problem, "cuda")
    # It takes a scale for each row of both operands.
    rows, columns = (
        scale.expand(count).contiguous() for scale, count in ((o.x_scale, problem.m), (o.w_scale, problem.n))
    )
    calls = [
        lambda w=w: call(mat_a=o.x, mat_b=w.t(), scales_a=rows, scales_b=columns, out_dtype=torch.bfloat16)
        for w in copied(o.w, copies)
    ]
    config = {"call": "fp8_scaled_mm", "scales": "row"}
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), config)


@lru_cache(maxsize=1)
def configure() -> None:
    """Give SGLang what its layers read from a running server, once a process: settings, and (seen in 0.5.23) the
    group of its tensor parallelism. Nothing where a release needs none."""
    try:
        make = entry(PACKAGE, "sglang.srt.server_args:ServerArgs")
        use = entry(PACKAGE, "sglang.srt.server_args:set_global_server_args_for_scheduler")
    except UnsupportedError:
        return
    use(make(model_path="dummy"))
    try:
        parallel = entry(PACKAGE, "sglang.srt.runtime_context:get_parallel")()
    except UnsupportedError:
        return
    if hasattr(parallel, "override_permanently"):
        parallel.override_permanently(tp_group=Alone())


def _moe(problem: MoeProblem, torch: Any, copies: int) -> Prepared:
    call = entry(PACKAGE, *FUSED)
    more = accepted(
        call, PACKAGE, ("hidden_states", "w1", "w2", "topk_weights", "topk_ids"), {"filter_expert": False}
    )  # fmt: skip
    configure()
    o = moe_operands(torch, problem, "cuda")
    calls = [
        lambda w13=w13, w2=w2: call(
            hidden_states=o.x, w1=w13, w2=w2, topk_weights=o.router, topk_ids=o.ids, inplace=False, **more
        )
        for w13, w2 in zip(copied(o.w13, copies), copied(o.w2, copies), strict=True)
    ]
    config = {"call": "fused_experts_impl"}
    return Prepared(calls, answers_checked(calls, lambda: moe_answer(torch, o), torch), config)


def missing(capability: Capability) -> str | None:
    return not_found("sglang", PACKAGE) or too_old(capability, (8, 0), "bf16 in SGLang")


BACKEND = Backend(
    name="sglang",
    formats={"gemm": ("fp8",), "moe": ("bf16",)},
    missing=missing,
    prepare=by_kind(_gemm, _moe),
    package=PACKAGE,
)
