"""Verdicts of a former report, for checks that only mind what is new."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from tilewright.errors import InputError, shown

MAX_BASELINE: Final = 256 * 1024 * 1024
"""Largest baseline that is read, in bytes; the report of 200 tactics has 2 MB."""


class _Verdict(msgspec.Struct):
    status: str


class _Entry(msgspec.Struct):
    name: str
    verdict: _Verdict


class _Former(msgspec.Struct):
    schema: str
    tactics: list[_Entry]


def read_baseline(path: str) -> dict[str, str]:
    """Verdict statuses by tactic name from a former `tactics --json` output.

    Raises:
        InputError: the file cannot be read, or is no such output.
    """
    former = None
    try:
        with Path(path).open("rb") as stream:  # a device has no size: what is read is what counts
            data = stream.read(MAX_BASELINE + 1)
        if len(data) > MAX_BASELINE:
            raise InputError("baseline", f"--baseline: {shown(path)} is larger than any report; give one of ours.")
        former = msgspec.json.decode(data, type=_Former)
    except OSError as error:
        raise InputError("baseline", f"--baseline: {shown(path)} cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError, msgspec.MsgspecError):
        pass
    if former is None or not former.schema.startswith("tilewright/tactics/"):
        msg = f"--baseline: {shown(path)} is no report; write one with: tilewright tactics flashinfer --root ... --json"
        raise InputError("baseline", msg)
    return {entry.name: entry.verdict.status for entry in former.tactics}
