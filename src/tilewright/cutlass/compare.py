"""What another CUTLASS release makes of the same config: an upgrade (or a downgrade) judged before it is built."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tilewright.cutlass.budget import Budget, Status
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.fit import fit

SHOWN: Final = (
    "status", "type_status", "stages", "smem_bytes", "slack_bytes", "mainloop_bytes", "epilogue_bytes",
    "epilogue_tile", "stages_c", "stages_d", "threads", "load_registers", "mma_registers", "sf_short", "stages_a",
    "stages_b", "stages_e", "load_ab_stages", "load_sf_stages", "accumulator_stages",
)  # fmt: skip
"""Figures that a comparison looks at, in the order in which it names them."""


class Change(msgspec.Struct, frozen=True):
    """One figure that differs."""

    key: str
    old: Any
    new: Any


class Comparison(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/fit-compare/1"):
    """One config under two releases. `verdict` sums it up: same, changed (figures only), gained (runs only on the
    new one), lost (ran only on the old one)."""

    id: str
    old_cutlass: str
    new_cutlass: str
    old_status: Status
    new_status: Status
    verdict: str
    changes: list[Change]
    cause: str | None = None
    """Why it does not run on the new release, when it does not."""


def compare(config: KernelConfig, old: str, new: str) -> Comparison:
    """`config` on CUTLASS `old` and on CUTLASS `new`; its own `cutlass` key is ignored."""
    before, after = (fit(msgspec.structs.replace(config, cutlass=version)) for version in (old, new))
    changes = [
        Change(key, getattr(before, key), getattr(after, key))
        for key in SHOWN
        if getattr(before, key) != getattr(after, key)
    ]
    return Comparison(
        id=config.id,
        old_cutlass=old,
        new_cutlass=new,
        old_status=before.status,
        new_status=after.status,
        verdict=_verdict(before, after, bool(changes)),
        changes=changes,
        cause=None if after.status == "fits" else after.cause,
    )


def _verdict(before: Budget, after: Budget, differs: bool) -> str:
    if before.status != "fits" and after.status == "fits":
        return "gained"
    if before.status == "fits" and after.status != "fits":
        return "lost"
    return "changed" if differs else "same"
