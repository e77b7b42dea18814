"""What a plan proposes can be started: layouts that divide and fit, context lengths that the cache holds."""

from __future__ import annotations

import re
from functools import lru_cache

import pytest

from tilewright.models.legality import tp_verdict
from tilewright.models.memory import Parallel
from tilewright.plan import modelled
from tilewright.plan.finding import Plan
from tilewright.plan.make import make_plan, make_target
from tilewright.plan.target import Target

TARGETS = [
    ("GLM-5-NVFP4", "rtx-pro-6000-server", 6, "sglang"),
    ("GLM-5-NVFP4", "rtx-pro-6000-server", 7, "vllm"),
    ("GLM-5-NVFP4", "rtx-pro-4500", 3, "vllm"),
    ("gpt-oss-120b", "rtx-5090", 1, "sglang"),
    ("Mixtral-8x7B", "rtx-pro-4500", 3, "vllm"),
    ("DeepSeek-R1", "h200", 8, "vllm"),
    ("Nemotron-3-Super-120B-A12B", "rtx-pro-6000-max-q", 4, "trtllm"),
]
TP = re.compile(r"(?:--tp-size|-tp|--tp_size) (\d+)")
PP = re.compile(r"(?:--pp-size|-pp|--pp_size) (\d+)")
EP = re.compile(r"(?:--ep-size|--ep_size) (\d+)")
CONTEXT = re.compile(r"(?:--context-length|--max-model-len|--max_seq_len) (\d+)")


@lru_cache(maxsize=16)
def made(model: str, gpu: str, gpus: int, engine: str) -> tuple[Target, Plan]:
    target = make_target(model=model, gpu=gpu, gpus=gpus, engine=engine)
    return target, make_plan(target)


def _first(pattern: re.Pattern[str], line: str, default: int = 1) -> int:
    found = pattern.search(line)
    return int(found[1]) if found else default


@pytest.mark.parametrize(("model", "gpu", "gpus", "engine"), TARGETS)
def test_every_launch_line_can_be_cut_and_has_a_context_that_fits(model: str, gpu: str, gpus: int, engine: str) -> None:
    target, plan = made(model, gpu, gpus, engine)
    for item in plan.findings:
        for line in item.fix.commands:
            if item.id == "layout" or not TP.search(line):
                continue
            tp = _first(TP, line)
            ep = tp if "--enable-expert-parallel" in line else _first(EP, line)
            parallel = Parallel(tp=tp, pp=_first(PP, line), ep=ep)
            assert tp_verdict(target.model, parallel).legal, line
            if target.model.checkpoint.name in line:
                context = _first(CONTEXT, line, 0)
                drafting = "speculative" in line
                assert 0 < context <= modelled.context_length(target, parallel, drafting=drafting), line


def test_gpus_that_the_default_layout_does_not_divide_get_a_plan_for_one_that_does() -> None:
    target, plan = made("GLM-5-NVFP4", "rtx-pro-6000-server", 6, "sglang")
    assert (plan.target["tp"], plan.target["pp"]) == (2, 3)
    first = plan.findings[0]
    assert first.id == "layout_does_not_divide"
    assert first.title.startswith("TP6")
    assert first.fix.text == "Use TP2 PP3."
    assert "--tp-size 2 --pp-size 3" in first.fix.commands[0]
    assert any("this plan is for TP2 PP3" in line for line in plan.baseline["summary"])
    assert target.layout == "TP2 PP3"


def test_a_layout_that_was_asked_for_stays_and_what_cannot_start_is_not_proposed() -> None:
    plan = make_plan(make_target(model="GLM-5-NVFP4", gpu="rtx-pro-6000-server", gpus=6, tp=6))
    assert plan.target["tp"] == 6
    assert plan.findings[0].id == "layout_does_not_divide"
    assert not [line for item in plan.findings for line in item.fix.commands if "--tp-size 6" in line]


def test_the_command_of_a_model_that_does_not_fit_is_the_first_way_out() -> None:
    _, plan = made("gpt-oss-120b", "rtx-5090", 1, "sglang")
    first = plan.findings[0]
    assert first.id == "does_not_fit"
    assert first.fix.text.startswith("4 GPUs (TP4)")
    assert "--gpus 4 " in first.fix.commands[0]


def test_a_smaller_checkpoint_comes_before_many_more_gpus() -> None:
    """GLM-5 in BF16 would take 64 cards of 32 GB; its NVFP4 checkpoint takes half of them."""
    _, plan = made("GLM-5", "rtx-5090", 4, "sglang")
    first = plan.findings[0]
    assert first.id == "does_not_fit"
    assert first.fix.text.startswith("One of: nvidia/GLM-5-NVFP4 on 32 GPUs (TP32)")
    assert "; 64 GPUs (TP64)" in first.fix.text
    assert "--model nvidia/GLM-5-NVFP4 " in first.fix.commands[0]
    assert "--gpus 32 " in first.fix.commands[0]


def test_layers_that_draft_are_not_proposed_where_they_do_not_fit() -> None:
    _, plan = made("GLM-5-NVFP4", "rtx-pro-6000-server", 6, "sglang")
    assert "speculative_decoding" not in [item.id for item in plan.findings]
    assert any(item.idea.startswith("Multi-token prediction") for item in plan.rejected)


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_no_idea_is_rejected_that_a_finding_proposes(engine: str) -> None:
    _, plan = made("GLM-5-NVFP4", "rtx-pro-6000-server", 8, engine)
    titles = [item.title for item in plan.findings if item.id == "layout"]
    ideas = [item.idea for item in plan.rejected if item.idea.startswith("Expert parallelism")]
    if any(" EP" in title for title in titles):
        assert all(idea.endswith("at few requests") for idea in ideas)
