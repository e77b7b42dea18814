"""What an experiment needs of a plan.json: what the plan was for, and the ids and titles of its findings."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.errors import InputError, shown

MAX_BYTES: Final = 16 << 20
"""A plan has a few hundred kilobytes."""


class FindingHead(msgspec.Struct, frozen=True):
    """One finding by name."""

    id: str
    title: str


class PlanHead(msgspec.Struct, frozen=True, tag_field="schema", tag="tilewright/plan/1"):
    """A plan as far as an experiment refers to it."""

    target: dict[str, Any]
    findings: list[FindingHead]


def read_plan(path: str) -> PlanHead:
    """The plan.json at `path`.

    Raises:
        InputError: it cannot be read or is no plan.
    """
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise InputError("plan", f"--plan {shown(path)} is too large to be a plan.json.")
        return msgspec.json.decode(raw, type=PlanHead)
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        msg = f"--plan {shown(path)} is no plan.json of `tilewright plan` that can be read: {reason}."
        raise InputError("plan", msg) from None
