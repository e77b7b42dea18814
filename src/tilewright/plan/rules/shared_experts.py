"""SGLang fuses shared experts into the routed ones; where their formats differ it fails to load (case 5.18)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.seen import flag
from tilewright.plan.target import Target

NAME = "--disable-shared-experts-fusion"


def run(target: Target) -> Iterator[Outcome]:
    moe = target.model.moe
    formats = target.component_formats
    shared, routed = formats.get("shared_experts"), formats.get("experts_w13")
    in_log = target.log is not None and "shared_expert_shape" in target.log
    glm = target.model.family.startswith("glm")
    if target.engine != "sglang" or moe is None or not moe.shared_inter or shared == routed or not (glm or in_log):
        return
    if flag(target.snapshot, NAME):
        return
    running = target.snapshot is not None and target.snapshot.engine is not None
    if running and not in_log:
        return  # the server runs: whatever it does with shared experts works
    line = target.log["shared_expert_shape"] if target.log and in_log else None
    yield Draft(
        id="shared_experts_fusion",
        title=f"Start with {NAME}: shared experts are {shared}, routed ones {routed}",
        layer="runtime",
        evidence=[
            Evidence(
                "exact",
                f"{target.model.checkpoint.name} stores shared experts as {shared} and routed experts as {routed}.",
                "the checkpoint's own lists of quantised modules",
            ),
            *([Evidence("measured", f"Line {line.first_line}: {line.quoted}", target.log_source)] if line else []),
            *published("shared_experts_fusion"),
        ],
        cause="The fusion appends the shared expert to the routed ones, whose packed rows have "
        f"{target.model.hidden // 2} "
        f"bytes where {shared} has {target.model.hidden} elements.",
        fix=Fix("Switch the fusion off.", [target.launch(NAME)]),
        gain=Gain("the server starts", None, None, None, "published"),
        metric="runs",
        confidence=0.9 if line else 0.7,
        effort_h=0.25,
        confirm="The weights load without a shape error.",
        undo=f"Remove {NAME} once your version handles mixed formats.",
    )


RULE = Rule(id="shared_experts", looks_at="shared experts in another format", run=run)
