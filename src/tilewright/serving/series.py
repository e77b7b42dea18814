"""Series for plots, as plain numbers: the roofline of each GEMM, a decode step in terms, throughput by layout, and how
far a measured speed is from what the hardware allows. Pure functions; `plan` carries what they give in its JSON."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from tilewright.serving.decode import decode_step
from tilewright.serving.scenario import Scenario
from tilewright.serving.step import TERMS

if TYPE_CHECKING:
    from tilewright.serving.layout import LayoutAnswer

__all__ = [
    "Band",
    "Ceiling",
    "DecodePoint",
    "Roofline",
    "RooflinePoint",
    "ThroughputSeries",
    "ceiling",
    "decode_series",
    "roofline",
    "rows_band",
    "throughput_series",
]

SWEEP: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_TENTH: Final = 1.2816
"""Standard normal deviate of the 90th percentile."""


class Band(msgspec.Struct, frozen=True):
    """Rows of an expert that is hit: 10th percentile, mean, 90th percentile, uniform routing."""

    low: float
    mean: float
    high: float


def rows_band(tokens: int, topk: int, experts: int) -> Band:
    """Rows that an expert with at least one gets when each token chooses `topk` of `experts` at random.

    Binomial by its normal approximation, cut at one row from below: a band for a plot, not a test.
    """
    share = topk / experts
    hit = -math.expm1(tokens * math.log1p(-share)) if share < 1 else 1.0
    mean = tokens * share / hit
    deviation = math.sqrt(tokens * share * (1 - share))
    return Band(max(1.0, mean - _TENTH * deviation), mean, max(mean, mean + _TENTH * deviation))


class RooflinePoint(msgspec.Struct, frozen=True):
    """One GEMM at one batch. `attainable_tflops` None: a rate of the GPU is unknown. `band`: rows of an expert."""

    tokens: int
    intensity: float
    attainable_tflops: float | None
    band: Band | None


class Roofline(msgspec.Struct, frozen=True):
    """One GEMM over batches, with the two rates that bound it."""

    component: str
    name: str
    n: int
    k: int
    format: str
    peak_tflops: float | None
    bandwidth_gbs: float | None
    ridge: float | None
    points: list[RooflinePoint]


class SeriesTerm(msgspec.Struct, frozen=True):
    key: str
    name: str
    time_s: float


class DecodePoint(msgspec.Struct, frozen=True):
    """A decode step at a number of requests: its terms add up to `time_s`; `idle_s` of it is no kernel."""

    concurrency: int
    time_s: float
    idle_s: float
    limit_s: float | None
    tok_s: float
    low_tok_s: float
    high_tok_s: float
    terms: list[SeriesTerm]


class ThroughputSeries(msgspec.Struct, frozen=True):
    """Tokens a second of one layout over numbers of requests."""

    layout: str
    concurrency: list[int]
    tok_s: list[float]
    low_tok_s: list[float]
    high_tok_s: list[float]


class Ceiling(msgspec.Struct, frozen=True):
    """What the hardware allows for a step, what the model predicts, and what was measured, in tokens a second.

    `limit_tok_s` counts bytes, multiplications and link traffic at published rates, nothing else; `layer_limit_s` is
    its share of one layer. `reached` = measured (else predicted) / limit.
    """

    concurrency: int
    limit_tok_s: float | None
    layer_limit_s: float | None
    predicted_tok_s: float
    measured_tok_s: float | None
    reached: float | None
    headroom: float | None


def roofline(scenario: Scenario, tokens: Sequence[int] = SWEEP) -> list[Roofline]:
    """The roofline of each GEMM of the scenario's model and layout."""
    from tilewright.cost.limits import rates
    from tilewright.models.formats import weight_format
    from tilewright.serving.gemms import model_gemms

    out: list[Roofline] = []
    for line in model_gemms(scenario.model, scenario.checkpoint, scenario.parallel, tokens, scenario.gpu):
        if line.mtp:
            continue
        limits = rates(scenario.gpu, weight_format(line.format))
        points = [
            RooflinePoint(point.tokens, point.intensity or 0.0, point.attainable_tflops, point.band)
            for point in line.points
        ]
        out.append(
            Roofline(
                line.component, line.name, line.n, line.k, line.format, limits.peak.value, limits.bandwidth.value,
                limits.ridge, points,
            )
        )  # fmt: skip
    return out


def decode_series(scenario: Scenario, concurrency: Sequence[int] = SWEEP) -> list[DecodePoint]:
    """The decode step at each number of requests, term by term."""
    out: list[DecodePoint] = []
    for count in concurrency:
        step = decode_step(scenario.at(count))
        gained = count * step.tokens_each
        terms = [SeriesTerm(key, TERMS[key], step.sums.times[key]) for key in TERMS if key in step.sums.times]
        out.append(
            DecodePoint(
                count, step.time_s, step.idle_s, step.limit_s, step.tok_s, gained / step.high_s, gained / step.low_s,
                terms,
            )
        )  # fmt: skip
    return out


def throughput_series(answer: LayoutAnswer, most: int = 12) -> list[ThroughputSeries]:
    """Tokens a second against requests for the first layouts that fit, and those that are best somewhere."""
    fitting = [item for item in answer.layouts if item.status == "fits"]
    winners = set(answer.best.values())
    chosen = [item for i, item in enumerate(fitting) if i < most or item.name in winners]
    return [
        ThroughputSeries(
            item.name,
            [speed.concurrency for speed in item.speeds],
            [speed.tok_s for speed in item.speeds],
            [speed.low_tok_s for speed in item.speeds],
            [speed.high_tok_s for speed in item.speeds],
        )
        for item in chosen
    ]


def ceiling(scenario: Scenario, measured_tok_s: float | None = None) -> Ceiling:
    """How far the scenario's prediction, or a measured speed, is from what the hardware allows."""
    step = decode_step(scenario)
    gained = scenario.concurrency * step.tokens_each
    limit = gained / step.limit_s if step.limit_s else None
    reached = (measured_tok_s or step.tok_s) / limit if limit else None
    layers = len(scenario.model.main_layers)
    return Ceiling(
        scenario.concurrency, limit, step.limit_s / layers if step.limit_s else None, step.tok_s, measured_tok_s,
        reached, 1 / reached if reached else None,
    )  # fmt: skip
