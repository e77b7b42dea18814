"""FlashInfer's kernels through its public calls: mm_bf16, bmm_fp8, mm_fp4 and cutlass_fused_moe.

Written against the sources of 0.6.2 to 0.7.4; bmm_fp8 of 0.6.14 ran on an H200, the others not. They compile
themselves on first use, and are tuned for the problem before they are timed, as engines do at start-up: both can take
longer than the default --time-limit.
"""

from __future__ import annotations

from functools import partial
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
from tilewright.bench.operands import (
    Nvfp4,
    copied,
    gemm_answer,
    gemm_operands,
    moe_answer,
    moe_operands,
    tiled_scales,
)
from tilewright.bench.problem import W4A4, GemmProblem, MoeProblem
from tilewright.bench.reference import E2M1, E4M3_MOST

PACKAGE: Final = "flashinfer-python"
BLACKWELL: Final = (10, 0)
NOT_HERE: Final = "BackendSupportedError"
"""What its calls raise where none of their backends takes the arguments (flashinfer/utils.py)."""
_LONG: Final = 8
"""cutlass_fused_moe takes packed FP4 weights as int64: 16 codes each."""


def _call(name: str) -> Any:
    return entry(PACKAGE, f"flashinfer:{name}", f"flashinfer.gemm:{name}", f"flashinfer.fused_moe:{name}")


def able(call: Any, capability: Capability, what: str) -> None:
    """Raises UnsupportedError where `call` has no kernel for such a GPU. Releases tell it of each call: mm_bf16 was for
    Blackwell alone in 0.6.2, and takes cuDNN's and other kernels on Hopper in 0.6.14. One that does not tell is taken
    to be for Blackwell."""
    tells = getattr(call, "is_compute_capability_supported", None)
    if tells is None:
        needs(capability, BLACKWELL, what)
    elif not tells(10 * capability[0] + capability[1]):
        msg = f"{what} has no kernel for compute capability {capability[0]}.{capability[1]} in this release"
        raise UnsupportedError(msg)


def tuned(call: Any) -> bool:
    """Let FlashInfer's autotuner try its tactics on `call`, which later calls of these sizes take; whether it could.

    Raises:
        UnsupportedError: none of its kernels takes this problem here.
    """
    try:
        autotune = entry(PACKAGE, "flashinfer:autotune", "flashinfer.autotuner:autotune")
    except UnsupportedError:
        return False
    try:
        with autotune(True):
            call()
    except Exception as error:
        if type(error).__name__ != NOT_HERE:
            raise
        msg = f"no kernel of this release takes this problem on this GPU ({error})"
        raise UnsupportedError(msg) from None
    return True


def _gemm(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    capability = torch.cuda.get_device_capability()
    out_dtype = torch.bfloat16
    if problem.dtype == "bf16":
        call = _call("mm_bf16")
        able(call, capability, "FlashInfer's mm_bf16")
        more = accepted(call, PACKAGE, ("a", "b"), {"backend": "auto"})
        o = gemm_operands(torch, problem, "cuda")
        calls = [lambda w=w: call(a=o.x, b=w.t(), **more) for w in copied(o.w, copies)]
        config = {"call": "mm_bf16", "tuned": tuned(calls[0])}
        return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), config)
    if problem.dtype == "fp8":
        needs(capability, (8, 9), "FP8")
        call = _call("bmm_fp8")
        more = accepted(call, PACKAGE, ("A", "B", "A_scale", "B_scale", "dtype"), {"backend": "auto"})
        o = gemm_operands(torch, problem, "cuda")
        scales = {"A_scale": o.x_scale, "B_scale": o.w_scale, "dtype": out_dtype, **more}
        calls = [lambda w=w: call(A=o.x[None], B=w[None].transpose(1, 2), **scales)[0] for w in copied(o.w, copies)]
        config = {"call": "bmm_fp8", "tuned": tuned(calls[0])}
        return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), config)
    call = _call("mm_fp4")
    able(call, capability, "FlashInfer's mm_fp4")
    names = ("a", "b", "a_descale", "b_descale", "alpha", "out_dtype")
    more = accepted(call, PACKAGE, names, {"backend": "cutlass"})
    o = gemm_operands(torch, problem, "cuda")
    x_scales, w_scales = (tiled_scales(torch, item.scales).view(torch.uint8) for item in (o.x, o.w))
    alpha = (o.x.factor * o.w.factor).reshape(1)
    pairs = zip(copied(o.w.codes, copies), copied(w_scales, copies), strict=True)
    calls = [
        lambda codes=codes, scales=scales: call(
            a=o.x.codes, b=codes.t(), a_descale=x_scales, b_descale=scales.t(), alpha=alpha, out_dtype=out_dtype, **more
        )
        for codes, scales in pairs
    ]
    config = {"call": "mm_fp4", "backend": more.get("backend", "its own choice"), "tuned": tuned(calls[0])}
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), config)


