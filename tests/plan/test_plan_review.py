"""What a review of plans found wrong: gains that nobody measured there, layouts that a checkpoint refuses."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from tilewright import plan
from tilewright.errors import nearest
from tilewright.plan.rules.all_reduce import covered


def ids(**inputs: Any) -> dict[str, Any]:
    return {item.id: item for item in plan(**inputs).findings}


@pytest.mark.parametrize(
    ("ranks", "hidden", "tuned"),
    [(8, 6144, True), (8, 4096, False), (4, 4096, True), (4, 6144, False), (2, 4096, False)],
)
def test_the_pcie_all_reduce_is_tuned_for_some_shapes_only(ranks: int, hidden: int, tuned: bool) -> None:
    assert covered(ranks, hidden) is tuned


def test_no_gain_is_promised_where_the_all_reduce_falls_back_or_peers_are_unknown() -> None:
    here = ids(model="GLM-5-NVFP4", gpu="rtx-pro-6000-server", gpus=8, engine="sglang")
    assert "pcie_all_reduce" in here
    assert "pcie_all_reduce" not in ids(model="gpt-oss-120b", gpu="rtx-pro-6000-server", gpus=4, engine="sglang")
    assert "pcie_all_reduce" not in ids(model="GLM-5-NVFP4", gpu="5090", gpus=8, engine="sglang")


def test_only_layouts_that_the_checkpoint_can_be_cut_into_are_proposed() -> None:
    """MiniMax-M2's experts are 1,536 wide: an eighth of that is no multiple of FP8's 128-blocks, but of NVFP4's 16."""
    item = ids(model="MiniMax-M2", gpu="5090", gpus=4, engine="vllm")["does_not_fit"]
    assert not item.fix.text.startswith("8 GPUs")
    assert "; 8 GPUs" not in item.fix.text
    assert "nvidia/MiniMax-M2.5-NVFP4 on 8 GPUs (TP8)" in item.fix.text


def test_rows_by_swap_are_said_of_block_scaled_sm12x_kernels_only() -> None:
    from tilewright.report.plan_text import markdown

    said = "exist only with swap_ab"
    assert said in markdown(plan(model="GLM-5-NVFP4", gpu="rtx-pro-6000-server", gpus=8, engine="sglang"))
    assert said not in markdown(plan(model="DeepSeek-V3", gpu="h200", gpus=8, engine="vllm"))


def test_names_that_begin_alike_come_first() -> None:
    names = ["DeepSeek-V3.1", "DeepSeek-V4-Pro", "DeepSeek-V3.2", "DeepSeek-R1"]
    assert nearest("DeepSeek-R1-NVFP4", names)[0] == "DeepSeek-R1"


def test_a_closed_stdout_is_no_defect() -> None:
    script = f"'{sys.executable}' -m tilewright gpus h200 >&-"
    done = subprocess.run(["sh", "-c", script], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
    assert done.stderr == b""
