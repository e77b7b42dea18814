"""Server flags in a plan: what no other rule says, for the version at hand, renamed where it was renamed."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tilewright.libraries.engine_flags import check_launch, snapshot
from tilewright.plan.finding import Plan
from tilewright.plan.launch_check import refusal, renamed
from tilewright.plan.make import make_plan, make_target

GLM: dict[str, Any] = {"model": "GLM-5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 8}


def plan_of(**inputs: Any) -> Plan:
    return make_plan(make_target(**(GLM | inputs)))


def by_id(plan: Plan) -> dict[str, Any]:
    return {item.id: item for item in plan.findings}


def observed(tmp_path: Path, flags: dict[str, Any], **metrics: float) -> Path:
    document = {
        "schema": "tilewright/observe/1",
        "gpus": [{"index": index, "name": "NVIDIA RTX PRO 6000 Blackwell Server Edition"} for index in range(8)],
        "engine": {"name": "sglang", "version": "0.5.23", "flags": flags},
        "metrics": metrics,
    }
    path = tmp_path / "snapshot.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


@pytest.mark.parametrize(("engine", "version"), [("sglang", "0.5.9"), ("sglang", "0.5.23"), ("vllm", "0.17.0")])
def test_the_plan_has_a_line_that_the_version_accepts(engine: str, version: str) -> None:
    flags = plan_of(engine=engine, engine_version=version).baseline["flags"]
    assert flags["version"] == version
    assert check_launch(snapshot(engine, version), flags["launch"]).parses is not False


def test_a_cache_that_the_version_cannot_read_is_a_finding() -> None:
    old, new = by_id(plan_of(engine_version="0.5.9")), by_id(plan_of(engine_version="0.5.23"))
    assert "--kv-cache-dtype bf16" in old["flag_kv_dtype"].fix.commands[0]
    assert old["flag_kv_dtype"].rank < old["more_requests"].rank
    assert "flag_kv_dtype" not in new


def test_a_flag_that_another_rule_speaks_of_is_said_once() -> None:
    found = by_id(plan_of(engine_version="0.5.23"))
    assert "more_requests" in found
    assert "flag_max_requests" not in found
    assert "flag_drafting" not in found


def test_the_server_s_own_line_is_judged(tmp_path: Path) -> None:
    flags = {
        "--tp-size": 8, "--cuda-graph-max-bs": 64, "--moe-runner-backend": "flashinfer_trtllm",
        "--num-continuous-decode-steps": 4, "--max-running-requests": 16, "--disable-radix-cache": True,
    }  # fmt: skip
    found = by_id(plan_of(observe=observed(tmp_path, flags, running=16, waiting=40)))
    line = found["flag_line"]
    assert line.title.startswith("2 flags of the launch line are not")
    texts = " ".join(item.text for item in line.evidence)
    assert "--cuda-graph-max-bs: renamed" in texts
    assert "flashinfer_trtllm: not for this GPU" in texts
    assert "--disable-radix-cache" in line.fix.commands[0]
    assert "trtllm" not in line.fix.commands[0]
    raised = found["flag_max_requests"]
    assert raised.gain.basis == "modelled"
    assert raised.gain.expected > 20
    assert check_launch(snapshot("sglang", "0.5.23"), line.fix.commands[0]).parses


def test_a_flag_is_called_by_the_version_s_name() -> None:
    new, old = snapshot("sglang", "0.5.23"), snapshot("sglang", "0.5.9")
    line = "python3 -m sglang.launch_server --model-path x --cuda-graph-max-bs 64   # then measure"
    assert renamed(line, new) == line.replace("--cuda-graph-max-bs", "--cuda-graph-max-bs-decode")
    assert renamed(line, old) == line
    assert renamed(renamed(line, new), old) == line
    assert refusal(renamed(line, new), new) is None
    off = "python3 -m sglang.launch_server --model-path x --disable-cuda-graph --tp 8"
    assert "--cuda-graph-backend-decode disabled --tp 8" in renamed(off, new)


def test_the_tree_of_the_engine_decides(tmp_path: Path) -> None:
    """A tree given as --library that holds the engine is asked before the packaged releases."""
    root = tmp_path / "site-packages"
    (root / "sglang/srt").mkdir(parents=True)
    (root / "sglang/__init__.py").write_text("", encoding="utf-8")
    (root / "sglang/version.py").write_text('__version__ = "0.5.99"\n', encoding="utf-8")
    (root / "sglang/srt/server_args.py").write_text(
        "class ServerArgs:\n    @staticmethod\n    def add_cli_args(parser):\n"
        '        parser.add_argument("--model-path", type=str, required=True)\n'
        '        parser.add_argument("--tp-size", type=int, default=1)\n'
        '        parser.add_argument("--context-length", type=int)\n',
        encoding="utf-8",
    )
    plan = plan_of(library=root)
    assert plan.baseline["flags"] == {
        "version": "0.5.99",
        "packaged": False,
        "launch": "python3 -m sglang.launch_server --model-path nvidia/GLM-5-NVFP4 --tp-size 8 --context-length 202752",
    }
    assert "more_requests" not in by_id(plan)
    assert any("SGLang 0.5.99 would refuse" in item.why for item in plan.rejected)


def test_a_cache_that_the_version_cannot_read_is_in_no_line_and_no_budget() -> None:
    """Every line of the plan starts with the cache that its first finding asks for, and counts with it."""
    old, new = plan_of(engine_version="0.5.9"), plan_of(engine_version="0.5.23")
    lines = [line for item in old.findings for line in item.fix.commands if "launch_server" in line]
    assert len(lines) > 3
    assert all("--kv-cache-dtype bf16" in line for line in lines)
    assert not any("fp8" in line for line in lines)
    counts = [int(by_id(plan)["more_requests"].title.split()[3]) for plan in (old, new)]
    assert counts[0] < 0.7 * counts[1]
    assert "kv_fp8" not in by_id(old)


def test_requests_are_fewer_with_drafts_and_said_to_be() -> None:
    """As many as 'flags --advise' lets run while it drafts."""
    item = by_id(plan_of(engine_version="0.5.23"))["more_requests"]
    assert any("With multi-token prediction on" in evidence.text for evidence in item.evidence)


def test_how_many_requests_is_said_with_their_length() -> None:
    """`layout` counts others, at the context that it was asked for: a number alone could not be told from its."""
    item = by_id(plan_of(engine_version="0.5.23"))["more_requests"]
    told = re.fullmatch(r"Let up to (\d+) requests of ([\d,]+) tokens each run together", item.title)
    assert told is not None
    assert any(f"requests of {told[2]} tokens." in evidence.text for evidence in item.evidence)
