"""Timing without a GPU: a stand-in for torch's events and graphs that counts what a call costs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tilewright.bench import timing
from tilewright.bench.problem import GemmProblem
from tilewright.bench.work import cold, copies_of


class Clock:
    """A torch whose GPU takes `call_s` a call and `start_s` once between two events; graphs can be refused."""

    def __init__(self, call_s: float, start_s: float, *, graphs: bool = True) -> None:
        self.now, self.call_s, self.start_s, self.graphs = 0.0, call_s, start_s, graphs
        self.cuda = self
        clock = self

        class Event:
            def __init__(self, enable_timing: bool = False) -> None:
                self.at = 0.0

            def record(self) -> None:
                clock.now += clock.start_s / 2
                self.at = clock.now

            def synchronize(self) -> None:
                return None

            def elapsed_time(self, other: Event) -> float:
                return (other.at - self.at) * 1e3

        class Stream:
            def wait_stream(self, _: object) -> None:
                return None

            def __enter__(self) -> Stream:
                return self

            def __exit__(self, *_: object) -> None:
                return None

        class Graph:
            calls = 0

            def replay(self) -> None:
                clock.now += self.calls * clock.call_s

        self.Event, self.Stream, self.CUDAGraph = Event, Stream, Graph
        self.recording: Any = None

    def current_stream(self) -> Any:
        return self.Stream()

    def stream(self, stream: Any) -> Any:
        return stream

    def synchronize(self) -> None:
        return None

    def graph(self, graph: Any) -> Any:
        if not self.graphs:
            raise RuntimeError("operation not permitted when stream is capturing")
        clock = self

        class Capture:
            def __enter__(self) -> None:
                clock.recording = graph

            def __exit__(self, *_: object) -> None:
                clock.recording = None

        return Capture()

    def call(self) -> None:
        if self.recording is not None:
            self.recording.calls += 1
        else:
            self.now += self.call_s


@pytest.fixture(autouse=True)
def _no_warming(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "WARM_S", 0.0)


def test_a_graph_is_divided_by_its_calls() -> None:
    clock = Clock(10e-6, 4e-6)
    summary, graph = timing.measure(clock, [clock.call] * 5)
    assert graph
    assert summary.median_s == pytest.approx(10e-6, rel=0.02)
    assert summary.samples >= 9


def test_what_cannot_be_captured_is_timed_over_many_calls() -> None:
    """16 us a call and 12 to start one: timed alone it would look like 28."""
    clock = Clock(16e-6, 12e-6, graphs=False)
    summary, graph = timing.measure(clock, [clock.call] * 5)
    assert not graph
    assert summary.median_s == pytest.approx(16e-6, rel=0.05)


def test_a_long_call_is_timed_alone() -> None:
    clock = Clock(5e-3, 0.0)
    taken = timing.EventClock(clock, [clock.call])
    assert taken.calls == 1
    assert taken.once() == pytest.approx(5e-3)


def test_the_gpu_is_looked_at_between_samples_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples of 0.1 s: a look every 0.25 s is one after every third."""
    now = 0.0

    def once() -> float:
        nonlocal now
        now += 0.1
        return now

    looks: list[float] = []
    monkeypatch.setattr(timing, "time", SimpleNamespace(monotonic=lambda: now))
    taken = timing.watched(once, lambda: looks.append(now))
    assert [taken() for _ in range(9)] == pytest.approx([0.1 * (i + 1) for i in range(9)])
    assert looks == pytest.approx([0.3, 0.6, 0.9])


def test_l2_is_cold_or_the_figure_says_that_it_is_not() -> None:
    """An H200 has 63 MB of L2 by torch's count."""

    def torch(l2: int) -> Any:
        return SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda _: SimpleNamespace(L2_cache_size=l2)))

    large, small, tiny = (GemmProblem(m=1, n=rows, k=4096) for rows in (8192, 512, 16))
    memory = 10**11
    assert cold(torch(62_914_560), large, copies_of(large, memory), 0)
    assert cold(torch(62_914_560), small, copies_of(small, memory), 0)  # 4 MB each
    assert not cold(torch(62_914_560), tiny, copies_of(tiny, memory), 0)  # 256 x 131 KB are 34 MB
    assert not cold(torch(62_914_560), large, 1, 0)  # no memory for a second copy
    assert not cold(torch(0), tiny, 256, 0)
