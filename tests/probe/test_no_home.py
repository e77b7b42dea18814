"""Where there is no home folder: the user of a container may have none, and `~NAME` may name nobody."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import Any

import pytest
from fake_nvcc import write_nvcc
from probe_trees import make_tree

NOBODY = "~no-such-user/x"


@pytest.fixture
def no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: object) -> None:
        raise KeyError

    for name in ("HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "TILEWRIGHT_CACHE_DIR", "TILEWRIGHT_STORE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)


@pytest.mark.usefixtures("no_home")
@pytest.mark.parametrize(
    "arguments",
    [
        ("results", "list"), ("journal",), ("record", "--change", "x", "--before", "1", "--after", "2"),
        ("results", "compare"),
    ],
)  # fmt: skip
def test_the_store_has_to_be_named(cli: Any, arguments: tuple[str, ...]) -> None:
    result = cli(*arguments)
    assert result.code == 2
    assert "There is no home folder to keep results in; set TILEWRIGHT_STORE" in result.err


@pytest.mark.usefixtures("no_home")
def test_a_tree_is_read_without_a_cache(cli: Any, tmp_path: Path) -> None:
    result = cli("collectives", "--root", str(make_tree(tmp_path / "tree")), "--json")
    assert (result.code, result.json["cutlass"]) == (0, "4.2.1")


@pytest.mark.usefixtures("no_home")
def test_a_probe_goes_on_without_its_results(cli: Any, tmp_path: Path) -> None:
    tree, nvcc = make_tree(tmp_path / "tree"), write_nvcc(tmp_path, "succeed()")
    config = ("--arch", "sm120", "--a", "nvfp4", "--tile", "128x128x128")
    result = cli("probe", *config, "--root", str(tree), "--nvcc", str(nvcc), "--json", "-q")
    assert (result.code, result.err) == (0, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ("collectives", "--root", NOBODY), ("tactics", "flashinfer", "--root", NOBODY),
        ("tactics", "vllm", "--root", NOBODY, "--gpu", "h200"), ("flags", "vllm", "--root", NOBODY),
        ("fix", "flashinfer", "--root", NOBODY, "--write", "patch"), ("verify", "--library", NOBODY, "--build-only"),
        ("probe", "--root", NOBODY, "--arch", "sm90", "--a", "bf16", "--tile", "128x128x64"),
    ],
    ids=lambda words: "-".join(words[:2]),
)  # fmt: skip
def test_a_home_of_nobody_is_a_path_where_nothing_is(cli: Any, arguments: tuple[str, ...]) -> None:
    result = cli(*arguments)
    assert result.code == 2
    assert f"There is nothing at '{NOBODY}'" in result.err
