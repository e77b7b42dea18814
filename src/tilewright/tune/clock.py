"""How long calls take, in few samples: tuning compares thousands of configs, and most are told apart by one look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any, Final

SAMPLE_S: Final = 0.0004
"""GPU time of one sample, at least: events tell 0.5 us apart (CUDA runtime, cudaEventElapsedTime)."""
LEAST_CALLS: Final = 4
MOST_CALLS: Final = 32
GRAPH_BELOW_S: Final = 0.0003
"""Calls that take longer than this are launched one by one: the host is far ahead of the GPU then."""


@dataclass(frozen=True)
class Timing:
    """Seconds a call. `stopped`: given up after one look, because it was beyond the cut-off."""

    median_s: float
    low_s: float
    high_s: float
    samples: int
    stopped: bool = False


class Clock:
    """Times calls on a stream of its own, which graphs are captured on too."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._stream = torch.cuda.Stream()
        self._events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def _span(self, work: Callable[[], Any]) -> float:
        start, end = self._events
        start.record(self._stream)
        work()
        end.record(self._stream)
        end.synchronize()
        return start.elapsed_time(end) / 1e3

    def time(self, calls: Sequence[Callable[[], Any]], samples: int, cutoff_s: float | None = None) -> Timing:
        """Median of `samples`, each of as many calls as fill `SAMPLE_S`; one look where that is beyond `cutoff_s`."""
        torch = self._torch
        with torch.cuda.stream(self._stream):

            def some(count: int) -> None:
                for at in range(count):
                    calls[at % len(calls)]()

            some(1)
            torch.cuda.synchronize()
            each = self._span(lambda: some(1))
            if cutoff_s is not None and each > cutoff_s and each > GRAPH_BELOW_S:
                return Timing(each, each, each, 1, stopped=True)
            if each < GRAPH_BELOW_S:  # short: what was timed may be the host
                graph, count = self._captured(some, each)
                work = graph.replay
                each = self._span(work) / count
                if cutoff_s is not None and each > cutoff_s:
                    return Timing(each, each, each, 1, stopped=True)
            else:
                count = max(1, min(len(calls), round(SAMPLE_S / each)))
                work = partial(some, count)

            found = sorted(self._span(work) / count for _ in range(samples))
            return Timing(median(found), found[0], found[-1], samples)

    def _captured(self, some: Callable[[int], None], each: float) -> tuple[Any, int]:
        torch = self._torch
        count = max(LEAST_CALLS, min(MOST_CALLS, round(SAMPLE_S / max(each, 1e-6))))
        graph = torch.cuda.CUDAGraph()
        # torch.cuda.graph() would collect garbage and empty the allocator's cache before every capture.
        graph.capture_begin()
        try:
            some(count)
        finally:
            graph.capture_end()
        return graph, count
