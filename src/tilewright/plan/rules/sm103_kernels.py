"""SM103 (B300, GB300) taken for SM100 by SGLang (case C61)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target


def run(target: Target) -> Iterator[Outcome]:
    if target.gpu.arch != "sm103" or target.engine != "sglang" or target.expert_family not in ("nvfp4", "mxfp4"):
        return
    yield Draft(
        id="sm103_as_sm100",
        title="Check that the MoE kernel is an SM103 one, not the Marlin fallback",
        layer="library",
        evidence=published("sm103_as_sm100"),
        cause="Kernels prebuilt for sm_100a do not load on SM103; where no sm_103a variant exists the engine falls "
        "back.",
        fix=Fix(
            "Use a version with SGLang pull request 34360, and name the backend instead of auto.",
            [target.launch("--moe-runner-backend flashinfer_cutlass")],
        ),
        gain=Gain("decode tok/s, %", 0.0, 25.0, 83.0, "published"),
        confidence=0.4,
        effort_h=1.0,
        confirm="The log names the backend, and nsys shows no Marlin kernel.",
        undo="Remove --moe-runner-backend.",
    )


RULE = Rule(id="sm103_kernels", looks_at="kernels for SM103", run=run)
