"""What a server says of itself while it is loaded: its Prometheus metrics, read before, during and after."""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Any, Final, Self

from tilewright.observe.collector.metrics import COUNTERS, fetch_metrics, metric_section, value_of
from tilewright.observe.collector.tools import Notes
from tilewright.sweep.http_client import Endpoint

__all__ = ["MetricsWatch"]

EVERY_S: Final = 1.0
_PREEMPTIONS: Final = ("vllm:num_preemptions_total", "sglang:num_retracted_reqs")
_HIGHEST: Final = {
    "kv_usage": ("vllm:kv_cache_usage_perc", "sglang:token_usage"),
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
}


class MetricsWatch:
    """Reads `/metrics` from when it is entered until it is left. A server without them costs one request."""

    def __init__(self, where: Endpoint) -> None:
        self._url = where.url
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._first: dict[str, list[float]] | None = None
        self._last: dict[str, list[float]] | None = None
        self._begun = self._ended = 0.0
        self._highest: dict[str, float] = {}

    def __enter__(self) -> Self:
        self._first = self._read()
        self._begun = time.monotonic()
        if self._first:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join(EVERY_S)
        if self._first and error is None:
            self._last = self._read()
        self._ended = time.monotonic()

    def _read(self) -> dict[str, list[float]] | None:
        return fetch_metrics(self._url, Notes())

    def _watch(self) -> None:
        while not self._over.wait(EVERY_S):
            reading = self._read()
            for key, names in _HIGHEST.items():
                value = value_of(reading, names, key) if reading else None
                if value is not None:
                    self._highest[key] = max(value, self._highest.get(key, 0.0))

    def _counted(self, names: tuple[str, ...], key: str) -> float | None:
        if not self._first or not self._last:
            return None
        before, after = value_of(self._first, names, key), value_of(self._last, names, key)
        if after is None:
            return None
        return after - (before or 0.0)

    @property
    def generated(self) -> float | None:
        """Output tokens that the server counted; None: it does not say."""
        return self._counted(COUNTERS["generation_tok_s"], "generation_tok_s")

    @property
    def figures(self) -> dict[str, float]:
        """The metrics of a sweep that the server knows."""
        out: dict[str, float] = {}
        preempted = self._counted(_PREEMPTIONS, "preemptions")
        if preempted is not None:
            out["preemptions"] = max(0.0, preempted)
        if self._last and (usage := value_of(self._last, _HIGHEST["kv_usage"], "kv_usage")) is not None:
            out["kv_usage"] = min(1.0, max(usage, self._highest.get("kv_usage", 0.0)))
        return out

    @property
    def section(self) -> dict[str, Any]:
        """The window as `observe` reports it, with the highest values seen within it."""
        made: dict[str, Any] = dict(metric_section(self._first, self._last, self._ended - self._begun))
        made |= {f"highest_{key}": value for key, value in self._highest.items()}
        return made
