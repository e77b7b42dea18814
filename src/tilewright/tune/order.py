"""Which configs look best before anything runs: a model of waves, bytes and products of one grouped GEMM.

It orders, it does not predict: the search measures what it puts first and learns from that. Every quantity is the
GPU's (`Machine`, from the catalogue) or the problem's; the few constants are named and say where they come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from tilewright.kernels.config import GroupedConfig
from tilewright.tune.layer import Layer, Problem
from tilewright.tune.moe_call import PARTS, Part, extents
from tilewright.tune.space import Config, effective

if TYPE_CHECKING:
    from tilewright.hardware.gpu import Gpu

_SM_THREADS: Final = 2048
"""Threads an SM holds; 1,536 on SM 8.6, 8.9 and 12.x (CUDA C++ Programming Guide, technical specifications)."""
_SM_THREADS_SMALL: Final = 1536
_SM_REGISTERS: Final = 65536
_BLOCK_RESERVE: Final = 1024
"""Shared memory that the driver keeps for each thread block (same guide, compute capability 8.0 and later)."""
LATENCY_S: Final = 0.8e-6
"""From asking memory for a tile to having it, loaded: about 1,500 clocks of an H200. An order of magnitude, not a
measurement: it decides only how much deep pipelines are preferred."""
LAUNCH_S: Final = 2e-6
MMA_SHARE: Final = 0.6
"""Share of the published dense rate that a Triton `mma` loop of full tiles reaches; only orders."""


@dataclass(frozen=True)
class Machine:
    """What the model needs of a GPU."""

    sms: int
    sm: int
    limit: int
    """Bytes of shared memory that one block may have."""
    bandwidth: float
    """Bytes a second."""
    flops: Mapping[str, float]
    """Dense operations a second, by `bf16` and `fp8`."""


def machine_of(gpu: Gpu) -> Machine:
    """The GPU of the catalogue as the model sees it; H200's figures stand in for what the catalogue does not know."""
    from tilewright.hardware.gpu import GIGA, TERA

    rates = {name: (gpu.peak(name).value or 990.0) * TERA for name in ("bf16", "fp8")}
    return Machine(
        sms=gpu.sm_count or 132, sm=int(gpu.arch.removeprefix("sm")), limit=gpu.smem_optin_bytes or 101_376,
        bandwidth=(gpu.bandwidth().value or 1000.0) * GIGA, flops=rates,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def blocks_of(layer: Layer, tokens: int, rows: int) -> float:
    """Row blocks of `rows` over all experts, expected where each token draws its experts at random."""
    chance = layer.topk / layer.experts
    mean = tokens * chance
    if mean > 64 * rows:
        return layer.experts * (mean / rows + 0.5)
    # One expert's rows are binomial; expected blocks are the sum over j of P(rows > j * block).
    most = min(tokens, int(mean + 12 * math.sqrt(mean + 1) + 16))
    log_each = [0.0] * (most + 1)
    for count in range(most + 1):
        log_each[count] = (
            math.lgamma(tokens + 1) - math.lgamma(count + 1) - math.lgamma(tokens - count + 1)
            + count * math.log(chance) + (tokens - count) * math.log1p(-chance)
        ) if chance < 1 else (0.0 if count == tokens else -math.inf)  # fmt: skip
    expected = sum(math.exp(log_each[count]) * -(-count // rows) for count in range(most + 1))
    return layer.experts * expected


def _resident(machine: Machine, threads: int, shared: int, registers: float) -> int:
    """Thread blocks that one SM holds at once, at least 1."""
    most = _SM_THREADS_SMALL if machine.sm in (86, 89, 120, 121) else _SM_THREADS
    by_shared = (machine.limit + _BLOCK_RESERVE) // (shared + _BLOCK_RESERVE)
    return max(1, min(most // threads, by_shared, int(_SM_REGISTERS // (threads * max(32.0, registers)))))


def _gemm(
    machine: Machine, layer: Layer, part: Part, tokens: int, *, rows: int, columns: int, step: int, threads: int,
    stages: int, shared: int, whole: bool,
) -> float:  # fmt: skip
    """Seconds of one grouped GEMM as the model sees it. `rows`: routed rows of a tile, `columns`: weight rows of it,
    `step`: K of a stage. `whole`: tiles are spread evenly over all SMs (stream-K), else in waves."""
    n, k = extents(layer, part)
    row_blocks = blocks_of(layer, tokens, rows)
    tiles = row_blocks * -(-n // columns)
    sums = rows * columns / threads
    resident = _resident(machine, threads, shared, sums * 1.1 + 40)
    steps = -(-k // step)
    weight_bytes, bits = layer.weight_bits / 8, 8 if layer.dtype.startswith("fp8") else 16
    each_bytes = columns * step * weight_bytes + rows * step * bits / 8
    rate = machine.flops["fp8" if layer.dtype.startswith("fp8") else "bf16"] * MMA_SHARE
    # Warps in flight hide what one warp's products wait for: few of them leave the tensor cores idle.
    rate *= min(1.0, resident * threads / 32 / 8) * min(1.0, 0.35 + rows * columns / (64 * 128) * 0.65)
    each_flops = 2 * max(rows, 16) * columns * step
    places = machine.sms * resident
    running = min(tiles, places)
    waves = tiles / places if whole else math.ceil(tiles / places)
    # Per step and SM: what memory and the tensor cores need when all SMs work, and latency that stages do not hide.
    memory = each_bytes * running / machine.bandwidth
    compute = each_flops * running / rate
    hidden = max(1, stages - 1) * max(1, resident)
    latency = LATENCY_S / hidden * resident
    tail = LATENCY_S * (2 if whole else 1)
    return waves * (steps * max(memory, compute, latency) + tail) + LAUNCH_S


def score(problem: Problem, config: Config, machine: Machine) -> float:
    """Seconds of both GEMMs as the model sees them; only their order means anything."""
    layer = problem.layer
    total = 0.0
    for part in PARTS:
        if problem.kernel == "ours":
            built = GroupedConfig(**config)
            total += _gemm(
                machine, layer, part, problem.tokens, rows=built.block_rows, columns=built.tile_rows, step=128,
                threads=built.threads, stages=built.stages, shared=built.shared_bytes, whole=True,
            )  # fmt: skip
            continue
        used = effective(problem.kernel, layer, config)
        rows, columns, step = used["BLOCK_SIZE_M"], used["BLOCK_SIZE_N"], used["BLOCK_SIZE_K"]
        size = 1 if layer.dtype.startswith("fp8") else 2
        shared = (rows + columns) * step * size * max(1, used["num_stages"] - 1)
        total += _gemm(
            machine, layer, part, problem.tokens, rows=rows, columns=columns, step=step,
            threads=used["num_warps"] * 32, stages=used["num_stages"], shared=shared, whole=False,
        )  # fmt: skip
    return total


def ordered(problem: Problem, configs: Sequence[Config], machine: Machine) -> list[Config]:
    """`configs`, the most promising first."""
    return sorted(configs, key=lambda config: score(problem, config, machine))
