"""On what it was measured: versions, clocks, power, temperature, who else uses the GPU, and what spoils a figure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from tilewright.hardware.nvml import NvmlDevice

THROTTLES: Final[dict[int, str]] = {
    0x8: "hardware slowdown",
    0x20: "heat (driver)",
    0x40: "heat (hardware)",
    0x80: "power brake",
}
"""nvml.h: nvmlClocksEventReason*; those that say that the GPU could not do what it can."""
POWER_CAP: Final = 0x4
CLOCK_DRIFT: Final = 0.05
"""Relative difference of the highest and the lowest SM clock seen beyond which parts of a run were not of one GPU."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The GPU at one moment; None: the driver does not say."""

    sm_mhz: int | None
    mem_mhz: int | None
    power_w: float | None
    temperature_c: int | None
    reasons: int
    processes: int | None


def read(device: NvmlDevice) -> Reading:
    """The GPU now."""
    return Reading(
        device.clock_mhz("SM", highest=False),
        device.clock_mhz("MEM", highest=False),
        device.power_draw_w,
        device.temperature_c,
        device.throttle_mask or 0,
        device.processes,
    )


def marks(readings: Iterable[Reading]) -> list[str]:
    """What makes figures taken over these readings doubtful; empty where nothing does."""
    seen = list(readings)
    found: list[str] = []
    if any((reading.processes or 0) > 1 for reading in seen):
        found.append("shared gpu")
    mask = 0
    for reading in seen:
        mask |= reading.reasons
    found += [f"throttled: {name}" for bit, name in THROTTLES.items() if mask & bit]
    if mask & POWER_CAP:
        found.append("at the power limit")
    clocks = [reading.sm_mhz for reading in seen if reading.sm_mhz]
    if clocks and max(clocks) / min(clocks) - 1 > CLOCK_DRIFT:
        found.append("clocks moved")
    return found


def figures(readings: Iterable[Reading]) -> dict[str, Any]:
    """The readings as figures of a result: highest temperature and power, SM clock at the end."""
    seen = list(readings)
    power = [reading.power_w for reading in seen if reading.power_w is not None]
    heat = [reading.temperature_c for reading in seen if reading.temperature_c is not None]
    last = seen[-1]
    told = {
        "sm_mhz": last.sm_mhz,
        "mem_mhz": last.mem_mhz,
        "power_w": max(power) if power else None,
        "temperature_c": max(heat) if heat else None,
    }
    return {name: value for name, value in told.items() if value is not None}
