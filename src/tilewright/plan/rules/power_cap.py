"""GPUs held by their power limit: what lifting it would bring, and where it would bring nothing."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.seen import AT_CAP_SHARE, middle, power_share, reasons, watts
from tilewright.plan.target import Target

FEW_REQUESTS = 4
"""Up to here the published sweep gained about 0 % from 300 to 500 W (evidence entry power_cap)."""


def run(target: Target) -> Iterator[Outcome]:
    snapshot = target.snapshot
    assert snapshot is not None
    draw, limit = watts(snapshot)
    most = middle(gpu.power_limit_max_w for gpu in snapshot.gpus) or target.gpu.value("power_limit_max_w")
    if draw is None or limit is None or not isinstance(most, int | float):
        return
    if limit >= AT_CAP_SHARE * most:
        if draw >= AT_CAP_SHARE * limit:
            text = f"The GPUs draw {draw:.0f} of {limit:.0f} W, the highest limit of this part: power holds the clock."
            yield Fact("summary", [(35, text)])
        return
    capped = "sw_power_cap" in reasons(snapshot) or (power_share(snapshot) or 0) >= AT_CAP_SHARE
    seen = Evidence(
        "measured",
        f"{draw:.0f} W drawn, limit {limit:.0f} W, highest limit of this part {most:.0f} W"
        + (", held by the limit." if capped else ", not held by it."),
        target.snapshot_source,
    )
    running = snapshot.metrics.running
    if not capped or (running is not None and running <= FEW_REQUESTS):
        why = (
            "The GPUs do not reach the limit they have."
            if not capped
            else f"With {running:.0f} requests running decode waits for memory and links, not for the SM clock."
        )
        yield Rejected(f"Raise the power limit from {limit:.0f} to {most:.0f} W", why, [seen, *published("power_cap")])
        return
    yield Draft(
        id="power_cap",
        title=f"The power limit of {limit:.0f} W holds the clocks down",
        layer="system",
        evidence=[seen, *published("power_cap", "decode_power")],
        cause="Prefill and large decode batches are limited by the tensor cores, whose clock follows the power limit.",
        fix=Fix(
            f"Raise the limit if cooling and supply allow it; the part takes up to {most:.0f} W.",
            [f"sudo nvidia-smi -pl {most:.0f}"],
        ),
        gain=Gain("decode tok/s at 64 and more requests, %", 0.0, 10.0, 29.0, "published"),
        confidence=0.5,
        effort_h=0.5,
        risk="more heat and power: check the supply first",
        confirm="Clocks rise under load (`nvidia-smi --query-gpu=clocks.sm,power.draw --format=csv -l 1`), tok/s "
        "with them.",
        undo=f"`sudo nvidia-smi -pl {limit:.0f}`",
    )


RULE = Rule(id="power_cap", looks_at="whether a power limit costs speed", run=run, needs=("observe",))
