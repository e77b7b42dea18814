"""Weight-only FP4 (Marlin) against native FP4 at few requests: published both ways, so measure."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.data.measurements import measurement
from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.seen import flag
from tilewright.plan.target import Target

TABLE = "qwen35_397b_4xpro6000_wsl2_marlin"
_FLAGS = {"sglang": "--moe-runner-backend marlin", "vllm": "--moe-backend marlin"}


def run(target: Target) -> Iterator[Outcome]:
    engine = target.engine
    if not target.sm12x or target.expert_family != "nvfp4" or engine not in _FLAGS:
        return
    if flag(target.snapshot, "--moe-runner-backend", "--moe-backend") == "marlin":
        return
    row = measurement(TABLE)
    table = row.table
    yield Draft(
        id="weight_only_decode",
        title="At one to four requests, compare the weight-only MoE kernel (Marlin)",
        layer="library",
        evidence=[
            Evidence(
                "published",
                f"Qwen3.5-397B-A17B NVFP4 on 4x RTX PRO 6000 Workstation (WSL2), one request: Marlin TP4 "
                f"{table['Marlin TP4']} tok/s, CUTLASS {table['CUTLASS worst case']} to {table['CUTLASS best case']}. "
                "Another model, an early stack.",
                f"packaged measurement {TABLE}",
            ),
            *published("mtp_gqa"),
        ],
        cause="With a handful of tokens an expert the GEMM waits for weights; FP4 arithmetic gains nothing there, "
        "and the "
        "native path quantises activations and fills 128-row tiles first.",
        fix=Fix(
            "Run both at your own number of requests; above a few tokens an expert the native path should win.",
            [target.launch(_FLAGS[engine])],
        ),
        gain=Gain("decode tok/s at 1 to 4 requests, %", -20.0, 5.0, 23.0, "published"),
        confidence=0.25,
        effort_h=1.0,
        risk="prefill and large batches lose: products run at the BF16 rate",
        numerics="changes: W4A4 -> W4A16 (activations stay in 16 bits)",
        confirm="tok/s at 1, 4 and 16 requests with both; the log names the MoE backend.",
        undo=f"Start without {_FLAGS[engine].split()[0]}.",
    )


RULE = Rule(id="weight_only", looks_at="weight-only kernels at few requests", run=run)
