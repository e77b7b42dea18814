"""Times of collectives among the GPUs of one host: measured where a table has them, else latency plus bytes.

The model of one (GPU, library, collective, GPU count) is t = alpha + half * sqrt(bytes) + beta * bytes: launches and
handshakes, the passage from latency to bandwidth, bandwidth. All three are fitted to the table, non-negative; for GPU
counts between those measured they are interpolated by the logarithm of the count.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from math import exp, log, sqrt
from typing import Any, Final, cast

from tilewright.cost.estimate import Estimate, Term
from tilewright.cost.questions import AllreduceQuestion
from tilewright.data.figures import read_packaged
from tilewright.errors import UnknownNameError
from tilewright.hardware.gpu import Gpu
from tilewright.hardware.names import resolve_gpu

__all__ = ["estimate_collective"]

_REFERENCE: Final = "rtx-pro-6000-server"
_UNTUNED_ALPHA: Final = 48.0 / 26.0
"""All-reduces of a few KB among 8 RTX PRO 6000: 48 us as NCCL comes, 24 to 27 us with an algorithm and channels that
suit PCIe (p2pmark and the community wiki; see docs/notes/cost-models.md)."""
_UNTUNED_BETA: Final = 39.0 / 22.0
"""Bus bandwidth of large all-reduces there: 37 to 41 GB/s tuned, 22 GB/s as NCCL comes."""
_PCIE5_BYTES_S: Final = 64e9
"""One direction of PCIe 5.0 x16, bytes a second (aiconfigurator, rtx_pro_6000_server.yaml)."""
_MEASURED_SPREAD: Final = 1.10
_USUAL: Final = "nccl"
_ALIASES: Final = {
    "nccl": "nccl", "custom": "vllm_custom", "vllm": "vllm_custom", "custom_allreduce": "vllm_custom",
    "vllm_custom": "vllm_custom", "sglang": "sglang_custom", "sglang_custom": "sglang_custom", "trtllm": "trtllm",
    "flashinfer": "trtllm", "vllm_custom_graph": "vllm_custom", "vllm_custom_eager": "vllm_custom_eager",
    "sglang_custom_eager": "sglang_custom_eager", "sglang_customallreduce_graph": "sglang_custom",
    "sglang_customallreduce_eager": "sglang_custom_eager",
}  # fmt: skip
"""What `predict` calls a library's all-reduce, and the tables' own names of it (aiconfigurator, kernel_source). The
engines' are launched by CUDA graphs, as servers do; those of `_eager` are not, which takes a launch longer."""

Curve = dict[str, Any]


@lru_cache(maxsize=1)
def _curves() -> dict[tuple[str, str, str], dict[int, Curve]]:
    out: dict[tuple[str, str, str], dict[int, Curve]] = {}
    for row in cast("list[Curve]", read_packaged("collectives.json")["curves"]):
        out.setdefault((row["gpu"], row["backend"], row["collective"]), {})[row["gpus"]] = row
    return out


@lru_cache(maxsize=512)
def _gpu(name: str) -> Gpu:
    return resolve_gpu(name)


def _bus_factor(collective: str, gpus: int) -> float:
    """Bytes that one GPU must send for a byte of message."""
    share = (gpus - 1) / gpus
    return 2 * share if collective == "all_reduce" else share


def _law(curve: Curve, size: int) -> float:
    return curve["alpha_us"] * 1e-6 + curve["half_us"] * 1e-6 * sqrt(size) + size * curve["beta_ns"] * 1e-9


def _between(curves: dict[int, Curve], gpus: int) -> tuple[Curve, float]:
    """The coefficients for `gpus` GPUs, and a factor for how far that is from what was measured."""
    counts = sorted(curves)
    if gpus in curves:
        return curves[gpus], 1.0
    if gpus < counts[0] or gpus > counts[-1]:
        edge = curves[counts[0] if gpus < counts[0] else counts[-1]]
        scale = gpus / edge["gpus"]
        grown = {**edge, "alpha_us": edge["alpha_us"] * scale, "half_us": edge["half_us"] * scale**0.5}
        return grown, 1.0 + abs(log(scale))
    place = bisect_left(counts, gpus)
    below, above = curves[counts[place - 1]], curves[counts[place]]
    share = log(gpus / below["gpus"]) / log(above["gpus"] / below["gpus"])
    mixed = {key: below[key] + share * (above[key] - below[key]) for key in ("alpha_us", "half_us", "beta_ns", "error")}
    return {**below, **mixed}, 1.25


