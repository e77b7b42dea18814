"""Plans for the report's tests: made once, changed by each test as it likes."""

from __future__ import annotations

import copy
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.cutlass.segments import segments
from tilewright.plan.finding import Plan
from tilewright.plan.make import plan

DRIVING = {"model": "GLM-5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 8, "engine": "sglang"}
OVERFLOW = {
    "cutlass": "4.2.1", "arch": "sm120", "kind": "grouped", "a": "nvfp4", "b": "nvfp4", "tile": [128, 256, 128],
    "fusion": "finalize",
}  # fmt: skip
TRIED = [
    {
        "id": 1, "at": "2026-03-01T10:00:00Z", "finding": "more_requests", "change": "--max-running-requests 64",
        "metric": "decode tok/s", "before": 427.4, "after": 547.1, "gain_pct": 28.0,
        "gave": "+28.0 %", "change_pct": 28.0, "better": "higher", "spread_pct": 0.4,
        "verdict": "kept", "same_conditions": True, "note": "",
    },
    {
        "id": 2, "at": "2026-03-02T10:00:00Z", "finding": "", "change": "NCCL_MIN_NCHANNELS=8",
        "metric": "decode tok/s", "before": 547.1, "after": 540.0, "gain_pct": -1.3,
        "gave": "-1.3 %", "change_pct": -1.3, "better": "higher", "spread_pct": 2.1,
        "verdict": "reverted", "same_conditions": False, "note": "within the noise",
    },
]  # fmt: skip


def _state(change: dict[str, Any]) -> dict[str, Any]:
    budget = fit(parse_config({**OVERFLOW, **change}))
    return {
        "status": budget.status, "stages": budget.stages, "smem_bytes": budget.smem_bytes,
        "excess_bytes": budget.excess_bytes, "segments": msgspec.to_builtins(segments(budget)),
    }  # fmt: skip


def tile_budget() -> dict[str, Any]:
    """What the rule gives for the driving tile, without a library."""
    after = [{"change": change, "note": "", **_state(change)} for change in ({"stages": 2}, {"swap_ab": True})]
    return {"tactic": "128x256x128 finalize bf16", "limit_bytes": 101_376, "before": _state({}), "after": after}


@cache
def _driving() -> bytes:
    made = msgspec.to_builtins(plan(**DRIVING))
    made["baseline"]["tile_budgets"] = [tile_budget()]
    made["baseline"]["tried"] = TRIED
    return msgspec.json.encode(made)


def document() -> dict[str, Any]:
    """The driving case as plan.json holds it, with a tile's budget and a journal; the caller's own copy."""
    return copy.deepcopy(msgspec.json.decode(_driving()))


def as_plan(made: dict[str, Any]) -> Plan:
    return msgspec.convert(made, Plan)


def kept(folder: Path, made: dict[str, Any]) -> Path:
    """The plan as a file."""
    path = folder / "kept.json"
    path.write_bytes(msgspec.json.encode(made))
    return path
