"""What the hardware allows: the time below which no kernel can be, from bytes, operations and rates.

A limit is no prediction: kernels reach a part of it, and at a few tokens launches and latencies weigh more than both
(a pure bandwidth limit is about five times optimistic for GLM-5 at one request). It says which of the two resources a
GEMM waits for, and how much of the tensor cores it can use at all.

Times are seconds, bytes bytes, rates in FLOP/s and B/s. Every rate keeps its figure, so that its kind (published,
derived, measured) and its source can be shown beside what was made from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tilewright.cost.routing import Routing, TileUse, expected_experts_hit, moe_tile_use
from tilewright.data.figures import Figure
from tilewright.errors import InputError, shown
from tilewright.hardware.gpu import GIGA, TERA, Gpu
from tilewright.models.checkpoint import Checkpoint
from tilewright.models.formats import WeightFormat, weight_format
from tilewright.models.inventory import Weight, weights
from tilewright.models.memory import Parallel, shard
from tilewright.models.records import Model

__all__ = [
    "ACTIVATION_BYTES",
    "TILE_ROWS",
    "TOKEN_SWEEP",
    "GemmLimit",
    "MoeLimit",
    "Rates",
    "gemm_limit",
    "moe_layer_limits",
    "moe_sweep",
    "rates",
]

ACTIVATION_BYTES: Final[dict[str, float]] = {
    "nvfp4": 0.5 + 1 / 16,
    "mxfp8": 1 + 1 / 32,
    "fp8": 1.0,
    "int8": 1.0,
    "bf16": 2.0,
    "f16": 2.0,
    "f32": 4.0,
}
"""Bytes an activation takes with its share of block scales."""
TILE_ROWS: Final = (8, 16, 32, 64, 128, 256)
"""Token extents of tiles: M of a kernel as it is, N of one with operands swapped."""
TOKEN_SWEEP: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
MAX_EXTENT: Final = 1 << 30
_FIRST_BLOCK_SCALED = 10.0
"""Compute capability from which tensor cores multiply block-scaled operands."""

Bound = Literal["memory", "compute", "unknown"]


@dataclass(frozen=True, slots=True)
class Rates:
    """The rates that limit one kind of GEMM on one GPU.

    `bandwidth` is published, `reached` what kernels were measured to get (unknown for most GPUs); GB/s. `peak` is the
    dense tensor rate of the operands, TFLOPS. `activation` is the format in which the tokens are read. `note` says
    when the operands run at another type's rate.
    """

    bandwidth: Figure
    reached: Figure
    peak: Figure
    operand: str
    activation: str
    note: str = ""

    @property
    def ridge(self) -> float | None:
        """FLOP a byte at which the two limits meet; None where a rate is unknown."""
        if not self.peak.value or not self.bandwidth.value:
            return None
        return self.peak.value * TERA / (self.bandwidth.value * GIGA)


def rates(gpu: Gpu, fmt: WeightFormat) -> Rates:
    """The rates of a GEMM whose weights are stored in `fmt`.

    Tensor cores without that type multiply what was decoded to BF16. Where the peak of MXFP8 is not published, FP8's
    is taken if the GPU accumulates both at full rate.
    """
    operand, activation, note = fmt.operand, fmt.activation, ""
    peak = gpu.peak(operand)
    scaled = operand in ("nvfp4", "mxfp4", "mxfp8")
    if peak.value == 0 or (scaled and float(gpu.compute_capability) < _FIRST_BLOCK_SCALED):
        note = f"the tensor cores have no {operand}: weights are decoded and multiplied in BF16"
        operand, activation, peak = "bf16", "bf16", gpu.peak("bf16")
    elif operand == "mxfp8" and not peak.known and gpu.value("fp32acc_half_rate") is False:
        note = "the peak of MXFP8 is not published: that of FP8 is taken"
        peak = gpu.peak("fp8")
    return Rates(gpu.bandwidth(), gpu.bandwidth("measured"), peak, operand, activation, note)


@dataclass(frozen=True, slots=True)
class GemmLimit:
    """The limits of one GEMM, or of the grouped GEMM of many experts.

    `rows` tokens times `n` x `k` weights, in `groups` matrices (an expectation, so a fraction). `memory_s` is the time
    of moving all bytes once at the published bandwidth, `memory_reached_s` at the bandwidth that kernels were measured
    to reach; `compute_s` the time of the multiplications at the dense peak. None: the rate is unknown.
    """

    name: str
    rows: int
    n: int
    k: int
    groups: float
    weight_bytes: int
    activation_bytes: int
    flops: int
    rates: Rates
    format: str

    @property
    def bytes(self) -> int:
        return self.weight_bytes + self.activation_bytes

    @property
    def memory_s(self) -> float | None:
        bandwidth = self.rates.bandwidth.value
        return self.bytes / (bandwidth * GIGA) if bandwidth else None

    @property
    def memory_reached_s(self) -> float | None:
        bandwidth = self.rates.reached.value
        return self.bytes / (bandwidth * GIGA) if bandwidth else None

    @property
    def compute_s(self) -> float | None:
        peak = self.rates.peak.value
        return self.flops / (peak * TERA) if peak else None

    @property
    def limit_s(self) -> float | None:
        """The larger of the two times at published rates; None while one of them is unknown."""
        if self.memory_s is None or self.compute_s is None:
            return None
        return max(self.memory_s, self.compute_s)

    @property
    def bound(self) -> Bound:
        if self.memory_s is None or self.compute_s is None:
            return "unknown"
        return "memory" if self.memory_s >= self.compute_s else "compute"

    @property
    def intensity(self) -> float:
        """FLOP for each byte moved."""
        return self.flops / self.bytes

    @property
    def attainable_tflops(self) -> float | None:
        """The most TFLOPS that this GEMM can show: its operations in the limit's time."""
        return self.flops / self.limit_s / TERA if self.limit_s else None

    @property
    def peak_share(self) -> float | None:
        """`attainable_tflops` as a share of the peak: what a kernel at the limit would reach."""
        if self.limit_s is None or self.compute_s is None:
            return None
        return self.compute_s / self.limit_s


