"""What the serving model adds to a plan: ceiling, layouts, series, and gains where nobody published any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tilewright.hardware.names import resolve_gpu
from tilewright.plan.finding import Plan
from tilewright.plan.make import make_plan, make_target
from tilewright.plan.modelled import RATIO_ERROR, ratio_gain, step
from tilewright.report.output import json_bytes
from tilewright.report.plan_text import markdown

GLM: dict[str, Any] = {"model": "GLM-5-NVFP4", "gpu": "rtx-pro-6000-server", "gpus": 8, "engine": "sglang"}


def plan_of(**change: Any) -> Plan:
    return make_plan(make_target(**{**GLM, **change}))


def ids(plan: Plan) -> list[str]:
    return [item.id for item in plan.findings]


def snapshot(tmp_path: Path, **metrics: float) -> Path:
    path = tmp_path / "snap.json"
    gpus = [{"index": i, "power_draw_w": 235, "power_limit_w": 600} for i in range(8)]
    path.write_text(json.dumps({"schema": "tilewright/observe/1", "gpus": gpus, "metrics": metrics}))
    return path


def test_a_ceiling_is_above_what_is_predicted() -> None:
    rows = plan_of().baseline["ceiling"]["rows"]
    assert [row.concurrency for row in rows] == [1, 16, 64]
    for row in rows:
        assert row.limit_tok_s > row.predicted_tok_s > 0
        assert row.reached == pytest.approx(row.predicted_tok_s / row.limit_tok_s)


def test_a_measured_server_is_held_against_the_ceiling(tmp_path: Path) -> None:
    plan = plan_of(observe=snapshot(tmp_path, running=8, generation_tok_s=277))
    row = next(row for row in plan.baseline["ceiling"]["rows"] if row.concurrency == 8)
    assert row.measured_tok_s == 277
    assert row.reached == pytest.approx(277 / row.limit_tok_s)
    assert any("At 8 requests" in line and "measured 277 tok/s" in line for line in plan.baseline["summary"])


def test_pipeline_stages_come_out_about_twice_as_slow_at_one_request() -> None:
    plan = plan_of()
    item = next(one for one in plan.rejected if one.idea == "TP4 with 2 pipeline stages")
    assert any("Predicted at one request" in one.text for one in item.evidence)
    rows = {row["name"]: row["tok_s"] for row in plan.baseline["layouts"]["rows"]}
    assert rows["TP8"][0] > 0
    staged = plan_of(tp=4, pp=2)
    mine = next(row for row in staged.baseline["layouts"]["rows"] if row["yours"])
    assert mine["name"] == "TP4 PP2"
    assert 1.6 < rows["TP8"][0] / mine["tok_s"][0] < 2.4


def test_a_layout_is_proposed_only_where_it_wins_by_more_than_noise(tmp_path: Path) -> None:
    busy = plan_of(observe=snapshot(tmp_path, running=100, waiting=28, kv_usage=0.9))
    item = next(one for one in busy.findings if one.id == "layout")
    assert item.gain.basis == "modelled"
    assert item.gain.expected is not None
    assert item.gain.expected >= 10
    assert "--tp-size 8" in item.fix.commands[0]
    few = plan_of(observe=snapshot(tmp_path, running=2, kv_usage=0.1))
    assert "layout" not in ids(few), "at two requests TP8 is the best there is"


def test_a_ratio_of_predictions_carries_its_error() -> None:
    gain = ratio_gain("x, %", 1.2)
    assert gain.expected == 20
    assert gain.low == pytest.approx((1.2 * (1 - RATIO_ERROR) - 1) * 100)
    assert gain.high == pytest.approx((1.2 * (1 + RATIO_ERROR) - 1) * 100)
    assert gain.basis == "modelled"


def test_drafting_is_proposed_by_prediction_where_nobody_measured_it() -> None:
    item = next(one for one in plan_of(model="DeepSeek-V3", gpu="h200").findings if one.id == "speculative_decoding")
    assert item.gain.basis == "modelled"
    assert "acceptance" in item.evidence[0].text


def test_the_json_carries_the_series_of_the_plots() -> None:
    series = json.loads(json_bytes(plan_of()))["baseline"]["series"]
    assert {"roofline", "decode_step", "throughput"} <= set(series)
    line = series["roofline"][0]
    assert line["peak_tflops"] > 0
    assert len(line["points"]) > 4
    point = series["decode_step"][0]
    assert sum(term["time_s"] for term in point["terms"]) == pytest.approx(point["time_s"], rel=1e-6)
    assert {item["layout"] for item in series["throughput"]} > {"TP8"}


def test_what_does_not_fit_is_not_predicted() -> None:
    plan = plan_of(gpus=4)
    assert "ceiling" not in plan.baseline
    assert "speculative_decoding" not in ids(plan)


@pytest.mark.parametrize("gpu", ["rtx-pro-6000-server", "b200", "gb10", "l40s", "h20"])
@pytest.mark.parametrize("model", ["GLM-5-NVFP4", "gpt-oss-120b", "Qwen3-235B-A22B", "DeepSeek-V3", "MiniMax-M2"])
def test_every_model_on_every_kind_of_gpu_gives_a_whole_page(model: str, gpu: str) -> None:
    assert markdown(plan_of(model=model, gpu=gpu, gpus=8, engine="vllm"))


def test_one_prediction_is_made_once() -> None:
    target = make_target(**GLM)
    assert step(target, 4) is step(target, 4)


def test_the_floor_of_a_step_reads_what_the_predicted_step_reads() -> None:
    """On SM12x SGLang runs no indexer, so its weights are in neither figure: both floors differ by the rates alone."""
    base = json.loads(json_bytes(plan_of(gpus=8)))["baseline"]
    gpu = resolve_gpu("rtx-pro-6000-server")
    reached, published = gpu.bandwidth("measured").value, gpu.bandwidth().value
    assert reached is not None
    assert published is not None
    allowed_ms = base["series"]["decode_step"][0]["limit_s"] * 1e3
    assert base["decode_step"]["floor_ms"] * reached / published == pytest.approx(allowed_ms, rel=0.05)
