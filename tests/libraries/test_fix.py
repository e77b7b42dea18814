"""`fix flashinfer`: a patch that applies and heals, a blocklist that the library's parser takes, refusals, output."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tilewright.collectives.tree import open_tree
from tilewright.errors import InputError, TreeError
from tilewright.libraries.flashinfer.decisions import LAUNCHER
from tilewright.libraries.flashinfer.fix_blocklist import choose_mode, read_format
from tilewright.libraries.flashinfer.fix_compile import compile_types, laid_out
from tilewright.libraries.flashinfer.fix_patch import MARK, make_patch, patched_text
from tilewright.libraries.flashinfer.fix_patched import without_patch
from tilewright.libraries.flashinfer.fix_stages import restaged
from tilewright.libraries.flashinfer.layout import find_layout
from tilewright.libraries.flashinfer.model import Report
from tilewright.libraries.flashinfer.tactics import read_report
from tilewright.probe.compiler import find_nvcc
from tilewright.report.schema import checker
from tilewright.report.write_file import write_new

pytestmark = pytest.mark.tree
IN_WHEEL = f"flashinfer/data/csrc/{LAUNCHER}"
FAILING = {((128, 256, 128), "f16"), ((128, 256, 128), "bf16"), ((256, 128, 128), "f16"), ((256, 128, 128), "bf16")}


def later_wheels() -> list[Path]:
    folder = Path(__file__).parents[2] / ".cache" / "wheels"
    return [path for path in sorted(folder.glob("flashinfer_python-*.whl")) if "-0.6.2-" not in path.name]


@pytest.fixture(scope="module")
def report(flashinfer_062: Path) -> Report:
    with open_tree(flashinfer_062) as tree:
        return read_report(tree)


@pytest.fixture
def launcher(flashinfer_062: Path) -> str:
    with zipfile.ZipFile(flashinfer_062) as archive:
        return archive.read(IN_WHEEL).decode()


def unpacked(wheel: Path, folder: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        archive.extract(IN_WHEEL, folder)
    return folder


@pytest.mark.skipif(shutil.which("patch") is None or shutil.which("git") is None, reason="needs git and patch")
def test_git_and_patch_take_the_file_and_take_it_back(flashinfer_062: Path, tmp_path: Path, cli: Any) -> None:
    for wheel in [flashinfer_062, *later_wheels()]:
        folder = unpacked(wheel, tmp_path / wheel.name)
        diff = tmp_path / f"{wheel.name}.patch"
        assert cli("fix", "flashinfer", "--root", str(wheel), "--write", "patch", "--out", str(diff)).code == 0
        before = (folder / IN_WHEEL).read_bytes()
        for command in (["git", "apply", "--check"], ["patch", "-p1", "--dry-run", "-i"]):
            done = subprocess.run([*command, str(diff)], cwd=folder, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            assert not re.search("fuzz|offset", done.stdout)
        subprocess.run(["git", "apply", str(diff)], cwd=folder, check=True)
        with open_tree(wheel) as tree:
            assert (folder / IN_WHEEL).read_text() == make_patch(find_layout(tree)).after
        subprocess.run(["patch", "-p1", "-R", "-s", "-i", str(diff)], cwd=folder, check=True)
        assert (folder / IN_WHEEL).read_bytes() == before


def test_the_patch_only_adds_but_for_the_stage_count(launcher: str) -> None:
    after = patched_text(launcher)
    old, new = launcher.split("\n"), after.split("\n")
    gone = [line for line in old if line not in new]
    assert gone == []  # the one line that changes is repeated, unchanged, by the first count
    assert new[new.index("#define INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM(".ljust(len(old[187]) - 1) + "\\")]
    macro = [line for line in new if line.endswith("\\")]
    assert len({len(line) for line in macro if "StageCountThatFits" in line}) == 1
    assert "arch::sm120_smem_capacity_bytes" in after
    assert after.count(f"{MARK}<IsSM120,") == 1


def test_every_tactic_is_recomputed_and_fits(report: Report) -> None:
    made = restaged(report.tactics)
    healed = [item for item in made if item.outcome == "healed"]
    assert {(item.tile, item.output) for item in healed} == FAILING
    assert {(item.fusion, item.swap_ab, item.stages_before, item.stages_after) for item in healed} == {
        ("finalize", False, 3, 2)
    }
    assert {(item.bytes_before, item.reserve_bytes, item.bytes_after) for item in healed} == {(102400, 2048, 74752)}
    assert len(made) == report.summary.total
    assert all(item.outcome == "same" for item in made if item not in healed)
    assert all((item.bytes_after or 0) <= (item.limit_bytes or 0) for item in made)


def test_no_other_tactic_of_later_versions_loses_a_stage() -> None:
    """A constant reserve of 1,024 bytes would take one from 128x32 and 128x64 on CUTLASS 4.5."""
    if not later_wheels():
        pytest.skip("no later wheel in .cache/wheels")
    for wheel in later_wheels():
        with open_tree(wheel) as tree:
            made = restaged(read_report(tree).tactics)
        assert {(item.tile, item.output) for item in made if item.outcome == "healed"} == FAILING
        assert all(item.stages_after == item.stages_before for item in made if item.outcome == "same")


@pytest.mark.parametrize(
    ("find", "replace", "why"),
    [
        ("using StageCountAutoCarveout =", "using StageCountOther =", "the stage count (StageCountAutoCarveout)"),
        ("sizeof(typename CollectiveEpilogue::SharedStorage))>;", "sizeof(int))>;", "not StageCountAutoCarveout of"),
        ("StageCountAutoCarveout, KernelSchedule>", "StageCount<2>, KernelSchedule>", "its mainloop is not built"),
        (
            "CollectiveMainloop, CollectiveEpilogue, void,",
            "CollectiveMainloop, CollectiveEpilogue, int,",
            "GemmUniversal",
        ),
        ("constexpr bool IsSM120 =", "constexpr bool IsSM12x =", "IsSM120"),
        ("#define INSTANTIATE_TMA_WARP_SPECIALIZED_MOE_GEMM(", "#define OTHER(", "does not define INSTANTIATE"),
    ],
)
def test_another_launcher_is_refused(launcher: str, find: str, replace: str, why: str) -> None:
    assert launcher.count(find) == 1
    with pytest.raises(ValueError, match=re.escape(why)):
        patched_text(launcher.replace(find, replace))


@pytest.fixture
def copy(flashinfer_062: Path, tmp_path: Path) -> Path:
    """The parts of 0.6.2 that `fix` reads, as a folder that a test may change."""
    folder = tmp_path / "site"
    wanted = (
        "flashinfer/data/csrc/nv_internal/",
        "flashinfer/jit/",
        "flashinfer/data/cutlass/include/",
        "flashinfer_python-",
    )
    with zipfile.ZipFile(flashinfer_062) as archive:
        for name in archive.namelist():
            if name.startswith(wanted) or name.count("/") == 1 or "/fused_moe/" in name:
                archive.extract(name, folder)
    return folder


def test_a_patched_tree_is_not_patched_again(copy: Path, cli: Any) -> None:
    target = copy / IN_WHEEL
    target.write_text(patched_text(target.read_text()))
    result = cli("fix", "flashinfer", "--root", str(copy), "--write", "patch")
    assert result.code == 2
    assert "patched already" in result.err
    assert result.out == ""


def test_the_tactics_of_a_patched_tree_all_fit(copy: Path, report: Report) -> None:
    """After the patch the library is read as what it now builds, at the patched file's own lines."""
    target = copy / IN_WHEEL
    target.write_text(patched_text(target.read_text()))
    with open_tree(copy) as tree:
        patched = read_report(tree)
    assert (patched.summary.total, patched.summary.fits) == (40, 40)
    healed = [tactic for tactic in patched.tactics if (tactic.config or {})["stages"] == 2]
    assert {tactic.verdict.smem_bytes for tactic in healed} == {74_752}
    assert {tactic.name for tactic in healed} == {
        tactic.name for tactic in report.tactics if tactic.verdict.status == "overflow"
    }
    lines = target.read_text().split("\n")
    assert "using GemmKernel =" in lines[healed[0].launcher.line - 1]
    assert any("carries the patch" in note for note in patched.notes)
    nvfp4 = next(mode for mode in patched.runtime if mode.a == "nvfp4")
    assert nvfp4.never == []


