"""What a tuning run is asked for, checked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.tune.fleet import COMMAND, LIMIT_S
from tilewright.tune.layer import Layer


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run. `devices` empty: every GPU that CUDA shows. `trials` None: 5 % of the space. `store` None: the default
    one. `formats`: engines to write files for into `out`."""

    kernel: str
    layer: Layer
    tokens: Sequence[int]
    root: str | None = None
    gpu: str | None = None
    devices: tuple[int, ...] = ()
    trials: int | None = None
    exhaustive: bool = False
    budget_s: float | None = None
    out: str | None = None
    formats: tuple[str, ...] = ()
    force: bool = False
    store: str | None = None
    keep: bool = True
    resume: bool = False
    start: str | None = None
    ray: str | None = None
    compile_only: bool = False
    builders: int | None = None
    limit_s: float = LIMIT_S
    command: Sequence[str] = COMMAND
