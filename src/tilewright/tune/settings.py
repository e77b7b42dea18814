"""What a tuning run is asked for, checked."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tilewright.errors import InputError
from tilewright.tune.export import ENGINES, OURS, check_format
from tilewright.tune.fleet import COMMAND, LIMIT_S
from tilewright.tune.layer import Layer, check_kernel, check_layer


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One run. `devices` empty: every GPU that CUDA shows. `trials` None: 5 % of the space. `store` None: the default
    one. `formats`: whose files are written into `out`; empty: the kernel's own."""

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


_MEASURING: Final = {
    "out": "--out", "devices": "--devices", "ray": "--ray", "resume": "--resume", "budget_s": "--budget",
    "store": "--store",
}  # fmt: skip
"""Settings that mean nothing where nothing is measured, by the option that gives them."""


def checked(settings: Settings) -> Settings:
    """`settings` with its format and files filled in, before anything is looked for.

    Raises:
        InputError: something that is asked for cannot be, or goes with nothing else that is.
    """
    idle = [flag for name, flag in _MEASURING.items() if settings.compile_only and getattr(settings, name)]
    if idle:
        raise InputError(idle[0].strip("-"), f"{idle[0]} needs measurements, and --compile-only makes none: drop one.")
    if settings.resume and not settings.keep:
        raise InputError("resume", "--resume uses the store that --no-store leaves alone: drop one.")
    if settings.ray is not None and settings.devices:
        raise InputError(
            "devices", "--devices names GPUs of this machine, and --ray takes all of the cluster: drop one."
        )
    dtype = check_kernel(settings.kernel, settings.layer.dtype)
    layer = check_layer(msgspec.structs.replace(settings.layer, dtype=dtype), settings.kernel)
    formats = settings.formats
    if settings.out is None and formats:
        raise InputError("out", "--format says how files are written; say where with --out DIR.")
    if settings.out is not None and not formats:
        own = OURS if settings.kernel == "ours" else next(name for name in ENGINES if settings.kernel.startswith(name))
        formats = (own,)
    for name in formats:
        check_format(layer, name)
    if settings.start is not None and settings.kernel == "ours":
        raise InputError("start", "--start takes tiles of vLLM and SGLang; tilewright's own kernel has others.")
    return dataclasses.replace(settings, layer=layer, formats=formats)
