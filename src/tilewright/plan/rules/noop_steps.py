"""`--num-continuous-decode-steps` in SGLang: declared, read by nothing (case C75, claim W13)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.evidence import entries
from tilewright.plan.finding import Evidence, Outcome, Rejected
from tilewright.plan.registry import Rule
from tilewright.plan.seen import flag
from tilewright.plan.target import Target


def run(target: Target) -> Iterator[Outcome]:
    entry = entries()["continuous_decode_steps"]
    holds = entry.holds(target.engine, target.engine_version)
    if target.engine != "sglang" or holds is False:
        return
    value = flag(target.snapshot, "--num-continuous-decode-steps")
    here = f" Your server sets it to {value}." if value is not None else ""
    which = f"SGLang {target.engine_version}" if target.engine_version else "SGLang 0.5.x (no version was given)"
    yield Rejected(
        "Raise --num-continuous-decode-steps",
        f"It does nothing in {which}.{here}",
        [entry.evidence] + ([Evidence("measured", here.strip(), target.snapshot_source)] if value is not None else []),
    )


RULE = Rule(id="noop_steps", looks_at="flags that do nothing", run=run)
