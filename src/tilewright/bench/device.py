"""The GPU that is measured, as NVML tells it: no CUDA context is made in this process."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

from tilewright.errors import (
    AmbiguousNameError,
    InputError,
    MissingPartError,
    TilewrightError,
    UnknownNameError,
)
from tilewright.hardware.gpu import Gpu
from tilewright.hardware.names import resolve_gpu
from tilewright.hardware.nvml import NvmlDevice, load_nvml, session, versions

EXTRA: Final = "bench"
WITHOUT: Final = "without one, `predict` answers from published measurements and `results` reads a store"


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU. `index` is CUDA's (after CUDA_VISIBLE_DEVICES); `entry` its catalogue entry, None where it has none.
    `free_bytes`, `processes` (that compute on it now) None: the driver does not say."""

    index: int
    name: str
    entry: Gpu | None
    capability: tuple[int, int]
    free_bytes: int | None
    driver: str | None
    count: int
    processes: int | None = None

    @property
    def gpu(self) -> str:
        """The name by which results are kept: the catalogue's key, else the device's own name."""
        return self.entry.key if self.entry else self.name


def visible(count: int, value: str | None) -> list[int]:
    """NVML's numbers of the devices that CUDA sees, in CUDA's order. `value`: CUDA_VISIBLE_DEVICES. Entries that are
    no numbers (UUIDs, MIG) end the translation: then all are taken as they are."""
    if value is None:
        return list(range(count))
    parts = [part.strip() for part in value.split(",") if part.strip()]
    if not all(part.isascii() and part.isdigit() for part in parts):
        return list(range(count))
    seen: list[int] = []
    for part in parts:
        number = int(part[:9])
        if number >= count:
            break  # CUDA, too, ignores what follows a device that is not there
        seen.append(number)
    return seen


def require_packages() -> None:
    """Raises MissingPartError where torch or NVML's bindings are not installed. Imports neither."""
    for module, what in (("torch", "PyTorch, which `bench` measures with,"), ("pynvml", "nvidia-ml-py")):
        if find_spec(module) is None:
            raise MissingPartError(what, EXTRA)


def entry_of(name: str) -> Gpu | None:
    """The catalogue's entry of the GPU that its driver calls `name`, None where it has none."""
    try:
        return resolve_gpu(name)
    except (UnknownNameError, AmbiguousNameError):
        return None


def _read(index: int, nvml: Any) -> Device:
    found = visible(int(nvml.nvmlDeviceGetCount()), os.environ.get("CUDA_VISIBLE_DEVICES"))
    if not found:
        msg = f"The NVIDIA driver shows no GPU to this process (CUDA_VISIBLE_DEVICES?); {WITHOUT}."
        raise InputError("device", msg)
    if not 0 <= index < len(found):
        msg = f"--device {index} is not there; this machine's are 0 to {len(found) - 1}."
        raise InputError("device", msg)
    device = NvmlDevice(nvml, found[index])
    major, _, minor = (device.compute_capability or "0.0").partition(".")
    driver, _ = versions(nvml)
    capability = (int(major), int(minor))
    return Device(
        index, device.name, entry_of(device.name), capability, device.memory_free_bytes, driver, len(found),
        device.processes,
    )  # fmt: skip


def read_device(index: int, nvml: Any | None = None) -> Device:
    """The device that CUDA calls `index`. `nvml` stands in for the library in tests.

    Raises:
        MissingPartError: a package is missing.
        TilewrightError: no driver answers, or there is no GPU.
        InputError: there is no device of that number.
    """
    if nvml is None:
        require_packages()
        nvml = load_nvml()
    try:
        with session(nvml) as active:
            return _read(index, active)
    except (InputError, MissingPartError):
        raise
    except TilewrightError:
        msg = f"No NVIDIA driver answers on this machine, and `bench` measures on its GPU; {WITHOUT}."
        raise TilewrightError(msg) from None
