"""What `tilewright sweep --json` prints: every candidate, every start, every repeat, and what they say."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tilewright.sweep.outcome import Outcome
from tilewright.sweep.significance import Comparison

__all__ = ["Candidate", "Origin", "Run", "SweepDocument", "Verdict"]

Origin = Literal["baseline", "seed", "search", "confirm"]


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One start of a server (or one look at a running one), in the order of the sweep."""

    number: int
    origin: Origin
    assignment: dict[str, Any]
    outcome: Outcome


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One assignment with all its runs. `metrics` are means over all repeats, all measured."""

    number: int
    origin: Origin
    assignment: dict[str, Any]
    status: str
    runs: list[int]
    repeats: int
    metrics: dict[str, float]
    spread_pct: float | None
    """Half the range of the goal's metric over the repeats, in per cent of the mean."""
    feasible: bool
    missed: list[str]
    """Constraints that its means miss, with the value."""
    reason: str | None
    marks: list[str]


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`winner`: the candidate that is significantly better than every other; None where there is none. `leader`: the
    best by its mean; `tied`: those that it is not significantly better than."""

    winner: int | None
    leader: int | None
    tied: list[int]
    comparisons: list[Comparison]
    over_baseline: Comparison | None
    text: str
    notes: list[str]


class SweepDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/sweep/1"):
    """A sweep so far. `stopped`: why it ended before all was measured that was asked for."""

    engine: str
    engine_version: str | None
    model: str | None
    url: str | None
    goal: str
    generator: str
    load: dict[str, Any]
    space_size: float | None
    """Candidates in the space; null where there is no end of them."""
    sweep: int
    store: str
    resumed: bool
    seconds: float
    """Of all runs together, those of earlier sessions included."""
    candidates: list[Candidate]
    runs: list[Run]
    verdict: Verdict
    launch: str | None
    """The command that starts the leader, as it was run."""
    journal_entry: int | None
    stopped: str | None
    notes: list[str]
