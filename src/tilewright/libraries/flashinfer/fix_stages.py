"""What the patched launcher makes of every tactic, computed with the model of `fit`.

The patch lets CUTLASS count as before. Only where the kernel that comes out overflows, it counts again and sets aside
what that kernel's storage really takes beside the mainloop's tensors and the epilogue: pipelines, tensor maps, the
scheduler and the rounding. Why the second count always fits: fewer stages take no more pipeline storage, so the
mainloop's tensors, the epilogue and the rest are within the capacity before rounding; the capacity (99 KiB) is a
multiple of the struct's alignment (1,024 bytes at most), so they are after rounding too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.cutlass.sm120_mainloop import mainloop
from tilewright.cutlass.verdict import Broken
from tilewright.libraries.flashinfer.model import Tactic

Outcome = Literal["healed", "same", "refused", "unknown"]


class Restaged(msgspec.Struct, frozen=True, kw_only=True):
    """One tactic before and after the patch; bytes of shared memory a block.

    `healed`: overflowed, now fits. `same`: it has the very same type. `refused`: it overflows, and fewer than two
    stages are left, which CUTLASS refuses to compile. `unknown`: the model has no verdict.
    """

    name: str
    a: str
    b: str
    tile: tuple[int, ...]
    fusion: str
    output: str
    swap_ab: bool
    outcome: Outcome
    reserve_bytes: int
    """What the second count sets aside beside the epilogue; 0 where there is none."""
    stages_before: int | None
    stages_after: int | None
    bytes_before: int | None
    bytes_after: int | None
    limit_bytes: int | None
    runtime_ids: dict[str, list[int]] | None = None


def reserve_of(tactic: Tactic) -> int | None:
    """Bytes that the kernel's storage takes beside the mainloop's tensors and the epilogue's storage, rounding
    included; 0 for a tactic that fits (the patch does not touch it), None where the model has no figures."""
    verdict = tactic.verdict
    if verdict.status == "fits":
        return 0
    sizes = (verdict.smem_bytes, verdict.mainloop_tensor_bytes, verdict.epilogue_bytes)
    if verdict.status != "overflow" or sizes[0] is None or sizes[1] is None or sizes[2] is None:
        return None
    return sizes[0] - sizes[1] - sizes[2]


def restage(tactic: Tactic) -> Restaged:
    """`tactic` under the patched launcher."""
    verdict, raw = tactic.verdict, tactic.config or {}
    reserve = reserve_of(tactic)
    stages, size, outcome = verdict.stages, verdict.smem_bytes, "same"
    if tactic.config is None or reserve is None:
        outcome, stages, size = "unknown", None, None
    elif reserve:
        outcome, stages, size = _counted_again(tactic, reserve)
    return Restaged(
        name=tactic.name,
        a=str(raw.get("a", "")),
        b=str(raw.get("b", "")),
        tile=tuple(raw.get("tile", ())),
        fusion=str(raw.get("fusion", "")),
        output=str(raw.get("final_output") or raw.get("d", "")),
        swap_ab=bool(raw.get("swap_ab")),
        outcome=outcome,
        reserve_bytes=reserve or 0,
        stages_before=verdict.stages,
        stages_after=stages,
        bytes_before=verdict.smem_bytes,
        bytes_after=size,
        limit_bytes=verdict.limit_bytes,
        runtime_ids=tactic.runtime_ids,
    )


def _counted_again(tactic: Tactic, reserve: int) -> tuple[Outcome, int | None, int | None]:
    config = parse_config(tactic.config or {})
    if config.stages != "auto" or tactic.verdict.epilogue_bytes is None:
        return "refused", None, None  # a pinned stage count is not the launcher's to change
    laid = mainloop(config, tactic.verdict.epilogue_bytes + reserve)
    if isinstance(laid, Broken):
        return "refused", None, None
    budget = fit(msgspec.structs.replace(config, stages=laid.stages), brief=True)
    return ("healed" if budget.status == "fits" else "refused"), laid.stages, budget.smem_bytes


def restaged(tactics: Sequence[Tactic]) -> list[Restaged]:
    """Every tactic under the patched launcher, in order."""
    return [restage(tactic) for tactic in tactics]
