"""Decode context parallelism: more KV cache for less speed (case C90)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.models.records import Mla
from tilewright.plan.evidence import published
from tilewright.plan.finding import Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target


def run(target: Target) -> Iterator[Outcome]:
    kv = target.memory.kv
    if target.engine != "vllm" or not isinstance(target.model.attention, Mla) or target.parallel.tp < 2 or kv is None:
        return
    yield Rejected(
        "Decode context parallelism (-dcp) for speed",
        f"It divides the KV cache, which every rank holds whole ({kv.per_token:,} bytes a token), and adds "
        "collectives to each "
        "layer: more tokens fit, each comes slower. Use it when context does not fit, not to go faster.",
        published("dcp_trade"),
    )


RULE = Rule(id="context_parallel", looks_at="decode context parallelism", run=run)
