"""What an upgrade of CUTLASS changes for a config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.cutlass.compare import compare
from tilewright.cutlass.config import parse_config

GROUPED = {"arch": "sm120", "kind": "grouped", "a": "nvfp4", "fusion": "finalize"}


def changes(tile: list[int], old: str, new: str, **keys: Any) -> tuple[str, dict[str, tuple[Any, Any]]]:
    result = compare(parse_config(GROUPED | {"tile": tile} | keys), old, new)
    return result.verdict, {change.key: (change.old, change.new) for change in result.changes}


def test_small_n_tiles_are_gained_from_4_5_on() -> None:
    verdict, figures = changes([128, 64, 128], "4.4.3", "4.5.0")
    assert verdict == "gained"
    assert figures["status"] == ("illegal", "fits")


def test_n_192_is_lost_from_4_5_on() -> None:
    assert changes([128, 192, 128], "4.4.2", "4.5.0", stages=2)[1]["type_status"][1] == "illegal"


def test_the_failing_tile_of_the_driving_case_stays_as_it_is() -> None:
    assert changes([128, 256, 128], "4.2.1", "4.7.0") == ("same", {})


def test_the_rounded_pipeline_turns_an_overflow_into_a_fit() -> None:
    verdict, figures = changes([128, 128, 64], "4.2.1", "4.4.2")
    assert (verdict, figures["stages"], figures["smem_bytes"]) == ("gained", (9, 8), (102400, 93184))


def test_a_stream_is_compared_line_by_line(cli: Any, tmp_path: Path) -> None:
    source = tmp_path / "configs.jsonl"
    rows = [GROUPED | {"id": "a", "tile": [128, 64, 128]}, GROUPED | {"id": "b", "tile": [128, 128, 128]}]
    source.write_text("\n".join(map(json.dumps, rows)))
    result = cli("fit", "--from", str(source), "--compare", "4.2.1", "4.7.0", "--json")
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [(answer["id"], answer["verdict"]) for answer in answers] == [("a", "gained"), ("b", "same")]


def test_an_unknown_release_is_answered_with_the_nearest(cli: Any) -> None:
    result = cli("fit", "--arch", "sm120", "--a", "nvfp4", "--tile", "128x128x128", "--compare", "4.2.1", "5.0.0")
    assert result.code == 2
    assert "4.7.0" in result.err


@pytest.mark.tree
def test_an_upgrade_is_judged_for_every_kernel_of_a_library(cli: Any, flashinfer_062: Path) -> None:
    """CUTLASS 3.9.2 has no callbacks for the MoE scatter: what FlashInfer 0.6.2 gained by leaving it."""
    library = ("--library", str(flashinfer_062), "--json", "--check")
    forward = json.loads(cli("fit", "--compare", "3.9.2", "4.2.1", *library).out)
    result = cli("fit", "--compare", "4.2.1", "3.9.2", *library)
    back = json.loads(result.out)
    assert (forward["library_version"], forward["lost"]) == ("0.6.2", 0)
    assert forward["kernels"] == 74  # 40 of MoE, 34 of dense GEMMs, each once
    assert back["lost"] == forward["gained"] == len(back["new_failures"]) > 0
    assert back["kernels"] == back["same"] + back["changed"] + back["gained"] + back["lost"]
    assert {item["id"] for item in back["changes"] if item["verdict"] == "lost"} == set(back["new_failures"])
    assert result.code == 1


def test_library_without_what_it_needs_is_refused_in_one_line(cli: Any, tmp_path: Path) -> None:
    for arguments, says in (
        (("--library", str(tmp_path)), "--compare"),
        (("--library", str(tmp_path), "--compare", "4.2.1", "4.7.0", "--a", "nvfp4"), "--arch"),
        (("--library", str(tmp_path), "--compare", "4.2.1", "9.9.9"), "9.9.9"),
        (("--library", str(tmp_path / "none"), "--compare", "4.2.1", "4.7.0"), "nothing"),
        (("--library", str(tmp_path), "--compare", "4.2.1", "4.7.0", "--arch", "sm90"), "sm120"),
    ):
        result = cli("fit", *arguments)
        assert result.code == 2
        assert says in result.err
        assert "Traceback" not in result.err
