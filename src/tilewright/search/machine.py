"""The GPU as the ranking sees it: limits of an SM, rates, and the bytes that must be in flight to reach them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, cast

import msgspec

from tilewright.cutlass.fit import LIMITS
from tilewright.data.figures import Figure, decode_figure, read_packaged
from tilewright.errors import InputError
from tilewright.hardware.catalogue import catalogue
from tilewright.hardware.gpu import GIGA, TERA, Gpu

__all__ = ["Machine", "SearchFigure", "default_gpu", "machine"]

MEGA: Final = 10**6
FigureKind = Literal["published", "measured", "derived", "modelled"]


class SearchFigure(msgspec.Struct, frozen=True):
    """A figure that the ranking rests on. `value` null: nobody published it, and what needs it is left out."""

    name: str
    value: float | int | None
    unit: str
    kind: FigureKind | None
    source: str


@dataclass(frozen=True, slots=True)
class Machine:
    """Rates are B/s and FLOP/s, None where nobody published them; `latency_s` is that of a loaded memory system."""

    gpu: Gpu
    sms: int
    smem_per_sm: int
    reserved_per_block: int
    registers: int
    max_threads: int
    max_blocks: int
    bandwidth: float | None
    latency_s: float
    feed: float | None
    """What one SM gets from the L2 cache, B/s."""
    peak: float | None
    """Dense tensor rate of the operands, FLOP/s, all SMs."""
    figures: tuple[SearchFigure, ...]

    @property
    def needed_in_flight(self) -> int | None:
        """Bytes an SM must have under way for all SMs together to reach the bandwidth (Little's law)."""
        return None if self.bandwidth is None else round(self.latency_s * self.bandwidth / self.sms)


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    return read_packaged("search.json")


def default_gpu(arch: str) -> Gpu:
    """The catalogue's GPU of `arch` with the most SMs, the first of several. Raises InputError where there is none."""
    found = [gpu for gpu in catalogue() if gpu.arch == arch and gpu.sm_count]
    if not found:
        raise InputError("gpu", f"--gpu: the catalogue has no GPU of {arch} whose SMs are known; name a GPU.")
    return max(found, key=lambda gpu: gpu.sm_count or 0)


def machine(gpu: Gpu, operand: str) -> Machine:
    """What the ranking needs of `gpu` for products of `operand` (a name of `Gpu.peak`).

    Raises:
        InputError: the model has no kernels for its architecture, or its number of SMs is not known.
    """
    if gpu.arch not in LIMITS:
        msg = f"--gpu: {gpu.name} is {gpu.arch}; kernels are searched for {', '.join(LIMITS)}."
        raise InputError("gpu", msg)
    sms = gpu.sm_count
    if not sms:
        raise InputError("gpu", f"--gpu: nobody published how many SMs a {gpu.name} has; name a GPU of its kind.")
    figures = [_shown("SMs", gpu.get("sm_count"), "")]
    bandwidth, shown = _bandwidth(gpu)
    figures.append(shown)
    latency, shown = _latency(gpu)
    figures.append(shown)
    feed, shown = _feed(gpu)
    figures.append(shown)
    peak, shown = _peak(gpu, operand)
    figures.append(shown)
    return Machine(
        gpu=gpu, sms=sms, smem_per_sm=_limit(gpu, "smem_per_sm_bytes"),
        reserved_per_block=_limit(gpu, "smem_reserved_per_block_bytes"),
        registers=_limit(gpu, "max_registers_per_sm"), max_threads=_limit(gpu, "max_threads_per_sm"),
        max_blocks=_limit(gpu, "max_blocks_per_sm"), bandwidth=bandwidth, latency_s=latency, feed=feed, peak=peak,
        figures=tuple(figures),
    )  # fmt: skip


def _limit(gpu: Gpu, key: str) -> int:
    """A limit of the architecture; the catalogue has them all for every GPU that kernels are searched for."""
    return cast("int", gpu.get(key).value)


def _shown(name: str, figure: Figure, unit: str) -> SearchFigure:
    source = figure.source or figure.note or "not published"
    return SearchFigure(name, figure.value, unit, figure.kind, source)


def _bandwidth(gpu: Gpu) -> tuple[float | None, SearchFigure]:
    reached = gpu.bandwidth("measured")
    figure = reached if reached.known else gpu.bandwidth()
    name = "memory bandwidth, reached" if reached.known else "memory bandwidth"
    return (figure.value * GIGA if figure.known else None), _shown(name, figure, "GB/s")


def _latency(gpu: Gpu) -> tuple[float, SearchFigure]:
    """Latency under load, from the bytes in flight that saturate a GPU: bytes x SMs / bandwidth (Little's law).

    NVIDIA tuned those bytes for three GPUs; the three latencies lie within 8 % of each other. A GPU without its own
    gets the longest.
    """
    facts = _facts()
    sources = cast("list[str]", facts["sources"])
    by_key = {item.key: item for item in catalogue()}
    own: dict[str, float] = {}
    for key, raw in cast("dict[str, Any]", facts["bytes_in_flight"]).items():
        anchor = by_key[key]
        own[key] = decode_figure(raw, sources).value * anchor.sm_count / (anchor.bandwidth().value * GIGA)
    anchor = gpu.key if gpu.key in own else max(own, key=lambda key: own[key])
    why = f"bytes in flight that saturate the {by_key[anchor].name} x its SMs / its bandwidth; {sources[0]}"
    return own[anchor], SearchFigure("memory latency under load", round(own[anchor] * 1e9), "ns", "modelled", why)


def _feed(gpu: Gpu) -> tuple[float | None, SearchFigure]:
    facts = _facts()
    rate = decode_figure(cast("dict[str, Any]", facts["l2_bytes_per_clock"]), cast("list[str]", facts["sources"]))
    anchor = next(item for item in catalogue() if item.key == facts["l2_measured_on"])
    per_sm = rate.value / (anchor.sm_count or 1)
    clock = gpu.get("boost_clock_mhz")
    name = "L2 reads of an SM"
    if not clock.known:
        return None, SearchFigure(name, None, "GB/s", None, "the SM clock is not published")
    feed = per_sm * clock.value * MEGA
    why = f"{per_sm:.1f} bytes a clock, the {anchor.name}'s, at {clock.value:,} MHz; {rate.source}"
    return feed, SearchFigure(name, round(feed / GIGA, 1), "GB/s", "modelled", why)


def _peak(gpu: Gpu, operand: str) -> tuple[float | None, SearchFigure]:
    name, scale, base = f"tensor rate, {operand}, dense", 1.0, operand
    if operand == "tf32":
        scale, base = 0.5, "bf16"
    figure = gpu.peak(base)
    if base == "mxfp8" and not figure.known and gpu.value("fp32acc_half_rate") is False:
        figure = gpu.peak("fp8")
        name += " (FP8's)"
    if not figure.value:
        return None, SearchFigure(name, None, "TFLOPS", None, "not published")
    shown = _shown(name, figure, "TFLOPS")
    if scale != 1.0:
        shown = SearchFigure(name, figure.value * scale, "TFLOPS", "modelled", f"half of BF16's; {figure.source}")
    return figure.value * scale * TERA, shown
