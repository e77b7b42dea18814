"""The answer of `predict`: a time, bounds that hold nine times of ten, what limits it, and what it is made of."""

from __future__ import annotations

from typing import Literal

import msgspec

from tilewright.cutlass.budget import LineError

__all__ = ["Basis", "Bound", "Estimate", "Refusal", "Term"]

Basis = Literal["measured", "modelled"]
Bound = Literal["memory", "compute", "latency", "collective"]


class Term(msgspec.Struct, frozen=True):
    """A part of the time, seconds. The terms of an estimate add up to its `time_s`."""

    name: str
    time_s: float
    basis: Basis = "modelled"


class Estimate(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/predict/1"):
    """Times in seconds. `low_s` to `high_s` holds for 90% of the rows that were held out when it was fitted.

    `limit_s` is what the hardware allows: no kernel of this operation is faster. None where a rate of the GPU is
    unknown. `bound` says what the time is mostly spent on. `tok_s`: aggregate output tokens a second (decode).
    """

    id: str | None = None
    time_s: float
    low_s: float
    high_s: float
    limit_s: float | None
    bound: Bound
    terms: tuple[Term, ...]
    basis: Basis
    why: str
    tok_s: float | None = None


class Refusal(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/predict/1"):
    """The answer to a line of `predict --from` that is no question, or one that cannot be answered."""

    id: str | None
    status: Literal["error"] = "error"
    error: LineError
