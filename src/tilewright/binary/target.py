"""What code was compiled for (sm_120, sm_120a, compute_90...), and on which compute capabilities it runs.

Sources: CUDA C++ Programming Guide (binary compatibility, PTX compatibility, architecture- and family-specific
features), NVCC manual (GPU feature list; `a` and `f` targets).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["TEGRA", "Ruling", "Target", "capability", "parse_target", "rule_ptx", "rule_sass"]

Variant = Literal["", "a", "f"]
Outcome = Literal["native", "jit", "no", "unknown"]

TEGRA: Final = frozenset({32, 53, 62, 72, 87, 101, 110})
"""SMs of Jetson and DRIVE parts. Binaries are not compatible between these and the others (Programming Guide)."""

_TARGET: Final = re.compile(r"(?:sm|compute|lto)_(\d{2,3})([af]?)")


@dataclass(frozen=True, slots=True, order=True)
class Target:
    """An SM (major * 10 + minor) and how far code of it goes: "" forward, "f" its family, "a" this SM alone."""

    sm: int
    variant: Variant = ""

    @property
    def capability(self) -> str:
        """12.0 for sm_120."""
        return capability(self.sm)

    def name(self, prefix: str = "sm") -> str:
        return f"{prefix}_{self.sm}{self.variant}"


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether an image runs on a device: as it is, after a JIT compile, or not; and why, in one clause."""

    outcome: Outcome
    why: str


def capability(sm: int) -> str:
    """A compute capability as people write it."""
    return f"{sm // 10}.{sm % 10}"


def parse_target(text: str) -> Target | None:
    """`sm_120a`, `compute_90`, `lto_90`; None for anything else."""
    hit = _TARGET.fullmatch(text)
    if hit is None:
        return None
    variant: Variant = "a" if hit[2] == "a" else "f" if hit[2] == "f" else ""
    return Target(int(hit[1]), variant)


def rule_sass(target: Target, sm: int) -> Ruling:
    """Whether SASS of `target` runs on a device of SM `sm`."""
    name, device = target.name(), capability(sm)
    major = f"{sm // 10}.x"
    if target.sm == sm:
        return Ruling("native", f"{name} is compiled for {device}")
    if target.variant == "a":
        return Ruling("no", f"{name} is architecture-specific and runs on {target.capability} only, never on {device}")
    if target.sm // 10 != sm // 10:
        return Ruling("no", f"{name} runs on {target.sm // 10}.x only; SASS does not cross major versions ({device})")
    if target.sm > sm:
        return Ruling("no", f"{name} needs {target.capability} or a later {major}; the device is {device}")
    if (target.sm in TEGRA) != (sm in TEGRA):
        return Ruling("no", f"{name} and {device}: binaries are not compatible between Jetson/DRIVE and other GPUs")
    kin = "its family, " if target.variant else ""
    return Ruling("native", f"{name} runs on {kin}{target.capability} and later {major}, {device} included")


def rule_ptx(target: Target, sm: int, version: str | None) -> Ruling:
    """Whether the driver can compile PTX of `target` for a device of SM `sm`; `version` is the PTX ISA's."""
    name, device = f"PTX of {target.name('compute')}", capability(sm)
    if target.variant == "a" and target.sm != sm:
        why = f"{name} is architecture-specific: it compiles for {target.capability} only, not for {device}"
        return Ruling("no", why)
    if target.variant == "f" and (target.sm // 10 != sm // 10 or target.sm > sm):
        family = f"{target.capability} and later {target.sm // 10}.x"
        return Ruling("no", f"{name} compiles for its family only ({family}), not for {device}")
    if target.sm > sm:
        return Ruling("no", f"{name} needs {target.capability} or later; the device is {device}")
    needs = f", with a driver that knows PTX {version}" if version else ""
    return Ruling("jit", f"{name} is compiled for {device} at load{needs}")
