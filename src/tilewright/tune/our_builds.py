"""What our NVFP4 layer runs where nothing is tuned: a start for the search, and where another kernel runs instead."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tilewright.kernels.choose import choose, row_by_row
from tilewright.kernels.config import GroupedConfig
from tilewright.tune.layer import Problem
from tilewright.tune.space import Config


def default_build(problem: Problem) -> Config | None:
    """The config of the grouped kernel that the layer runs untuned; None where it runs another kernel."""
    rows, experts = problem.tokens * problem.layer.topk, problem.layer.experts
    build = None if row_by_row(rows, experts) else choose(rows, experts)
    return dataclasses.asdict(build) if isinstance(build, GroupedConfig) else None


def other_kernels(problems: Sequence[Problem]) -> list[str]:
    """A note where the layer runs a kernel that is not searched here."""
    others = [problem.tokens for problem in problems if problem.kernel == "ours" and default_build(problem) is None]
    if not others:
        return []
    counts = ", ".join(f"{count:,}" for count in others)
    return [
        f"At {counts} tokens fused_moe runs another kernel than the grouped one that is searched here (row by row, or "
        "wgmma on Hopper), and keeps doing so with a tuned file."
    ]
