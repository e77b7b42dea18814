"""What `fit --search` answers: the ranked configs, each with every term of its rank."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tilewright.search.machine import SearchFigure

TermKind = Literal["exact", "modelled"]


class Term(msgspec.Struct, frozen=True):
    """One term of the ranking. `exact` follows from the types and the problem, `modelled` from rates as well."""

    name: str
    value: float | int | str | bool | None
    unit: str
    kind: TermKind


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """One legal config. `time_s` is modelled from resources and no prediction; `bound` the resource that most of
    it comes from. `variants`: legal configs of the same tile, swap_ab and cluster that rank behind it."""

    rank: int
    config: dict[str, Any]
    status: Literal["fits"] = "fits"
    status_basis: Literal["derived", "compiled", "inferred"] = "derived"
    stages: int
    smem_bytes: int
    limit_bytes: int
    time_s: float
    bound: str
    terms: list[Term]
    variants: int = 0
    collective: str | None = None
    """With a tree: the mainloop there that runs it, as policy and file:line."""


class SearchProblem(msgspec.Struct, frozen=True):
    """The problem: `groups` GEMMs of `rows` rows in all, `n` x `k` weights."""

    kind: str
    rows: int
    groups: int
    rows_per_group: list[int]
    n: int
    k: int
    flops: int


class SearchCounts(msgspec.Struct, frozen=True):
    """What was asked of the model, and what it said. `legal` counts each kernel once."""

    tried: int
    legal: int
    illegal: int
    overflow: int
    unsupported: int


class SearchResult(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/search/1"):
    """The answer of `fit --search`, best first."""

    problem: SearchProblem
    arch: str
    gpu: str
    gpu_assumed: bool
    """The GPU was not named: the catalogue's largest of the architecture was taken."""
    cutlass: str
    root: str | None
    given: dict[str, Any]
    """Keys of the config that were fixed; all others were searched."""
    counts: SearchCounts
    figures: list[SearchFigure]
    needed_in_flight_bytes: int | None
    """Bytes that each SM must have under way for the GPU to reach its memory bandwidth."""
    candidates: list[Candidate]
    why_first: str | None
    """Why the first ranks before the second."""
    notes: list[str] = []
