"""Packaged flags of releases, for when no tree of the engine is at hand; and what layouts and plans tell to launch."""

from __future__ import annotations

import json

import pytest

from tilewright.cli.main import invoke
from tilewright.errors import InputError, UnknownNameError
from tilewright.libraries.engine_flags.launch import check_launch
from tilewright.libraries.engine_flags.snapshots import snapshot, snapshot_versions
from tilewright.plan.make import make_plan, make_target

STARTS = ("python3 -m sglang.launch_server", "vllm serve")


def test_the_nearest_release_that_is_not_newer_is_taken() -> None:
    assert snapshot_versions("sglang") == ("0.4.9.post6", "0.5.5", "0.5.9", "0.5.12", "0.5.15", "0.5.23")
    assert snapshot_versions("vllm") == ("0.11.2", "0.17.0", "0.27.1", "0.33.0", "0.34.0")
    assert snapshot("sglang").version == "0.5.23"
    assert snapshot("sglang", "0.5.11").version == "0.5.9"
    assert snapshot("sglang", "0.4.0").version == "0.4.9.post6"
    assert snapshot("vllm", "0.33.0rc1").version == "0.33.0"
    with pytest.raises(UnknownNameError):
        snapshot("llama.cpp")


@pytest.mark.parametrize("version", ["1e400", "1,,2", "1..", "0.5.x", "latest", ""])
def test_what_only_begins_like_a_version_is_refused(version: str) -> None:
    with pytest.raises(InputError, match=r"no version number.*0\.5\.9"):
        snapshot("vllm", version)


def test_flags_by_release() -> None:
    new, old = snapshot("sglang"), snapshot("sglang", "0.5.9")
    assert new.has("--cuda-graph-max-bs-decode")
    assert not old.has("--cuda-graph-max-bs-decode")
    assert old.has("--cuda-graph-max-bs")
    assert snapshot("vllm").has("--gpu-memory-utilization")
    assert len(new.flags) > 500


def test_the_command_without_a_root_says_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["flags", "vllm", "gpu-memory-utilization", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["root"] == "packaged flags of vllm 0.34.0"
    assert invoke(["flags", "vllm", "gpu-memory-utilization"]) == 0
    assert "Packaged list of this release" in capsys.readouterr().out
    line = "python3 -m sglang.launch_server --model-path x --cuda-graph-max-bs 64"
    assert invoke(["flags", "sglang", "--check-launch", line, "--check"]) == 1
    capsys.readouterr()
    assert invoke(["flags", "sglang", "--engine-version", "0.5.9", "--check-launch", line, "--check"]) == 0
    capsys.readouterr()
    assert invoke(["flags", "sglang", "--engine-version", "banana"]) == 2
    assert "is no version number" in capsys.readouterr().err
    assert invoke(["flags", "sglang", "max-running-requests", "--uses"]) == 2
    assert "--root" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("engine", "version"), [("sglang", None), ("vllm", None), ("sglang", "0.5.9"), ("vllm", "0.17.0")]
)
@pytest.mark.parametrize(
    ("model", "gpu", "gpus"),
    [
        ("GLM-5-NVFP4", "rtx-pro-6000-server", 8),
        ("gpt-oss-120b", "rtx-5090", 4),
        ("DeepSeek-R1", "h200", 8),
        ("Qwen3-235B-A22B", "b200", 4),
        ("MiniMax-M2", "rtx-pro-6000-workstation", 4),
    ],
)
def test_no_plan_proposes_a_flag_that_the_release_lacks(
    engine: str, version: str | None, model: str, gpu: str, gpus: int
) -> None:
    known = snapshot(engine, version)
    plan = make_plan(make_target(model=model, gpu=gpu, gpus=gpus, engine=engine, engine_version=version))
    lines = [line.split("   #")[0] for item in plan.findings for line in item.fix.commands]
    launches = [line[line.index(start) :] for line in lines for start in STARTS if start in line]
    for line in launches:
        judged = check_launch(known, line)
        assert judged.parses, (line, judged.remarks)


def test_an_idea_that_the_release_refuses_is_rejected_with_the_reason() -> None:
    plan = make_plan(make_target(model="GLM-5-NVFP4", gpu="rtx-pro-6000-server", gpus=8, engine_version="0.5.9"))
    assert "weight_only_decode" not in [item.id for item in plan.findings]
    item = next(one for one in plan.rejected if "Marlin" in one.idea and "0.5.9 would refuse" in one.why)
    assert "marlin is no choice" in item.why
