"""Decode graphs up to batch 512 run out of memory for GLM-5.x on 96 GB cards in SGLang (case 5.18)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.rules.memory_fit import gib
from tilewright.plan.target import Target
from tilewright.versions import within

NEW_NAME_SINCE = ">=0.5.23"
"""SGLang 0.5.23 calls the flag --cuda-graph-max-bs-decode; when the name changed was not read."""
SAFE = 256


def run(target: Target) -> Iterator[Outcome]:
    if target.engine != "sglang" or not target.sm12x or target.model.family != "glm_moe_dsa" or target.parallel.tp < 4:
        return
    if (target.snapshot is not None and target.snapshot.engine is not None) or target.memory.left <= 0:
        return
    new = within(target.engine_version, NEW_NAME_SINCE)
    name = "--cuda-graph-max-bs" if new is False else "--cuda-graph-max-bs-decode"
    other = " (versions before 0.5.23 call it --cuda-graph-max-bs)" if new is None else ""
    yield Draft(
        id="decode_graph_batch",
        title=f"If start-up runs out of memory while it captures graphs: cap them at {SAFE}",
        layer="runtime",
        evidence=[
            *published("decode_graph_bs"),
            Evidence(
                "exact", f"{gib(target.memory.left)} GiB are left for cache and graphs.", "memory table of this plan"
            ),
        ],
        cause="SGLang's default for this card and TP4 or more is graphs up to 512, which do not fit beside these "
        "weights.",
        fix=Fix(f"{name} {SAFE}{other}.", [target.launch(f"{name} {SAFE}")]),
        gain=Gain("the server starts, if it did not", None, None, None, "published"),
        metric="startup",
        confidence=0.6,
        effort_h=0.25,
        risk=f"batches above {SAFE} run without graphs",
        confirm="Capture completes, and the log states free memory after it.",
        undo=f"Remove {name}.",
    )


RULE = Rule(id="graph_memory", looks_at="memory of decode graphs", run=run)
