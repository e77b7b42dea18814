"""The answer of `flags ... --advise`, as plain records."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Action", "Advice", "Basis", "Effect", "Goal", "Ground", "Judged", "Left", "Rate", "Suggestion", "Verdict"]

Goal = Literal["throughput", "latency"]
Basis = Literal["exact", "measured", "published", "modelled"]
Action = Literal["set", "change", "remove", "try"]
"""`set`: the launch line has it; `change`: your line has another value; `remove`: your line is better without it;
`try`: worth a measurement, not in the launch line."""
Verdict = Literal["refused", "renamed", "gone", "not yet", "deprecated", "no effect", "not for this GPU", "default"]


class Effect(msgspec.Struct, frozen=True, omit_defaults=True):
    """What one flag changes, everything else as it is: a figure without it and with it.

    `phase`: decode and prefill are apart; `capacity` is tokens of cache. `gain_percent` is above 0 where it is better,
    with bounds. `concurrency`: requests at which it was looked at (None: it does not depend on them).
    """

    phase: Literal["decode", "prefill", "capacity", "start"]
    metric: str
    basis: Basis
    concurrency: int | None = None
    before: float | None = None
    after: float | None = None
    gain_percent: float | None = None
    low_percent: float | None = None
    high_percent: float | None = None


class Ground(msgspec.Struct, frozen=True):
    """One fact that a suggestion rests on."""

    kind: Basis
    text: str
    source: str


class Suggestion(msgspec.Struct, frozen=True, kw_only=True):
    """One flag (or several that belong together, in `words`).

    `without`: what the version does without it; `given`: what your line says. `confidence` 0..1 that it helps.
    """

    concept: str
    title: str
    flag: str
    words: list[str]
    action: Action
    without: str
    why: str
    given: str | None = None
    effects: list[Effect] = []
    evidence: list[Ground] = []
    conflicts: list[str] = []
    numerics: str = "unchanged"
    confidence: float = 0.5
    effort_h: float = 0.25
    start: bool = False
    """Whether the server does not start without it."""

    @property
    def in_launch(self) -> bool:
        return self.action in ("set", "change")


class Judged(msgspec.Struct, frozen=True, omit_defaults=True):
    """One word of your launch line that is not what it seems. `instead`: words that say the same in this version."""

    word: str
    verdict: Verdict
    text: str
    instead: tuple[str, ...] = ()
    source: str = ""


class Left(msgspec.Struct, frozen=True):
    """A flag that was looked at and left at its default, and why."""

    concept: str
    flag: str | None
    why: str


class Rate(msgspec.Struct, frozen=True):
    """Predicted rates at a number of requests: as it is now (your line, or the engine's defaults), and as advised.

    `running_*` of them fit in the cache and the limits at once; tok/s are of all running ones; modelled.
    """

    concurrency: int
    running_now: int
    tok_s_now: float
    running: int
    tok_s: float
    low_tok_s: float
    high_tok_s: float
    tpot_s: float


class Advice(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/flags-advice/1"):
    """`suggestions` in the order of what they bring; `launch` is a line that `version`'s parser accepts
    (`launch_checked`: as far as its sources say)."""

    engine: str
    version: str | None
    root: str
    packaged: bool
    model: str
    checkpoint: str
    gpu: str
    gpus: int
    layout: str
    layout_why: str
    goal: Goal
    concurrency: int
    context: int
    prompt_tokens: int
    compared_with: str
    """What `now` is: your launch line, or the engine's defaults."""
    mem_fraction: float
    kv_tokens: int | None
    """Tokens of cache over all copies of the attention, as advised; modelled. None: how the model lays its cache out is
    not covered."""
    max_context: int
    ttft_now_s: float
    ttft_s: float
    """Time to the first token of `prompt_tokens`, nothing else queued; modelled, as are its bounds."""
    ttft_low_s: float
    ttft_high_s: float
    rates: list[Rate]
    suggestions: list[Suggestion]
    left: list[Left]
    judged: list[Judged]
    environment: list[str]
    launch: str
    launch_checked: bool
    notes: list[str]
