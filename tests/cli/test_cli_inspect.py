"""`tilewright inspect`: answers, exit codes, wheels and folders."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent.parent / "data" / "binary"


def test_kernels_of_a_cubin_as_a_table(cli: Any) -> None:
    result = cli("inspect", str(DATA / "toy.sm_120a.cubin"))
    assert result.code == 0
    assert "SASS sm_120a" in result.out
    row = next(line for line in result.out.splitlines() if line.startswith("spill"))
    assert row.split()[:4] == ["spill", "24", "0", "40"]
    assert "36 st, 36 ld" in row


def test_code_for_a_later_gpu_explains_error_internal_without_any_lack_of_memory(cli: Any) -> None:
    """The report on CUTLASS example 79d: built for sm_121, run on an RTX PRO 6000 (12.0)."""
    result = cli("inspect", str(DATA / "tiny.sm_121.cubin"), "--gpu", "rtx-pro-6000-server", "--check", "--json")
    assert result.code == 1
    assert result.json["schema"] == "tilewright/inspect/1"
    assert result.json["verdict"]["runs"] == "no"
    assert "sm_121 needs 12.1" in result.json["verdict"]["why"]
    assert "Error Internal" in result.json["advice"]
    assert "sm_120a" in result.json["advice"]


@pytest.mark.parametrize(
    ("name", "gpu", "code"),
    [
        ("tiny.sm_120.cubin", "gb10", 0),
        ("tiny.sm_120f.cubin", "gb10", 0),
        ("toy.sm_120a.cubin", "gb10", 1),
        ("toy.sm_120a.cubin", "rtx-5090", 0),
        ("toy.compute_120a.ptx", "gb10", 1),
        ("toy.speed.fatbin", "gb10", 0),  # through its PTX of compute_80
        ("lto.fatbin", "h100-sxm", 1),
    ],
)
def test_check(cli: Any, name: str, gpu: str, code: int) -> None:
    assert cli("inspect", str(DATA / name), "--gpu", gpu, "--check").code == code


def test_check_needs_a_gpu(cli: Any) -> None:
    result = cli("inspect", str(DATA / "tiny.sm_120.cubin"), "--check")
    assert result.code == 2
    assert "--gpu" in result.err


def wheel(tmp_path: Path, name: str, members: dict[str, Path | bytes]) -> Path:
    path = tmp_path / name
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for member, content in members.items():
            archive.writestr(member, content if isinstance(content, bytes) else content.read_bytes())
    return path


def as_machine(elf: bytes, machine: int) -> bytes:
    """A host ELF whose header names another processor."""
    return elf[:18] + machine.to_bytes(2, "little") + elf[20:]


def test_an_aarch64_wheel_without_code_for_gb10(cli: Any, tmp_path: Path) -> None:
    """vLLM 50925: the aarch64 wheel has no code that a GB10 (12.1) runs."""
    arm = as_machine((DATA / "host_rdc.o").read_bytes(), 183)
    path = wheel(
        tmp_path,
        "toy-1.0-cp312-cp312-manylinux_2_28_aarch64.whl",
        {"toy/_C.abi3.so": arm, "toy/k.cubin": DATA / "toy.sm_120a.cubin", "toy/x.py": b"pass"},
    )
    result = cli("inspect", str(path), "--gpu", "gb10", "--json").json
    assert (result["kind"], result["cpu"]) == ("wheel", ["aarch64"])
    files = {file["path"]: file for file in result["files"]}
    assert files["toy/_C.abi3.so"]["cpu"] == "aarch64"
    assert [row["target"] for row in files["toy/_C.abi3.so"]["architectures"]] == ["sm_121"]
    assert files["toy/k.cubin"]["verdict"]["runs"] == "no"
    assert "never on 12.1" in files["toy/k.cubin"]["verdict"]["why"]
    assert files["toy/k.cubin"]["usable"] == {"native": 0, "jit": 0, "none": 1}
    only = wheel(tmp_path, "only-1.0-py3-none-linux_aarch64.whl", {"k.cubin": DATA / "toy.sm_120a.cubin"})
    assert cli("inspect", str(only), "--gpu", "gb10", "--check").code == 1


def test_a_folder_goes_on_after_a_damaged_file(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "a.cubin").write_bytes((DATA / "toy.sm_90a.cubin").read_bytes()[:3000])
    (tmp_path / "b.so").write_bytes((DATA / "host.o").read_bytes())
    (tmp_path / "c.so").write_bytes(b"text, not a library")
    (tmp_path / "gone.so").symlink_to(tmp_path / "nowhere")
    (tmp_path / "loop").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe.so")
    result = cli("inspect", str(tmp_path), "--json")
    assert result.code == 0
    assert [file["path"] for file in result.json["files"]] == ["b.so"]
    assert [item["path"] for item in result.json["unreadable"]] == ["a.cubin", "pipe.so"]
    assert result.json["without_device_code"] == 1
    assert result.json["files"][0].get("images") is None
    text = cli("inspect", str(tmp_path))
    assert "unreadable: a.cubin" in text.out


@pytest.mark.parametrize("content", [b"", b"x", b"hello world\n", b"\x7fELF", b"PK\x03\x04", b"\x50\xed\x55\xba"])
def test_what_is_no_binary_is_one_sentence_and_exit_2(cli: Any, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(content)
    result = cli("inspect", str(path))
    assert result.code == 2
    assert result.out == ""
    assert len(result.err.splitlines()) == 1
    assert "file.bin" in result.err


def test_a_path_that_is_not_there(cli: Any, tmp_path: Path) -> None:
    assert cli("inspect", str(tmp_path / "nothing")).code == 2
    assert cli("inspect", "a\0b").code == 2


def test_a_zip_bomb_is_refused_and_the_rest_of_the_wheel_is_read(cli: Any, tmp_path: Path) -> None:
    bomb = (DATA / "host.o").read_bytes()[:64] + bytes(64 << 20)
    path = wheel(tmp_path, "w-1-py3-none-any.whl", {"bomb.so": bomb, "good.so": DATA / "host.o"})
    result = cli("inspect", str(path), "--json").json
    assert [file["path"] for file in result["files"]] == ["good.so"]
    assert "inflate" in result["unreadable"][0]["error"]


def test_control_characters_of_a_name_do_not_reach_the_terminal(cli: Any, tmp_path: Path) -> None:
    path = wheel(tmp_path, "w-1-py3-none-any.whl", {"a\x1b[31m.so": DATA / "host.o"})
    assert "\x1b" not in cli("inspect", str(path)).out


def test_host_code_of_two_processors_is_said(cli: Any, tmp_path: Path) -> None:
    host = (DATA / "host.o").read_bytes()
    path = wheel(tmp_path, "w-1-cp312-cp312-manylinux_2_28_aarch64.whl", {"a.so": host})
    result = cli("inspect", str(path), "--json").json
    assert result["cpu"] == ["aarch64", "x86_64"]
    assert "more than one processor" in result["notes"][0]
