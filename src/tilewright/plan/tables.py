"""Published serving tables that are about the target's own model and GPUs, as pairs that differ in one thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from tilewright.data.measurements import Measurement, measurements

if TYPE_CHECKING:
    from tilewright.plan.target import Target

CATEGORY = "serving_decode_matrix"
_ENGINES = {"sglang": "SGLang", "vllm": "vLLM", "trtllm": "TensorRT-LLM"}


@dataclass(frozen=True)
class Pair:
    """Two tables that differ in one thing, at the concurrencies that both have, without context."""

    base: Measurement
    other: Measurement
    rows: tuple[tuple[int, float, float], ...]
    """(requests, tok/s of base, tok/s of other)"""

    def text(self) -> str:
        return ", ".join(f"{base:,.1f} -> {other:,.1f} at {requests}" for requests, base, other in self.rows)

    def gains(self) -> list[tuple[int, float]]:
        """(requests, gain of other over base in percent)."""
        return [(requests, (other / base - 1) * 100) for requests, base, other in self.rows]

    @property
    def weights(self) -> str:
        """The checkpoint that was measured, as the source names it."""
        return str(self.base.get("checkpoint") or "checkpoint not named")

    @property
    def source(self) -> str:
        return f"packaged measurements {self.base.id} and {self.other.id} ({self.base.date})"


def _is_off(item: Measurement) -> bool:
    return "off" in str(item.get("mtp", "")).lower()


def _backend(item: Measurement) -> str:
    return str(item.get("moe_backend", ""))


def tables(target: Target) -> list[Measurement]:
    """Decode matrices of the target's model on as many of its GPUs, with its engine."""
    gpu_words = (
        "RTX PRO 6000" if target.gpu.key in ("rtx-pro-6000-server", "rtx-pro-6000-workstation") else target.gpu.name
    )
    return [
        item
        for item in measurements()
        if item.category == CATEGORY
        and item.get("model") == target.model.key
        and item.get("n_gpu") == target.gpus
        and gpu_words in str(item.get("gpu", ""))
        and str(item.get("engine", "")).startswith(_ENGINES[target.engine])
    ]


def short_context(item: Measurement) -> dict[int, float]:
    """Requests -> tok/s without context."""
    table = cast("dict[str, Any]", item.table or {})
    row = cast("dict[str, float]", table.get("0", {}))
    return {int(requests): float(value) for requests, value in row.items()}


def _pair(base: Measurement, other: Measurement) -> Pair | None:
    a, b = short_context(base), short_context(other)
    rows = tuple((requests, a[requests], b[requests]) for requests in sorted(a.keys() & b.keys()))
    return Pair(base, other, rows) if rows else None


def speculation(target: Target) -> Pair | None:
    """The same stack without and with multi-token prediction; the backend that the engine picks by itself first."""
    found = tables(target)
    pairs = [
        pair
        for off in found
        if _is_off(off)
        for on in found
        if not _is_off(on) and _backend(on) == _backend(off) and on.get("parallelism") == off.get("parallelism")
        for pair in [_pair(off, on)]
        if pair
    ]
    return min(pairs, key=lambda pair: (_backend(pair.base) != "cutlass", -len(pair.rows)), default=None)


def moe_backends(target: Target) -> Pair | None:
    """CUTLASS against b12x for the MoE layers, without speculation."""
    found = [item for item in tables(target) if _is_off(item)]
    cutlass = next((item for item in found if _backend(item) == "cutlass"), None)
    b12x = next((item for item in found if _backend(item) == "b12x"), None)
    return _pair(cutlass, b12x) if cutlass and b12x else None


def concurrency(target: Target) -> Measurement | None:
    """A table of tok/s against requests, without speculation, with the backend that the engine picks by itself."""
    found = [item for item in tables(target) if _is_off(item)]
    return next((item for item in found if _backend(item) == "cutlass"), None) or next(iter(found), None)
