"""A plan.json back as a `Plan`: to write its other forms later, without its inputs."""

from __future__ import annotations

from pathlib import Path

from tilewright.plan.finding import Plan
from tilewright.plan.plan_file import read_plan_file


def load_plan(path: str | Path) -> Plan:
    """The plan at `path`. What stands in `baseline` is not checked: see `tilewright.report.plan_forms`.

    Raises:
        InputError: it cannot be read, or is no plan of this version.
    """
    return read_plan_file(path, Plan, "from")
