"""An option that would change nothing is refused with what it goes with, and no file is lost to an output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.report.sarif import Finding, write_sarif

CONFIG = ("--arch", "sm120", "--a", "nvfp4", "--tile", "128x128x128")
TILE = ("--kernel", "vllm-fused-moe", "--gpu", "h200", "--dtype", "bf16", "--tile", "64x64x64")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fit", *CONFIG, "--compare", "4.2.1", "4.7.0", "--cutlass", "4.5.0"), "drop --cutlass"),
        (("fit", *CONFIG, "--compare", "4.2.1", "4.7.0", "--root", "tree"), "drop --root"),
        (("fit", *TILE, "--root", "tree"), "goes with --compile"),
        (("flags", "sglang", "tp-size", "--gpus", "1"), "--gpus is for advice"),
        (("flags", "sglang", "--check-launch", "--model-path x", "--goal", "throughput"), "--goal is for advice"),
        (("models", "GLM-5", "--tp", "8"), "--tp is about a layout"),
        (("models", "GLM-5", "--ep", "1"), "--ep is about a layout"),
        (("models", "GLM-5", "--mtp"), "--mtp is about the memory of a GPU"),
        (("models", "GLM-5", "--fraction", "nan"), "--fraction is about the memory of a GPU"),
        (("models", "GLM-5", "--gpu", "h200", "--gemms", "--kv", "fp8"), "not with --gemms"),
        (("models", "GLM-5", "--tokens", "1"), "--tokens goes with --gemms"),
        (("models", "GLM-5", "--gpu", "h200", "--tokens", "1"), "--tokens goes with --gemms"),
        (("models", "--tp", "8"), "--tp needs the NAME of a model"),
        (("observe", "--script", "--seconds", "5"), "python3 - --seconds ..."),
        (("observe", "--script", "--ssh", "host"), "--ssh does not go with --script"),
        (("observe", "--script", "--json"), "--json does not go with --script"),
    ],
)
def test_it_is_told_what_it_goes_with(cli: Any, words: tuple[str, ...], says: str) -> None:
    answer = cli(*words)
    assert (answer.code, answer.out) == (2, "")
    assert says in answer.err


def test_defaults_that_were_not_typed_are_refused_nowhere(cli: Any) -> None:
    assert cli("models", "GLM-5", "--gpu", "h200", "--tp", "8", "--mtp", "--kv", "fp8", "--pp", "2").code == 0
    assert cli("models", "GLM-5", "--gemms", "--tp", "8", "--tokens", "1,2", "--gpu", "h200").code == 0
    assert cli("flags", "sglang", "tp-size").code == 0


FOUND = [Finding("tactic-overflow", "tile", "1,024 too many", "generate_kernels.py", 756)]


def test_a_file_that_is_no_sarif_log_is_not_written_over(tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text('{"configs": []}')
    with pytest.raises(Exception, match="is no SARIF log and is kept"):
        write_sarif(str(kept), FOUND)
    assert kept.read_text() == '{"configs": []}'


def test_the_log_of_a_former_run_is_replaced(tmp_path: Path) -> None:
    log = tmp_path / "log.sarif"
    log.write_text("")
    write_sarif(str(log), FOUND)
    write_sarif(str(log), [])
    assert json.loads(log.read_text())["runs"][0]["results"] == []
    log.write_text(json.dumps(json.loads(log.read_text())))  # as another tool lays it out
    write_sarif(str(log), FOUND)
    assert len(json.loads(log.read_text())["runs"][0]["results"]) == 1


def test_the_collector_is_written_where_out_says(cli: Any, tmp_path: Path) -> None:
    answer = cli("observe", "--script", "--out", str(tmp_path / "collector.py"))
    assert (answer.code, answer.out) == (0, "")
    assert (tmp_path / "collector.py").read_text() == cli("observe", "--script").out
    assert cli("observe", "--script", "--out", str(tmp_path / "collector.py")).code == 2
