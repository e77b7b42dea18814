"""Reading GPUs through NVML (the `nvidia-ml-py` package, module `pynvml`).

Every reading is optional: a driver that does not support one leaves it unknown. Nothing is ever set.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from tilewright.errors import MissingPartError, TilewrightError

__all__ = ["NvmlDevice", "load_nvml", "session"]

_MODULE = "pynvml"


def load_nvml() -> Any:
    """The NVML module. Raises MissingPartError when the package is not installed."""
    try:
        return import_module(_MODULE)
    except ModuleNotFoundError:
        raise MissingPartError("nvidia-ml-py, which reads the NVIDIA driver,", "gpu") from None


@contextmanager
def session(nvml: Any) -> Generator[Any]:
    """NVML, initialised and shut down again. Raises TilewrightError, one sentence, when no driver answers."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        msg = (
            f"No NVIDIA driver answers on this machine (NVML: {error}); run this where the GPUs are, or leave --live "
            "out to see the catalogue."
        )
        raise TilewrightError(msg) from None
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def _text(value: str | bytes) -> str:
    """NVML's older bindings return bytes."""
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class NvmlDevice:
    """One device of an NVML session. A property is None where the driver does not say."""

    def __init__(self, nvml: Any, index: int) -> None:
        self._nvml = nvml
        self.index = index
        self._handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def _ask(self, function: str, *args: Any) -> Any:
        call: Callable[..., Any] | None = getattr(self._nvml, function, None)
        if call is None:  # an older binding
            return None
        try:
            return call(self._handle, *args)
        except self._nvml.NVMLError:
            return None

    @property
    def name(self) -> str:
        return _text(self._ask("nvmlDeviceGetName") or "unnamed device")

    @property
    def bus_id(self) -> str | None:
        info = self._ask("nvmlDeviceGetPciInfo")
        return None if info is None else _text(info.busId)

    def _memory(self) -> Any:
        """Sizes, those that the driver keeps for itself apart from those in use where it tells them apart (version 2
        of the call; version 1 counts them as used)."""
        second = getattr(self._nvml, "nvmlMemory_v2", None)
        info = None if second is None else self._ask("nvmlDeviceGetMemoryInfo", second)
        return self._ask("nvmlDeviceGetMemoryInfo") if info is None else info

    @property
    def memory_bytes(self) -> int | None:
        info = self._memory()
        return None if info is None else int(info.total)

    @property
    def memory_used_bytes(self) -> int | None:
        info = self._memory()
        return None if info is None else int(info.used)

    @property
    def memory_free_bytes(self) -> int | None:
        info = self._memory()
        return None if info is None else int(info.free)

    @property
    def compute_capability(self) -> str | None:
        pair = self._ask("nvmlDeviceGetCudaComputeCapability")
        return None if pair is None else f"{pair[0]}.{pair[1]}"

    @property
    def cuda_cores(self) -> int | None:
        return self._ask("nvmlDeviceGetNumGpuCores")

    @property
    def bus_width_bits(self) -> int | None:
        return self._ask("nvmlDeviceGetMemoryBusWidth")

    def clock_mhz(self, domain: str, *, highest: bool) -> int | None:
        """Clock of "SM" or "MEM", now or the highest."""
        kind = getattr(self._nvml, f"NVML_CLOCK_{domain}", None)
        if kind is None:
            return None
        return self._ask("nvmlDeviceGetMaxClockInfo" if highest else "nvmlDeviceGetClockInfo", kind)

    @property
    def power_limits_w(self) -> tuple[float, float] | None:
        """Lowest and highest power limit that can be set."""
        pair = self._ask("nvmlDeviceGetPowerManagementLimitConstraints")
        return None if pair is None else (pair[0] / 1000, pair[1] / 1000)

    @property
    def power_limit_w(self) -> float | None:
        value = self._ask("nvmlDeviceGetEnforcedPowerLimit")
        if value is None:
            value = self._ask("nvmlDeviceGetPowerManagementLimit")
        return None if value is None else value / 1000

    @property
    def power_default_w(self) -> float | None:
        value = self._ask("nvmlDeviceGetPowerManagementDefaultLimit")
        return None if value is None else value / 1000

    @property
    def power_draw_w(self) -> float | None:
        value = self._ask("nvmlDeviceGetPowerUsage")
        return None if value is None else value / 1000

    @property
    def temperature_c(self) -> int | None:
        return self._ask("nvmlDeviceGetTemperature", getattr(self._nvml, "NVML_TEMPERATURE_GPU", 0))

    @property
    def throttle_mask(self) -> int | None:
        """Why the clock is not higher, as bits (nvmlClocksEventReason*; older bindings: nvmlClocksThrottleReason*)."""
        mask = self._ask("nvmlDeviceGetCurrentClocksEventReasons")
        return self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") if mask is None else mask

    @property
    def processes(self) -> int | None:
        """Processes that compute on it, this one included."""
        found = self._ask("nvmlDeviceGetComputeRunningProcesses")
        return None if found is None else len(found)

    def link(self, what: str, *, highest: bool) -> int | None:
        """PCIe link "Generation" or "Width", now or the highest that device and slot allow."""
        return self._ask(f"nvmlDeviceGet{'Max' if highest else 'Curr'}PcieLink{what}")

    @property
    def mig(self) -> bool | None:
        modes = self._ask("nvmlDeviceGetMigMode")
        return None if modes is None else bool(modes[0])


def versions(nvml: Any) -> tuple[str | None, str | None]:
    """(driver version, newest CUDA that the driver supports)."""
    driver = cuda = None
    try:
        driver = _text(nvml.nvmlSystemGetDriverVersion())
        number = int(nvml.nvmlSystemGetCudaDriverVersion_v2())  # 13000 is 13.0
        cuda = f"{number // 1000}.{number % 1000 // 10}"
    except (nvml.NVMLError, AttributeError):
        pass
    return driver, cuda