def test_a_patch_that_was_edited_is_not_taken_for_ours(launcher: str) -> None:
    after = patched_text(launcher)
    assert without_patch(launcher) is None
    masked = without_patch(after)
    assert masked is not None
    assert masked.count("\n") == after.count("\n")
    assert MARK not in masked
    edits = (("kNeeded - kCounted : 0", "kNeeded : 0"), ("StageCountThatFits, Kernel", "StageCount<2>, Kernel"))
    for find, replace in edits:
        assert without_patch(after.replace(find, replace)) is None


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"#define X\r\n", b"x" * 5_000_000])
def test_a_damaged_launcher_is_refused(copy: Path, content: bytes) -> None:
    (copy / IN_WHEEL).write_bytes(content)
    with open_tree(copy) as tree, pytest.raises(TreeError, match="is not patched"):
        make_patch(find_layout(tree))


def test_paths_fit_the_folder_that_holds_the_package(copy: Path) -> None:
    with open_tree(copy / "flashinfer") as tree:
        assert make_patch(find_layout(tree)).file == IN_WHEEL
    with open_tree(copy) as tree:
        assert make_patch(find_layout(tree)).file == IN_WHEEL


def test_a_version_without_a_blocklist_says_so(flashinfer_062: Path, cli: Any) -> None:
    result = cli("fix", "flashinfer", "--root", str(flashinfer_062), "--write", "blocklist")
    assert (result.code, result.out) == (2, "")
    assert "0.7.2.post1 has it" in result.err
    assert "--write patch" in result.err


