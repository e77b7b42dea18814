"""One edit for every tactic of a launcher: how many bytes more StageCountAutoCarveout has to set aside.

The launcher passes `sizeof(CollectiveEpilogue::SharedStorage)` as the carveout. Adding a constant there makes the stage
count of an overflowing tile come out one lower. Which constant is the smallest that heals all of them, and what it does
to the tiles that were fine, is computed with the same model as `fit`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.cutlass.config import KernelConfig, parse_config
from tilewright.cutlass.fit import fit
from tilewright.cutlass.sm120_mainloop import mainloop
from tilewright.cutlass.verdict import Broken
from tilewright.libraries.flashinfer.model import Tactic

STEP = 128
"""Bytes; the alignment that CUTLASS rounds its own pipeline storage to (sm100_pipeline_carveout)."""
MOST = 8192
"""Beyond this a reserve costs a stage of most tiles: no cure."""


@dataclass(frozen=True)
class Reserve:
    """`extra` bytes more in the carveout; `healed` and `changed` are (tactic, stages then, bytes then)."""

    extra: int
    healed: tuple[tuple[Tactic, int, int], ...]
    changed: tuple[tuple[Tactic, int, int], ...]
    """Tactics that ran before and get fewer stages by it."""


def _with_stages(config: KernelConfig, stages: int) -> int | None:
    """Bytes of the kernel with that many stages, or None where it does not fit."""
    from msgspec.structs import replace

    budget = fit(replace(config, stages=stages), brief=True)
    return budget.smem_bytes if budget.status == "fits" else None


def _stages(config: KernelConfig, epilogue: int, extra: int) -> int | None:
    laid = mainloop(config, epilogue + extra)
    return None if isinstance(laid, Broken) else laid.stages


def find_reserve(failing: Sequence[Tactic], others: Sequence[Tactic]) -> Reserve | None:
    """The smallest reserve (in steps of 128 bytes) with which every one of `failing` fits; None where there is none."""
    parsed = [(tactic, parse_config(tactic.config or {})) for tactic in failing]
    if any(config.stages != "auto" or tactic.verdict.epilogue_bytes is None for tactic, config in parsed):
        return None
    for extra in range(STEP, MOST + 1, STEP):
        healed: list[tuple[Tactic, int, int]] = []
        for tactic, config in parsed:
            stages = _stages(config, tactic.verdict.epilogue_bytes or 0, extra)
            size = None if stages is None else _with_stages(config, stages)
            if stages is None or size is None:
                break
            healed.append((tactic, stages, size))
        if len(healed) == len(parsed):
            return Reserve(extra, tuple(healed), tuple(_changed(others, extra)))
    return None


def _changed(others: Sequence[Tactic], extra: int) -> list[tuple[Tactic, int, int]]:
    out: list[tuple[Tactic, int, int]] = []
    for tactic in others:
        if tactic.config is None or tactic.verdict.epilogue_bytes is None or tactic.verdict.status != "fits":
            continue
        config = parse_config(tactic.config)
        if config.stages != "auto":
            continue
        stages = _stages(config, tactic.verdict.epilogue_bytes, extra)
        if stages is not None and stages != tactic.verdict.stages:
            out.append((tactic, stages, _with_stages(config, stages) or 0))
    return out
