"""The wrong dense NVFP4 kernel in a window of vLLM versions on SM12x (case 5.8)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import entries
from tilewright.plan.finding import Draft, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

VARIABLE = "VLLM_DISABLED_KERNELS"


def run(target: Target) -> Iterator[Outcome]:
    dense = any(target.component_formats.get(part) == "nvfp4" for part in ("shared_experts", "dense_mlp", "attention"))
    if target.engine != "vllm" or not target.sm12x or not dense:
        return
    entry = entries()["dense_w4a16_window"]
    holds = entry.holds("vllm", target.engine_version)
    env = target.snapshot.engine.env if target.snapshot and target.snapshot.engine else {}
    if holds is False or VARIABLE in env:
        return
    yield Draft(
        id="dense_w4a16_kernel",
        title="Keep vLLM from the W4A16 kernel for dense NVFP4 layers"
        if holds
        else "Check which kernel vLLM uses for dense NVFP4 layers",
        layer="library",
        evidence=[entry.evidence],
        cause="In these versions the order of NVFP4 linear kernels put a weight-only kernel, not tuned for SM12x, "
        "before "
        "CUTLASS.",
        fix=Fix(
            "Disable it by name, or move to a version after 0.29.0.",
            [f"export {VARIABLE}=FlashInferCuteDslNvFp4W4A16LinearKernel"],
        ),
        gain=Gain("prefill tok/s, %", 0.0, 25.0, 41.0, "published"),
        metric="prefill",
        confidence=0.7 if holds else 0.1,
        effort_h=0.25,
        numerics="changes: W4A16 -> W4A4 in dense layers, as the checkpoint was calibrated for",
        confirm="The log names a CUTLASS NVFP4 linear kernel; prefill tok/s rises, decode stays.",
        undo=f"`unset {VARIABLE}`",
    )


RULE = Rule(id="linear_kernel", looks_at="dense NVFP4 kernels", run=run)
