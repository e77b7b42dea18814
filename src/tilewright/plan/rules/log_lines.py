"""Known lines of the server's log: what they mean, counted."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.finding import Fact, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target


def run(target: Target) -> Iterator[Outcome]:
    assert target.log is not None
    yield Fact(
        "log",
        [
            {
                "id": hit.rule.id,
                "says": hit.rule.says,
                "count": hit.count,
                "first_line": hit.first_line,
                "text": hit.text,
                "figures": hit.figures,
                "kernels": hit.kernels,
                "source": hit.rule.source,
            }
            for hit in sorted(target.log.values(), key=lambda hit: hit.first_line)
        ],
    )


RULE = Rule(id="log_lines", looks_at="failing tactics, missing files and fallbacks", run=run, needs=("log",))
