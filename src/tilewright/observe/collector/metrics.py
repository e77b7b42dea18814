"""The server's own Prometheus metrics, read twice: counters become rates, gauges are averaged."""

from __future__ import annotations

import re
import urllib.request
from http.client import HTTPException

from tilewright.observe.collector.tools import Notes

METRIC_BYTES = 8 << 20
METRIC_SECONDS = 10
_SAMPLE = re.compile(r"^([A-Za-z_:][\w:]*)(?:\{[^}]*\})? +(-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|\+Inf|NaN)", re.M)

GAUGES = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
    "kv_usage": ("vllm:kv_cache_usage_perc", "sglang:token_usage"),
    "accept_length": ("sglang:spec_accept_length",),
    "kv_tokens_max": ("sglang:max_total_num_tokens",),
}
COUNTERS = {
    "generation_tok_s": ("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
    "prompt_tok_s": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total"),
}
SHARES = frozenset({"kv_usage", "accept_length", "kv_tokens_max"})
"""Gauges that several engines of one server report each for itself: the highest counts, not the sum."""


def parse_metrics(text: str) -> dict[str, list[float]]:
    """Metric -> its samples, whatever their labels."""
    found: dict[str, list[float]] = {}
    for name, value in _SAMPLE.findall(text):
        if value not in ("+Inf", "NaN"):
            found.setdefault(name, []).append(float(value))
    return found


def fetch_metrics(url: str, notes: Notes) -> dict[str, list[float]] | None:
    """What the server at `url` says of itself; None, and a note, where it does not answer."""
    address = url.rstrip("/")
    address = address if address.endswith("/metrics") else address + "/metrics"
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(address, timeout=METRIC_SECONDS) as answer:
            return parse_metrics(answer.read(METRIC_BYTES).decode("utf-8", "replace"))
    except (OSError, ValueError, HTTPException) as error:
        # The address itself stays here: it may hold a user's name or a password.
        notes.add("the server's /metrics did not answer (" + type(error).__name__ + "); SGLang needs --enable-metrics")
        return None


def value_of(metrics: dict[str, list[float]], names: tuple[str, ...], key: str) -> float | None:
    for name in names:
        if metrics.get(name):
            return max(metrics[name]) if key in SHARES else sum(metrics[name])
    return None


def metric_section(
    first: dict[str, list[float]] | None, last: dict[str, list[float]] | None, seconds: float
) -> dict[str, object]:
    """`metrics`, from a reading at either end of the window."""
    if last is None:
        return {}
    section: dict[str, object] = {"window_s": round(seconds, 3)}
    for key, names in GAUGES.items():
        ends = [value_of(reading, names, key) for reading in (first, last) if reading is not None]
        known = [value for value in ends if value is not None]
        if known:
            mean = sum(known) / len(known)
            section[key] = int(mean) if key == "kv_tokens_max" else min(mean, 1.0) if key == "kv_usage" else mean
    for key, names in COUNTERS.items():
        begun = None if first is None else value_of(first, names, key)
        ended = value_of(last, names, key)
        # A counter that went back was reset: the server was started again within the window.
        if begun is not None and ended is not None and ended >= begun and seconds > 0:
            section[key] = round((ended - begun) / seconds, 3)
    preempted = value_of(last, ("vllm:num_preemptions_total", "sglang:num_retracted_reqs"), "preemptions")
    if preempted is not None:
        section["preemptions"] = max(0, int(preempted))
    graph = value_of(last, ("sglang:is_cuda_graph",), "cuda_graph")
    if graph is not None:
        section["cuda_graph"] = graph > 0
    return section
