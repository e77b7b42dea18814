"""SARIF of FlashInfer's tactics, and the width of its tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.report.sarif import RULES, Finding, sarif_document


@pytest.mark.tree
def test_every_kernel_that_can_never_run_is_annotated_at_the_line_that_lists_it(
    cli: Any, flashinfer_062: Path, tmp_path: Path
) -> None:
    target = tmp_path / "flashinfer.sarif"
    result = cli("tactics", "flashinfer", "--root", str(flashinfer_062), "--sarif", str(target), "--json")
    assert result.code == 0
    failing = [item for item in result.json["tactics"] if item["verdict"]["status"] == "overflow"]
    results = json.loads(target.read_text())["runs"][0]["results"]
    assert len(results) == len(failing) == 4
    for item, entry in zip(failing, results, strict=True):
        place = entry["locations"][0]["physicalLocation"]
        assert entry["ruleId"] == "tactic-overflow"
        assert place["artifactLocation"] == {"uri": item["source"]["file"], "uriBaseId": "SRCROOT"}
        assert place["region"]["startLine"] == item["source"]["line"]
        assert "102,400" in entry["message"]["text"]
        assert "101,376" in entry["message"]["text"]


@pytest.mark.tree
@pytest.mark.parametrize("op", ["moe", "gemm"])
def test_tables_stay_within_100_columns(cli: Any, flashinfer_062: Path, op: str) -> None:
    result = cli("tactics", "flashinfer", "--root", str(flashinfer_062), "--op", op)
    assert result.code == 0
    wide = [line for line in result.out.splitlines() if len(line) > 100]
    # A kernel's symbol is one word, to be copied whole.
    assert all(len(line.split()) == 1 for line in wide), wide[:3]


def test_a_log_without_findings_is_a_whole_log() -> None:
    log = sarif_document([])
    assert log["runs"][0]["results"] == []
    assert [rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]] == list(RULES)


def test_names_that_no_uri_may_hold_are_quoted_and_lines_begin_at_one() -> None:
    (result,) = sarif_document([Finding("tactic-illegal", "n", "m", "a b/[1, 2]#.json", 0)])["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "a%20b/%5B1%2C%202%5D%23.json"
    assert place["region"]["startLine"] == 1


@pytest.mark.tree
def test_a_log_that_cannot_be_written_names_its_own_option(cli: Any, flashinfer_062: Path, tmp_path: Path) -> None:
    target = tmp_path / "none" / "x.sarif"
    result = cli("tactics", "flashinfer", "--root", str(flashinfer_062), "--sarif", str(target))
    assert result.code == 2
    assert "--sarif" in result.err
    assert "--out" not in result.err
