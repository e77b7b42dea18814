"""`tilewright plan` as a shell sees it: output, files, exit codes, one sentence for whatever is wrong."""

from __future__ import annotations

import json
import os
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright.plan import registry
from tilewright.plan.make import make_target
from tilewright.report.plan_text import code, foreign, gain, hours, number

BASE = ("plan", "--model", "GLM-5-NVFP4", "--gpu", "rtx-pro-6000-server", "--gpus", "8", "--engine", "sglang")
KEYS = {"schema", "target", "baseline", "findings", "rejected"}
FINDING = {
    "rank", "id", "title", "layer", "evidence", "cause", "fix", "gain", "confidence", "effort_h", "risk", "numerics",
    "confirm", "undo",
}  # fmt: skip


def test_json_has_the_keys_of_the_contract_and_nothing_else_is_on_stdout(cli: Any) -> None:
    result = cli(*BASE, "--json")
    assert result.code == 0
    document = result.json
    assert set(document) == KEYS
    assert document["schema"] == "tilewright/plan/1"
    for item in document["findings"]:
        assert set(item) == FINDING
        assert set(item["fix"]) == {"text", "commands", "patch"}
        assert set(item["gain"]) == {"metric", "low", "expected", "high", "basis"}
        assert all(set(one) == {"kind", "text", "source"} for one in item["evidence"])
        assert item["layer"] in ("kernel", "library", "runtime", "system", "model")
    for item in document["rejected"]:
        assert set(item) == {"idea", "why", "evidence"}


def test_without_out_the_plan_is_on_stdout(cli: Any) -> None:
    result = cli(*BASE)
    assert result.code == 0
    assert result.out.startswith("# nvidia/GLM-5-NVFP4 on 8x RTX PRO 6000 Blackwell Server Edition, SGLang\n")
    assert "## Do this first" in result.out
    assert "--library DIR_OR_WHEEL" in result.out  # what giving a library would add


def test_out_writes_both_files_and_may_be_run_again(cli: Any, tmp_path: Path) -> None:
    out = tmp_path / "new" / "plan-out"
    for _ in range(2):
        result = cli(*BASE, "--out", str(out))
        assert result.code == 0
        assert f"Written: {out}/plan.md, {out}/plan.json" in result.out
    document = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    assert set(document) == KEYS
    assert (out / "plan.md").read_text(encoding="utf-8").startswith("# nvidia/GLM-5-NVFP4")
    assert sorted(path.name for path in out.iterdir()) == ["plan.json", "plan.md"]
    both = cli(*BASE, "--out", str(out), "--json")
    assert both.json == document


def test_an_edited_plan_is_kept_unless_forced(cli: Any, tmp_path: Path) -> None:
    cli(*BASE, "--out", str(tmp_path))
    path = tmp_path / "plan.md"
    path.write_text("my notes\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    result = cli(*BASE, "--out", str(tmp_path))
    assert result.code == 2
    assert "--force" in result.err
    assert path.read_text(encoding="utf-8").startswith("my notes")
    assert cli(*BASE, "--out", str(tmp_path), "--force").code == 0
    assert not path.read_text(encoding="utf-8").startswith("my notes")


def test_help_has_an_example_that_runs(cli: Any) -> None:
    shown = " ".join(cli("plan", "--help").out.split())
    example = shown.split("Example: tilewright ")[1].split(" Options")[0]
    assert cli(*example.split(), "--json").code == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("--model", "GLM-55"), "No model is called"),
        (("--model", ""), "model"),
        (("--gpu", "rtx-9090"), "No gpu is called"),
        (("--gpu", "rtx pro 6000"), "say which of"),
        (("--engine", "llama.cpp"), "No engine is called"),
        (("--engine-version", "newest"), "is no version number"),
        (("--gpus", "0"), "--gpus"),
        (("--tp", "16"), "--tp 16 x --pp 1 is 16 GPUs"),
        (("--pp", "3"), "does not divide 8 GPUs"),
        (("--ep", "3"), "does not divide --tp 8"),
        (("--library", "/nowhere/at/all"), "There is nothing at"),
        (("--observe", "/nowhere.json"), "--observe"),
        (("--log", "/nowhere.log"), "--log"),
        (("--out", "/dev/null/x"), "--out"),
        (("--model", "/nowhere/config.json"), "does not exist"),
    ],
)
def test_bad_input_is_exit_2_and_one_sentence(cli: Any, change: tuple[str, ...], says: str) -> None:
    result = cli(*BASE, *change, "--json")
    assert result.code == 2
    assert result.out == ""
    assert says in result.err
    assert len(result.err.strip().splitlines()) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_one_sentence(cli: Any, tmp_path: Path) -> None:
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    result = cli(*BASE, "--out", str(tmp_path))
    tmp_path.chmod(stat.S_IRWXU)
    assert result.code == 2
    assert "--out" in result.err


