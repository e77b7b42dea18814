"""`tilewright collectives` as a shell sees it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mini_cutlass import cutlass_fixture, own_cache, write_cutlass  # noqa: F401

Write = Callable[..., Path]
CONFIG = {"arch": "sm120", "a": "e4m3", "tile": [128, 128, 128]}


def test_json_is_one_document_and_nothing_else(cli: Any, cutlass: Write) -> None:
    got = cli("collectives", "--root", str(cutlass()), "--arch", "sm_120a", "--scaling", "blockwise", "--json")
    assert got.code == 0
    assert got.err == ""
    assert got.json["schema"] == "tilewright/collectives/1"
    assert {item["array"] for item in got.json["collectives"]} == {True, False}


def test_array_and_no_array_are_told_apart(cli: Any, cutlass: Write) -> None:
    root = str(cutlass())
    for flag, expected in (("--array", True), ("--no-array", False)):
        found = cli("collectives", "--root", root, flag, "--json").json["collectives"]
        assert {item["array"] for item in found} == {expected}


def test_a_few_are_shown_in_full_with_demands_and_notes(cli: Any, cutlass: Write) -> None:
    got = cli("collectives", "--root", str(cutlass()))
    assert got.code == 0
    text = " ".join(got.out.split())
    for words in (
        "CUTLASS 9.8.7",
        "content unknown; nearest:",
        "3 of 3 collectives",
        "sm120_mma_builder.inl:4",
        "cluster 1x1x1",
        "SM120 has clusters, up to 8 CTAs, only without TMA multicast",
        "KernelTmaWarpSpecializedLonelySm120",
        "MainloopSm120TmaWarpSpecializedNobody",
    ):
        assert words in text


def test_many_are_a_table_with_a_row_each(cli: Any, cutlass: Write, tmp_path: Path) -> None:
    cutlass("root/a/include")
    for place in ("b", "c"):
        write_cutlass(tmp_path / "root" / place, {"cutlass/gemm/collective/x.hpp": f"// {place}\n"})
    got = cli("collectives", "--root", str(tmp_path / "root"))
    rows = [line for line in got.out.splitlines() if line.startswith("[") and "sm120" in line]
    assert len(rows) == 9
    assert all(".hpp:4" in row for row in rows)


def test_for_lists_what_could_run_a_config_and_why_the_rest_cannot(cli: Any, cutlass: Write, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG, indent=2))
    root = str(cutlass())
    got = cli("collectives", "--root", root, "--for", str(config))
    assert got.code == 0
    could, _, cannot = got.out.partition("Look as if they could, and cannot:")
    assert "MainloopSm120TmaWarpSpecialized\n" in could
    assert "MainloopSm120ArrayTmaWarpSpecializedBlockwiseScaling" in cannot
    answer = cli("collectives", "--root", root, "--for", str(config), "--json").json
    assert answer["for"]["config"]["a"] == "e4m3"
    assert [item["policy"] for item in answer["collectives"]] == ["MainloopSm120TmaWarpSpecialized"]
    refused = [one for one in answer["for"]["verdicts"] if not one["can"]]
    assert refused
    assert all(one["reasons"] for one in refused)


def test_check_answers_no_with_exit_1(cli: Any, cutlass: Write, tmp_path: Path) -> None:
    root = str(cutlass())
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    assert cli("collectives", "--root", root, "--for", str(config), "--check").code == 0
    config.write_text(json.dumps({**CONFIG, "cluster": [2, 1, 1]}))
    got = cli("collectives", "--root", root, "--for", str(config), "--check")
    assert got.code == 1
    assert "No mainloop collective in this tree could run it." in got.out


def test_a_config_may_come_from_stdin(
    cli: Any, cutlass: Write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(CONFIG))
    with config.open(encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        got = cli("collectives", "--root", str(cutlass()), "--for", "-", "--json")
    assert got.code == 0
    assert got.json["for"]["config"]["arch"] == "sm120"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--root", "/nowhere/at/all"), "nothing at"),
        (("--arch", "sm121x"), "is no arch"),
        (("--arch", "h100"), "is no arch"),
        (("--scaling", "hardware"), "--scaling"),
        (("--operation", "gemm"), "--operation"),
        (("--check",), "--for"),
        (("--for", "/nowhere.json"), "cannot be read"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(cli: Any, cutlass: Write, args: tuple[str, ...], words: str) -> None:
    got = cli("collectives", *(() if "--root" in args else ("--root", str(cutlass()))), *args)
    assert got.code == 2
    assert words in got.err
    assert got.out == ""
    assert got.err.count("\n") == 1


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1]", b"\xff\xfe", b'{"arch":"sm120"}', b'{"arch":"sm120","a":"fp3","tile":[1,1,1]}', b"[" * 100_000,
     b'{"arch":' + b"9" * 2_000_000],
)  # fmt: skip
def test_a_file_that_holds_no_config_is_refused(cli: Any, cutlass: Write, tmp_path: Path, content: bytes) -> None:
    config = tmp_path / "config.json"
    config.write_bytes(content)
    got = cli("collectives", "--root", str(cutlass()), "--for", str(config))
    assert got.code == 2
    assert got.err.count("\n") == 1
    assert len(got.err) < 500


def test_without_a_root_what_is_installed_is_asked(
    cli: Any, cutlass: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX", "CUTLASS_PATH", "CUTLASS_HOME", "CUTLASS_DIR"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if not entry.endswith("-packages")])
    got = cli("collectives")
    assert got.code == 2
    assert "pass --root DIR_OR_WHEEL" in got.err
    cutlass("env/lib/python3.11/site-packages/flashinfer/data/cutlass/include")
    monkeypatch.setenv("VIRTUAL_ENV", str(tmp_path / "env"))
    got = cli("collectives", "--json")
    assert got.code == 0
    assert got.json["root"].endswith("site-packages/flashinfer")
    monkeypatch.setenv("CUTLASS_PATH", str(cutlass("checkout/include").parent))
    assert cli("collectives", "--json").json["root"].endswith("checkout")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.one_of(
            st.sampled_from(
                ["--arch", "--scaling", "--array", "--json", "--for", "--operation", "--root", "-", "sm120"]
            ),
            st.text(max_size=12).filter(lambda text: text not in ("-h", "--help")),
        ),
        max_size=6,
    )
)
def test_any_arguments_end_in_an_exit_code(cli: Any, tmp_path: Path, args: list[str]) -> None:
    root = tmp_path / "include"
    if not root.exists():
        write_cutlass(root)
    got = cli("collectives", "--root", str(root), *[arg for arg in args if arg != "-"])
    assert got.code in (0, 2)
