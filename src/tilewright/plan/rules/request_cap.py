"""Requests that wait while KV cache is free: a cap on running requests is in the way."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.seen import flag
from tilewright.plan.target import Target

FREE_KV = 0.5
"""KV use below which a waiting queue is not explained by memory."""

_FLAG = {"sglang": "--max-running-requests", "vllm": "--max-num-seqs"}


def run(target: Target) -> Iterator[Outcome]:
    snapshot = target.snapshot
    assert snapshot is not None
    metrics = snapshot.metrics
    if not metrics.waiting or metrics.running is None or metrics.kv_usage is None or metrics.kv_usage >= FREE_KV:
        return
    name = _FLAG.get(target.engine)
    if name is None:
        return
    now = flag(snapshot, name)
    wanted = int(metrics.running + metrics.waiting)
    # As many requests as the cache holds at today's length each; a cache that is next to empty sets no bound.
    bounded = metrics.running < wanted * metrics.kv_usage
    room = int(metrics.running / metrics.kv_usage) if bounded else wanted
    value = max(int(metrics.running) + 1, min(wanted, room))
    yield Draft(
        id="request_cap",
        title=f"{metrics.waiting:.0f} requests wait while {100 - metrics.kv_usage * 100:.0f} % of the KV cache is free",
        layer="runtime",
        evidence=[
            Evidence(
                "measured",
                f"{metrics.running:.0f} running, {metrics.waiting:.0f} waiting, KV use {metrics.kv_usage * 100:.0f} %"
                + (f", {name} {now}." if now is not None else "."),
                target.snapshot_source,
            ),
            *published("driving_case_flags"),
        ],
        cause="Decode reads the same weights for 8 requests as for 16, so each request more is nearly free until "
        "memory "
        f"or compute fills up; {name} keeps them out.",
        fix=Fix(
            f"Set {name} to {value}: what runs and waits now, held to what the KV cache has room for at the present "
            "length. Keep the captured CUDA graphs at least as large.",
            [f"{name} {value}"],
        ),
        gain=Gain("decode tok/s, all requests together, %", 5.0, 28.0, 60.0, "published"),
        confidence=0.7,
        effort_h=0.5,
        risk="time a token of each request rises; longer requests may be preempted",
        confirm="waiting falls towards 0, generation tok/s rises, no preemptions.",
        undo=f"{name} {now}" if now is not None else f"Remove {name}.",
    )


RULE = Rule(id="request_cap", looks_at="requests that wait although there is room", run=run, needs=("observe",))
