"""The real compiler on the real headers of FlashInfer 0.6.2 (CUTLASS 4.2.1): the probe gives what the truth rows say.

A few configs in one or two compiles: about a minute on one core. `make truth` compiles more.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import truth_rows
from tilewright.cutlass.config import parse_config
from tilewright.errors import TilewrightError
from tilewright.probe.compiler import Compiler, find_nvcc
from tilewright.probe.headers import open_headers
from tilewright.probe.result import ProbeResult
from tilewright.probe.rounds import Settings
from tilewright.probe.run import Request, probe

pytestmark = [pytest.mark.compiler, pytest.mark.tree]

SM120 = (
    "t00001",  # grouped NVFP4 128x128x128
    "t00016",  # the driving case: grouped finalize 128x256x128, over by 1,024
    "t00096",  # dense
    "t01864",  # grouped blockwise FP8
    "t00082",  # fewer than two stages: the mainloop's assert
)


@pytest.fixture(scope="module")
def nvcc() -> Compiler:
    try:
        return find_nvcc()
    except TilewrightError as error:
        pytest.skip(error.msg)


@pytest.fixture(autouse=True)
def private_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE_DIR", str(tmp_path / "cache"))


def differences(truth: dict[str, Any], result: ProbeResult) -> dict[str, tuple[Any, Any]]:
    """Where the probe says otherwise than a truth row: {key: (truth, probe)}."""
    found: dict[str, tuple[Any, Any]] = {}
    for key, value in truth.items():
        if key in ("fields", "status", "more_errors", "error_note"):
            continue
        ours = getattr(result, key)
        ours = list(ours) if isinstance(ours, tuple) else ours
        if ours != value and not (key.endswith(("_policy", "_schedule")) and ours is None):
            found[key] = (value, ours)
    if result.type_status != truth["status"]:
        found["type_status"] = (truth["status"], result.type_status)
    fields = {item["path"]: (item["offset"], item["bytes"], item["type_align"]) for item in truth["fields"]}
    ours = {item.path: (item.offset, item.bytes, item.type_align) for item in result.fields}
    if fields != ours:
        found["fields"] = (fields, ours)
    return found


def check_rows(rows: list[dict[str, Any]], tree: Path, nvcc: Compiler) -> list[ProbeResult]:
    headers, scatter = open_headers([str(tree)])
    requests = [Request(parse_config(row["config"]), headers[0]) for row in rows]
    results = probe(requests, Settings(nvcc, scatter))
    wrong = {
        row["config"]["id"]: found
        for row, result in zip(rows, results, strict=True)
        if (found := differences(row["truth"], result))
    }
    assert wrong == {}
    return results


def driving_case() -> dict[str, Any]:
    """The truth row of the overflow that users meet."""
    for row in truth_rows("sm120"):
        config = row["config"]
        if (config["tile"], config["fusion"], config["swap_ab"], config["kind"], config["stages"], config["a"]) == (
            [128, 256, 128], "finalize", False, "grouped", "auto", "nvfp4",
        ) and row["how"]["tree"] == "fi062" and config["final_output"] == "bf16":  # fmt: skip
            return row
    raise AssertionError("the driving case is not among the truth rows")


def test_the_probe_gives_what_the_truth_rows_say(flashinfer_062: Path, nvcc: Compiler) -> None:
    rows = [row for row in truth_rows("sm120") if row["config"]["id"] in SM120 and row["how"]["tree"] == "fi062"]
    results = check_rows([*rows, driving_case()], flashinfer_062, nvcc)
    assert {result.type_status for result in results} == {"fits", "overflow", "illegal"}
    assert results[-1].excess_bytes == 1024
    by_path = {field.path: field for field in results[-1].fields}
    assert by_path["mainloop.tensors.smem_B"].abs_offset == 24576
    assert results[-1].tools is not None
    assert results[-1].tools.cutlass == "4.2.1"


def test_the_model_agrees_with_the_compiler_on_a_sample(flashinfer_062: Path, nvcc: Compiler, cli: Any) -> None:
    result = cli(
        "probe", "--root", str(flashinfer_062), "--nvcc", nvcc.path, "--sample", "8", "--seed", "2026",
        "--arch", "sm120", "--against-model", "--check", "--json",
    )  # fmt: skip
    answers = [json.loads(line) for line in result.out.splitlines()]
    assert [answer for answer in answers if answer["verdict"] != "agree"] == []
    assert (result.code, len(answers)) == (0, 8)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sm120", "sm121", "sm90", "sm100", "sm103"])
def test_every_family_is_what_the_truth_rows_say(flashinfer_062: Path, nvcc: Compiler, name: str) -> None:
    """Every 9th row of CUTLASS 4.2.1, overflows that the kernel itself asserts (SM100) included."""
    rows = [row for row in truth_rows(name) if row["config"]["cutlass"] == "4.2.1"]
    chosen = rows[::9] + [row for row in rows if row["truth"].get("assert_fired")]
    check_rows([{**row, "truth": _without_messages(row["truth"])} for row in chosen], flashinfer_062, nvcc)


def _without_messages(truth: dict[str, Any]) -> dict[str, Any]:
    """Where several configs share a type that does not compile, which message a row got depends on its batch."""
    return {key: value for key, value in truth.items() if key not in ("error", "error_at")}


@pytest.mark.slow
def test_registers_and_spills_of_the_reference_kernel(flashinfer_062: Path, nvcc: Compiler) -> None:
    """DESIGN section 2: 128x128x128 at 4 stages spills 60 bytes; ptxas of 13.0."""
    headers, scatter = open_headers([str(flashinfer_062)])
    config = parse_config(
        {
            "arch": "sm120", "kind": "grouped", "a": "nvfp4", "c": "void", "tile": [128, 128, 128], "stages": 4,
            "epilogue_schedule": "tma_warp_specialized",
        }
    )  # fmt: skip
    (result,) = probe([Request(config, headers[0])], Settings(nvcc, scatter), ptxas=True)
    assert result.kernel is not None
    assert (result.status, result.threads, result.kernel.registers) == ("fits", 384, 168)
    if nvcc.release == (13, 0):
        assert result.kernel.spill_store_bytes == 60
