"""FlashInfer's tactics on the real thing: 0.6.2 always, later versions where their wheels are at hand."""

from __future__ import annotations

import functools
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from conftest import REPO, truth_rows
from tilewright.collectives.tree import open_tree
from tilewright.libraries.flashinfer.decisions import decision_points
from tilewright.libraries.flashinfer.diff import difference
from tilewright.libraries.flashinfer.model import Report
from tilewright.libraries.flashinfer.tactics import read_report, read_tactics

LATER = ("0.6.10", "0.6.14", "0.7.2.post1", "0.7.4")


@functools.cache
def report_of(path: Path, op: Any = "moe", arch: str = "sm120") -> Report:
    with open_tree(path) as tree:
        return read_report(tree, op, arch)


def wheel(version: str) -> Path:
    """A later wheel: in .cache/wheels, or in the folder that TILEWRIGHT_WHEELS names."""
    name = f"flashinfer_python-{version}-py3-none-any.whl"
    for folder in (REPO / ".cache" / "wheels", Path(os.environ.get("TILEWRIGHT_WHEELS", "."))):
        if (folder / name).is_file():
            return folder / name
    pytest.skip(f"the FlashInfer {version} wheel is not at hand")


def shown(config: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(config["tile"]), config["fusion"], config["final_output"] or config["d"], config["swap_ab"]


@pytest.mark.tree
def test_062_has_40_moe_tactics_of_which_exactly_4_overflow_by_1024_bytes(flashinfer_062: Path) -> None:
    """The driving case: 256x128x128 and 128x256x128, finalize, not swapped, to f16 and bf16."""
    report = report_of(flashinfer_062)
    assert (report.library, report.library_version, report.cutlass) == ("flashinfer", "0.6.2", "4.2.1")
    assert msgspec.to_builtins(report.summary) == {
        "total": 40, "fits": 36, "overflow": 4, "illegal": 0, "unsupported": 0,
    }  # fmt: skip
    over = [tactic for tactic in report.tactics if tactic.verdict.status == "overflow"]
    assert {shown(tactic.config or {}) for tactic in over} == {
        (tile, "finalize", output, False) for tile in ((256, 128, 128), (128, 256, 128)) for output in ("f16", "bf16")
    }
    for tactic in over:
        verdict = tactic.verdict
        assert (verdict.stages, verdict.smem_bytes, verdict.excess_bytes) == (3, 102_400, 1_024)
        assert (verdict.mainloop_bytes, verdict.epilogue_bytes) == (83_968, 17_408)
        assert verdict.fixes[0].change == {"stages": 2}
        assert verdict.fixes[0].smem_bytes == 74_752
    assert len({tactic.name for tactic in report.tactics}) == 40


@pytest.mark.tree
def test_062_configs_are_what_the_launcher_spells(flashinfer_062: Path) -> None:
    """Alignment of C is 128 bits over the *input* element in this launcher (32 for FP4), not over the output's."""
    configs = [tactic.config or {} for tactic in report_of(flashinfer_062).tactics]
    assert Counter((config["a"], config["b"]) for config in configs) == {
        ("nvfp4", "nvfp4"): 32,
        ("mxfp8_e4m3", "mxfp4"): 8,
    }
    for config in configs:
        assert (config["arch"], config["kind"], config["op_class"]) == ("sm120", "grouped", "block_scaled")
        assert (config["schedule"], config["epilogue_schedule"]) == ("auto", "tma_warp_specialized")
        assert (config["stages"], config["epilogue_tile"], config["acc"]) == ("auto", "auto", "f32")
        assert (config["layout_a"], config["layout_b"], config["layout_c"], config["layout_d"]) == (
            "row", "col", "row", "row",
        )  # fmt: skip
        fp4 = config["a"] == "nvfp4"
        assert (config["align_a"], config["align_b"]) == ((32, 32) if fp4 else (16, 128))
        assert (config["align_c"], config["align_d"]) == (32 if fp4 else 16, 8)
        output = config["final_output"] or config["d"]
        assert config["c"] == output
        assert config["d"] == ("void" if config["fusion"] == "finalize" else output)


@pytest.mark.tree
def test_062_agrees_with_every_compiled_row_of_its_tactics(flashinfer_062: Path) -> None:
    """Each MoE config is a row that somebody compiled (alignment of C and D aside, which moves no byte, and f16 for
    bf16, which has its width): status, stages and bytes are equal."""

    def key(config: dict[str, Any]) -> str:
        same_width = {"f16": "16 bit", "bf16": "16 bit"}
        kept = {
            name: same_width.get(value, value) if isinstance(value, str) else value
            for name, value in config.items()
            if name not in ("id", "align_c", "align_d") and value is not None and value != "default"
        }
        return json.dumps(kept, sort_keys=True)

    rows = {key(row["config"]): row["truth"] for row in truth_rows("sm120") if row["config"]["cutlass"] == "4.2.1"}
    tactics = report_of(flashinfer_062).tactics
    joined = [
        (tactic.verdict, rows[key(tactic.config or {})]) for tactic in tactics if key(tactic.config or {}) in rows
    ]
    assert len(joined) == 40
    for verdict, truth in joined:
        assert verdict.type_status == truth["status"]
        for name in ("stages", "smem_bytes", "mainloop_bytes", "epilogue_bytes", "threads"):
            assert getattr(verdict, name) == truth[name]


@pytest.mark.tree
def test_062_lines_are_those_of_its_sources(flashinfer_062: Path) -> None:
    with open_tree(flashinfer_062) as tree:
        tactics = report_of(flashinfer_062).tactics
        for tactic in tactics:
            tile = ", ".join(map(str, (tactic.config or {})["tile"]))
            line = tree.read_text(tactic.source.file).splitlines()[tactic.source.line - 1]
            assert line.strip() == f"[{tile}],"
            launcher = tree.read_text(tactic.launcher.file).splitlines()[tactic.launcher.line - 1]
            assert "using GemmKernel =" in launcher
        points = decision_points(tree, tactics)
        for point in points:
            line = tree.read_text(point.place.file).splitlines()[point.place.line - 1]
            assert point.text in line
    by_what = {what: [point for point in points if point.what == what] for what in {point.what for point in points}}
    assert {what: len(found) for what, found in by_what.items()} == {
        "tile": 4, "stages": 1, "epilogue": 1, "candidates": 1, "error": 1, "dispatch": 4, "autotuner": 1,
    }  # fmt: skip
    assert "StageCountAutoCarveout" in by_what["stages"][0].text
    assert "Failed to initialize cutlass TMA WS grouped gemm" in by_what["error"][0].text
    assert {point.tile for point in by_what["dispatch"]} == {point.tile for point in by_what["tile"]}


@pytest.mark.tree
def test_062_autotuner_ids_name_the_tactic_that_logs_skip(flashinfer_062: Path) -> None:
    """Public logs of this list say "Skipping tactic ... 15" for the M256 file (case C35)."""
    report = report_of(flashinfer_062)
    fp4 = next(mode for mode in report.runtime if mode.a == "nvfp4")
    assert (fp4.total, fp4.gemm1, fp4.gemm2) == (24, 8, 16)
    assert [(entry.id, entry.tile) for entry in fp4.never] == [
        (14, "CtaShape128x256x64B"),
        (15, "CtaShape256x128x64B"),
    ]
    for tactic in report.tactics:
        config = tactic.config or {}
        if config["a"] == "nvfp4":
            gemms = {"gemm2"} if config["fusion"] == "finalize" else {"gemm1", "gemm2"}
            assert set(tactic.runtime_ids or {}) == gemms
        assert tactic.filtered_by is None
    every = [entry for tactic in report.tactics if (tactic.config or {})["a"] == "nvfp4"
             for ids in (tactic.runtime_ids or {}).values() for entry in ids]  # fmt: skip
    assert Counter(every) == dict.fromkeys(range(24), 2)


@pytest.mark.tree
def test_062_gemm_tactics_are_the_dense_and_grouped_ones(flashinfer_062: Path) -> None:
    report = report_of(flashinfer_062, "gemm")
    assert msgspec.to_builtins(report.summary) == {
        "total": 34, "fits": 34, "overflow": 0, "illegal": 0, "unsupported": 0,
    }  # fmt: skip
    kinds = Counter(
        (tactic.config or {})["kind"] + " " + (tactic.config or {})["op_class"] for tactic in report.tactics
    )
    assert kinds == {"dense block_scaled": 2, "dense blockwise": 16, "grouped blockwise": 16}
    fp4 = next(tactic for tactic in report.tactics if (tactic.config or {})["a"] == "nvfp4")
    assert (fp4.config or {})["tile"] == (128, 128, 128)
    assert (fp4.config or {})["stages"] == 2
    scales = {
        ((tactic.config or {})["scale_granularity"], (tactic.config or {})["scale_major"])
        for tactic in report.tactics[2:]
    }
    assert scales == {((m, 128, 128), major) for m in (1, 128) for major in ("k", "mn")}


@pytest.mark.tree
def test_sm121_runs_the_same_module(flashinfer_062: Path) -> None:
    report = report_of(flashinfer_062, "moe", "sm121")
    assert {(tactic.config or {})["arch"] for tactic in report.tactics} == {"sm121"}
    assert (report.summary.total, report.summary.overflow) == (40, 4)


@pytest.mark.tree
def test_command_line(flashinfer_062: Path, tmp_path: Path, cli: Any) -> None:
    root = str(flashinfer_062)
    result = cli("tactics", "flashinfer", "--root", root, "--json")
    assert result.code == 0
    assert result.err == ""
    document = result.json
    assert set(document) >= {"schema", "library", "library_version", "cutlass", "tactics", "summary"}
    assert document["schema"] == "tilewright/tactics/1"
    assert document["summary"] == {"total": 40, "fits": 36, "overflow": 4, "illegal": 0, "unsupported": 0}
    tactic = document["tactics"][0]
    assert set(tactic) >= {"name", "source", "config", "verdict"}
    assert set(tactic["source"]) == {"file", "line"}
    assert tactic["config"]["id"] == tactic["name"] == tactic["verdict"]["id"]

    text = cli("tactics", "flashinfer", "--root", root)
    assert "40 tactics, 36 fit, 4 can never run" in text.out
    words = " ".join(text.out.split())
    assert "generate_kernels.py:756: overflow: nvfp4 x nvfp4 128x256x128 finalize to f16, bf16" in words
    assert "Fix: stages 2 (74,752 bytes)" in text.out
    assert cli("tactics", "flashinfer", "--root", root, "--check").code == 1

    baseline = tmp_path / "known.json"
    baseline.write_text(result.out)
    known = cli("tactics", "flashinfer", "--root", root, "--check", "--baseline", str(baseline))
    assert known.code == 0
    assert "0 tactics that can never run are new" in known.out
    shorter = {**document, "tactics": [entry for entry in document["tactics"] if "M256" not in entry["name"]
                                       and entry["config"]["tile"] != [256, 128, 128]]}  # fmt: skip
    baseline.write_text(json.dumps(shorter))
    new = cli("tactics", "flashinfer", "--root", root, "--check", "--json", "--baseline", str(baseline))
    assert new.code == 1
    assert len(new.json["new_failures"]) == 2
    assert all("256_128_128" in name for name in new.json["new_failures"])

    same = cli("tactics", "flashinfer", "--root", root, "--diff", root, "--json", "--check")
    assert same.code == 0
    assert (same.json["changes"], same.json["same"]) == ([], 40)


BAD_CALLS = {
    "another library": (["cublas", "--root", "."], "flashinfer, vllm, sglang"),
    "another architecture": (["flashinfer", "--root", ".", "--arch", "sm80"], "sm90, sm100, sm103, sm120, sm121"),
    "no such root": (["flashinfer", "--root", "/no/such/place"], "nothing at"),
    "a root that is a file": (["flashinfer", "--root", __file__], "not a wheel"),
    "no such op": (["flashinfer", "--root", ".", "--op", "attention"], "moe"),
    "no root": (["flashinfer"], "--root"),
    "a missing baseline": (["flashinfer", "--root", ".", "--baseline", "/no/such/file"], "--baseline"),
    "a baseline that is none": (["flashinfer", "--root", ".", "--baseline", __file__], "is no report"),
    "two questions": (["flashinfer", "--root", ".", "--baseline", "x", "--diff", "y"], "one of them"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
def test_bad_calls_are_one_sentence_and_exit_2(name: str, cli: Any) -> None:
    args, what = BAD_CALLS[name]
    result = cli("tactics", *args)
    assert result.code == 2
    assert result.out == ""
    assert what in result.err
    assert result.err.count("\n") == 1


COUNTS = {"0.6.10": (40, 4), "0.6.14": (88, 4), "0.7.2.post1": (88, 4), "0.7.4": (88, 4)}
"""Version: MoE tactics for SM120, and how many can never run."""

NEVER_FP4 = {
    "0.6.10": (36, [4, 5, 10, 11, 16, 17, 20, 21, 22, 23, 28, 29, 34, 35]),
    "0.6.14": (60, [4, 5, 14, 15, 24, 25, 32, 33, 34, 35, 44, 45, 54, 55]),
    "0.7.2.post1": (48, [26, 27]),
    "0.7.4": (48, [26, 27]),
}
"""Version: NVFP4 ids of the autotuner, and those that can never run. Held against two public reports: the offline
blocklist of C37 has exactly these of the NVFP4 list of 36, and 5.5 counts 14 of 60 that cannot run."""

MXFP8_OVERFLOWS = {"0.6.10": 4, "0.6.14": 8, "0.7.2.post1": 0, "0.7.4": 0}
"""Version: dense MXFP8 kernels of 256x128 and 128x256 with StageCount<2>, 111,616 bytes each (C04); removed later."""


@pytest.mark.slow
@pytest.mark.parametrize("version", LATER)
def test_later_versions_are_read_by_the_same_method(version: str) -> None:
    report = report_of(wheel(version))
    assert (report.summary.total, report.summary.overflow) == COUNTS[version]
    assert report.summary.unsupported == report.summary.illegal == 0
    mode = next(mode for mode in report.runtime if mode.a == "nvfp4")
    assert (mode.total, [entry.id for entry in mode.never]) == NEVER_FP4[version]
    gemm = report_of(wheel(version), "gemm")
    over = [tactic for tactic in gemm.tactics if tactic.verdict.status == "overflow"]
    assert len(over) == MXFP8_OVERFLOWS[version]
    assert {tactic.verdict.smem_bytes for tactic in over} <= {111_616}
    assert gemm.summary.illegal == 0
    own = [tactic for tactic in gemm.tactics if tactic.verdict.status == "unsupported"]
    assert all("GemmUniversalLoRaSm120" in (tactic.verdict.cause or "") for tactic in own)
    assert bool(own) is (version == "0.7.4")


@pytest.mark.slow
def test_versions_are_compared() -> None:
    """0.6.14 adds the tiles of 32 and 64 columns; the kernels stay the same up to 0.7.4, the autotuner's ids do not."""
    added = difference(report_of(wheel("0.6.10")), report_of(wheel("0.6.14")))
    assert Counter(change.what for change in added.changes) == {"added": 48}
    assert added.same == 40
    later = difference(report_of(wheel("0.6.14")), report_of(wheel("0.7.4")))
    assert (later.changes, later.same) == ([], 88)
    assert [
        (entry.total_before, entry.total_after, entry.never_before, entry.never_after) for entry in later.runtime
    ] == [
        (60, 48, 14, 2),
        (60, 18, 42, 0),
    ]


@pytest.mark.tree
def test_reading_is_repeatable(flashinfer_062: Path) -> None:
    with open_tree(flashinfer_062) as tree:
        first = [msgspec.json.encode(tactic) for tactic in read_tactics(tree)]
        assert [msgspec.json.encode(tactic) for tactic in read_tactics(tree)] == first
