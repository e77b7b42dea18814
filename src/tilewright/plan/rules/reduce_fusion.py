"""FlashInfer's all-reduce fusion flags on a GPU that they do not serve (case C87)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.seen import flag
from tilewright.plan.target import Target

FLAGS = ("--enable-flashinfer-allreduce-fusion", "--flashinfer-allreduce-fusion-backend")


def run(target: Target) -> Iterator[Outcome]:
    if target.engine != "sglang" or not target.sm12x or target.parallel.tp < 2:
        return
    on = [name for name in FLAGS if flag(target.snapshot, name) not in (None, False)]
    if not on:
        yield Rejected(
            "--enable-flashinfer-allreduce-fusion",
            f"It serves SM90 and SM10x; {target.one_gpu} is {target.gpu.arch.upper()}.",
            published("fi_fusion_sm120"),
        )
        return
    yield Draft(
        id="reduce_fusion_off",
        title=f"Remove {on[0]}: it does not serve {target.gpu.arch.upper()}",
        layer="runtime",
        evidence=[
            Evidence("measured", f"The server was started with {on[0]}.", target.snapshot_source),
            *published("fi_fusion_sm120"),
        ],
        cause="The fused kernels assume NVLink or multicast; here they are skipped, or run slower than NCCL.",
        fix=Fix("Start without the flag.", []),
        gain=Gain("decode tok/s, %", 0.0, 5.0, 14.0, "published"),
        confidence=0.5,
        effort_h=0.25,
        confirm="tok/s at one request, before and after.",
        undo=f"{on[0]}",
    )


RULE = Rule(id="reduce_fusion", looks_at="all-reduce fusion flags", run=run)
