"""docs/schema is what the types say, and what the commands print is what docs/schema says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import REPO
from tilewright.report.schema import NAMES, checker

MINIMAL = ("--arch", "sm120", "--kind", "grouped", "--a", "nvfp4", "--tile", "128x256x128", "--fusion", "finalize")


def rendered(name: str) -> str:
    spec = importlib.util.spec_from_file_location("build_schemas", REPO / "tools" / "build_schemas.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text: str = module.rendered(name)
    return text


@pytest.mark.parametrize("name", NAMES)
def test_the_schema_files_are_up_to_date(name: str) -> None:
    """Run `python tools/build_schemas.py` when this fails."""
    assert (REPO / "docs" / "schema" / f"{name}.json").read_text(encoding="utf-8") == rendered(name)


def test_no_schema_file_is_left_over() -> None:
    assert {path.stem for path in (REPO / "docs" / "schema").glob("*.json")} == set(NAMES)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("fit", ("fit", *MINIMAL)),
        ("fit", ("fit", "--arch", "sm120", "--a", "bf16", "--tile", "128x128x64")),
        ("fit-compare", ("fit", *MINIMAL, "--compare", "4.2.1", "4.7.0")),
        ("gpus", ("gpus",)),
        ("gpus", ("gpus", "h200")),
        ("models", ("models",)),
        ("models", ("models", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--tp", "8")),
        ("models", ("models", "DeepSeek-V3")),
        ("plan", ("plan", "--model", "GLM-5-NVFP4", "--gpu", "h200", "--gpus", "8", "--engine", "vllm")),
    ],
)
def test_what_a_command_prints_keeps_to_its_schema(cli: Any, name: str, args: tuple[str, ...]) -> None:
    result = cli(*args, "--json", "--quiet")
    assert result.code == 0
    document = json.loads(result.out)
    assert document["schema"] == f"tilewright/{name}/1"
    checker(name)(document)


@pytest.mark.tree
@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("tactics", ("tactics", "flashinfer", "--root")),
        ("tactics", ("tactics", "flashinfer", "--op", "gemm", "--root")),
        ("collectives", ("collectives", "--arch", "sm120", "--root")),
        ("plan", ("plan", "--model", "GLM-5", "--gpu", "5090", "--gpus", "8", "--engine", "sglang", "--library")),
    ],
)
def test_what_a_command_says_of_a_tree_keeps_to_its_schema(
    cli: Any, flashinfer_062: Path, name: str, args: tuple[str, ...]
) -> None:
    result = cli(*args, str(flashinfer_062), "--json", "--quiet")
    assert result.code == 0
    checker(name)(json.loads(result.out))


def test_a_refused_line_keeps_to_the_schema_of_fit(cli: Any, tmp_path: Path) -> None:
    source = tmp_path / "x.jsonl"
    source.write_text('{"id": "a", "arch": "sm1"}\n')
    result = cli("fit", "--from", str(source), "--json")
    answer = checker("fit")(json.loads(result.out))
    assert answer.status == "error"
