"""Samples and what they say, and what spoils a figure."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.bench.environment import Reading, figures, marks
from tilewright.bench.problem import CopyProblem, GemmProblem, MoeProblem, check, kind_of, memory_bytes, weight_bytes
from tilewright.bench.stats import LEAST, MOST, half_width, percentile, sample, summarise
from tilewright.errors import InputError

times = st.lists(st.floats(1e-7, 1.0), min_size=1, max_size=60)


@given(times)
def test_a_summary_is_ordered(samples: list[float]) -> None:
    said = summarise(samples)
    assert min(samples) <= said.low_s <= said.median_s <= said.high_s <= max(samples)
    assert said.samples == len(samples)
    assert said.half_width >= 0


def test_percentiles_interpolate() -> None:
    assert percentile([0.0, 1.0, 2.0, 3.0, 4.0], 0.1) == pytest.approx(0.4)
    assert percentile([5.0], 0.9) == 5.0


def test_the_interval_of_a_median_narrows_with_samples_and_vanishes_without_noise() -> None:
    noise = [1 + 0.01 * (i % 10) for i in range(400)]
    assert half_width(noise) < half_width(noise[:20])
    assert half_width([1.0] * 9) == 0


def test_quiet_measurements_stop_early_and_noisy_ones_go_on() -> None:
    def clock() -> float:
        return 0.0

    assert len(sample(lambda: 1.0, budget_s=1e9, now=clock)) == LEAST
    wild = (1 + i * 0.618 % 1 for i in itertools.count())
    assert len(sample(lambda: next(wild), budget_s=1e9, now=clock)) == MOST


def test_a_budget_ends_it_but_never_before_there_is_a_median() -> None:
    ticks = itertools.count(0.0, 100.0)
    wild = itertools.cycle([1.0, 2.0])
    assert len(sample(lambda: next(wild), budget_s=1.0, now=lambda: next(ticks))) == LEAST


def reading(**change: object) -> Reading:
    base: dict[str, object] = {
        "sm_mhz": 1980, "mem_mhz": 3201, "power_w": 400.0, "temperature_c": 50, "reasons": 0, "processes": 1,
    }  # fmt: skip
    return Reading(**{**base, **change})  # type: ignore[arg-type]


def test_what_spoils_a_figure_is_marked() -> None:
    assert marks([reading(), reading()]) == []
    assert marks([reading(), reading(processes=2)]) == ["shared gpu"]
    assert marks([reading(reasons=0x40), reading()]) == ["throttled: heat (hardware)"]
    assert marks([reading(reasons=0x4)]) == ["at the power limit"]
    assert marks([reading(), reading(sm_mhz=1500)]) == ["clocks moved"]
    assert marks([reading(), reading(sm_mhz=1500), reading()]) == ["clocks moved"]  # down and up again in between
    assert marks([reading(), reading(sm_mhz=1965)]) == []
    assert marks([reading(processes=None, sm_mhz=None)]) == []


def test_figures_of_a_run() -> None:
    told = figures([reading(power_w=300.0), reading(power_w=500.0, temperature_c=60), reading(power_w=None)])
    assert told == {"sm_mhz": 1980, "mem_mhz": 3201, "power_w": 500.0, "temperature_c": 60}


def test_bytes_of_the_weights() -> None:
    """GLM-5 at TP8: w13 of 226.5 MB x 2 and w2 (h200_nvfp4_moe: 453.0 + 226.5 MB for 256 experts)."""
    layer = MoeProblem(tokens=16, hidden=6144, inter=256, experts=256, topk=8)
    assert abs(weight_bytes(layer) - 679.5e6) < 1e5
    assert weight_bytes(GemmProblem(m=1, n=4096, k=4096, dtype="fp8")) == 1 << 24
    assert memory_bytes(CopyProblem(bytes=1000), 2) == 4000
    assert kind_of(layer) == "moe"


@pytest.mark.parametrize(
    ("problem", "field"),
    [
        (CopyProblem(bytes=0), "bytes"),
        (GemmProblem(m=0, n=1, k=1), "m"),
        (GemmProblem(m=1, n=1, k=1 << 40), "k"),
        (GemmProblem(m=1, n=1, k=1, dtype="fp6"), "dtype"),
        (MoeProblem(tokens=1, hidden=1, inter=1, experts=4, topk=5), "topk"),
        (MoeProblem(tokens=1, hidden=1, inter=1, experts=4, topk=1, distribution="zipf"), "distribution"),
    ],
)
def test_what_cannot_be_measured_is_refused_by_its_field(problem: CopyProblem, field: str) -> None:
    with pytest.raises(InputError) as caught:
        check(problem)
    assert caught.value.field == field
