"""A plan.json back as a `Plan`: to write its other forms later, without its inputs."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from tilewright.errors import InputError, shown
from tilewright.plan.finding import Plan

MAX_BYTES: Final = 16 << 20
"""A plan has a few hundred kilobytes."""


def load_plan(path: str | Path) -> Plan:
    """The plan at `path`. What stands in `baseline` is not checked: see `tilewright.report.plan_forms`.

    Raises:
        InputError: it cannot be read, or is no plan of this version.
    """
    label = shown(str(path))
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise InputError("from", f"--from {label} is too large to be a plan.json; pass one that `plan` wrote.")
        return msgspec.json.decode(raw, type=Plan)
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
        reason = getattr(error, "strerror", None) or str(error)[:200]
        msg = f"--from {label} is no plan.json of this version that can be read: {reason}."
        raise InputError("from", msg) from None
