"""Which build of the grouped GEMM runs a problem: a small table over routed rows an expert. Not measured yet: the
token columns follow the rows, the stages what shared memory leaves."""

from __future__ import annotations

from tilewright.kernels.config import GroupedConfig


def choose(rows: int, experts: int) -> GroupedConfig:
    """The config for `rows` routed rows over `experts` experts.

    Only what the host knows without asking the device: how rows spread over experts is not looked at.
    """
    hit = max(1, min(rows, experts))
    average = rows / hit
    if average <= 4:
        return GroupedConfig(columns=1, stages=4)
    if average <= 16:
        return GroupedConfig(columns=2, stages=4)
    if average <= 48:
        return GroupedConfig(columns=4, stages=3)
    return GroupedConfig(columns=8, stages=3)
