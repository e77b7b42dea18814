"""What a plan is made of: findings, what was rejected, and the evidence of both (DESIGN 4.6).

Rules yield `Draft`s, which have no rank yet; `tilewright.plan.ranking` turns them into `Finding`s. The structs that
reach `plan.json` have exactly the keys of the contract.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

Kind = Literal["exact", "measured", "published", "modelled"]
"""How a figure is known: derived or compiled; measured here or by the user; read in public; from a model."""

Layer = Literal["kernel", "library", "runtime", "system", "model"]

Metric = Literal["runs", "health", "decode", "prefill", "capacity", "startup"]
"""What a gain is a gain in: whether the server runs at all, whether the machine is sound (GPUs that spin or throttle
make every other measurement void), or a rate. Only `decode` and `prefill` are speed; see
`tilewright.plan.ranking.WEIGHT`."""


class Evidence(msgspec.Struct, frozen=True):
    """One fact that a finding rests on. `source` is a URL, a file:line, a case id or an input of this plan."""

    kind: Kind
    text: str
    source: str


class Fix(msgspec.Struct, frozen=True):
    """What to do. `commands` can be pasted into a shell; a launch line names what matters here, the user's other flags
    are theirs to keep. `patch` is a unified diff, or null."""

    text: str
    commands: list[str] = []
    patch: str | None = None


class Gain(msgspec.Struct, frozen=True):
    """Expected gain in percent of `metric`; null where a percentage would mean nothing (`the server starts`)."""

    metric: str
    low: float | None
    expected: float | None
    high: float | None
    basis: Kind


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing wrong or improvable. `confidence` 0..1, `effort_h` hours of an engineer."""

    rank: int
    id: str
    title: str
    layer: Layer
    evidence: list[Evidence]
    cause: str
    fix: Fix
    gain: Gain
    confidence: float
    effort_h: float
    risk: str
    numerics: str
    confirm: str
    undo: str


class Rejected(msgspec.Struct, frozen=True):
    """Something that looks worth trying and is not, with what says so."""

    idea: str
    why: str
    evidence: list[Evidence]


class Plan(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/plan/1"):
    """The whole answer. `target` says what was asked, `baseline` what is true before anything is changed."""

    target: dict[str, Any]
    baseline: dict[str, Any]
    findings: list[Finding]
    rejected: list[Rejected]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A finding before it is ranked. `metric` sets how its gain compares with others' (ranking.WEIGHT)."""

    id: str
    title: str
    layer: Layer
    evidence: list[Evidence]
    cause: str
    fix: Fix
    gain: Gain
    confidence: float
    effort_h: float
    metric: Metric = "decode"
    risk: str = "none known"
    numerics: str = "unchanged"
    confirm: str
    undo: str


@dataclass(frozen=True)
class Fact:
    """Something true of the target that is no finding: it goes to `baseline[key]`, and the report shows it."""

    key: str
    value: Any


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A wrong claim that circulates and that somebody with this target will meet, with its refutation."""

    id: str
    claim: str
    refutation: str
    evidence: list[Evidence] = field(default_factory=lambda: list[Evidence]())


Outcome = Draft | Rejected | Fact | Claim
"""What a rule may yield."""
