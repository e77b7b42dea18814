"""100 % utilisation at a fraction of the power: a kernel that spins on a peer's flag (cases C73, 5.14)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.seen import BUSY_UTILISATION, SPIN_POWER_SHARE, power_share, utilisation, watts
from tilewright.plan.target import Target

_OFF = "--disable-custom-all-reduce"
_VLLM_OFF = "VLLM_ENABLE_PCIE_ALLREDUCE=0"
"""Switches off the one-shot all-reduce of the images in which it never completed (case 5.14)."""


def run(target: Target) -> Iterator[Outcome]:
    snapshot = target.snapshot
    assert snapshot is not None
    busy, power = utilisation(snapshot), power_share(snapshot)
    if target.gpus < 2 or busy is None or power is None or busy < BUSY_UTILISATION or power > SPIN_POWER_SHARE:
        return
    draw, limit = watts(snapshot)
    commands = [
        "git clone https://github.com/NVIDIA/nccl-tests && make -C nccl-tests",
        f"nccl-tests/build/all_reduce_perf -b 4K -e 1M -f 2 -g {target.gpus}",
    ]
    if target.engine in ("sglang", "vllm"):
        commands.append(target.launch(_OFF, env=_VLLM_OFF if target.engine == "vllm" else ""))
    text = f"{busy:.0f} % utilisation at {power * 100:.0f} % of the power limit is waiting in a collective, not work."
    yield Fact("summary", [(1, text)])
    yield Draft(
        id="spin_wait",
        title=f"{busy:.0f} % utilisation at {draw:.0f} of {limit:.0f} W: the GPUs wait for each other",
        layer="system",
        evidence=[
            Evidence(
                "measured",
                f"Median utilisation {busy:.0f} %, power {draw:.0f} of {limit:.0f} W ({power * 100:.0f} %).",
                target.snapshot_source,
            ),
            *published("spin_wait", "decode_power"),
        ],
        cause="NVML counts a kernel that spins on a peer's flag as busy. Tensor cores or memory at work draw far more "
        "than this; what runs is the wait inside a collective.",
        fix=Fix(
            "Time the all-reduce alone: a few kilobytes take about 25 us on eight healthy RTX PRO 6000 with NCCL. If "
            "it is slow, the path between the GPUs is at fault (P2P, ACS, IOMMU, NUMA); if it is fast, switch the "
            "engine's own all-reduce off and compare.",
            commands,
        ),
        gain=Gain("decode tok/s, %", 0.0, 60.0, 120.0, "published"),
        metric="health",
        confidence=0.6,
        effort_h=3.0,
        confirm="Power rises and time a token falls with the all-reduce replaced; nsys shows the wait gone.",
        undo="Start the server with its former flags and environment.",
    )


RULE = Rule(id="spin_wait", looks_at="GPUs that spin in a collective", run=run, needs=("observe",))