def test_a_truncated_wheel_is_one_sentence(cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "flashinfer_python-0.6.2-py3-none-any.whl"
    path.write_bytes(b"PK\x03\x04" + bytes(100))
    result = cli(*BASE, "--library", str(path))
    assert result.code == 2
    assert len(result.err.strip().splitlines()) == 1


def test_a_folder_without_cutlass_is_one_sentence(cli: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("x", encoding="utf-8")
    result = cli(*BASE, "--library", str(tmp_path))
    assert result.code == 2


def test_nothing_is_written_when_a_rule_fails(cli: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(target: Any) -> Any:
        raise KeyboardInterrupt

    broken = registry.Rule(id="x", looks_at="y", run=fail)
    monkeypatch.setattr("tilewright.plan.make.rules", lambda: (broken,))
    result = cli(*BASE, "--out", str(tmp_path))
    assert result.code == 130
    assert list(tmp_path.iterdir()) == []


def test_a_hostile_model_name_cannot_break_the_page(cli: Any, tmp_path: Path) -> None:
    folder = tmp_path / "a|b `x` <script>alert(1)<\n# title"
    folder.mkdir()
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256,
        "torch_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    result = cli("plan", "--model", str(folder), "--gpu", "rtx-5090", "--gpus", "1", "--engine", "vllm")
    assert result.code == 0
    outside = "\n".join(line for line in result.out.splitlines() if "`" not in line and "vllm serve" not in line)
    assert "<script>" not in outside
    assert "\n# title" not in result.out


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from(["--model", "--gpu", "--engine", "--engine-version", "--library", "--observe", "--log", "--tp"]),
    st.text(max_size=40).filter(lambda text: "\0" not in text),
)
def test_garbage_in_any_option_is_never_a_traceback(cli: Any, option: str, text: str) -> None:
    result = cli(*BASE, f"{option}={text}", "--json")
    assert result.code in (0, 2)
    if result.code:
        assert result.out == ""


def test_figures_are_written_the_way_people_read_them() -> None:
    from tilewright.plan.finding import Gain

    assert number(102400) == "102,400"
    assert number(None) == "unknown"
    assert gain(Gain("x", 0.0, 1.0, 6.0, "published")) == "+1 % (+0 to +6), published"
    assert gain(Gain("x", 50.0, 50.0, 50.0, "exact")) == "+50 %, exact"
    assert gain(Gain("x", None, None, None, "exact")) == "exact"
    assert hours(0.5) == "30 min"
    assert code("a`b") == "``a`b``"
    assert foreign("a|b\n<x>") == "a\\|b \\<x\\>"


def test_importing_the_command_is_light() -> None:
    """The rules are imported when a plan is made, not when the command is found."""
    import subprocess
    import sys

    script = "import tilewright.cli.plan, sys; print([m for m in sys.modules if 'plan.rules' in m or m == 'jinja2'])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_plan_without_a_tree_takes_well_under_two_seconds(cli: Any) -> None:
    cli(*BASE, "--json")
    start = time.process_time()
    cli(*BASE, "--json")
    assert time.process_time() - start < 1.5


def test_the_layout_is_filled_from_what_is_given() -> None:
    def layout(**given: int) -> tuple[int, int, int]:
        target = make_target(model="GLM-5-NVFP4", gpu="b200", gpus=8, engine="vllm", **given)
        return target.parallel.tp, target.parallel.pp, target.parallel.ep

    assert layout() == (8, 1, 1)
    assert layout(tp=4) == (4, 2, 1)
    assert layout(pp=2) == (4, 2, 1)
    assert layout(tp=4, pp=1) == (4, 1, 1)
    assert layout(ep=8) == (8, 1, 8)


def test_the_package_is_the_public_function_too() -> None:
    import importlib

    import tilewright.plan.finding  # the package stays a package

    made: Any = importlib.import_module("tilewright.plan")
    answer = made(model="GLM-5-NVFP4", gpu="rtx-pro-6000-server", gpus=8)
    assert isinstance(answer, tilewright.plan.finding.Plan)
