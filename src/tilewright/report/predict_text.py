"""An estimate as text: the time and its bounds, what it is made of, and why it is believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.cost.estimate import Estimate
    from tilewright.report.output import Output

__all__ = ["line", "show", "time_text"]

_BOUND = {
    "memory": "memory bandwidth",
    "compute": "the tensor cores",
    "latency": "launches and latency",
    "collective": "the links between GPUs",
}


def time_text(seconds: float) -> str:
    """A time with a unit that suits it, three digits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}" if seconds < 1000 * size else f"{seconds / size:,.0f} {unit}"
    return f"{seconds * 1e6:.3g} us"


def _asked(raw: dict[str, Any]) -> str:
    return " ".join(str(value) if key == "op" else f"{key}={value}" for key, value in raw.items() if key != "id")


def line(raw: dict[str, Any], estimate: Estimate) -> str:
    """One question and its answer on one line."""
    ident = raw.get("id")
    rate = f"  {estimate.tok_s:,.1f} tok/s" if estimate.tok_s is not None else ""
    return (
        f"{time_text(estimate.time_s):>9}  {time_text(estimate.low_s)} to {time_text(estimate.high_s)}{rate}  "
        f"{estimate.basis}  {estimate.bound}  {ident if isinstance(ident, str) else _asked(raw)}"
    )


def show(raw: dict[str, Any], estimate: Estimate, out: Output) -> None:
    """The whole answer."""
    out.heading(_asked(raw))
    out.line(
        f"{time_text(estimate.time_s)} ({time_text(estimate.low_s)} to {time_text(estimate.high_s)}), "
        f"{estimate.basis}, bound by {_BOUND[estimate.bound]}"
    )
    if estimate.tok_s is not None:
        out.line(f"{estimate.tok_s:,.1f} output tokens a second, all requests together")
    if estimate.limit_s is not None and estimate.time_s > 0:
        out.line(
            f"The hardware allows {time_text(estimate.limit_s)}: {estimate.limit_s / estimate.time_s:.0%} of that time."
        )
    if raw.get("op") == "gemm" and estimate.time_s > 0:
        rate = 2.0 * raw["m"] * raw["n"] * raw["k"] / estimate.time_s / 1e12
        out.line(f"{rate:,.3g} TFLOPS")
    out.line()
    rows = [
        (
            term.name,
            time_text(term.time_s),
            f"{term.time_s / estimate.time_s:.0%}" if estimate.time_s else "",
            term.basis,
        )
        for term in estimate.terms
    ]
    out.table(("term", "time", "share", "basis"), rows, right=(1, 2))
    out.line()
    out.line(f"Why: {estimate.why}")
