"""FlashInfer's tactics on a small tree that the tests change: what follows from a change, and bad input."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mini_flashinfer import ENTRY, FILES, GENERATOR, LAUNCHER, write_tree

from tilewright.collectives.tree import open_tree
from tilewright.errors import TreeError
from tilewright.libraries.flashinfer.decisions import decision_points
from tilewright.libraries.flashinfer.model import Tactic
from tilewright.libraries.flashinfer.tactics import read_report, read_tactics

GENERATE = "flashinfer/jit/gemm/cutlass/generate_kernels.py"
LAUNCH = "flashinfer/data/csrc/moe/launcher.inl"


def tactics(root: Path, op: Any = "moe") -> list[Tactic]:
    with open_tree(root) as tree:
        return read_tactics(tree, op)


def test_every_instantiation_is_a_tactic_with_its_config_and_lines(tmp_path: Path) -> None:
    found = tactics(write_tree(tmp_path))
    assert len(found) == 2 * 2 * 2 * 2
    first = found[0]
    assert first.name == "launch_Sm120_half_NONE_128_128_128_true"
    assert first.config is not None
    expected = {
        "arch": "sm120", "kind": "grouped", "op_class": "block_scaled", "a": "nvfp4", "b": "nvfp4", "acc": "f32",
        "c": "f16", "d": "f16", "layout_a": "row", "layout_b": "col", "layout_c": "row", "layout_d": "row",
        "align_a": 32, "align_b": 32, "align_c": 8, "align_d": 8,
        "tile": (128, 128, 128), "cluster": (1, 1, 1), "schedule": "auto",
        "epilogue_schedule": "tma_warp_specialized", "fusion": "linear_combination", "swap_ab": True,
        "epilogue_tile": "auto", "stages": "auto", "id": first.name,
    }  # fmt: skip
    assert {key: first.config[key] for key in expected} == expected
    lines = GENERATOR.splitlines()
    assert lines[first.source.line - 1].strip() == "[128, 128, 128],"
    assert "operations.append(Launcher(" in lines[first.emitted.line - 1]
    assert first.launcher.file == LAUNCH
    assert "using Kernel" in LAUNCHER.splitlines()[first.launcher.line - 1]
    finalize = [tactic.config for tactic in found if tactic.config and tactic.config["fusion"] == "finalize"]
    assert {(config["d"], config["c"], config["final_output"]) for config in finalize} == {
        ("void", "f16", "f16"),
        ("void", "bf16", "bf16"),
    }


def test_headers_of_no_known_cutlass_give_no_verdict_and_name_the_nearest(tmp_path: Path) -> None:
    for tactic in tactics(write_tree(tmp_path)):
        assert tactic.verdict.status == "unsupported"
        assert "match no tree" in (tactic.verdict.cause or "")
        assert "nearest is" in (tactic.verdict.cause or "")


@pytest.mark.parametrize(
    ("old", "new", "key", "value"),
    [
        ("cutlass::gemm::collective::KernelScheduleAuto>", "cutlass::gemm::KernelPtrArrayTmaWarpSpecializedPingpong>",
         "schedule", "pingpong"),
        ("cutlass::epilogue::TmaWarpSpecialized>", "cutlass::epilogue::collective::EpilogueScheduleAuto>",
         "epilogue_schedule", "auto"),
        ("using Stages = cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(           \\\n"
         "          sizeof(typename Epilogue::SharedStorage))>;",
         "using Stages = cutlass::gemm::collective::StageCount<2>;", "stages", 2),
        ("cutlass::epilogue::collective::EpilogueTileAuto, float, float, Out, LayoutD*, AlignOut,  \\\n          Out",
         "cute::Shape<cute::_64, cute::_32>, float, float, Out, LayoutD*, AlignOut,  \\\n          Out",
         "epilogue_tile", (64, 32)),
        ("Epilogue, void, void>", "Epilogue, cutlass::gemm::StreamKScheduler, void>", "tile_scheduler", "stream_k"),
        ("nv_float4_t<Element>", "mx_float4_t<Element>", "a", "mxfp4"),
        ("cutlass::gemm::GroupProblemShape<cute::Shape<int64_t, int64_t, int64_t>>", "cute::Shape<int, int, int, int>",
         "kind", None),
    ],
)  # fmt: skip
def test_a_change_of_the_launcher_changes_the_config(tmp_path: Path, old: str, new: str, key: str, value: Any) -> None:
    """Nothing about the launcher is assumed: what it spells is what the config says (or it is refused)."""
    assert old in LAUNCHER
    found = tactics(write_tree(tmp_path, {LAUNCH: LAUNCHER.replace(old, new)}))
    config = found[0].config
    if value is None:  # dense kernels take no pointers to layouts: refused, with the place
        assert config is None
        assert LAUNCH in (found[0].verdict.cause or "")
    else:
        assert config is not None
        assert config[key] == value


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "typename Epilogue::SharedStorage))>",
            "typename Epilogue::SharedStorage)) + 1024>",
            "not the size of its own",
        ),
        ("cutlass::epilogue::fusion::ScaledAccPerColBias", "cutlass::epilogue::fusion::MyOwn", "its fusion is MyOwn"),
        ("typename Adapter<Type_>::type", "typename Elsewhere<Type_>::type", "declared nowhere"),
        ("if constexpr (IsSM120)", "if constexpr (SomethingElse<Arch>::value)", "declared nowhere"),
        ("cutlass::gemm::kernel::GemmUniversal<", "GemmUniversalMine<", "declared nowhere"),
        ("cute::Int<M_>", "int", "not fixed when it is compiled"),
    ],
)
def test_what_the_launcher_does_beyond_our_words_is_refused_with_its_place(
    tmp_path: Path, old: str, new: str, why: str
) -> None:
    assert old in LAUNCHER
    found = tactics(write_tree(tmp_path, {LAUNCH: LAUNCHER.replace(old, new)}))
    refused = [tactic for tactic in found if tactic.config is None]
    assert refused
    for tactic in refused:
        assert tactic.verdict.status == "unsupported"
        assert why in (tactic.verdict.cause or "")
        assert (tactic.verdict.cause or "").startswith(f"{LAUNCH}:")


def test_a_branch_that_is_not_compiled_makes_a_filtered_tactic(tmp_path: Path) -> None:
    text = LAUNCHER.replace("if constexpr (IsSM120)", "if constexpr (IsSM120 && M_ == 64)")
    for tactic in tactics(write_tree(tmp_path, {LAUNCH: text})):
        assert tactic.filtered_by is not None
        assert "not compiled" in tactic.filtered_by


def test_kernels_for_other_architectures_are_no_tactics(tmp_path: Path) -> None:
    text = GENERATOR.replace("INSTANTIATE_MOE(Sm{op.arch}", "INSTANTIATE_MOE(Sm90")
    tree = write_tree(
        tmp_path, {GENERATE: text, LAUNCH: LAUNCHER.replace("if constexpr (IsSM120)", "if constexpr (true)")}
    )
    assert tactics(tree) == []


def test_templates_and_build_functions_give_the_gemm_tactics(tmp_path: Path) -> None:
    found = tactics(write_tree(tmp_path), "gemm")
    assert [tactic.name for tactic in found] == [
        f"launch_Sm120_half_NONE_128_{n}_128_{swap}" for n in (128, 256) for swap in ("true", "false")
    ]
    core = FILES["flashinfer/jit/gemm/core.py"].splitlines()
    assert core[found[2].source.line - 1].strip() == "(128, 256, 128),"
    assert "template.render(" in core[found[2].emitted.line - 1]


def test_layouts_of_every_kind_are_found(tmp_path: Path) -> None:
    installed = write_tree(tmp_path / "site")
    checkout = tmp_path / "checkout"
    for path, content in FILES.items():
        moved = path.replace("flashinfer/data/csrc", "csrc").replace("flashinfer/data/include", "include")
        file = checkout / moved.replace("flashinfer/data/cutlass", "3rdparty/cutlass")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    names = [tactic.name for tactic in tactics(installed)]
    assert [tactic.name for tactic in tactics(installed / "flashinfer")] == names
    assert [tactic.name for tactic in tactics(checkout)] == names


BROKEN = {
    "no FlashInfer": (dict.fromkeys(FILES), "no FlashInfer"),
    "no generator": ({GENERATE: None}, "generate_kernels.py"),
    "no C++ sources": (
        {path: None for path in FILES if "csrc" in path or path.startswith("flashinfer/data/include")},
        "no C++ sources",
    ),
    "no CUTLASS": ({path: None for path in FILES if "cutlass/include" in path}, "No CUTLASS"),
    "no build function": ({"flashinfer/jit/fused_moe.py": "x = 1\n"}, "no build function for sm120"),
    "no build file": ({"flashinfer/jit/fused_moe.py": None}, "there is no such file"),
    "generator does not parse": ({GENERATE: GENERATOR + "\ndef f(:\n"}, "does not parse"),
    "generator is binary": ({GENERATE: b"\x00\xff\xfe" * 50}, "does not parse"),
    "generator never ends": ({GENERATE: GENERATOR + "\nwhile True:\n    pass\n"}, "more steps"),
    "generator asks the machine": (
        {GENERATE: GENERATOR.replace("if not enabled:", "if not torch.cuda.is_available():")},
        "not known before the library runs",
    ),
    "generator raises": (
        {GENERATE: GENERATOR.replace("operations = []\n    cta", "raise ValueError('no')\n    cta")},
        "RuntimeError",
    ),
    "build function is no function": (
        {"flashinfer/jit/fused_moe.py": ENTRY + "\ngen_cutlass_fused_moe_sm120_module = 3\n"},
        "no function",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_tree_is_one_sentence_and_exit_2(name: str, tmp_path: Path, cli: Any) -> None:
    changes, what = BROKEN[name]
    write_tree(tmp_path, changes)
    result = cli("tactics", "flashinfer", "--root", str(tmp_path), "--json")
    assert result.code == 2
    assert result.out == ""
    assert what in result.err
    assert result.err.startswith("tilewright: ")
    assert result.err.count("\n") == 1


def test_an_answer_names_the_line_that_stopped_it(tmp_path: Path) -> None:
    text = GENERATOR.replace("if not enabled:", "if not torch.cuda.is_available():")
    line = next(i for i, row in enumerate(text.splitlines(), 1) if "torch.cuda" in row)
    with pytest.raises(TreeError, match=rf"generate_kernels\.py:{line}\)"):
        tactics(write_tree(tmp_path, {GENERATE: text}))


def test_a_gemm_build_function_that_cannot_be_followed_is_listed_without_a_verdict(tmp_path: Path) -> None:
    core = FILES["flashinfer/jit/gemm/core.py"].replace("for cta_m", "assert os.environ['HOME']\n    for cta_m")
    found = tactics(write_tree(tmp_path, {"flashinfer/jit/gemm/core.py": core}), "gemm")
    assert [tactic.name for tactic in found] == ["gen_gemm_sm120_module_toy"]
    assert "cannot be followed" in (found[0].verdict.cause or "")


def test_a_version_without_the_autotuner_sources_gets_no_ids_and_a_note(tmp_path: Path) -> None:
    with open_tree(write_tree(tmp_path)) as tree:
        report = read_report(tree)
    assert report.runtime == []
    assert all(tactic.runtime_ids is None for tactic in report.tactics)
    assert any("tactic ids are not derived" in note for note in report.notes)


def test_decision_points_leave_out_what_a_version_does_not_have(tmp_path: Path) -> None:
    with open_tree(write_tree(tmp_path)) as tree:
        points = decision_points(tree, read_tactics(tree))
    assert {point.what for point in points} == {"tile"}
    assert [point.text for point in points] == ["[128, 128, 128],", "[128, 256, 128],"]


def test_the_tree_is_never_written_to(tmp_path: Path) -> None:
    write_tree(tmp_path)
    before = {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))}
    tactics(tmp_path)
    tactics(tmp_path, "gemm")
    assert {path: path.stat().st_mtime_ns for path in sorted(tmp_path.rglob("*"))} == before


def test_a_generator_that_would_act_when_run_does_not(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    acts = (
        f"import os, subprocess\nos.system('touch {mark}')\nsubprocess.run(['touch', '{mark}'])\n"
        f"open('{mark}', 'w').write('x')\n"
    )
    found = tactics(write_tree(tmp_path / "tree", {GENERATE: acts + GENERATOR}))
    assert len(found) == 16
    assert not mark.exists()


@st.composite
def _mutated(draw: st.DrawFn, source: str) -> str:
    """`source` with a few spans deleted, doubled, or replaced by fragments of itself or of garbage."""
    text = source
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(0, len(text) - 1)))
        length = draw(st.integers(0, 40))
        kind = draw(st.sampled_from(["delete", "double", "replace", "move"]))
        piece = text[at : at + length]
        if kind == "delete":
            text = text[:at] + text[at + length :]
        elif kind == "double":
            text = text[:at] + piece * 3 + text[at + length :]
        elif kind == "move":
            other = draw(st.integers(0, max(0, len(text) - 1)))
            text = text[:other] + piece + text[other:]
        else:
            text = text[:at] + draw(st.text("()[]{}<>:;,.=*&|#\\\"'\nabT_0 9", max_size=12)) + text[at + length :]
    return text


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_mutated_sources_never_crash(data: st.DataObject) -> None:
    """Whatever happens to a generator, an entry point, a launcher or a template: tactics, or a TreeError."""
    path = data.draw(
        st.sampled_from(
            [
                GENERATE,
                LAUNCH,
                "flashinfer/jit/fused_moe.py",
                "flashinfer/jit/gemm/core.py",
                "flashinfer/data/csrc/toy_sm120.jinja",
                "flashinfer/data/csrc/moe/adapters.h",
            ]
        )
    )
    text = data.draw(_mutated(FILES[path]))
    op = data.draw(st.sampled_from(["moe", "gemm"]))
    with tempfile.TemporaryDirectory() as folder:
        root = write_tree(Path(folder), {path: text})
        try:
            found = tactics(root, op)
        except TreeError:
            return
        json.dumps([tactic.name for tactic in found])
