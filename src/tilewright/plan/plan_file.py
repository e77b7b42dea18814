"""Reading a kept plan.json as far as a type asks for it."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeVar

import msgspec

from tilewright.errors import InputError, shown

MAX_BYTES: Final = 16 << 20
"""A plan has a few hundred kilobytes."""
T = TypeVar("T")


def read_plan_file(path: str | Path, kind: type[T], option: str) -> T:
    """The plan at `path`, which was given with `--<option>`.

    Raises:
        InputError: it cannot be read, or is no plan of this version.
    """
    label = f"--{option} {shown(str(path))}"
    try:
        with Path(path).open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
        plan = msgspec.json.decode(raw, type=kind) if len(raw) <= MAX_BYTES else None
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or str(error)[:200]
        msg = f"{label} is no plan.json of this version that can be read: {reason}."
        raise InputError(option, msg) from None
    if plan is None:
        raise InputError(option, f"{label} is too large to be a plan.json; pass one that `plan` wrote.")
    return plan
