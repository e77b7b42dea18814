"""What the snapshot shows, in one row: power, clocks, utilisation, links, load."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.finding import Fact, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.seen import clock_share, middle, power_share, reasons, utilisation, watts
from tilewright.plan.target import Target


def _rounded(value: float | None, digits: int = 1) -> float | None:
    return None if value is None else round(value, digits)


def run(target: Target) -> Iterator[Outcome]:
    snapshot = target.snapshot
    assert snapshot is not None
    draw, limit = watts(snapshot)
    power, clock, metrics = power_share(snapshot), clock_share(snapshot), snapshot.metrics
    yield Fact(
        "snapshot",
        {
            "taken_at": snapshot.taken_at,
            "gpus": len(snapshot.gpus),
            "power_draw_w": _rounded(draw),
            "power_limit_w": _rounded(limit),
            "power_share_pct": _rounded(power * 100 if power is not None else None),
            "clock_share_pct": _rounded(clock * 100 if clock is not None else None),
            "sm_clock_mhz": _rounded(middle(gpu.clock_sm_mhz for gpu in snapshot.gpus), 0),
            "utilization_gpu_pct": _rounded(utilisation(snapshot)),
            "throttle_reasons": reasons(snapshot),
            "running": metrics.running,
            "waiting": metrics.waiting,
            "kv_usage_pct": _rounded(metrics.kv_usage * 100 if metrics.kv_usage is not None else None),
            "generation_tok_s": metrics.generation_tok_s,
            "source": target.snapshot_source,
        },
    )


RULE = Rule(id="snapshot_facts", looks_at="power, clocks and load now", run=run, needs=("observe",))
