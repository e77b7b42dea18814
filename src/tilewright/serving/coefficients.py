"""The coefficients of the serving model: one set for all models, GPUs and engines, fitted by `tools/fit_serving.py`.

What a kernel takes comes from `tilewright.cost`; these are the rest: what small kernels, waits, gaps and hand-offs
take. Each carries its unit, whether it was fitted or read somewhere, and its source.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, cast

from tilewright.data.figures import read_packaged

__all__ = ["Coefficients", "Spread", "coefficients", "spread"]

_FILE = "serving_coefficients.json"


@dataclass(frozen=True, slots=True)
class Coefficients:
    """Times in seconds, shares without unit. Their meaning stands in the data file, beside where each is from."""

    small_kernel_s: float
    """One kernel without a weight of its own (a norm, a rotation, an activation) in a CUDA graph, few tokens."""
    attention_share: float
    """Share of the reached memory bandwidth at which attention reads its cache."""
    attention_compute_share: float
    """Share of the dense BF16 peak at which attention multiplies."""
    scan_token_s: float
    """A layer's verification of drafts where one block walks a whole sequence: a token of context."""
    wait_s: float
    """What a collective takes in a server beyond its benchmark, per doubling of the ranks: ranks arrive unevenly."""
    gap_s: float
    """Idle GPU time between steps that no request adds to."""
    gap_request_s: float
    """Idle GPU time between steps that each running request adds."""
    draft_gap_s: float
    """Idle GPU time that a speculative step adds: host work of drafting and accepting."""
    handoff_s: float
    """A pipeline stage's hand-over to the next in SGLang: it turns its overlap scheduler off with stages, so that the
    host's work of every stage is waited for."""
    handoff_overlapped_s: float
    """The same in engines whose scheduling runs beside the GPU."""
    launch_s: float
    """One kernel launched without a CUDA graph."""
    b12x_saved_s: float
    """What the b12x expert kernel saves against CUTLASS's a layer, while its small-batch kernel runs."""
    b12x_extra: float
    """What it takes more beyond that, as a multiple of reading the experts hit."""
    prefill_share: float
    """Share of a prefill that is kernels one after the other; the rest is what chunks wait for."""
    acceptance: float
    """Probability that a drafted token is accepted when the ones before it were."""

    def handoff(self, engine: str) -> float:
        """A pipeline stage's hand-over in that engine, seconds."""
        return self.handoff_s if engine == "sglang" else self.handoff_overlapped_s


@dataclass(frozen=True, slots=True)
class Spread:
    """Factors on a time within which 90% of the published cells lie that were held out table by table."""

    low: float
    high: float


@lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    return read_packaged(_FILE)


@lru_cache(maxsize=1)
def coefficients() -> Coefficients:
    """The packaged coefficients."""
    table = cast("dict[str, dict[str, Any]]", _document()["coefficients"])
    return Coefficients(**{field.name: float(table[field.name]["value"]) for field in fields(Coefficients)})


@lru_cache(maxsize=1)
def spread() -> Spread:
    """How far held-out cells lay from the model."""
    raw = cast("dict[str, float]", _document()["spread"])
    return Spread(raw["low"], raw["high"])


def provenance() -> dict[str, Any]:
    """Date, fit errors and sources of the packaged coefficients."""
    return {key: value for key, value in _document().items() if key != "coefficients"}
