"""Low power at low clocks and no throttle reason: the GPUs wait for work. That is not throttling."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.seen import (
    BUSY_UTILISATION,
    LOW_CLOCK_SHARE,
    LOW_POWER_SHARE,
    clock_share,
    power_share,
    reasons,
    utilisation,
    watts,
)
from tilewright.plan.target import Target

IDLE_UTILISATION = 5.0
"""Per cent of the time busy below which a GPU has no work at all, rather than gaps between kernels."""
_HARMLESS = {"gpu_idle", "applications_clocks_setting", "display_clock_setting"}


def run(target: Target) -> Iterator[Outcome]:
    snapshot = target.snapshot
    assert snapshot is not None
    power, clock, busy = power_share(snapshot), clock_share(snapshot), utilisation(snapshot)
    if power is None or power >= LOW_POWER_SHARE or set(reasons(snapshot)) - _HARMLESS:
        return
    draw, limit = watts(snapshot)
    text = f"{draw:.0f} of {limit:.0f} W"
    if clock is not None:
        text += f", SM clock at {clock * 100:.0f} % of its highest"
    if busy is not None:
        text += f", utilisation {busy:.0f} %"
    seen = Evidence("measured", f"{text}; no throttle reason.", target.snapshot_source)
    if clock is None or clock >= LOW_CLOCK_SHARE or (busy is not None and busy >= BUSY_UTILISATION):
        said = f"{text} and no throttle reason: power and heat hold nothing back."
        if clock is not None and clock < LOW_CLOCK_SHARE:
            said += (
                " A low clock on a busy GPU is a lock or a policy: see the clocks that `nvidia-smi -q -d CLOCK` "
                "says were asked for, and `nvidia-smi -rgc` takes a lock off."
            )
        yield Fact("summary", [(40, said)])
        yield Rejected(
            "Look for throttling, better cooling or a higher power limit",
            f"The GPUs draw {text} and nothing throttles them: they are not held back by power or heat. Decode waits "
            "for memory, links and launches, which draw less than tensor cores at work.",
            [seen],
        )
        return
    running = snapshot.metrics.running
    idle = "gpu_idle" in reasons(snapshot) or (busy is not None and busy < IDLE_UTILISATION)
    no_load = running < 1 if running is not None else idle
    yield Draft(
        id="starved",
        title="The GPUs have clocked down for want of work",
        layer="runtime",
        evidence=[seen]
        + (
            [Evidence("measured", f"{running:.0f} requests running.", target.snapshot_source)]
            if running is not None
            else []
        ),
        cause="Low power at low clocks without a throttle reason means that the GPUs wait: for requests, for the host "
        "between steps, or for a peer. It is not throttling.",
        fix=Fix(
            "Take the snapshot under load: it shows an idle server."
            if no_load
            else "Look at the host first: a CPU-bound scheduler, no CUDA graphs at this batch size, or too few "
            "requests. A timeline shows the gaps between steps.",
            [] if no_load else ["nsys profile -t cuda,nvtx -d 10 -o decode --attach PID_OF_THE_SERVER"],
        ),
        # What the gaps cost depends on the host alone: nothing published says, and a snapshot does not show it.
        gain=Gain("decode tok/s", None, None, None, "modelled"),
        confidence=0.4,
        effort_h=2.0,
        confirm="Clock and power rise under the same load, tok/s with them.",
        undo="Nothing to undo.",
    )


RULE = Rule(id="starved", looks_at="power and clock headroom", run=run, needs=("observe",))