def _measured(curve: Curve, size: int) -> tuple[float, str] | None:
    sizes, times = cast("list[int]", curve["bytes"]), cast("list[float]", curve["us"])
    if not sizes[0] <= size <= sizes[-1]:
        return None
    place = bisect_left(sizes, size)
    if sizes[place] == size:
        return times[place] * 1e-6, f"measured at {size:,} bytes"
    x0, x1 = sizes[place - 1], sizes[place]
    share = log(size / x0) / log(x1 / x0)
    time = exp(log(times[place - 1]) + share * log(times[place] / times[place - 1])) * 1e-6
    return time, f"measured at {x0:,} and {x1:,} bytes, interpolated"


def estimate_collective(question: AllreduceQuestion, *, tables: bool) -> Estimate:
    """The time of one collective. `tables`: whether measured rows may answer.

    Raises UnknownNameError for a library that no table covers, naming those that are."""
    q = question
    gpu = _gpu(q.gpu)
    if q.gpus == 1:
        term = (Term("none: one GPU", 0.0),)
        return Estimate(
            id=q.id, time_s=0.0, low_s=0.0, high_s=0.0, limit_s=0.0, bound="collective", terms=term, basis="modelled",
            why="one GPU has nothing to exchange",
        )  # fmt: skip
    name = (q.backend or _USUAL).lower()
    backend = _ALIASES.get(name)
    if backend is None:
        raise UnknownNameError("backend", name, sorted(_ALIASES))
    notes: list[str] = []
    curves, home, widen = _find(gpu, backend, q.collective, notes)
    curve, far = _between(curves, q.gpus)
    widen *= far
    if far > 1.0:
        notes.append(f"{q.gpus} GPUs were not measured ({', '.join(map(str, sorted(curves)))} were)")
    seen = _measured(curve, q.bytes) if tables and far == 1.0 and home == gpu.key and widen == 1.0 else None
    alpha, rest = curve["alpha_us"] * 1e-6, 0.0
    low_f, high_f = 1.0, 1.0
    if seen is not None:
        time, note = seen
        notes.append(f"{curve['source']}, {q.gpus} GPUs: {note}")
        low_f, high_f = 1 / _MEASURED_SPREAD, _MEASURED_SPREAD
    else:
        time = _law(curve, q.bytes)
        spread = 1.0 + max(0.1, float(curve["error"]))
        low_f, high_f = 1 / spread, spread
        notes.append(f"{curve['source']}: alpha-beta law, 95% of its rows within {curve['error']:.0%}")
    basis = "measured" if seen is not None else "modelled"
    alpha = min(alpha, time)
    if q.tuned is False and backend == "nccl":
        alpha, rest = alpha * _UNTUNED_ALPHA, (time - alpha) * _UNTUNED_BETA
        time, basis = alpha + rest, "modelled"
        widen *= 1.3
        notes.append("NCCL as it comes: 1.8 times the latency and time a byte of a tuned one, as published for 8 GPUs")
    if q.topology == "cross_numa":
        widen *= 1.3
        notes.append("cross-NUMA: published differences go both ways with message size, so only the bounds are wider")
    wire = _bus_factor(q.collective, q.gpus) * q.bytes / _link(gpu)
    limit = min(wire, time)
    return Estimate(
        id=q.id, time_s=time, low_s=time * low_f / widen, high_s=time * high_f * widen, limit_s=limit,
        bound="collective",
        terms=(Term("latency", alpha, basis), Term("transfer", time - alpha, basis)), basis=basis, why="; ".join(notes),
    )  # fmt: skip


_NVLINK_BYTES_S: Final = {"8.0": 300e9, "9.0": 450e9, "10.0": 900e9, "10.3": 900e9}
"""NVLink 3, 4 and 5 of SXM parts, bytes a second in one direction."""


def _link(gpu: Gpu) -> float:
    sxm = any(word in gpu.key for word in ("sxm", "gb200", "gb300"))
    return _NVLINK_BYTES_S.get(gpu.compute_capability, _PCIE5_BYTES_S) if sxm else _PCIE5_BYTES_S


def _find(gpu: Gpu, backend: str, collective: str, notes: list[str]) -> tuple[dict[int, Curve], str, float]:
    table = _curves()
    for home, name, widen in (
        (gpu.key, backend, 1.0), (gpu.key, "nccl", 1.5), (_REFERENCE, backend, 1.6), (_REFERENCE, "nccl", 2.0),
    ):  # fmt: skip
        found = table.get((home, name, collective))
        if found is None:
            continue
        if name != backend:
            notes.append(f"no {collective} of {backend} was measured there: NCCL's is taken")
        if home != gpu.key:
            notes.append(f"no rows of a {gpu.name}: those of RTX PRO 6000 Server over PCIe 5.0")
        return found, home, widen
    raise UnknownNameError("collective", collective, sorted({key[2] for key in table}))
