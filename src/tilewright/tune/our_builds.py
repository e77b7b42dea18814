"""What our NVFP4 layer runs where nothing is tuned: a start for the search, and where another kernel runs instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.kernels.choose import Gpu, layer_build
from tilewright.kernels.config import GroupedConfig
from tilewright.kernels.layout import STEP_K
from tilewright.tune.layer import Problem
from tilewright.tune.order import Machine
from tilewright.tune.space import Config

HOPPER = 90
"""The SM with wgmma."""
RESERVED_BYTES = 1024
"""Of a multiprocessor's shared memory, beside what a block may have (CUDA C++ Programming Guide)."""


def default_build(problem: Problem, machine: Machine) -> Config | None:
    """The config of the grouped kernel that the layer runs untuned on `machine`; None where it runs another kernel."""
    rows, experts = problem.tokens * problem.layer.topk, problem.layer.experts
    gpu = Gpu(machine.sms, machine.sm == HOPPER, shared_bytes=machine.limit + RESERVED_BYTES)
    steps, second_steps = (-(-size // STEP_K) for size in (problem.layer.hidden, problem.layer.inter))
    build = layer_build(rows, 2 * problem.layer.inter, steps, second_steps, experts, gpu)
    return dataclasses.asdict(build) if isinstance(build, GroupedConfig) else None


def other_kernels(problems: Sequence[Problem], machine: Machine) -> list[str]:
    """A note where the layer runs a kernel that is not searched here."""
    ours = [problem for problem in problems if problem.kernel == "ours"]
    others = [problem.tokens for problem in ours if default_build(problem, machine) is None]
    if not others:
        return []
    counts = ", ".join(f"{count:,}" for count in others)
    return [
        f"At {counts} tokens fused_moe runs another kernel than the grouped one that is searched here (row by row, or "
        "wgmma on Hopper), and keeps doing so with a tuned file."
    ]
