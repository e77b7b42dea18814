"""Timing calls on the GPU: cold L2, one CUDA graph of many calls where they can be captured, medians.

A kernel's time means nothing while its weights lie in L2 from the call before: calls go round over copies of the
weights, more of them than L2 holds. A graph leaves out what Python costs between launches, as an engine does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tilewright.bench.stats import Summary, sample, summarise

COLD_BYTES: Final = 260_000_000
"""Bytes touched between two uses of the same weights: four times the 63 MB of an H200's L2, twice a B200's 126."""
COLD_TIMES: Final = 2
"""Bytes between two uses of the same weights over the size of L2, at least, where memory or MOST_COPIES allow no
more."""
MOST_COPIES: Final = 256
"""Copies beyond which preparing them takes longer than timing them. Weights so small that this leaves them in L2 are
marked (`bench/work.py`)."""
GRAPH_CALLS: Final = 24
"""Calls in one graph, at least: launching the graph costs microseconds, which this divides."""
EVENT_S: Final = 0.002
"""Time between two events, at least: a hundred times what starting one call costs."""
WARM_CALLS: Final = 3
BUDGET_S: Final = 2.0
"""Time for one figure, after warm-up."""
WARM_S: Final = 0.1
"""The GPU works this long before the first sample: an idle one needs tens of milliseconds to raise its clocks."""
LOOK_S: Final = 0.25
"""How often the state of the GPU is looked at between samples: throttling can come and go within one figure."""

Call = Callable[[], Any]


def copies_for(touched: int, free: int, each: int) -> int:
    """How many copies of weights a measurement goes round over.

    `touched`: bytes of weights that one call reads, `each`: bytes of a whole copy, `free`: memory for them.
    """
    wanted = min(MOST_COPIES, max(2, -(-COLD_BYTES // max(1, touched))))
    return max(1, min(wanted, free // max(1, each)))


class GraphClock:
    """Seconds a call, from a CUDA graph of all of `calls`, each as often as makes GRAPH_CALLS of them."""

    graph = True

    def __init__(self, torch: Any, calls: Sequence[Call]) -> None:
        self._torch = torch
        rounds = -(-GRAPH_CALLS // len(calls))
        self.calls = rounds * len(calls)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_CALLS):
                for call in calls:
                    call()
        torch.cuda.current_stream().wait_stream(stream)
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for _ in range(rounds):
                for call in calls:
                    call()
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.once()

    def once(self) -> float:
        self._start.record()
        self._graph.replay()
        self._end.record()
        self._end.synchronize()
        return self._start.elapsed_time(self._end) / 1e3 / self.calls


class EventClock:
    """Seconds a call, between two events around as many calls in turn as take EVENT_S: for what cannot be captured.

    One call alone would be charged with what starting it costs the host; of several, only the first is.
    """

    graph = False

    def __init__(self, torch: Any, calls: Sequence[Call]) -> None:
        self._torch, self._calls, self._next = torch, calls, 0
        for call in calls[: max(1, WARM_CALLS)]:
            call()
        torch.cuda.synchronize()
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self.calls = 1
        self.calls = max(1, min(GRAPH_CALLS, math.ceil(EVENT_S / max(self.once(), EVENT_S / GRAPH_CALLS))))

    def once(self) -> float:
        self._start.record()
        for _ in range(self.calls):
            self._calls[self._next % len(self._calls)]()
            self._next += 1
        self._end.record()
        self._end.synchronize()
        return self._start.elapsed_time(self._end) / 1e3 / self.calls


def _nothing() -> None:
    return None


def measure(
    torch: Any,
    calls: Sequence[Call],
    *,
    graph: bool = True,
    budget_s: float = BUDGET_S,
    observe: Callable[[], None] = _nothing,
) -> tuple[Summary, bool]:
    """(seconds a call, whether a graph was used) of `calls`: the same work on different copies of its weights.

    `observe` is called when the GPU is warm, before the first sample, every LOOK_S between samples, and right after the
    last one. Raises what a call raises when it cannot run at all.
    """
    clock: GraphClock | EventClock
    if graph:
        try:
            clock = GraphClock(torch, calls)
        except RuntimeError:  # it allocates, synchronises or uses another stream: no graph, then
            torch.cuda.synchronize()
            clock = EventClock(torch, calls)
    else:
        clock = EventClock(torch, calls)
    end = time.monotonic() + WARM_S
    while time.monotonic() < end:
        clock.once()
    observe()
    samples = sample(watched(clock.once, observe), budget_s=budget_s, now=time.monotonic)
    observe()
    return summarise(samples), clock.graph


def watched(once: Callable[[], float], observe: Callable[[], None]) -> Callable[[], float]:
    """`once`, with `observe` called after it where the last look is LOOK_S ago."""
    last = time.monotonic()

    def taken() -> float:
        nonlocal last
        seconds = once()
        if time.monotonic() - last >= LOOK_S:
            observe()
            last = time.monotonic()
        return seconds

    return taken
