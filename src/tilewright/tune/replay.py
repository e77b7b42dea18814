"""A fleet that answers from a recorded table instead of a GPU: the search as it is, held against exhaustive runs."""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence

from tilewright.bench.job import Outcome
from tilewright.store.result import key_of
from tilewright.tune.fleet import Done
from tilewright.tune.request import Request

Table = Mapping[str, tuple[float, float]]
"""Key of a config -> seconds of its two GEMMs."""


class ReplayFleet:
    """Answers each request from `tables`, by key of the problem. What is not there is a `resources` fault."""

    left_out: Sequence[str] = ()

    def __init__(self, tables: Mapping[str, Table], width: int = 1) -> None:
        self.done: queue.Queue[Done | BaseException] = queue.Queue()
        self.width = width
        self.asked = 0
        self._tables = tables

    def prepare(self, requests: Sequence[Request]) -> None:
        """Nothing is compiled."""

    def give(self, requests: Sequence[Request], *, together: bool = False) -> None:
        for request in requests:
            self.asked += 1
            times = self._tables[key_of(request.problem)].get(key_of(request.config))
            if times is None:
                outcome = Outcome(status="failed", note="not in the table", figures={"fault": "resources"})
            else:
                up_s, down_s = times
                total = up_s + down_s
                stopped = request.cutoff_s is not None and total > request.cutoff_s
                outcome = Outcome(
                    status="ok", time_s=total, low_s=total, high_s=total, samples=1 if stopped else request.samples,
                    figures={"up_s": up_s, "down_s": down_s}, marks=["stopped"] if stopped else [],
                )  # fmt: skip
            self.done.put(Done(request, outcome, "replay"))

    def close(self) -> None:
        """Nothing is running."""
