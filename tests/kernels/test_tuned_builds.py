"""Files of tuned builds: what `tune` writes is read back, the nearest rows count, hostile files are one sentence."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import InputError
from tilewright.kernels import tuned
from tilewright.kernels.config import GroupedConfig
from tilewright.tune.export import write
from tilewright.tune.layer import Layer
from tilewright.tune.trials import Trial

LAYER = Layer(hidden=6144, inter=256, experts=256, topk=8, dtype="nvfp4")
SMALL, LARGE = GroupedConfig(columns=1, stages=3), GroupedConfig(columns=4, blocks=4, stages=2, units=8)
GPU = "NVIDIA H200"


def found() -> dict[int, list[Trial]]:
    """What a search would have found at 16 and 64 tokens."""
    at = "2026-12-02T00:00:00Z"
    return {
        tokens: [Trial(config=asdict(build), rung="final", at=at, time_s=1e-4)]
        for tokens, build in ((64, LARGE), (16, SMALL))
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one layer's file, beside files that are not ours."""
    out = tmp_path / "tuned"
    [file] = write("tilewright", LAYER, GPU, "digest", found(), str(out), force=False)
    assert Path(file.path).name == "tilewright-grouped,E=256,H=6144,N=256,topk=8,device_name=NVIDIA_H200.json"
    (out / "E=256,N=256,device_name=NVIDIA_H200.json").write_text("{broken")
    monkeypatch.setenv(tuned.VARIABLE, str(out))
    return out


@pytest.mark.usefixtures("folder")
def test_what_was_tuned_is_used_near_its_rows() -> None:
    """For both GEMMs; the nearest by ratio, the smaller of two; none far away, on another GPU or for another layer."""
    rows = {rows: tuned.tuned_build(GPU, 256, 512, 6144, rows) for rows in (1, 31, 32, 128, 256, 257, 512, 2048, 2049)}
    assert rows == {
        1: None, 31: None, 32: SMALL, 128: SMALL, 256: SMALL, 257: LARGE, 512: LARGE, 2048: LARGE, 2049: None,
    }  # fmt: skip
    assert tuned.tuned_build(GPU, 256, 6144, 256, 128) == SMALL
    assert tuned.tuned_build("NVIDIA H100", 256, 512, 6144, 128) is None
    assert tuned.tuned_build(GPU, 128, 512, 6144, 128) is None
    assert tuned.tuned_build(GPU, 256, 512, 6144, 0) is None


@pytest.mark.usefixtures("folder")
def test_another_kernel_is_not_replaced() -> None:
    """A tuned build stands in for a build of its own kernel only."""
    assert tuned.preferred(GroupedConfig(), GPU, 256, 512, 6144, 128) == SMALL
    assert tuned.preferred(GroupedConfig(), GPU, 256, 512, 6144, 10**6) == GroupedConfig()
    assert tuned.preferred("row by row", GPU, 256, 512, 6144, 128) == "row by row"


def test_without_a_folder_nothing_is_tuned(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    monkeypatch.delenv(tuned.VARIABLE)
    assert tuned.tuned_build(GPU, 256, 512, 6144, 128) is None
    assert tuned.tuned_build(GPU, 256, 512, 6144, 128, str(folder)) == SMALL
    assert tuned.tuned_build(GPU, 256, 512, 6144, 128, "") is None


def good() -> dict[str, Any]:
    return {
        "schema": "tilewright/kernel-builds/1", "device": GPU, "hidden": 256, "inter": 128, "experts": 8, "topk": 2,
        "builds": {"16": asdict(SMALL)},
    }  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "tilewright/kernel-builds/2"}, {"builds": {}}, {"builds": {"x": {}}}, {"builds": {"0": {}}},
        {"builds": {"16": {"columns": 0}}}, {"builds": {"16": {"warps": 3}}}, {"builds": {"16": {"warps": 0}}},
        {"builds": {"16": {"stages": 10**30}}}, {"builds": {"16": {"stages": True}}}, {"builds": {"16": {"new": 1}}},
        {"builds": {"16": {"columns": 64, "stages": 6}}}, {"hidden": -1}, {"experts": "8"}, {"more": 1},
        {"times_us": {"16": "x"}}, {"device": 1},
    ],
)  # fmt: skip
def test_hostile_tables_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    """One sentence that names the file."""
    (tmp_path / f"{tuned.PREFIX}a.json").write_text(json.dumps({**good(), **change}))
    with pytest.raises(InputError, match=r"tilewright-grouped,a\.json") as caught:
        tuned.read_folder(str(tmp_path))
    assert len(caught.value.msg) < 500


def test_a_good_table_is_not(tmp_path: Path) -> None:
    """What the hostile ones are changes of."""
    (tmp_path / f"{tuned.PREFIX}a.json").write_text(json.dumps(good()))
    assert tuned.read_folder(str(tmp_path))[GPU, 8, 256, 256] == {32: SMALL}


@given(st.binary(max_size=400) | st.text(max_size=50).map(lambda text: json.dumps({**good(), "device": text}).encode()))
def test_garbage_is_an_input_error(data: bytes) -> None:
    """Never anything else."""
    try:
        assert tuned.decoded(data, "f").builds
    except InputError as error:
        assert "f" in error.msg


def test_hostile_folders(tmp_path: Path) -> None:
    """Missing, a file, NUL, a link loop, a folder or a pipe in a file's place, a huge or deeply nested file."""
    import os

    name = f"{tuned.PREFIX}a.json"
    for index, make in enumerate(
        (
            lambda path: path.symlink_to(path),
            lambda path: path.mkdir(),
            os.mkfifo,
            lambda path: path.write_bytes(b" " * (tuned.MAX_BYTES + 1)),
            lambda path: path.write_bytes(b"[" * 100_000),
            lambda path: path.write_bytes(b'{"a":' * 100_000),
        )
    ):
        folder = tmp_path / str(index)
        folder.mkdir()
        make(folder / name)
        with pytest.raises(InputError, match=r"a\.json"):
            tuned.read_folder(str(folder))
    file = tmp_path / "file"
    file.write_text("")
    for bad in (str(tmp_path / "none"), str(file), "a\0b"):
        with pytest.raises(InputError, match="is no folder"):
            tuned.read_folder(bad)
