"""The driving case on the real FlashInfer 0.6.2: each step from the symptom to the change, to the byte."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tilewright.errors import TreeError
from tilewright.libraries.flashinfer.model import Place, Report, RuntimeMode, Summary
from tilewright.plan.finding import Plan
from tilewright.plan.library import open_library
from tilewright.plan.make import make_plan, make_target
from tilewright.plan.rules.tactics import serving
from tilewright.report.plan_text import markdown

pytestmark = pytest.mark.tree

KERNELS = "flashinfer/data/csrc/nv_internal/tensorrt_llm/kernels/cutlass_kernels"
LAUNCHER = f"{KERNELS}/moe_gemm/launchers/moe_gemm_tma_ws_launcher.inl"
LOG = (
    "INFO start\n"
    "[Autotuner]: Skipping tactic <MoERunner> 15, due to failure while profiling: [TensorRT-LLM][ERROR] Failed to "
    "initialize cutlass TMA WS grouped gemm. Error: Error Internal (/c/sm120_M256_BS_group0.generated.cu:60)\n"
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache folder of this module's own."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("TILEWRIGHT_CACHE_DIR")
    os.environ["TILEWRIGHT_CACHE_DIR"] = str(folder)
    yield folder
    if before is None:
        del os.environ["TILEWRIGHT_CACHE_DIR"]
    else:
        os.environ["TILEWRIGHT_CACHE_DIR"] = before


@pytest.fixture(scope="module")
def log_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("log") / "server.log"
    path.write_text(LOG * 3, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def plan(flashinfer_062: Path, cache: Path, log_file: Path) -> Plan:
    target = make_target(
        model="GLM-5-NVFP4", gpu="rtx-pro-6000-server", gpus=8, engine="sglang", library=flashinfer_062, log=log_file
    )
    return make_plan(target)


def finding(plan: Plan, name: str) -> Any:
    return next(item for item in plan.findings if item.id == name)


def test_the_table_of_the_design_comes_out(plan: Plan) -> None:
    rows = [row for row in plan.baseline["tiles"] if row["fusion"] == "finalize" and not row["swap_ab"]]
    table = {
        row["tile"]: (row["stages"], row["mainloop_bytes"], row["epilogue_bytes"], row["smem_bytes"], row["status"])
        for row in rows
    }
    assert table == {
        "128x128x128": (4, 74752, 17408, 93184, "fits"),
        "128x128x256": (2, 74752, 17408, 93184, "fits"),
        "256x128x128": (3, 83968, 17408, 102400, "overflow"),
        "128x256x128": (3, 83968, 17408, 102400, "overflow"),
    }
    assert all(row["limit_bytes"] == 101376 for row in rows)
    assert {row["excess_bytes"] for row in rows if row["status"] == "overflow"} == {1024}


def test_only_the_finalize_fusion_that_is_not_swapped_overflows(plan: Plan) -> None:
    bad = [row for row in plan.baseline["tiles"] if row["status"] != "fits"]
    assert {(row["fusion"], row["swap_ab"]) for row in bad} == {("finalize", False)}
    assert plan.baseline["tactics"]["total"] == 40
    assert plan.baseline["tactics"]["overflow"] == 4
    swapped = [row for row in plan.baseline["tiles"] if row["tile"] == "128x256x128" and row["swap_ab"]]
    assert {row["fusion"]: row["smem_bytes"] for row in swapped} == {"none": 98304, "finalize": 74752}


def test_the_number_in_the_reported_log_is_the_tile_that_overflows(plan: Plan) -> None:
    """Case C35: tactic 15 with sm120_M256_BS_group0.generated.cu; cases C02 and C12: 102,400 with finalize, 98,304
    without."""
    row = next(row for row in plan.baseline["tiles"] if 15 in (row["ids"] or {}).get("gemm2", []))
    assert (row["tile"], row["fusion"], row["smem_bytes"]) == ("256x128x128", "finalize", 102400)
    plain = {
        row["smem_bytes"] for row in plan.baseline["tiles"] if row["tile"] == "256x128x128" and row["fusion"] == "none"
    }
    assert plain == {98304}


def test_tactics_that_cannot_be_judged_are_not_called_fine(flashinfer_062: Path, cache: Path) -> None:
    import msgspec

    from tilewright.cutlass.budget import Budget

    view = open_library(flashinfer_062)
    report = view.moe
    assert report is not None
    unknown = Budget(status="unsupported", cause="These headers are no known CUTLASS.")
    blind = msgspec.structs.replace(
        report, tactics=[msgspec.structs.replace(item, verdict=unknown) for item in report.tactics]
    )
    target = make_target(model="GLM-5-NVFP4", gpu="rtx-pro-6000-server", gpus=8, library=flashinfer_062)
    assert target.library is not None
    target.library.__dict__["moe"] = blind
    made = make_plan(target)
    assert not any("shared-memory overflows among" in item.idea for item in made.rejected)
    assert any("cannot be judged: These headers" in line for line in made.baseline["remarks"])


def test_the_finding_has_the_fix_verified_and_says_what_it_is_worth(plan: Plan) -> None:
    item = finding(plan, "tactics_overflow")
    texts = " ".join(one.text for one in item.evidence)
    for figure in ("102,400", "101,376", "1,024", "74,752", "82,944", "3.035", "977"):
        assert figure in texts, figure
    assert item.gain.high == 6.0
    assert item.gain.expected <= 2.5
    assert item.rank > 3
    assert "14 and 15" in item.confirm
    assert "no other tactic changes" in texts
    assert "no other tactic changes" in texts
    assert "Your log says so 3 times, first in line 2 (sm120_M256_BS_group0.generated.cu)." in texts
    fixes = plan.baseline["overflow_fixes"][0]["fixes"]
    assert fixes[0] == {"change": {"stages": 2}, "smem_bytes": 74752, "note": fixes[0]["note"]}


def test_the_plan_names_the_lines_that_decide(plan: Plan, flashinfer_062: Path) -> None:
    points = {point["what"]: point["place"] for point in plan.baseline["decided_at"]}
    assert len(points) >= 7
    with zipfile.ZipFile(flashinfer_062) as wheel:
        for what, place in points.items():
            file, line = place.rsplit(":", 1)
            text = wheel.read(file).decode().splitlines()[int(line) - 1]
            if "is listed" in what:
                assert all(extent in text for extent in what.split()[2].split("x")), (what, text)
            elif "StageCountAutoCarveout" in what:
                assert "StageCountAutoCarveout" in text
            elif "message" in what:
                assert "Failed to initialize cutlass TMA WS grouped gemm" in text
            elif "capacity is defined" in what:
                assert "101376" in text


def test_the_blockwise_array_collective_is_no_way_around(plan: Plan) -> None:
    found = plan.baseline["collectives"]
    assert [one["policy"] for one in found["could"]] == ["MainloopSm120ArrayTmaWarpSpecializedBlockScaled"]
    first = found["could_not"][0]
    assert first["policy"] == "MainloopSm120ArrayTmaWarpSpecializedBlockwiseScaling"
    assert "No way around" in first["reasons"][0]
    assert any("blockwise array collective" in item.idea for item in plan.rejected)


def test_ideas_that_people_try_first_are_worked_out(plan: Plan) -> None:
    ideas = {item.idea: item.why for item in plan.rejected}
    newer = next(why for idea, why in ideas.items() if "newer CUTLASS" in idea)
    assert all(f"CUTLASS {version}: 102,400" in newer for version in ("4.4.2", "4.5.0", "4.7.0"))
    one = next(why for idea, why in ideas.items() if "StageCount<1>" in idea)
    assert "Stages set to value 2 or more" in one
    assert any("FLASHINFER_TACTICS_BLOCKLIST" in idea for idea in ideas)


def test_narrow_tiles_need_a_newer_cutlass(plan: Plan) -> None:
    item = finding(plan, "narrow_tiles")
    text = item.evidence[1].text
    assert "128x32x128 on CUTLASS 4.2.1: illegal" in text
    assert "128x32x128 93,184 bytes, 6 stages" in text
    assert plan.baseline["smallest_token_tile"] == 128


def test_the_missing_define_is_seen_in_the_tree(plan: Plan) -> None:
    """Case C51: 0.6.2 builds the SM120 MoE module without it."""
    item = finding(plan, "pdl_without_gdc")
    assert item.evidence[0].source.startswith("flashinfer/jit/fused_moe.py:")


def _unpacked(wheel: Path, folder: Path, *files: str) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        for file in files:
            archive.extract(file, folder)
    return folder


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
def test_the_patch_applies_and_the_commands_do_the_same_edit(plan: Plan, flashinfer_062: Path, tmp_path: Path) -> None:
    item = finding(plan, "tactics_overflow")
    patched = _unpacked(flashinfer_062, tmp_path / "a", LAUNCHER)
    done = subprocess.run(
        ["patch", "-p1"], input=item.fix.patch, text=True, cwd=patched, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    edited = _unpacked(flashinfer_062, tmp_path / "b", LAUNCHER)
    (tmp_path / "fix.patch").write_text(item.fix.patch or "", encoding="utf-8")
    apply = next(line for line in item.fix.commands if line.startswith("patch"))
    subprocess.run(["bash", "-c", f'SITE="{edited}"; {apply}'], check=True, cwd=tmp_path, capture_output=True)
    after = (edited / LAUNCHER).read_text(encoding="utf-8")
    assert after == (patched / LAUNCHER).read_text(encoding="utf-8")
    assert after.count("sm120_stage_count_reserve<IsSM120,") == 1
    assert "sm120_stage_count_reserve" not in (edited / f"{LAUNCHER}.orig").read_text(encoding="utf-8")
    assert any("--write patch" in line for line in item.fix.commands)


def test_the_define_is_added_by_the_command(plan: Plan, flashinfer_062: Path, tmp_path: Path) -> None:
    file = "flashinfer/jit/fused_moe.py"
    folder = _unpacked(flashinfer_062, tmp_path, file)
    sed = next(line for line in finding(plan, "pdl_without_gdc").fix.commands if line.startswith("sed"))
    subprocess.run(["bash", "-c", f'FI="{folder}/flashinfer"; {sed}'], check=True)
    text = (folder / file).read_text(encoding="utf-8")
    body = text.split("def gen_cutlass_fused_moe_sm120_module")[1].split("\ndef ")[0]
    assert '"-DCUTLASS_ENABLE_GDC_FOR_SM100=1"' in body
    assert text.count("CUTLASS_ENABLE_GDC_FOR_SM100") == 1
    compile(text, file, "exec")


def test_the_patch_changes_the_failing_tactics_and_no_other(plan: Plan) -> None:
    item = finding(plan, "tactics_overflow")
    text = " ".join(evidence.text for evidence in item.evidence)
    assert "128x256x128 -> 2 stages, 74,752 bytes (2,048 set aside)" in text
    assert "no other tactic changes" in text


def test_another_model_or_gpu_on_the_same_tree_gives_another_plan(flashinfer_062: Path, cache: Path) -> None:
    def made(**inputs: Any) -> Plan:
        return make_plan(make_target(library=flashinfer_062, **inputs))

    fp8 = made(model="Qwen/Qwen3-235B-A22B-FP8", gpu="rtx-pro-6000-server", gpus=4)
    assert "tiles" not in fp8.baseline
    assert "blockwise" in json.dumps([one["policy"] for one in fp8.baseline["collectives"]["could"]]).lower()
    hopper = made(model="GLM-5-NVFP4", gpu="h200", gpus=8)
    assert {"tiles", "collectives"}.isdisjoint(hopper.baseline)
    spark = made(model="GLM-5-NVFP4", gpu="gb10", gpus=8)
    assert {row["smem_bytes"] for row in spark.baseline["tiles"] if row["status"] == "overflow"} == {102400}
    mx = made(model="gpt-oss-120b", gpu="rtx-pro-6000-server", gpus=1)
    assert "lead to no kernel" in finding(mx, "tactics_refused").title
    assert "tactics_overflow" not in {item.id for item in mx.findings}


def test_the_report_is_kept_by_content_and_never_taken_for_another_tree(
    flashinfer_062: Path, cache: Path, tmp_path: Path
) -> None:
    first = open_library(flashinfer_062).moe
    assert first is not None
    again = open_library(flashinfer_062)
    assert again.moe == first
    copy = tmp_path / "flashinfer_python-0.6.2-py3-none-any.whl"
    _changed_copy(flashinfer_062, copy)
    other = open_library(copy).moe
    assert other is not None
    assert (other.summary.total, other.summary.overflow) == (32, 2)


def _changed_copy(source: Path, target: Path) -> None:
    """The wheel without the 256x128x128 tile in its generator: 2 fusions x 2 swaps x 2 outputs less."""
    generator = "flashinfer/jit/gemm/cutlass/generate_kernels.py"
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            data = old.read(info)
            if info.filename == generator:
                start = data.index(b"def generate_sm120_grouped_gemm_operations")
                at = data.index(b"        [256, 128, 128],\n", start)
                data = data[:at] + data[at + len(b"        [256, 128, 128],\n") :]
            new.writestr(info, data)


def test_the_markdown_shows_every_step_and_every_finding(plan: Plan) -> None:
    text = markdown(plan)
    order = [
        "## Do this first", "## From the symptom to the change", "### 1. What you see",
        "### 2. What the hardware allows",
        "### 3. What each tile needs", "### 4. Where the library decides that", "### 5. Which other collectives exist",
        "### 6. What to change", "## What limits the MoE GEMMs", "## One decode step, taken apart",
        "## Memory of one GPU", "## Findings", "## Not worth doing", "## Claims you will meet", "## Not looked at",
    ]  # fmt: skip
    places = [text.index(heading) for heading in order]
    assert places == sorted(places)
    assert "| 128x256x128 | 3 | 83,968 | 17,408 | 102,400 | 101,376 | over by 1,024 |" in text
    assert "2x a grouped-GEMM tactic could not be initialised" not in text
    assert "3x a grouped-GEMM tactic could not be initialised, first in line 2" in text
    for item in plan.findings:
        assert f"### {item.rank}. {item.title}" in text
    for item in plan.rejected:
        assert item.idea in text
    assert "None" not in text.replace("final_output = None", "")
    assert "{{" not in text
    first_screen = text[: text.index("## From the symptom")]
    assert len(first_screen.splitlines()) < 45
    # Tables stay whole: every row of a table has as many cells as its head.
    for block in text.split("\n\n"):
        rows = [line for line in block.splitlines() if line.startswith("|")]
        assert len({row.replace("\\|", "").count("|") for row in rows}) <= 1, rows[:3]


def test_a_folder_that_is_no_library_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TreeError):
        open_library(tmp_path)


def test_a_library_that_is_not_flashinfer_says_so() -> None:
    report = Report(
        library="flashinfer", library_version="9", cutlass="4.7.0", arch="sm120", op="moe", root="x", tactics=[],
        summary=Summary(0, 0, 0, 0, 0),
        runtime=[RuntimeMode(a="nvfp4", b="nvfp4", total=0, gemm1=0, gemm2=0, never=[])],
    )  # fmt: skip
    assert serving(report, "nvfp4") == []
    assert str(Place("a", 1)) == "a:1"
