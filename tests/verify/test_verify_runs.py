"""`verify` end to end, with a stand-in for nvcc: what runs, refuses, hangs or dies is recorded, and nothing is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from fake_build import make_tree, write_nvcc

from tilewright.cutlass.config import parse_config
from tilewright.cutlass.fit import fit
from tilewright.errors import ToolError
from tilewright.probe.compiler import find_nvcc
from tilewright.probe.headers import open_headers
from tilewright.probe.rounds import Settings
from tilewright.verify.build import supervised
from tilewright.verify.device import Device, find_device
from tilewright.verify.model import Verification
from tilewright.verify.run import Plan, scrubbed, verify

BASE: dict[str, Any] = {
    "arch": "sm90", "a": "bf16", "tile": "64x128x64", "schedule": "pingpong", "cutlass": "4.2.1",
    "epilogue_schedule": "tma_warp_specialized",
}  # fmt: skip
H200 = Device(0, "NVIDIA H200", (9, 0), 132, 232448, "13.0", None)


def bytes_of(stages: int) -> int:
    size = fit(parse_config({**BASE, "stages": stages}), brief=True).smem_bytes
    assert size is not None
    return size


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


def run(
    tmp_path: Path, behaviours: dict[str, str], device: Device | None = H200, timeout_s: float = 20.0, **more: Any
) -> Verification:
    trees, _ = open_headers([str(make_tree(tmp_path / "tree"))])
    settings = Settings(find_nvcc(str(write_nvcc(tmp_path, behaviours))), jobs=2)
    plans = [Plan(parse_config({**BASE, "stages": stages, "id": stages, **more}), trees[0]) for stages in behaviours]
    return verify(plans, settings, device, run_timeout_s=timeout_s)


def test_each_end_of_a_process_is_recorded_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.verify.execute.GRACE_S", 1.0)
    over = bytes_of(10)
    assert over > 232448
    result = run(
        tmp_path,
        {
            "2": f"sizes({bytes_of(2)}); launched(); call('cudaDeviceSynchronize')\n"
            'say(\'"step":"values","total":9,"wrong":0,"not_finite":0,"unwritten":0,"worst":0\')',
            "3": f"sizes({bytes_of(3)}); launched(); time.sleep(600)",
            "4": f"sizes({bytes_of(4)}); launched(); os.kill(os.getpid(), signal.SIGSEGV)",
            "5": f"sizes({bytes_of(5)}); launched(); call('cudaDeviceSynchronize', 700, 'cudaErrorIllegalAddress')\n"
            "sys.exit(1)",
            "10": f"sizes({over}); call('cudaFuncSetAttribute', 1, 'cudaErrorInvalidValue')\n"
            "call('initialize', 7, 'Error Internal'); sys.exit(1)",
            "6": f"sizes({bytes_of(6) + 16}); launched()",
        },
        timeout_s=1.0,
    )
    by_id = {case.id: case for case in result.cases}
    outcomes = [by_id[key].outcome for key in ("2", "3", "4", "5", "10")]
    assert outcomes == ["agree", "differ", "differ", "differ", "agree"]
    assert "all 9 elements are right" in by_id["2"].why
    assert "hung after run" in by_id["3"].why
    run4 = by_id["4"].run
    assert run4 is not None
    assert (run4.end, run4.signal) == ("died", signal.SIGSEGV)
    assert "cudaErrorIllegalAddress" in by_id["5"].why
    assert "initialize() answers Error Internal" in by_id["10"].why
    assert by_id["6"].outcome == "differ"
    assert f"{bytes_of(6) + 16:,}" in by_id["6"].why
    assert (result.summary.agree, result.summary.differ) == (2, 4)


def test_nonsense_and_programs_that_do_not_start(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        {
            "2": "print('@tw {\"step\":'); print('@tw [1]'); print('no such driver'); sys.exit(3)",
            "3": f"sizes({bytes_of(3)}); print('x' * 1000000); print('CUDA initialisation failed'); sys.exit(9)",
            "4": f"sizes({bytes_of(4)}); launched(); call('cudaDeviceSynchronize')\n"
            'say(\'"step":"values","total":9,"wrong":2,"not_finite":1,"unwritten":0,"worst":3.5\')',
        },
    )
    assert [case.outcome for case in result.cases] == ["not_run", "differ", "differ"]
    third = result.cases[1].run
    assert third is not None
    assert third.last_words == "CUDA initialisation failed"
    assert "2 of 9 elements are wrong" in result.cases[2].why


def test_a_kernel_of_another_gpu_is_not_built(tmp_path: Path) -> None:
    result = run(tmp_path, {"2": "refuse:never"}, Device(0, "X", (12, 0), 188, 101376, "13.0", None))
    assert result.cases[0].outcome == "not_run"
    assert "compute capability 9.0 only; this GPU has 12.0" in result.cases[0].why
    assert result.cases[0].build is None


def test_build_only_compares_sizes_and_what_does_not_compile(tmp_path: Path) -> None:
    result = run(
        tmp_path,
        {
            "2": f"sizes({bytes_of(2)}); os._exit(5)",
            "3": "refuse:something is wrong in /home/somebody/secret/x.hpp",
            "4": f"sizes({bytes_of(4) + 1})",
        },
        None,
    )
    assert [case.outcome for case in result.cases] == ["agree", "differ", "differ"]
    assert result.machine is None
    assert result.build_only
    assert all(case.run is None for case in result.cases)
    assert "secret" not in json.dumps(result.cases[1].build and result.cases[1].build.errors)
    assert str(tmp_path) not in str(result)


def test_what_was_built_is_not_built_again(tmp_path: Path) -> None:
    behaviours = {"2": f"sizes({bytes_of(2)})"}
    first, second = run(tmp_path, behaviours, None), run(tmp_path, behaviours, None)
    assert first.cases[0].build is not None
    assert second.cases[0].build is not None
    assert first.cases[0].build.seconds is not None
    assert second.cases[0].build.seconds is None


def test_a_cache_that_cannot_be_written_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(blocked))
    with pytest.raises(ToolError, match="TILEWRIGHT_CACHE_DIR"):
        run(tmp_path, {"2": "sizes(1)"}, None)


def alive(marker: str, more: str = "") -> list[str]:
    """Processes whose command line holds `marker` and `more`."""
    found: list[str] = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            except OSError:
                continue
            if marker in line and more in line:
                found.append(folder.name)
    return found


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="looks for processes in /proc")
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_runs_on_when_verify_is_killed(tmp_path: Path, sent: signal.Signals) -> None:
    """A hanging kernel under way: kill -9, Ctrl-C and SIGTERM all take it down."""
    tree = make_tree(tmp_path / "tree")
    nvcc = write_nvcc(tmp_path, {"2": f"sizes({bytes_of(2)}); launched(); time.sleep(600)"})
    marker = f"{tmp_path.name}-{sent.value}"
    code = f"""
