"""The answer of `layout`: what each layout holds and gives, as plain records."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["Goal", "Layout", "LayoutAnswer", "Parts", "Room", "Speed", "Term"]

Goal = Literal["throughput", "latency"]


class Speed(msgspec.Struct, frozen=True):
    """A number of requests on a layout. `running` of them fit in the cache at once, the others wait: `tok_s` is what
    the running ones give together, `tpot_s` the time between two tokens of one of them."""

    concurrency: int
    running: int
    tok_s: float
    low_tok_s: float
    high_tok_s: float
    tpot_s: float
    rank: int = 0
    """Among the layouts that fit, by tok/s; 1 is best."""


class Room(msgspec.Struct, frozen=True):
    """How many requests of that many tokens (prompt and output) fit at once, over all copies."""

    context: int
    requests: int


class Parts(msgspec.Struct, frozen=True):
    """Bytes of the fullest GPU. `kv` and `free` are what is left; `communication` is a part of `context`."""

    total: int
    weights: int
    weights_reported: int
    loading: int
    activations: int
    cuda_graphs: int
    context: int
    communication: int
    kv: int
    free: int
    short: int


class Term(msgspec.Struct, frozen=True):
    name: str
    time_s: float


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One layout. `status`: fits, too_big or illegal; `why` says what stands against it, or beside it."""

    name: str
    tp: int
    pp: int
    ep: int
    dcp: int
    attention_dp: int
    copies: int
    status: Literal["fits", "too_big", "illegal"]
    why: str
    memory: Parts | None = None
    kv_bytes_per_token: int | None = None
    kv_tokens: int | None = None
    """Tokens of cache over all copies of the attention; None: how the model lays its cache out is not covered."""
    kv_replicated: bool = False
    max_context: int | None = None
    room: list[Room] = []
    speeds: list[Speed] = []
    ttft_s: float | None = None
    ttft_low_s: float | None = None
    ttft_high_s: float | None = None
    meets: bool | None = None
    """Whether it keeps the limits that were asked for; None: none were."""
    terms: list[Term] = []
    """The decode step at the number of requests that the ranking looks at."""
    limit_tok_s: float | None = None
    """What the hardware allows at that number of requests: no launch, gap or wait counted."""
    launch: str | None = None
    notes: list[str] = []


class LayoutAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/layout/1"):
    """`layouts` best first for the goal, then what does not fit, then what cannot be cut. `best`: number of requests
    -> name of the layout with the most tokens a second."""

    model: str
    checkpoint: str
    gpu: str
    gpu_memory_source: str
    """Where the card's bytes come from: its driver, or the nameplate."""
    gpus: int
    engine: str
    kv_layout: str
    mem_fraction: float | None
    mem_fraction_source: str
    context: int
    prompt_tokens: int
    goal: Goal
    at: int
    """Number of requests that the ranking looks at."""
    slo_ttft_s: float | None
    slo_tpot_s: float | None
    basis: str
    counts: dict[str, int]
    best: dict[str, str]
    layouts: list[Layout]
    notes: list[str]