def test_the_document_and_the_file_agree(flashinfer_062: Path, tmp_path: Path, cli: Any) -> None:
    out = tmp_path / "fix.patch"
    result = cli("fix", "flashinfer", "--root", str(flashinfer_062), "--write", "patch", "--out", str(out), "--json")
    assert result.code == 0
    document = result.json
    assert document["schema"] == "tilewright/fix/1"
    assert document["content"] == out.read_text()
    assert [step["what"] for step in document["steps"]] == [
        "apply", "prebuilt", "elsewhere", "cached", "rebuild", "autotuner", "confirm", "undo",
    ]  # fmt: skip
    text = json.dumps(document["steps"])
    assert "cached_ops/fused_moe_120" in text
    assert "flashinfer-jit-cache" in text
    assert any("modelled" in (step.get("basis") or "") for step in document["steps"])
    assert any("128x64x128 and 128x32x128 cannot be added on CUTLASS 4.2.1" in note for note in document["notes"])


def test_without_out_the_file_is_on_stdout_alone(flashinfer_062: Path, cli: Any) -> None:
    result = cli("fix", "flashinfer", "--root", str(flashinfer_062), "--write", "patch")
    assert result.out.startswith(f"--- a/{IN_WHEEL}\n+++ b/")
    assert "102,400 bytes, 3 stages -> 74,752 bytes, 2 stages" in result.err
    quiet = cli("fix", "flashinfer", "--root", str(flashinfer_062), "--write", "patch", "--quiet")
    assert (quiet.out, quiet.err) == (result.out, "")


def test_an_older_file_is_kept_unless_forced(flashinfer_062: Path, tmp_path: Path, cli: Any) -> None:
    out = tmp_path / "mine"
    out.write_text("mine")
    arguments = ("fix", "flashinfer", "--root", str(flashinfer_062), "--write", "patch", "--out", str(out))
    result = cli(*arguments)
    assert result.code == 2
    assert "--force" in result.err
    assert out.read_text() == "mine"
    assert cli(*arguments, "--force").code == 0
    assert out.read_text().startswith("--- a/")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_what_was_compiled_of_the_patch_is_shown_for_exactly_these_sources(flashinfer_062: Path, cli: Any) -> None:
    """Both launchers, compiled whole for sm_120a: which types exceed the limit, and registers and spills of kernels."""
    arguments = ("fix", "flashinfer", "--root", str(flashinfer_062), "--write", "patch", "--json")
    document = cli(*arguments).json
    compiled = document["compiled"]
    assert compiled["kind"] == "exact (compiled)"
    modelled = {item["name"]: item for item in document["tactics"]}
    assert len(compiled["tactics"]) == len(modelled) == 40
    for row in compiled["tactics"]:
        item = modelled[row["name"]]
        for key in ("bytes_before", "stages_before", "bytes_after", "stages_after"):
            assert row[key] == item[key], row["name"]
    assert sum(row["bytes_before"] > 101_376 for row in compiled["tactics"]) == 4
    assert all(row["bytes_after"] <= 101_376 for row in compiled["tactics"])
    whole = [row for row in compiled["tactics"] if row.get("kernel_before")]
    assert len(whole) == 4
    assert all(row["kernel_after"]["registers"] == row["kernel_before"]["registers"] == 168 for row in whole)
    checker("fix")(document)


def test_what_was_compiled_is_not_shown_for_other_sources(copy: Path, cli: Any) -> None:
    header = next((copy / "flashinfer/data/csrc/nv_internal").rglob("sm90_visitor_scatter.hpp"))
    header.write_text(header.read_text() + "\n")
    result = cli("fix", "flashinfer", "--root", str(copy), "--write", "patch")
    assert "exact (compiled)" not in result.err
    assert "--prove" in result.err