import sys
from tilewright.cutlass.config import parse_config
from tilewright.probe.compiler import find_nvcc
from tilewright.probe.headers import open_headers
from tilewright.probe.rounds import Settings
from tilewright.verify.device import Device
from tilewright.verify.run import Plan, verify
trees, _ = open_headers([{str(tree)!r}])
plan = Plan(parse_config({{**{BASE!r}, "stages": 2}}), trees[0])
device = Device(0, "NVIDIA H200", (9, 0), 132, 232448, "13.0", None)
verify([plan], Settings(find_nvcc({str(nvcc)!r})), device, run_timeout_s=300)
"""
    env = {**os.environ, "TILEWRIGHT_CACHE_DIR": str(tmp_path / marker)}
    process = subprocess.Popen(
        [sys.executable, "-c", code], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 30
        running: list[str] = []
        while len(running) < 2 and time.monotonic() < deadline:  # the supervisor and the program, on device 0
            time.sleep(0.1)
            running = alive(marker, " 0 300 ")
        assert len(running) >= 2
        process.send_signal(sent)
        process.wait(15)
        deadline = time.monotonic() + 10
        while alive(marker) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert alive(marker) == []
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def test_a_supervised_command_answers_as_a_shell_does(tmp_path: Path) -> None:
    def code(*command: str) -> int:
        return subprocess.run(supervised(command), capture_output=True, check=False, start_new_session=True).returncode

    assert code(sys.executable, "-c", "raise SystemExit(7)") == 7
    assert code(sys.executable, "-c", "import os; os.kill(os.getpid(), 11)") == 128 + 11
    assert code(str(tmp_path / "none")) == 127


class Driver:
    """A CUDA driver library with one GPU, at its C boundary."""

    def __init__(self, count: int = 1) -> None:
        self.count = count

    def cuDeviceGetCount(self, out: Any) -> int:  # noqa: N802
        out._obj.value = self.count
        return 0

    def cuDeviceGet(self, out: Any, index: int) -> int:  # noqa: N802
        out._obj.value = index
        return 0

    def cuDeviceGetName(self, buffer: Any, size: int, device: Any) -> int:  # noqa: N802
        buffer.value = b"NVIDIA GB10"
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: int, device: int) -> int:  # noqa: N802
        values = {16: 48, 75: 12, 76: 1, 97: 101376}
        out._obj.value = values[attribute]
        return 0

    def cuDeviceGetPCIBusId(self, buffer: Any, size: int, device: Any) -> int:  # noqa: N802
        return 1

    def cuDriverGetVersion(self, out: Any) -> int:  # noqa: N802
        out._obj.value = 13010
        return 0


def test_the_gpu_is_read_from_the_driver() -> None:
    device = find_device(0, Driver())
    assert (device.name, device.arch, device.sm_count, device.limit_bytes) == ("NVIDIA GB10", "sm121", 48, 101376)
    assert (device.cuda_driver, device.bus_id) == ("13.1", None)


def test_paths_are_cut_to_their_last_part() -> None:
    assert scrubbed("error in /home/me/x/cute/a.hpp:7 (b/c.hpp:1)") == "error in a.hpp:7 (b/c.hpp:1)"
    assert scrubbed("48/51 and 1/2, CUTLASS 4.2.1") == "48/51 and 1/2, CUTLASS 4.2.1"
