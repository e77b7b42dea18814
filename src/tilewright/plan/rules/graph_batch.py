"""More requests running than the largest captured CUDA graph holds (case 5.21)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.seen import flag
from tilewright.plan.target import Target

_FLAGS: dict[str, tuple[str, ...]] = {
    "sglang": ("--cuda-graph-max-bs-decode", "--cuda-graph-max-bs"),
    "vllm": ("--max-cudagraph-capture-size",),
}


def run(target: Target) -> Iterator[Outcome]:
    snapshot = target.snapshot
    assert snapshot is not None
    names = _FLAGS.get(target.engine)
    if names is None:
        return
    largest, running = flag(snapshot, *names), snapshot.metrics.running
    if isinstance(largest, bool) or not isinstance(largest, int | float) or running is None or running <= largest:
        return
    yield Draft(
        id="graph_batch",
        title=f"{running:.0f} requests run, the largest captured graph holds {largest:.0f}",
        layer="runtime",
        evidence=[
            Evidence("measured", f"{names[0]} {largest:.0f}, {running:.0f} running.", target.snapshot_source),
            *published("graph_list_short"),
        ],
        cause="A batch above the largest captured size is launched kernel by kernel from the host.",
        fix=Fix("Capture graphs up to the batch that really runs.", [f"{names[0]} {int(running)}"]),
        gain=Gain("decode tok/s at this batch, %", 10.0, 50.0, 240.0, "published"),
        confidence=0.8,
        effort_h=0.5,
        risk="each captured size takes memory and start-up time",
        confirm="The engine's cuda-graph metric says that graphs are used at this batch; tok/s rises.",
        undo=f"{names[0]} {largest:.0f}",
    )


RULE = Rule(id="graph_batch", looks_at="batches above the captured CUDA graphs", run=run, needs=("observe",))
