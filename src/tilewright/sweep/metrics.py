"""What a sweep can aim at: metrics, their units and meanings, and how they are made from requests. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec

from tilewright.bench.stats import percentile

__all__ = ["METRICS", "RequestRecord", "client_metrics"]

_SHARES: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_TIMES: Final = {
    "ttft_s": "time to the first text of an answer",
    "tpot_s": "time per output token after the first",
    "e2e_s": "time from request to the end of its answer",
}
_ONE: Final = {
    "output_tok_s": "output tokens a second, all requests together",
    "total_tok_s": "prompt and output tokens a second, all requests together",
    "requests_s": "finished requests a second",
    "tok_s_per_user": "output tokens a second of one request, from its sending to its end, mean",
    "error_rate": "share of requests that failed or were cut short, 0..1",
    "ready_s": "time from start to a server that answers (0 for an endpoint that was running)",
    "preemptions": "requests that the server had to put back, by its own count",
    "kv_usage": "share of the cache in use at the ends of the measurement, 0..1, by the server's own count",
}


def _named() -> dict[str, str]:
    out = dict(_ONE)
    for key, text in _TIMES.items():
        out[f"mean_{key}"] = f"{text}, mean"
        out |= {f"{name}_{key}": f"{text}, {name[1:]}th percentile" for name in _SHARES}
        out[f"max_{key}"] = f"{text}, longest"
    return out


METRICS: Final[dict[str, str]] = _named()
"""Metric -> what it is. Times are seconds, rates a second, shares 0..1."""


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request, seen by the client. Seconds; `start_s` on any clock that all records of a measurement share."""

    start_s: float
    end_s: float
    ttft_s: float | None = None
    """None: no text came."""
    input_tokens: int = 0
    output_tokens: int = 0
    error: str | None = None


def _spread(name: str, values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    out = {f"mean_{name}": math.fsum(ordered) / len(ordered)}
    out |= {f"{share}_{name}": percentile(ordered, part) for share, part in _SHARES.items()}
    out[f"max_{name}"] = ordered[-1]
    return out


def client_metrics(records: Sequence[RequestRecord]) -> dict[str, float]:
    """The client's metrics of one measurement. Times are there only where a request succeeded."""
    good = [item for item in records if item.error is None]
    out = {"error_rate": 1 - len(good) / len(records) if records else 1.0}
    if not good:
        return out
    # From the first request sent to the last answer's end: the ramp at either end is part of it.
    window = max(item.end_s for item in good) - min(item.start_s for item in good)
    if window <= 0:
        return out
    produced = sum(item.output_tokens for item in good)
    out["output_tok_s"] = produced / window
    out["total_tok_s"] = (produced + sum(item.input_tokens for item in good)) / window
    out["requests_s"] = len(good) / window
    out |= _spread("e2e_s", [item.end_s - item.start_s for item in good])
    paces = [item.output_tokens / (item.end_s - item.start_s) for item in good if item.end_s > item.start_s]
    if paces:
        out["tok_s_per_user"] = math.fsum(paces) / len(paces)
    firsts = [item.ttft_s for item in good if item.ttft_s is not None]
    if firsts:
        out |= _spread("ttft_s", firsts)
    gaps = [
        (item.end_s - item.start_s - item.ttft_s) / (item.output_tokens - 1)
        for item in good
        if item.ttft_s is not None and item.output_tokens > 1
    ]
    if gaps:
        out |= _spread("tpot_s", gaps)
    return out
