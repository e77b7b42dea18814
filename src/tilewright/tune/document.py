"""What `tilewright tune ... --json` prints."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from tilewright.tune.export import Exported


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """The configs of the kernel on this layer and GPU. `dropped`: reason -> how many cannot run, or run as another
    one; `looked_at`: most that are measured for one number of tokens."""

    total: int
    kept: int
    dropped: dict[str, int]
    looked_at: int


class Tuned(msgspec.Struct, frozen=True, kw_only=True):
    """One number of tokens. `time_s`: both GEMMs, seconds, measured (median over the finalists' turns); `trials` new
    ones, `reused` found in the store; `next`: the best other config and its time over the winner's."""

    tokens: int
    config: dict[str, int] | None
    time_s: float | None = None
    up_s: float | None = None
    down_s: float | None = None
    samples: int = 0
    trials: int = 0
    reused: int = 0
    faults: dict[str, int] = {}
    next: dict[str, int] | None = None
    next_ratio: float | None = None


class Elsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """A winner at another number of tokens: its time there over that of the winner there, measured."""

    best_at: int
    tokens: int
    ratio: float


class Compiled(msgspec.Struct, frozen=True, kw_only=True):
    """What was compiled without a GPU."""

    builds: int
    failed: int
    failures: dict[str, int] = {}
    seconds: float = 0.0


class TuneDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/tune/1"):
    """`tune moe`. `kernel_source`: whose text of the kernel was built. `unfinished`: numbers of tokens for which the
    budget was too short. Every time is measured on `device_name`; without one there are none."""

    kernel: str
    kernel_source: str
    layer: dict[str, Any]
    gpu: str
    device_name: str | None
    driver: str | None = None
    versions: dict[str, str] = {}
    mode: Literal["measured", "compile only"]
    space: Space
    results: list[Tuned] = []
    elsewhere: list[Elsewhere] = []
    first_choices: dict[str, list[dict[str, int]]] = {}
    """compile only: tokens -> the configs that the model puts first; an order, not a measurement."""
    compiled: Compiled | None = None
    files: list[Exported] = []
    store: str | None = None
    unfinished: list[int] = []
    workers: list[str] = []
    elapsed_s: float = 0.0
    notes: list[str] = []
