"""The GPUs of this machine, and where they differ from the catalogue.

A live device fills the same record as a catalogue entry, figure by figure, so the two can be compared. Some figures
are exact on both sides (SMs, shared memory), others are nameplate figures (memory, bandwidth, clocks): a small
difference there is rounding, and is said to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.data.figures import Figure
from tilewright.errors import AmbiguousNameError, TilewrightError, UnknownNameError
from tilewright.hardware.driver import device_attributes, load_driver
from tilewright.hardware.gpu import GIGA, Gpu
from tilewright.hardware.names import resolve_gpu
from tilewright.hardware.nvml import NvmlDevice, load_nvml, session, versions

__all__ = ["Difference", "LiveGpu", "differences", "read_live"]

MIB = 1 << 20
# Data lines of DDR memory carry two bits a clock: bandwidth = 2 x clock x width / 8.
_TRANSFERS_A_CLOCK = 2
_BITS_A_BYTE = 8
NAMEPLATE_TOLERANCE = 0.03
"""Relative difference up to which a nameplate figure counts as the same: drivers keep 0.4 to 1% of the memory, and
bandwidths by clock and width are up to 2.5% above the printed ones."""
_NAMEPLATE = frozenset(
    {"memory_bytes", "memory_mib_reported", "memory_bandwidth_gbs", "boost_clock_mhz", "memory_clock_mhz"}
)
# What describes the machine at this moment, or has no counterpart in the catalogue: shown, not compared.
_NOT_COMPARED = frozenset({"memory_mib_reported"})


@dataclass(frozen=True, slots=True)
class LiveGpu:
    """One device of this machine.

    `gpu` is the record as the device fills it (figures measured). `entry` is the catalogue entry of its name, or None
    with the reason in `unresolved`. `now` holds readings of this moment: power, clocks, the PCIe link as it is now.
    """

    index: int
    gpu: Gpu
    entry: Gpu | None
    unresolved: str
    driver: str | None
    cuda: str | None
    now: Mapping[str, float | int | bool | None]
    notes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.gpu.name


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure on which the device and the catalogue differ. `relative` is live / catalogue - 1 for numbers."""

    key: str
    live: Any
    catalogue: Any
    relative: float | None
    rounding: bool
    """Whether the difference is within what nameplate figures are rounded by."""


def _figure(value: Any, source: str, note: str = "") -> Figure:
    return Figure(value, "measured", (source,), note) if value is not None else Figure()


def _figures(device: NvmlDevice, attributes: Mapping[str, int]) -> dict[str, Figure]:
    size = device.memory_bytes
    limits, width = device.power_limits_w, device.bus_width_bits
    memory_clock = device.clock_mhz("MEM", highest=True)
    bandwidth = None
    if width and memory_clock:
        bandwidth = round(_TRANSFERS_A_CLOCK * memory_clock * 1e6 * width / _BITS_A_BYTE / GIGA, 1)
    default = device.power_default_w
    found = {
        "compute_capability": _figure(device.compute_capability, "NVML"),
        "memory_bytes": _figure(size, "NVML"),
        "memory_mib_reported": _figure(None if size is None else size // MIB, "NVML"),
        "memory_bandwidth_gbs": _figure(bandwidth, "NVML", f"2 x {memory_clock} MHz x {width} bit"),
        "boost_clock_mhz": _figure(device.clock_mhz("SM", highest=True), "NVML"),
        "memory_clock_mhz": _figure(memory_clock, "NVML"),
        "tdp_w": _figure(default, "NVML"),
        "power_limit_min_w": _figure(limits[0] if limits else None, "NVML"),
        "power_limit_max_w": _figure(limits[1] if limits else None, "NVML"),
        "pcie_gen": _figure(device.link("Generation", highest=True), "NVML"),
        "pcie_lanes": _figure(device.link("Width", highest=True), "NVML"),
    }
    for key, value in attributes.items():
        found[key] = _figure(value, "CUDA driver")
    return {key: figure for key, figure in found.items() if figure.known}


def _entry(name: str) -> tuple[Gpu | None, str]:
    try:
        return resolve_gpu(name), ""
    except (UnknownNameError, AmbiguousNameError) as error:
        return None, error.msg


def _read(device: NvmlDevice, driver: Any | None, release: tuple[str | None, str | None]) -> LiveGpu:
    notes: list[str] = []
    attributes: dict[str, int] = {}
    bus_id = device.bus_id
    if driver is None:
        notes.append("the CUDA driver library could not be used: shared memory, SMs and L2 are unknown")
    elif bus_id is not None:
        attributes = device_attributes(driver, bus_id)
        if not attributes:
            notes.append("the CUDA driver does not see this device (CUDA_VISIBLE_DEVICES?): its limits are unknown")
    if device.mig:
        notes.append("MIG is on: processes see slices, not the whole GPU that is described here")
    name = device.name
    entry, unresolved = _entry(name)
    now: dict[str, float | int | bool | None] = {
        "power_limit_w": device.power_limit_w,
        "power_draw_w": device.power_draw_w,
        "sm_clock_mhz": device.clock_mhz("SM", highest=False),
        "memory_clock_mhz": device.clock_mhz("MEM", highest=False),
        "memory_used_bytes": device.memory_used_bytes,
        "pcie_gen": device.link("Generation", highest=False),
        "pcie_lanes": device.link("Width", highest=False),
    }
    gpu = Gpu(
        key=entry.key if entry else "",
        name=name,
        compute_capability=device.compute_capability or (entry.compute_capability if entry else ""),
        figures=_figures(device, attributes),
    )
    return LiveGpu(device.index, gpu, entry, unresolved, *release, now, tuple(notes))


def read_live(nvml: Any | None = None, driver: Any | None = None, *, use_driver: bool = True) -> list[LiveGpu]:
    """Every GPU of this machine. `nvml` and `driver` stand in for the real libraries in tests.

    Raises MissingPartError when nvidia-ml-py is not installed, TilewrightError when no driver answers or there is no
    GPU.
    """
    module = nvml if nvml is not None else load_nvml()
    with session(module) as active:
        count = active.nvmlDeviceGetCount()
        if not count:
            msg = "The NVIDIA driver answers, but reports no GPU; check the container's device flags (--gpus all)."
            raise TilewrightError(msg)
        if use_driver and driver is None:
            driver = load_driver()
        release = versions(active)
        return [_read(NvmlDevice(active, index), driver, release) for index in range(count)]


def differences(live: LiveGpu) -> list[Difference]:
    """Every figure that both the device and its catalogue entry hold and on which they differ, telling ones first.

    Power is compared twice: the default limit with the catalogue's, and the limit that is set now with the default.
    """
    if live.entry is None:
        return []
    found: list[Difference] = []
    for key, figure in live.gpu.figures.items():
        known = live.entry.get(key)
        if key in _NOT_COMPARED or not known.known or known.value == figure.value:
            continue
        relative = None
        if isinstance(figure.value, int | float) and isinstance(known.value, int | float) and known.value:
            relative = figure.value / known.value - 1
        rounding = key in _NAMEPLATE and relative is not None and abs(relative) <= NAMEPLATE_TOLERANCE
        found.append(Difference(key, figure.value, known.value, relative, rounding))
    limit, default = live.now.get("power_limit_w"), live.entry.tdp_w
    if limit is not None and default and limit != default and live.gpu.value("tdp_w") != limit:
        found.append(Difference("power_limit_w", limit, default, limit / default - 1, rounding=False))
    return sorted(found, key=lambda item: item.rounding)
