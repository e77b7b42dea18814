"""What an upgrade of CUTLASS changes for a config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
