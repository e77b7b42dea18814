"""The GPU that kernels are run on, read through the CUDA driver library; clocks through NVML where it is installed."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from tilewright.errors import InputError, MissingPartError, TilewrightError, shown
from tilewright.hardware.driver import load_driver
from tilewright.hardware.nvml import NvmlDevice, load_nvml, session, versions
from tilewright.verify.model import Clocks

__all__ = ["ARCH_OF", "Device", "find_device", "read_clocks"]

# CUdevice_attribute values of cuda.h
_SM_COUNT, _MAJOR, _MINOR, _OPTIN = 16, 75, 76, 97
_NAME_BYTES: Final = 256
_BUS_ID_BYTES: Final = 32

ARCH_OF: Final = {(9, 0): "sm90", (10, 0): "sm100", (10, 3): "sm103", (12, 0): "sm120", (12, 1): "sm121"}
"""Compute capability -> the arch of configs. The `a` targets run on exactly one capability each."""

WITHOUT: Final = (
    "Without one: `tilewright verify --build-only` builds the kernels and compares their sizes, `tilewright fit` and "
    "`probe` need no GPU at all."
)


@dataclass(frozen=True)
class Device:
    """One GPU of this machine, by its index for CUDA."""

    index: int
    name: str
    capability: tuple[int, int]
    sm_count: int | None
    limit_bytes: int | None
    cuda_driver: str | None
    bus_id: str | None

    @property
    def arch(self) -> str | None:
        """The arch of configs that run here, or None for a GPU older than Hopper or unknown."""
        return ARCH_OF.get(self.capability)


def _attribute(driver: Any, attribute: int, device: int) -> int | None:
    value = ctypes.c_int()
    return value.value if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) == 0 else None


def find_device(index: int, driver: Any | None = None) -> Device:
    """The GPU `index` as CUDA numbers them (CUDA_VISIBLE_DEVICES counts). No context is made.

    Raises:
        TilewrightError: no driver, or no GPU; the message says what works without.
        InputError: there is no GPU of that number.
    """
    library = driver if driver is not None else load_driver()
    count = ctypes.c_int()
    if library is None or library.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        raise TilewrightError(f"There is no NVIDIA GPU here that the CUDA driver answers for. {WITHOUT}")
    if not 0 <= index < count.value:
        have = "0" if count.value == 1 else f"0 to {count.value - 1}"
        raise InputError("device", f"--device {index}: this machine has {have}.")
    handle = ctypes.c_int()
    library.cuDeviceGet(ctypes.byref(handle), index)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    library.cuDeviceGetName(name, _NAME_BYTES, handle)
    major = _attribute(library, _MAJOR, handle.value) or 0
    minor = _attribute(library, _MINOR, handle.value) or 0
    bus = ctypes.create_string_buffer(_BUS_ID_BYTES)
    known = library.cuDeviceGetPCIBusId(bus, _BUS_ID_BYTES, handle) == 0
    release = ctypes.c_int()
    told = library.cuDriverGetVersion(ctypes.byref(release)) == 0
    return Device(
        index=index,
        name=name.value.decode("utf-8", "replace"),
        capability=(major, minor),
        sm_count=_attribute(library, _SM_COUNT, handle.value),
        limit_bytes=_attribute(library, _OPTIN, handle.value),
        cuda_driver=f"{release.value // 1000}.{release.value % 1000 // 10}" if told else None,
        bus_id=bus.value.decode("ascii", "replace") if known else None,
    )


def arch_needed(arch: str) -> str:
    """The compute capability of `arch`, for a sentence."""
    return next((f"{a}.{b}" for (a, b), name in ARCH_OF.items() if name == arch), shown(arch))


def read_clocks(device: Device) -> tuple[Clocks | None, str | None]:
    """(clocks and power now, version of the driver); None where NVML does not answer or is not installed."""
    with suppress(MissingPartError, TilewrightError, OSError), session(load_nvml()) as nvml:
        release, _ = versions(nvml)
        for index in range(nvml.nvmlDeviceGetCount()):
            found = NvmlDevice(nvml, index)
            if _same(found.bus_id, device.bus_id):
                return (
                    Clocks(
                        sm_mhz=found.clock_mhz("SM", highest=False),
                        memory_mhz=found.clock_mhz("MEM", highest=False),
                        power_w=found.power_draw_w,
                        power_limit_w=found.power_limit_w,
                    ),
                    release,
                )
        return None, release
    return None, None


def _same(first: str | None, second: str | None) -> bool:
    """NVML writes the domain of a bus id with eight digits, CUDA with four."""
    if first is None or second is None:
        return False
    return first.lower().lstrip("0") == second.lower().lstrip("0")
