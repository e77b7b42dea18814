"""What `tilewright bench ... --json` prints."""

from __future__ import annotations

from typing import Any

import msgspec

from tilewright.store.result import Result


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """What `predict` answers without looking at this measurement, seconds with bounds. `basis`: from a table of other
    machines' measurements, or modelled."""

    time_s: float
    low_s: float
    high_s: float
    basis: str


class BenchLine(msgspec.Struct, frozen=True, kw_only=True):
    """One backend on one problem. `read_limit_s`: how long reading the same bytes of weights took in this run,
    `published_limit_s`: the larger of bytes over the published bandwidth and operations over the published dense rate.
    `of_read_limit`, `of_published_limit`: limit over time, so 1 is the limit. `ratio_to_best`: time over the shortest
    of this problem. `bandwidth_tbs`: bytes of weights (of an all-reduce: of the message) a second. `predicted`: of an
    all-reduce, where the GPU is known; `within`: whether the time lies within its bounds."""

    result: Result
    bandwidth_tbs: float | None = None
    tflops: float | None = None
    read_limit_s: float | None = None
    of_read_limit: float | None = None
    published_limit_s: float | None = None
    of_published_limit: float | None = None
    ratio_to_best: float | None = None
    predicted: Prediction | None = None
    within: bool | None = None


class BenchDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/bench/1"):
    """`bench`: what was measured on this GPU, and which backends could not take part and why. `store`: the file the
    results went to, None where they were not kept."""

    gpu: str
    device_name: str
    driver: str | None
    environment: dict[str, Any]
    store: str | None
    lines: list[BenchLine]
    missing: dict[str, str]
