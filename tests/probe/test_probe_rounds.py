"""Many configs in one compile: errors attributed, survivors compiled again, nothing left behind; with a fake nvcc."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fake_nvcc import runs, write_nvcc
from probe_trees import make_tree

from tilewright.cutlass.config import parse_config
from tilewright.errors import InputError, MissingPartError, ToolError
from tilewright.probe.compiler import find_nvcc
from tilewright.probe.headers import open_headers
from tilewright.probe.result import ProbeResult
from tilewright.probe.rounds import Settings
from tilewright.probe.run import Request, probe


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    monkeypatch.setattr("tempfile.tempdir", None)
    (tmp_path / "tmp").mkdir()


def compile_all(folder: Path, behaviour: str, count: int = 5, **options: Any) -> list[ProbeResult]:
    """`count` different configs through a fake nvcc of that behaviour."""
    headers, scatter = open_headers([str(make_tree(folder / "tree", scatter=True))])
    settings = Settings(find_nvcc(str(write_nvcc(folder, behaviour))), scatter, **options)
    configs = [
        parse_config({"id": str(n), "arch": "sm120", "a": "nvfp4", "tile": [128, 128, 128], "stages": 2 + n})
        for n in range(count)
    ]
    return probe([Request(config, headers[0]) for config in configs], settings)


def test_a_unit_that_compiles_is_compiled_once_and_answered_in_order(tmp_path: Path) -> None:
    results = compile_all(tmp_path, "succeed()")
    assert [(result.id, result.smem_bytes) for result in results] == [(str(n), 1000 + n) for n in range(5)]
    assert runs(tmp_path) == [[0, 1, 2, 3, 4]]
    assert {result.status_basis for result in results} == {"compiled"}


def test_what_was_compiled_before_is_not_compiled_again(tmp_path: Path) -> None:
    first = compile_all(tmp_path, "succeed()")
    assert compile_all(tmp_path, "succeed()", count=6)[:5] == first
    assert runs(tmp_path) == [[0, 1, 2, 3, 4], [0]]
    compile_all(tmp_path, "succeed()", use_cache=False)
    assert runs(tmp_path)[2:] == [[0, 1, 2, 3, 4]]


def test_an_edited_header_is_another_tree(tmp_path: Path) -> None:
    compile_all(tmp_path, "succeed()", count=2)
    header = tmp_path / "tree" / "include" / "cute" / "tensor.hpp"
    text = header.read_text()
    make_tree(tmp_path / "tree")
    header.write_text(text + "// edited\n")
    headers, _ = open_headers([str(tmp_path / "tree")])
    config = parse_config({"arch": "sm120", "a": "nvfp4", "tile": [128, 128, 128], "stages": 2})
    probe([Request(config, headers[0])], Settings(find_nvcc(str(tmp_path / "nvcc"))))
    assert runs(tmp_path) == [[0, 1], [0]]


def test_configs_that_do_not_compile_are_answered_and_the_rest_compiled_again(tmp_path: Path) -> None:
    results = compile_all(
        tmp_path,
        """
        bad = [n for n in configs if n in (1, 3)]
        for n in bad:
            refuse(n)
        sys.exit(2) if bad else succeed()
        """,
    )
    assert [result.status for result in results] == ["fits", "illegal", "fits", "illegal", "fits"]
    assert results[1].error == 'static assertion failed with "no"'
    assert results[1].error_at == "cutlass/gemm/collective/a.hpp:7"
    assert runs(tmp_path) == [[0, 1, 2, 3, 4], [0, 2, 4]]


def test_a_config_that_crashes_the_compiler_is_found_by_bisection(tmp_path: Path) -> None:
    results = compile_all(tmp_path, "os.kill(os.getpid(), 11) if 3 in configs else succeed()")
    assert [result.status for result in results] == ["fits", "fits", "fits", "unsupported", "fits"]
    assert "stopped without a message" in (results[3].cause or "")
    assert [3] in runs(tmp_path)


def test_headers_that_do_not_compile_by_themselves_are_no_configs_fault(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match=r"does not compile the headers of CUTLASS 4\.2\.1 .*boom"):
        compile_all(tmp_path, 'print("/t/cute/tensor.hpp(1): error: boom"); sys.exit(2)')


def test_a_follow_up_error_is_not_taken_for_the_message(tmp_path: Path) -> None:
    """Config 4 shares a type with config 1: the compiler explains it once, for 1, until 1 is out of the way."""
    results = compile_all(
        tmp_path,
        """
        if 1 in configs:
            refuse(1, "the reason")
            print("twcfg4(2): error: name followed by :: must be a class")
            print()
        elif 4 in configs:
            refuse(4, "the reason")
        else:
            succeed()
        sys.exit(2)
        """,
    )
    assert [result.error for result in results] == [None, "the reason", None, None, "the reason"]


def test_a_compile_that_takes_too_long_is_stopped_and_its_children_with_it(tmp_path: Path) -> None:
    started = time.monotonic()
    results = compile_all(
        tmp_path,
        """
        if not configs: succeed()
        child = subprocess.Popen(["sleep", "60"])
        open(os.path.join(here, "pid"), "w").write(str(child.pid))
        time.sleep(60)
        """,
        count=1,
        timeout_s=1.0,
    )
    assert time.monotonic() - started < 20
    assert results[0].status == "unsupported"
    assert "longer than 1 s" in (results[0].cause or "")
    assert gone(int((tmp_path / "pid").read_text()))
    assert list((tmp_path / "tmp").iterdir()) == []


def gone(pid: int) -> bool:
    """Whether no such process runs any more (a zombie does not run)."""
    for _ in range(50):
        try:
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_kill_leave_no_process_and_no_file(tmp_path: Path, sent: signal.Signals) -> None:
    nvcc = write_nvcc(
        tmp_path,
        """
        child = subprocess.Popen(["sleep", "60"])
        open(os.path.join(here, "pid.part"), "w").write(str(child.pid))
        os.rename(os.path.join(here, "pid.part"), os.path.join(here, "pid"))
        time.sleep(60)
        """,
    )
    root = make_tree(tmp_path / "tree")
    command = [sys.executable, "-m", "tilewright", "probe", "--nvcc", str(nvcc), "--root", str(root)]
    command += ["--arch", "sm120", "--a", "nvfp4", "--tile", "128x128x128"]
    env = {**os.environ, "TMPDIR": str(tmp_path / "tmp"), "TILEWRIGHT_CACHE_DIR": str(tmp_path / "cache")}
    process = subprocess.Popen(command, env=env, stderr=subprocess.PIPE, stdout=subprocess.PIPE)
    for _ in range(200):
        if (tmp_path / "pid").exists():
            break
        time.sleep(0.05)
    process.send_signal(sent)
    out, err = process.communicate(timeout=20)
    assert process.returncode == -sent
    assert out == b""
    assert b"nothing was left half-written" in err
    assert gone(int((tmp_path / "pid").read_text()))
    assert list((tmp_path / "tmp").iterdir()) == []


def test_finalize_without_its_header_says_what_to_pass(tmp_path: Path) -> None:
    headers, scatter = open_headers([str(make_tree(tmp_path / "tree"))])
    config = parse_config(
        {"arch": "sm120", "kind": "grouped", "a": "nvfp4", "tile": "128x128x128", "fusion": "finalize"}
    )
    (result,) = probe([Request(config, headers[0])], Settings(find_nvcc(str(write_nvcc(tmp_path, ""))), scatter))
    assert result.status == "unsupported"
    assert "--extensions" in (result.cause or "")


def test_the_whole_kernel_decides_the_status(tmp_path: Path) -> None:
    nvcc = write_nvcc(
        tmp_path,
        """
        if "-cubin" in args:
            print("/x/include/cute/layout.hpp(9): error: no kernel")
            print("          detected during: instantiation of class at line 3 of twcfg0")
            sys.exit(2)
        succeed()
        """,
    )
    headers, scatter = open_headers([str(make_tree(tmp_path / "tree"))])
    config = parse_config({"arch": "sm120", "a": "nvfp4", "tile": "128x128x128"})
    (result,) = probe([Request(config, headers[0])], Settings(find_nvcc(str(nvcc)), scatter), ptxas=True)
    assert (result.status, result.type_status, result.smem_bytes) == ("illegal", "fits", 1000)
    assert result.kernel is not None
    assert result.kernel.errors == ["no kernel (cute/layout.hpp:9)"]
    assert msgspec.json.decode(msgspec.json.encode(result))["schema"] == "tilewright/probe/1"


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [
        ("print('Killed'); sys.exit(137)", "nvcc ended with 137 and named no error"),
        ("time.sleep(60)", "nvcc took longer than 3 s"),
    ],
)
def test_a_kernel_without_an_answer_is_not_called_one_that_fits(tmp_path: Path, behaviour: str, why: str) -> None:
    """A compiler that was killed for want of memory, or took too long."""
    nvcc = write_nvcc(tmp_path, f"""
        if "-cubin" in args:
            {behaviour}
        succeed()
        """)  # fmt: skip
    headers, scatter = open_headers([str(make_tree(tmp_path / "tree"))])
    config = parse_config({"arch": "sm120", "a": "nvfp4", "tile": "128x128x128"})
    settings = Settings(find_nvcc(str(nvcc)), scatter, timeout_s=3)
    (result,) = probe([Request(config, headers[0])], settings, ptxas=True)
    assert (result.status, result.type_status, result.kernel) == ("unsupported", "fits", None)
    assert why in (result.cause or "")


def test_no_compiler_anywhere_is_a_missing_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(MissingPartError, match=r"tilewright\[probe\]"):
        find_nvcc()


def test_an_old_compiler_is_refused_with_the_version_that_is_needed(tmp_path: Path) -> None:
    old = tmp_path / "nvcc"
    old.write_text("#!/bin/sh\necho 'release 12.6, V12.6.20'\n")
    old.chmod(0o755)
    with pytest.raises(ToolError, match=r"12\.6\.20 .* is too old: sm_120a needs 12\.8"):
        find_nvcc(str(old))
    for wrong in ("/bin/true", str(tmp_path / "absent"), str(tmp_path), "nul\0byte"):
        with pytest.raises(InputError, match="--nvcc"):
            find_nvcc(wrong)


def test_a_damaged_cache_entry_is_compiled_again(tmp_path: Path) -> None:
    first = compile_all(tmp_path, "succeed()", count=1)
    for entry in (tmp_path / "cache" / "probe").rglob("*.json"):
        entry.write_bytes(b'{"scalars": 3')
    assert compile_all(tmp_path, "succeed()", count=1) == first
    assert runs(tmp_path) == [[0], [0]]