def up_above_gate(weights: Any) -> Any:
    """Rows gate, up of [experts, 2 inter, ..] the other way round, as cutlass_fused_moe reads them."""
    half = weights.shape[1] // 2
    return weights.roll(half, dims=1)


def _fp4_weights(torch: Any, weights: Nvfp4) -> tuple[Any, Any]:
    """(codes as int64, tiled scales as int32 [experts, ..]) of a stack of matrices."""
    scales = torch.stack([tiled_scales(torch, each) for each in weights.scales])
    return weights.codes.contiguous().view(torch.int64), scales.view(torch.uint8).view(torch.int32)


def _moe(problem: MoeProblem, torch: Any, copies: int) -> Prepared:
    call = _call("cutlass_fused_moe")
    names = (
        "input", "token_selected_experts", "token_final_scales", "fc1_expert_weights", "fc2_expert_weights",
        "output_dtype", "quant_scales",
    )  # fmt: skip
    # Tactics are tried for numbers of tokens up to this.
    more = accepted(call, PACKAGE, names, {"tune_max_num_tokens": problem.tokens})
    quantised = problem.dtype == W4A4
    needs(torch.cuda.get_device_capability(), BLACKWELL if quantised else (9, 0), "FlashInfer's cutlass_fused_moe")
    if quantised and (problem.hidden % (2 * _LONG) or problem.inter % (2 * _LONG)):
        raise UnsupportedError(f"FP4 layers take sizes that are multiples of {2 * _LONG}")
    o = moe_operands(torch, problem, "cuda")
    weights: list[tuple[Any, ...]]
    scales: list[Any]
    if quantised:
        first = Nvfp4(up_above_gate(o.w13.codes), up_above_gate(o.w13.scales.view(torch.uint8)), o.w13.factor)
        first = Nvfp4(first.codes, first.scales.view(torch.float8_e4m3fn), first.factor)
        (w13, s13), (w2, s2) = _fp4_weights(torch, first), _fp4_weights(torch, o.w2)
        # Activations' global scales are reciprocals of factors: the largest value becomes 6 * 448. That of the middle
        # is not known beforehand; 1 leaves it to the block scales.
        top = (E2M1[-1] * E4M3_MOST / o.x.float().abs().max()).reshape(())
        one = torch.ones((), device=o.x.device)
        weights = list(zip(*(copied(item, copies) for item in (w13, w2, s13, s2)), strict=True))
        scales = [[top, sf1, o.w13.factor / top, one, sf2, o.w2.factor] for _, _, sf1, sf2 in weights]
    else:
        scales = [[]] * copies
        weights = list(zip(copied(up_above_gate(o.w13), copies), copied(o.w2, copies), strict=True))

    def run(item: tuple[Any, ...], quant: Any) -> Any:
        answer = call(
            input=o.x, token_selected_experts=o.ids, token_final_scales=o.router, fc1_expert_weights=item[0],
            fc2_expert_weights=item[1], output_dtype=torch.bfloat16, quant_scales=quant, **more,
        )  # fmt: skip
        return answer[0] if isinstance(answer, list | tuple) else answer  # pyright: ignore[reportUnknownVariableType]

    calls = [partial(run, item, quant) for item, quant in zip(weights, scales, strict=True)]
    config = {"call": "cutlass_fused_moe", "tuned": tuned(calls[0])}
    return Prepared(calls, answers_checked(calls, lambda: moe_answer(torch, o), torch), config)


def missing(capability: Capability) -> str | None:
    return not_found("flashinfer", PACKAGE) or too_old(capability, (8, 0), "bf16 in FlashInfer")


BACKEND = Backend(
    name="flashinfer",
    formats={"gemm": ("bf16", "fp8", W4A4), "moe": ("bf16", W4A4)},
    missing=missing,
    prepare=by_kind(_gemm, _moe),
    package=PACKAGE,
)
