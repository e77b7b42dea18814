"""More requests at once: what the published table says, and what the KV cache has room for."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan import modelled
from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.tables import concurrency, short_context
from tilewright.plan.target import Target

CONTEXT = 8192
"""Tokens of context that the proposed number of requests has room for; a user with longer ones lowers it."""
_FLAG = {"sglang": "--max-running-requests", "vllm": "--max-num-seqs"}


def run(target: Target) -> Iterator[Outcome]:
    name = _FLAG.get(target.engine)
    item = concurrency(target)
    if name is None or item is None or target.memory.kv is None:
        return
    if target.snapshot is not None and target.snapshot.metrics.running is not None:
        return  # the rule request_cap looks at what really waits
    rows = short_context(item)
    most = max(rows)
    served = modelled.memory(target)
    room = served.requests(CONTEXT) if served is not None and served.fits else target.memory.sequences(CONTEXT)
    tokens = served.kv_tokens if served is not None and served.fits else target.memory.tokens
    value = min(most, room)
    if value < 2:
        return
    text = ", ".join(f"{tok:,.1f} at {requests}" for requests, tok in sorted(rows.items()))
    yield Draft(
        id="more_requests",
        title=f"Let up to {value} requests of {CONTEXT:,} tokens each run together",
        layer="runtime",
        evidence=[
            Evidence(
                "published",
                f"{target.model.key} on {target.gpu_title}, tok/s by requests: {text}.",
                f"packaged measurement {item.id} ({item.date})",
            ),
            Evidence(
                "modelled",
                f"{tokens:,} KV tokens are left a GPU: {room:,} requests of {CONTEXT:,} tokens.",
                "memory table of this plan",
            ),
            *_drafting(target, room),
            *published("driving_case_flags"),
        ],
        cause="A step reads the same weights for 8 requests as for 16 and waits for the same all-reduces; a cap on "
        "running requests leaves that unused.",
        fix=Fix(
            f"Set {name} to what the KV cache has room for at your context length, and capture CUDA graphs as far.",
            [target.launch(f"{name} {value}")],
        ),
        gain=Gain("decode tok/s, all requests together, %", 0.0, 28.0, 100.0, "published"),
        confidence=0.5,
        effort_h=0.5,
        risk="each request gets slower; only worth it while requests wait",
        confirm="Fewer waiting requests and more tok/s in the metrics under your real load, no preemptions.",
        undo=f"Restore the former {name}.",
    )


def _drafting(target: Target, room: int) -> list[Evidence]:
    """How many requests there is room for while the server drafts, where that is another number."""
    if not target.model.checkpoint.has_mtp:
        return []
    held = modelled.drafting_memory(target)
    count = held.requests(CONTEXT) if held is not None and held.fits and held.cache is not None else room
    if count >= room or count < 1:
        return []
    text = f"With multi-token prediction on, its layers and their cache leave room for {count:,} of them."
    return [Evidence("modelled", text, "tilewright layout")]


RULE = Rule(id="concurrency", looks_at="how many requests run together", run=run)