@pytest.mark.compiler
def test_the_patched_launcher_compiles_to_kernels_that_fit(flashinfer_062: Path) -> None:
    """The library's own launcher, from its own tree: 102,400 bytes before the patch, 74,752 after; and the assert."""
    with open_tree(flashinfer_062) as tree:
        layout = find_layout(tree)
        patch = make_patch(layout)
        names = [
            tactic.name
            for tactic in read_report(tree).tactics
            if "bfloat16_void_EpilogueOpDefault_FINALIZE_128_256_128_1_1_1_false_false_false_false" in tactic.name
        ]
        uncounted = patch.after.replace(
            "StageCountThatFits, KernelSchedule>", "StageCountAutoCarveout, KernelSchedule>"
        )
        with laid_out(layout) as place:
            compiler = find_nvcc()
            before, after, kept = (
                compile_types(compiler, place, text, names) for text in (patch.before, patch.after, uncounted)
            )
    assert len(names) == 1
    sizes = [(made.rows[names[0]].smem_bytes, made.rows[names[0]].stages) for made in (before, after, kept)]
    assert sizes == [(102_400, 3), (74_752, 2), (102_400, 3)]
    assert (before.refused, after.refused, kept.refused) == ([], [], [(102_400, 101_376)])


def test_a_compiler_that_fails_is_reported_and_leaves_nothing(
    flashinfer_062: Path, tmp_path: Path, cli: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(
        '#!/bin/sh\ncase "$*" in *--version*) echo "release 13.0, V13.0.88";; *) echo "error: no"; exit 1;; esac\n'
    )
    nvcc.chmod(0o755)
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    result = cli("fix", "flashinfer", "--root", str(flashinfer_062), "--write", "patch", "--prove", "--nvcc", str(nvcc))
    assert (result.code, result.out) == (2, "")
    assert "told 0 of 40 sizes" in result.err
    assert list(temporary.iterdir()) == []


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    for out in (str(tmp_path), str(tmp_path / "no" / "file"), "", "a\0b", "x" * 5000):
        with pytest.raises(InputError):
            write_new(out, b"x", force=False)
    with pytest.raises(InputError, match="cannot be written"):
        write_new("/proc/tilewright", b"x", force=True)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match="is kept"):
        write_new(str(link), b"x", force=False)


@pytest.mark.parametrize(
    "arguments",
    [
        ("vllm", "--write", "patch"),
        ("flashinfer", "--write", "patch", "--arch", "sm90"),
        ("flashinfer", "--write", "patch", "--operands", "nvfp4xnvfp4"),
        ("flashinfer", "--write", "patch", "--force"),
        ("flashinfer", "--write", "other"),
        ("flashinfer", "--write", "blocklist", "--prove"),
        ("flashinfer", "--write", "patch", "--nvcc", "nvcc"),
        ("flashinfer",),
    ],
)
def test_bad_arguments(arguments: tuple[str, ...], tmp_path: Path, cli: Any) -> None:
    result = cli("fix", *arguments, "--root", str(tmp_path))
    assert (result.code, result.out) == (2, "")


def test_a_folder_without_flashinfer_is_refused(tmp_path: Path, cli: Any) -> None:
    (tmp_path / "x.py").write_text("")
    for root in (tmp_path, tmp_path / "none", tmp_path / "x.py"):
        assert cli("fix", "flashinfer", "--root", str(root), "--write", "patch").code == 2


PARSER = """
class TacticsBlocklist:
    def load(self, path):
        data = json.load(open(path))
        saved = data.get(_KEY)
        if saved is not None:
            wrong = [k for k in now if saved.get(k) not in (now.get(k), "*")]
        for key, tactics in data.get("invalid_tactics", {}).items():
            self._invalid[key] = set(tactics)
        return True

    def filter(self, custom_op, runner, tactics):
        key = f"{custom_op}::{runner.__class__.__name__}"
        return [t for t in tactics if t not in self._invalid.get(key, ())]
"""
AUTOTUNER = """
_KEY = "_metadata"
PATH = os.environ.get("FLASHINFER_TACTICS_BLOCKLIST")

def _collect_metadata():
    meta: dict[str, str] = {}
    meta["flashinfer_version"] = version
    meta["gpu"] = name()
    return meta
"""
CORE = """
def moe():
    class MoERunner:
        pass

    def fused():
        runner = MoERunner(1)
        tuner.choose_one("ops::gemm1", [runner], config, [x], gemm_idx=1)
        tuner.choose_one("ops::gemm2", [runner], config, [x], gemm_idx=2)

    def other():
        another = OtherRunner()
        tuner.choose_one("ops::other", [another], config, [x])
"""


