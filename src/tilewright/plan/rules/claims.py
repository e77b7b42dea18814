"""Wrong claims that the reader of this plan will meet, each refuted with figures computed now."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.claims import refuted
from tilewright.plan.finding import Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target


def run(target: Target) -> Iterator[Outcome]:
    yield from refuted(target.reader)


RULE = Rule(id="claims", looks_at="claims that circulate", run=run)
