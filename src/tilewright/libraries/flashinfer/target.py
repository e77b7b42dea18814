"""For which GPUs FlashInfer's kernels are read: how its sources name each architecture."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tilewright.libraries.python_source.limits import MAX_STEPS

__all__ = ["ARCHS", "SM120", "Target", "target_of"]


@dataclass(frozen=True)
class Target:
    """`builder` matches the names of build functions for the architecture, `others` the generator's functions for all
    others (what they return is compiled too, as stubs: none of it is a kernel for this one), `unit` the text of
    translation units that hold its kernels. `defines` are macros that nvcc and CUTLASS define for it."""

    arch: str
    builder: re.Pattern[str]
    others: re.Pattern[str]
    unit: re.Pattern[str]
    defines: Mapping[str, str] = field(default_factory=dict[str, str])
    steps: int = MAX_STEPS
    """Most evaluation steps of the generator: SM100 and SM103 have thirty times the kernels of SM120."""


MANY: Final = 8


def _target(arch: str, numbers: str, defines: Mapping[str, str]) -> Target:
    return Target(
        arch=arch,
        builder=re.compile(rf"gen_\w*sm(?:{numbers})\w*"),
        others=re.compile(rf"generate_sm(?!(?:{numbers}))\d+\w*_operations"),
        unit=re.compile(rf"(?i)sm_?(?:{numbers})"),
        defines=defines,
        steps=MAX_STEPS * (1 if numbers == "12[01x]" else MANY),
    )


_HOPPER: Final = {"CUTLASS_ARCH_MMA_SM90_SUPPORTED": "1", "CUTLASS_ARCH_MMA_MODIFIABLE_TMA_SM90_SUPPORTED": "1"}
"""include/cutlass/arch/config.h, with any toolkit from 12.3 on."""
_BLACKWELL: Final = {**_HOPPER, "CUTLASS_ARCH_MMA_SM103_SUPPORTED": "1"}

SM120: Final = _target("sm120", "12[01x]", {})
_TARGETS: Final = {
    "sm120": SM120,
    "sm121": _target("sm121", "12[01x]", {}),
    "sm90": _target("sm90", "90", _HOPPER),
    "sm100": _target("sm100", "100", _BLACKWELL),
    "sm103": _target("sm103", "10[03]", _BLACKWELL),
}
"""SM121 runs SM120's module; SM103's module holds SM100's kernels too."""

ARCHS: Final = tuple(_TARGETS)
"""Architectures whose tactics are read."""


def target_of(arch: str) -> Target:
    """The target `arch`, one of `ARCHS`."""
    return _TARGETS[arch]
