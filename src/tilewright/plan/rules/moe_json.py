"""Tuned fused-MoE JSON files for NVFP4: no engine reads them."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target


def run(target: Target) -> Iterator[Outcome]:
    if target.expert_family not in ("nvfp4", "mxfp4") or target.engine not in ("vllm", "sglang"):
        return
    yield Rejected(
        "Tune or copy a fused-MoE tile file (E=...,N=...,device_name=....json)",
        "Those files are for the Triton kernels of BF16, FP8 and INT weights; "
        f"{(target.expert_family or '').upper()} MoE never "
        "reads one.",
        published("nvfp4_no_json", "moe_json_disputed"),
    )


RULE = Rule(id="moe_json", looks_at="tuned MoE files", run=run)