@pytest.fixture
def with_blocklist(copy: Path) -> Path:
    """0.6.2 with a small reader of a blocklist, as later versions have one."""
    package = copy / "flashinfer"
    (package / "tactics_blocklist.py").write_text(PARSER)
    (package / "autotuner.py").write_text(AUTOTUNER)
    (package / "fused_moe").mkdir(exist_ok=True)
    (package / "fused_moe" / "core.py").write_text(CORE)
    return copy


def test_the_format_is_the_parsers_own(with_blocklist: Path, cli: Any) -> None:
    root = str(with_blocklist)
    result = cli("fix", "flashinfer", "--root", root, "--write", "blocklist", "--operands", "nvfp4xnvfp4")
    assert result.code == 0, result.err
    document = json.loads(result.out)
    assert document["invalid_tactics"] == {"ops::gemm2::MoERunner": [14, 15]}
    assert {key: document["_metadata"][key] for key in ("flashinfer_version", "gpu")} == {
        "flashinfer_version": "0.6.2",
        "gpu": "*",
    }
    assert "export FLASHINFER_TACTICS_BLOCKLIST=" in result.err
    named = cli(
        "fix",
        "flashinfer",
        "--root",
        root,
        "--write",
        "blocklist",
        "--operands",
        "nvfp4xnvfp4",
        "--gpu-name",
        "NVIDIA X",
    )
    assert json.loads(named.out)["_metadata"]["gpu"] == "NVIDIA X"


def test_lists_with_other_numbers_are_not_mixed(with_blocklist: Path, report: Report, cli: Any) -> None:
    """On 0.6.2 both operand pairs have ids that can never run, and the same id is another tile in the other list."""
    result = cli("fix", "flashinfer", "--root", str(with_blocklist), "--write", "blocklist")
    assert result.code == 2
    assert "--operands" in result.err
    with pytest.raises(InputError, match="legal here are nvfp4xnvfp4"):
        choose_mode(report, "nvfp4")


@pytest.mark.parametrize(
    ("file", "find", "replace"),
    [
        ("tactics_blocklist.py", '"*"', '"?"'),
        ("tactics_blocklist.py", "data.get(_KEY)", "data.get(KEY)"),
        ("tactics_blocklist.py", "def filter", "def sieve"),
        ("tactics_blocklist.py", "{custom_op}::", "{custom_op}"),
        ("tactics_blocklist.py", "class TacticsBlocklist:", "class TacticsBlocklist("),
        ("autotuner.py", 'meta["gpu"]', "meta.gpu"),
        ("fused_moe/core.py", "gemm_idx=2", "gemm_idx=3"),
        ("fused_moe/core.py", "runner = MoERunner(1)", "runner = made[0]"),
    ],
)
def test_a_parser_that_reads_otherwise_is_refused(with_blocklist: Path, file: str, find: str, replace: str) -> None:
    path = with_blocklist / "flashinfer" / file
    text = path.read_text()
    if find == 'meta["gpu"]':
        text = text.replace('meta["flashinfer_version"]', "meta.version")
    assert find in text
    path.write_text(text.replace(find, replace))
    with open_tree(with_blocklist) as tree, pytest.raises(TreeError, match="form that is not known"):
        read_format(find_layout(tree))


def test_the_blocklist_of_later_versions() -> None:
    """Cases C37: the ids that can never run, without a run on the GPU."""
    from tilewright.libraries.flashinfer.fix import make_fix

    wheels = [path for path in later_wheels() if "-0.7." in path.name]
    if not wheels:
        pytest.skip("no FlashInfer 0.7 in .cache/wheels")
    for wheel in wheels:
        with open_tree(wheel) as tree:
            fix = make_fix(tree, read_report(tree), "blocklist", operands="nvfp4xnvfp4")
        document = json.loads(fix.content or "")
        assert set(document["invalid_tactics"]) <= {
            "trtllm::fused_moe::gemm1::MoERunner",
            "trtllm::fused_moe::gemm2::MoERunner",
        }
        if "-0.7.4-" in wheel.name:
            assert document["invalid_tactics"] == {"trtllm::fused_moe::gemm2::MoERunner": [26, 27]}
