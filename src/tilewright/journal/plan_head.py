"""What an experiment needs of a plan.json: what the plan was for, and the ids and titles of its findings."""

from __future__ import annotations

from typing import Any

import msgspec

from tilewright.plan.plan_file import read_plan_file


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
    return read_plan_file(path, PlanHead, "plan")
