"""Decode context parallelism: more KV cache for less speed (case C90)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.models.records import Mla
from tilewright.plan.evidence import published
from tilewright.plan.finding import Outcome, Rejected
from tilewright.plan.modelled import pays_from
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target


def run(target: Target) -> Iterator[Outcome]:
    kv = target.memory.kv
    if target.engine != "vllm" or not isinstance(target.model.attention, Mla) or target.parallel.tp < 2 or kv is None:
        return
    many = pays_from(target, "dcp")
    if many == 1:
        return
    beyond = f" From {many} requests on predictions favour it, because more of them fit: compare there." if many else ""
    yield Rejected(
        f"Decode context parallelism (-dcp) for speed{' at few requests' if many else ''}",
        f"It divides the KV cache, which every rank holds whole ({kv.per_token:,} bytes a token), and adds "
        "collectives to each layer: more tokens fit, each comes slower. Use it when context does not fit, not to go "
        f"faster.{beyond}",
        published("dcp_trade"),
    )


RULE = Rule(id="context_parallel", looks_at="decode context parallelism", run=run)
