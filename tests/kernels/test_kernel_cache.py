"""Compiled kernels are kept: read back by the next process, made anew where anything that takes part has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tilewright.kernels import builds

CALL = ("nvfp4_route.cu", "sm_90a", ("-DTW_X=1",))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[tuple[str, str, tuple[str, ...]]]]:
    """What was compiled since, by a compiler that is none; the cache folder is `tmp_path`."""
    calls: list[tuple[str, str, tuple[str, ...]]] = []

    def compiled(source: str, target: str, defines: tuple[str, ...]) -> bytes:
        calls.append((source, target, defines))
        return f"{source} {target} {defines}".encode()

    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(builds, "compile_cubin", compiled)
    monkeypatch.setattr(builds, "nvrtc_version", lambda: "13.0")
    monkeypatch.setattr(builds, "_kept_in", [])
    builds.cubin.cache_clear()
    yield calls
    builds.cubin.cache_clear()


def as_in_a_new_process() -> bytes:
    builds.cubin.cache_clear()
    return builds.cubin(*CALL)


def test_the_next_process_reads_what_this_one_compiled(made: list[object], tmp_path: Path) -> None:
    first = builds.cubin(*CALL)
    assert as_in_a_new_process() == first
    assert made == [CALL]
    assert [path.name for path in (tmp_path / "kernels").iterdir()] == [builds.file_name(*CALL)]


@pytest.mark.parametrize("damage", [b"", b"\0" * 20, b"\0" * 64])
def test_a_damaged_file_is_made_anew(made: list[object], tmp_path: Path, damage: bytes) -> None:
    first = builds.cubin(*CALL)
    path = tmp_path / "kernels" / builds.file_name(*CALL)
    whole = path.read_bytes()
    path.write_bytes(damage)
    assert as_in_a_new_process() == first
    assert path.read_bytes() == whole
    path.write_bytes(whole[:-1])
    assert as_in_a_new_process() == first
    assert len(made) == 3


def test_what_takes_part_is_in_the_name(made: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    names = {
        builds.file_name(*CALL),
        builds.file_name("nvfp4_permute.cu", *CALL[1:]),
        builds.file_name(CALL[0], "sm_120a", CALL[2]),
        builds.file_name(CALL[0], CALL[1], ("-DTW_X=2",)),
    }
    monkeypatch.setattr(builds, "nvrtc_version", lambda: "13.1")
    names.add(builds.file_name(*CALL))
    monkeypatch.setattr(builds, "included", lambda: {"nvfp4_common.cuh": b"changed"})
    names.add(builds.file_name(*CALL))
    assert len(names) == 6


def test_without_a_folder_it_compiles(made: list[object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file where the folder should be; then no home at all."""
    (tmp_path / "taken").write_bytes(b"")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "taken"))
    assert as_in_a_new_process()
    for name in ("TILEWRIGHT_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("tilewright.probe.cache.home", lambda: None)
    assert as_in_a_new_process()
    assert len(made) == 2
    assert (tmp_path / "taken").read_bytes() == b""


def test_a_run_of_tune_keeps_its_builds_apart(made: list[object], tmp_path: Path) -> None:
    builds.keep_in(tmp_path / "run" / "cubins")
    builds.cubin(*CALL)
    assert (tmp_path / "run" / "cubins" / builds.file_name(*CALL)).is_file()
    assert not (tmp_path / "kernels").exists()


def test_a_real_build_is_read_back_whole(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """NVRTC without a GPU, where the bindings are."""
    pytest.importorskip("cuda.bindings.nvrtc")
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(builds, "_kept_in", [])
    builds.cubin.cache_clear()
    first = builds.cubin("nvfp4_route.cu", "sm_90a", ())
    assert first.startswith(b"\x7fELF")
    builds.cubin.cache_clear()
    monkeypatch.setattr(builds, "compile_cubin", lambda *_: pytest.fail("it is kept"))
    assert builds.cubin("nvfp4_route.cu", "sm_90a", ()) == first
    builds.cubin.cache_clear()