def _extent(name: str, value: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_EXTENT:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(name, f"{name} must be a whole number from 1 to {MAX_EXTENT:,}, not {shown(value)}.")


def gemm_limit(
    gpu: Gpu,
    m: int,
    n: int,
    k: int,
    fmt: str | WeightFormat,
    *,
    output_bytes: float = 2.0,
    name: str = "gemm",
) -> GemmLimit:
    """The limits of a dense GEMM: `m` tokens times an [n, k] weight stored in `fmt`, the output `output_bytes` wide.

    Raises InputError for extents out of range or an unknown format.
    """
    for key, value in (("m", m), ("n", n), ("k", k)):
        _extent(key, value)
    stored = weight_format(fmt) if isinstance(fmt, str) else fmt
    limits = rates(gpu, stored)
    moved = m * k * ACTIVATION_BYTES[limits.activation] + m * n * output_bytes
    return GemmLimit(name, m, n, k, 1.0, stored.runtime_bytes(n, k), round(moved), 2 * m * n * k, limits, stored.name)


@dataclass(frozen=True, slots=True)
class MoeLimit:
    """The limits of the two GEMMs of one mixture-of-experts layer on one GPU, for one batch.

    `tokens` are those of the whole expert-parallel group; `rows` = tokens x top-k those that land on this GPU, on
    average. `experts_hit` of its `experts` get at least one. What rests on routing is modelled, by `routing`.
    """

    tokens: int
    rows: int
    experts: int
    experts_hit: float
    routing: Routing
    w13: GemmLimit
    w2: GemmLimit
    tiles: tuple[TileUse, ...]

    @property
    def gemms(self) -> tuple[GemmLimit, GemmLimit]:
        return self.w13, self.w2

    @property
    def rows_per_expert(self) -> float:
        """Rows of an expert on average, over those that are hit."""
        return self.rows / self.experts_hit

    @property
    def rows_per_expert_of_all(self) -> float:
        """Rows of an expert on average, over all of the GPU's experts."""
        return self.rows / self.experts

    @property
    def limit_s(self) -> float | None:
        """Sum of both GEMMs' limits at published rates."""
        first, second = self.w13.limit_s, self.w2.limit_s
        return None if first is None or second is None else first + second

    def tile(self, tile_rows: int) -> TileUse:
        """How well this batch fills tiles of that many tokens."""
        return next(item for item in self.tiles if item.tile_rows == tile_rows)


def _expert_rows(model: Model) -> tuple[Weight, Weight]:
    rows = {row.component: row for row in weights(model) if not row.mtp and row.component.startswith("experts_")}
    if "experts_w13" not in rows or "experts_w2" not in rows:
        raise InputError("model", f"{model.name} has no routed experts, so it has no mixture-of-experts layer.")
    return rows["experts_w13"], rows["experts_w2"]


def moe_layer_limits(
    model: Model,
    checkpoint: Checkpoint | None,
    gpu: Gpu,
    tp: int,
    ep: int,
    tokens: int,
    *,
    routing: Routing = "uniform",
    tile_rows: Sequence[int] = TILE_ROWS,
) -> MoeLimit:
    """The limits of one layer's expert GEMMs on one of `tp` GPUs, of which `ep` groups hold different experts.

    w13: rows x (2 inter / expert-tp) x hidden; w2: rows x hidden x (inter / expert-tp). Bytes: the weights of the
    experts hit, each read once, with their scales; the tokens read once and rows written once by w13, rows read and
    written once by w2. Raises InputError for a model without experts or counts out of range.
    """
    checkpoint = checkpoint or model.checkpoint
    moe = model.moe
    first, second = _expert_rows(model)
    if moe is None:
        raise InputError("model", f"{model.name} has no routed experts.")
    parallel = Parallel(tp=tp, ep=ep)
    experts = checkpoint.experts or moe.experts
    local = -(-experts // ep)
    hit = expected_experts_hit(tokens, moe.topk, experts, routing) / ep
    rows = max(1, round(tokens * moe.topk / ep))

    def limit(name: str, row: Weight, *, tokens_in: int) -> GemmLimit:
        _, n, k = shard(row, parallel)
        fmt = checkpoint.format_of(row, model.dtype)
        limits = rates(gpu, fmt)
        width = ACTIVATION_BYTES[limits.activation]
        moved = tokens_in * k * width + rows * n * ACTIVATION_BYTES[model.dtype]
        weight = hit * (fmt.runtime_bytes(n, k) + row.bias // max(1, row.out // n) * 2)
        return GemmLimit(name, rows, n, k, hit, round(weight), round(moved), 2 * rows * n * k, limits, fmt.name)

    return MoeLimit(
        tokens=tokens,
        rows=rows,
        experts=local,
        experts_hit=hit,
        routing=routing,
        w13=limit("w13", first, tokens_in=min(tokens, rows)),
        w2=limit("w2", second, tokens_in=rows),
        tiles=tuple(moe_tile_use(tokens, moe.topk, experts, size, routing) for size in tile_rows),
    )


def moe_sweep(
    model: Model,
    checkpoint: Checkpoint | None,
    gpu: Gpu,
    tp: int,
    ep: int = 1,
    tokens: Sequence[int] = TOKEN_SWEEP,
    *,
    routing: Routing = "uniform",
) -> list[MoeLimit]:
    """`moe_layer_limits` for each of the token counts."""
    return [moe_layer_limits(model, checkpoint, gpu, tp, ep, count, routing=routing) for count in tokens]
