"""What is stored of one measurement: the problem, what ran it, where, how long it took, and how far to trust that."""

from __future__ import annotations

import hashlib
from datetime import datetime
from typing import Any, Literal

import msgspec

from tilewright.errors import InputError, shown

Status = Literal["ok", "wrong", "failed", "timeout", "refused"]
"""How it ended: measured and correct; measured, but the answer was wrong; raised or crashed; hung; not run at all."""
STATUSES: tuple[Status, ...] = ("ok", "wrong", "failed", "timeout", "refused")

KINDS = ("gemm", "moe", "copy", "read", "allreduce", "serve")
"""What `bench` (`bench/problem.py`) and `sweep` (`serve`) store; results that are brought in may be of other kinds."""


class Result(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """One measurement. It is never changed once stored: measuring again is another result.

    `kind` names the question (`gemm`, `moe`, `copy`, `allreduce`, `serve` ...), `problem` and `config` are its fields
    (shapes, formats; tile, stages ...), `environment` where it ran (`gpu`, `driver`, `cuda`, versions of what took
    part). Times are seconds: `time_s` the median over `samples`, `low_s` and `high_s` its 10th and 90th percentile.
    `error` is the largest deviation from the reference over the reference's largest magnitude. `marks` says what
    makes the figure doubtful (`throttled`, `shared gpu`, ...). `at` is UTC, ISO 8601.
    """

    kind: str
    backend: str
    at: str
    status: Status
    problem: dict[str, Any] = {}
    config: dict[str, Any] = {}
    environment: dict[str, Any] = {}
    time_s: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    samples: int = 0
    error: float | None = None
    marks: list[str] = []
    figures: dict[str, Any] = {}
    """What else was read: bytes a second, clocks, watts, degrees; the key says the unit."""
    note: str = ""
    """Why it ended as it did, where it is not `ok`; else what a reader has to know of it."""


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A result with its number in the store and the digest by which it is known in any store."""

    id: int
    digest: str
    result: Result


def canonical(value: Any) -> bytes:
    """`value` as JSON whose bytes depend on nothing but its content (keys in order)."""
    return msgspec.json.encode(value, order="sorted")


def key_of(value: Any) -> str:
    """A short name of a problem, a config or an environment: equal content, equal key."""
    return hashlib.sha256(canonical(value)).hexdigest()[:16]


def digest_of(result: Result) -> str:
    """The name of one measurement, over everything that it holds."""
    return hashlib.sha256(canonical(result)).hexdigest()


def _is_time(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def check(result: Result) -> Result:
    """`result`, if what it says can be true.

    Raises:
        InputError: a time or a count is negative or no number, low_s is above high_s, it is `ok` without a time, or
            `at` is no time.
    """
    for name in ("time_s", "low_s", "high_s", "error"):
        value: float | None = getattr(result, name)
        # NaN compares unequal to itself; infinite or negative times are no measurements either.
        if value is not None and not 0 <= value < float("inf"):
            raise InputError(name, f"{name} of a result must be a finite number from 0 up, not {value}.")
    if result.low_s is not None and result.high_s is not None and result.low_s > result.high_s:
        raise InputError("low_s", f"low_s of a result is above its high_s: {result.low_s:g} and {result.high_s:g}.")
    if not _is_time(result.at):
        raise InputError("at", f"at of a result must be a time as 2026-12-02T13:00:00Z, not {shown(result.at)}.")
    if result.samples < 0:
        raise InputError("samples", f"samples of a result must be 0 or more, not {result.samples}.")
    if result.status == "ok" and result.time_s is None:
        raise InputError("time_s", "A result with status ok has no time_s; give the median in seconds.")
    if not result.kind or not result.backend:
        raise InputError("kind", "A result needs a kind and a backend; both are empty or one is.")
    return result
