"""Reading the machine's GPUs: NVML and the CUDA driver are stood in for, all else is real."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.errors import MissingPartError, TilewrightError
from tilewright.hardware.driver import ATTRIBUTES
from tilewright.hardware.live import differences, read_live

MIB = 1 << 20


class FakeNvml:
    """An NVML binding with one device, as `pynvml` looks from outside."""

    class NVMLError(Exception):
        pass

    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, **device: Any) -> None:
        self.device = {
            "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
            "memory": 97887 * MIB,
            "cc": (12, 0),
            "limits": (300_000, 600_000),
            "limit": 600_000,
            "sm_clock": 2430,
            "mem_clock": 12481,
            "bus": 512,
            "gen": 5,
            "width": 16,
            "count": 1,
            **device,
        }
        self.shut_down = 0

    def _get(self, key: str) -> Any:
        value = self.device[key]
        if value is None:
            raise self.NVMLError("Not Supported")
        return value

    nvmlMemory_v2 = 0x2000028  # noqa: N815

    def _memory(self, _: int, version: int | None = None) -> Any:
        """The first version of the call counts what the driver keeps for itself as used."""
        if version and self.device.get("old_memory"):
            raise self.NVMLError("Argument version mismatch")
        total, reserved = self._get("memory"), 616 * MIB
        return SimpleNamespace(
            total=total, used=MIB if version else MIB + reserved, free=None if total is None else total - MIB - reserved
        )

    def nvmlInit(self) -> None:  # noqa: N802
        if self.device.get("no_driver"):
            raise self.NVMLError("Driver Not Loaded")

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.shut_down += 1

    def nvmlSystemGetDriverVersion(self) -> str:  # noqa: N802
        return "580.82.09"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return 13020

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return self.device["count"]

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def __getattr__(self, name: str) -> Any:
        answers: dict[str, Any] = {
            "nvmlDeviceGetName": lambda _: self._get("name"),
            "nvmlDeviceGetMemoryInfo": self._memory,
            "nvmlDeviceGetPciInfo": lambda _: SimpleNamespace(busId=b"00000000:17:00.0"),
            "nvmlDeviceGetCudaComputeCapability": lambda _: self._get("cc"),
            "nvmlDeviceGetMemoryBusWidth": lambda _: self._get("bus"),
            "nvmlDeviceGetMaxClockInfo": lambda _, kind: self._get("sm_clock" if kind == 1 else "mem_clock"),
            "nvmlDeviceGetClockInfo": lambda _, kind: 180 if kind == 1 else 405,
            "nvmlDeviceGetPowerManagementLimitConstraints": lambda _: self._get("limits"),
            "nvmlDeviceGetEnforcedPowerLimit": lambda _: self._get("limit"),
            "nvmlDeviceGetPowerManagementDefaultLimit": lambda _: 600_000,
            "nvmlDeviceGetPowerUsage": lambda _: 35_000,
            "nvmlDeviceGetMaxPcieLinkGeneration": lambda _: self._get("gen"),
            "nvmlDeviceGetMaxPcieLinkWidth": lambda _: self._get("width"),
            "nvmlDeviceGetCurrPcieLinkGeneration": lambda _: 1,
            "nvmlDeviceGetCurrPcieLinkWidth": lambda _: 16,
            "nvmlDeviceGetMigMode": lambda _: self._get("mig"),
        }
        if name in answers:
            return answers[name]
        raise AttributeError(name)


class FakeDriver:
    """The two functions of the CUDA driver library that are called."""

    def __init__(self, *, hidden: bool = False, **changed: int) -> None:
        self.hidden = hidden
        values = {
            "sm_count": 188,
            "l2_bytes": 128 * MIB,
            "smem_per_sm_bytes": 102400,
            "smem_optin_max_per_block_bytes": 101376,
            "smem_reserved_per_block_bytes": 1024,
            "max_registers_per_sm": 65536,
            "max_threads_per_sm": 1536,
            "max_threads_per_block": 1024,
            "max_blocks_per_sm": 24,
            "warp_size": 32,
            **changed,
        }
        self.by_attribute = {ATTRIBUTES[key]: value for key, value in values.items()}

    def cuDeviceGetByPCIBusId(self, device: Any, bus_id: bytes) -> int:  # noqa: N802
        assert bus_id == b"00000000:17:00.0"
        return 100 if self.hidden else 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: Any) -> int:  # noqa: N802
        value._obj.value = self.by_attribute[attribute]
        return 0


def test_a_machine_that_is_as_the_catalogue_says_shows_only_rounding() -> None:
    nvml = FakeNvml(mig=None)
    (live,) = read_live(nvml, FakeDriver())
    assert live.entry is not None
    assert live.entry.key == "rtx-pro-6000-server"
    assert (live.driver, live.cuda) == ("580.82.09", "13.2")
    assert live.gpu.value("memory_bandwidth_gbs") == pytest.approx(1597.6, abs=0.05)
    assert all(item.rounding for item in differences(live))
    assert nvml.shut_down == 1


def test_every_difference_is_listed_with_both_values_and_real_ones_come_first() -> None:
    (live,) = read_live(FakeNvml(limit=450_000, sm_clock=2400, mig=None), FakeDriver(sm_count=160))
    found = {item.key: (item.live, item.catalogue) for item in differences(live)}
    assert found["sm_count"] == (160, 188)
    assert found["power_limit_w"] == (450.0, 600)
    assert found["boost_clock_mhz"] == (2400, 2430)
    rounding = [item.rounding for item in differences(live)]
    assert rounding == sorted(rounding)


def test_memory_that_the_driver_keeps_for_itself_is_not_in_use() -> None:
    """An idle H200 with 616 MiB reserved and nothing in use: nvidia-smi says 0, the older call says 616."""
    assert [gpu.now["memory_used_bytes"] for gpu in read_live(FakeNvml(mig=None), FakeDriver())] == [MIB]
    old = read_live(FakeNvml(mig=None, old_memory=True), FakeDriver())
    assert [gpu.now["memory_used_bytes"] for gpu in old] == [617 * MIB]


def test_what_the_driver_does_not_support_is_unknown_and_not_compared() -> None:
    (live,) = read_live(FakeNvml(memory=None, bus=None, limits=None, gen=None, mig=None), FakeDriver())
    assert live.gpu.value("memory_bytes") is None
    assert live.gpu.value("memory_bandwidth_gbs") is None
    assert "memory_bytes" not in {item.key for item in differences(live)}


def test_without_the_cuda_library_the_limits_are_unknown_and_it_is_said() -> None:
    (live,) = read_live(FakeNvml(mig=None), use_driver=False)
    assert live.gpu.value("smem_optin_max_per_block_bytes") is None
    assert any("CUDA driver library" in note for note in live.notes)
    (hidden,) = read_live(FakeNvml(mig=None), FakeDriver(hidden=True))
    assert any("CUDA_VISIBLE_DEVICES" in note for note in hidden.notes)


def test_a_gpu_outside_the_catalogue_is_read_and_said_to_be() -> None:
    (live,) = read_live(FakeNvml(name=b"NVIDIA H200 NVL", mig=(1, 1)), FakeDriver())
    assert live.entry is None
    assert "h200-sxm" in live.unresolved
    assert live.gpu.value("sm_count") == 188
    assert differences(live) == []
    assert any("MIG is on" in note for note in live.notes)


def test_no_driver_and_no_gpu_are_one_sentence_each() -> None:
    with pytest.raises(TilewrightError, match="No NVIDIA driver answers"):
        read_live(FakeNvml(no_driver=True))
    nvml = FakeNvml(count=0)
    with pytest.raises(TilewrightError, match="reports no GPU"):
        read_live(nvml)
    assert nvml.shut_down == 1


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, cli: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(MissingPartError):
        read_live()
    result = cli("gpus", "--live")
    assert result.code == 3
    assert "tilewright[gpu]" in result.err
    assert not result.out


def test_the_command_shows_the_machine_and_its_differences(monkeypatch: pytest.MonkeyPatch, cli: Any) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(limit=450_000, mig=None))
    monkeypatch.setattr("tilewright.hardware.live.load_driver", lambda: FakeDriver(sm_count=160))
    shown = cli("gpus", "--live")
    assert shown.code == 0
    assert "catalogue entry rtx-pro-6000-server" in shown.out
    assert "drawing 35 W of 450 W" in shown.out
    assert any(line.split() == ["SMs", "160", "188", "-14.9%"] for line in shown.out.splitlines())
    document = cli("gpus", "--live", "--json").json
    (live,) = document["live"]
    assert document["schema"] == "tilewright/gpus/1"
    assert live["figures"]["sm_count"] == {"value": 160, "kind": "measured", "sources": ["CUDA driver"]}
    assert {"figure": "sm_count", "live": 160, "catalogue": 188}.items() <= next(
        item for item in live["differences"] if item["figure"] == "sm_count"
    ).items()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(no_driver=True))
    refused = cli("gpus", "--live")
    assert refused.code == 2
    assert refused.err.count("\n") == 1
