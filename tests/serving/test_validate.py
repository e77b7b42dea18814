"""The serving model against published tables: the bars, what is left out, and what the command prints."""

from __future__ import annotations

from typing import Any

import pytest

from tilewright.serving.coefficients import provenance
from tilewright.serving.decode import decode_step
from tilewright.serving.published import cells, left_out
from tilewright.serving.questions import DecodeQuestion
from tilewright.serving.scenario import scenario_of
from tilewright.serving.step import Sum
from tilewright.serving.validate import Validation, validate


@pytest.fixture(scope="module")
def made() -> Validation:
    return validate()


def test_the_bars_are_kept(made: Validation) -> None:
    first, others = made.groups[:2]
    assert first.cells == 7
    assert first.mean_abs_error <= 0.15
    assert others.cells > 200
    assert others.mean_abs_error <= 0.25
    assert others.held_out is not None
    assert others.held_out <= 0.25
    assert made.passed


def test_bounds_hold_for_nine_cells_of_ten(made: Validation) -> None:
    assert made.groups[0].within_bounds >= 0.85
    assert made.groups[1].within_bounds >= 0.88


def test_every_table_of_the_fit_has_an_error_of_its_own_held_out() -> None:
    held = provenance()["held_out"]
    tables = {
        cell.table for cell in cells() if not cell.excluded and not cell.prefill and "other GPUs" not in cell.group
    }
    assert set(held) == tables


def test_cells_come_worst_first_and_unsound_ones_last(made: Validation) -> None:
    used = [item for item in made.cells if item.excluded is None]
    assert made.cells[: len(used)] == used
    errors = [abs(item.error) for item in used]
    assert errors == sorted(errors, reverse=True)
    dips = [item for item in made.cells if item.excluded]
    assert {item.table.rpartition("_dcp")[0] for item in dips} == {"glm51_8xpro6000_vllm_v2"}
    assert all("expert kernel" in (item.excluded or "") for item in dips)
    assert left_out()


def test_a_published_cell_is_read_as_it_stands() -> None:
    cell = next(
        item for item in cells()
        if item.table == "glm51_8xpro6000_vllm_v2_dcp2_mtp_on" and item.question.context == 16384
        and item.question.concurrency == 4
    )  # fmt: skip
    assert cell.published == 200.8
    assert cell.question.acceptance_length == pytest.approx(1 + 3 * 0.508)
    assert cell.question.dcp == 2


def test_the_command_checks_and_filters(cli: Any) -> None:
    result = cli("validate", "--check")
    assert result.code == 0
    assert "GLM-5 TP8 without speculation" in result.out
    assert "held out" in result.out
    one = cli("validate", "--json", "--table", "gptoss_pro6000_millstone").json
    assert one["schema"] == "tilewright/validate/1"
    assert {item["table"] for item in one["cells"]} == {"gptoss_pro6000_millstone"}
    assert cli("validate", "--table", "no_such_table").code == 2


def test_two_pipeline_stages_are_about_twice_as_slow_for_few_requests_where_nothing_is_scheduled_ahead() -> None:
    def rate(engine: str, requests: int, tp: int, pp: int = 1) -> float:
        question = DecodeQuestion(
            model="GLM-5", checkpoint="community/GLM-5-NVFP4-experts-only", gpu="rtx-pro-6000-server", gpus=8,
            attention="dense", moe_backend="cutlass", engine=engine, concurrency=requests, tp=tp, pp=pp,
        )  # fmt: skip
        return decode_step(scenario_of(question)).tok_s

    assert 1.8 < rate("sglang", 1, tp=8) / rate("sglang", 1, tp=4, pp=2) < 2.2
    assert 1.3 < rate("sglang", 32, tp=8) / rate("sglang", 32, tp=4, pp=2) < 1.7
    assert 1.1 < rate("vllm", 1, tp=8) / rate("vllm", 1, tp=4, pp=2) < 1.6


def test_a_step_over_nvlink_takes_the_engines_own_all_reduce_and_fuses_its_norms() -> None:
    def sums(gpu: str) -> Sum:
        question = DecodeQuestion(model="Qwen3-235B-A22B", gpu=gpu, gpus=8, tp=8, concurrency=1, context=1000)
        return decode_step(scenario_of(question)).sums

    b200, server = sums("b200-sxm"), sums("rtx-pro-6000-server")
    assert b200.times["allreduce"] < server.times["allreduce"] / 2
    assert b200.times["small"] < 0.8 * server.times["small"]
