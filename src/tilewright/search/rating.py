"""What a kernel makes of a GPU on one problem: the terms of the ranking, and a modelled time made of them.

The time is made of resources and is no prediction: the longest of what DRAM, the bytes in flight, the L2 reads of an
SM and the tensor cores take, a tenth of the others, and what cannot overlap. It ranks; kernels take longer.

    memory      bytes that must move once / bandwidth
    in flight   first-touch bytes of the busiest SM / (bytes in flight / latency): Little's law
    L2 reads    bytes that the busiest SM reads / what an SM gets from L2; a cluster shares by multicast
    tensor      operations of the busiest SM, padding included / its share of the tensor rate
    epilogue    C and D of a tile / what an SM moves, where nothing computes meanwhile
    fix-up      stream-K: partial sums of tiles that several SMs share, written and read in turn
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, NamedTuple

from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.fixes_sm100 import pair
from tilewright.cutlass.laid import Laid
from tilewright.formats.elements import ELEMENTS
from tilewright.search.machine import Machine
from tilewright.search.problem import Problem

__all__ = ["Rating", "Traffic", "operand_of", "rate", "traffic_of"]

TMEM_ARCHS: Final = ("sm100", "sm103")
"""Their kernels allocate all tensor memory of the SM (`tmem_allocator.allocate(Sm100TmemCapacityColumns)` in
`gemm/kernel/sm100_*.hpp`), so that no second block can start."""
REGISTER_UNIT: Final = 8
"""Registers of a thread are given in units of 8 (CUDA programming guide, occupancy)."""
MAX_REGISTERS: Final = 255
WARP_GROUP: Final = 128
ACCUMULATOR_BYTES: Final = 4
SPARSE_RATE: Final = 2
"""Tensor cores skip half of a 2:4 sparse product."""
EXPOSED: Final = 0.1
"""Share of the other resources' times that the longest does not hide. A choice: no kernel overlaps all of it, and
without it what is wasted behind the bound (padding rows at decode) would cost nothing."""
SAME_TIME: Final = 0.01
"""Shares and modelled times within one per cent of each other count as equal."""


class Traffic(NamedTuple):
    """Bytes of one element of each tensor in global memory, scales and metadata included."""

    a: float
    b: float
    c: float
    d: float


@dataclass(frozen=True, slots=True)
class Rating:
    """The terms of one kernel on one problem. Times in seconds, bytes bytes; shares from 0 to 1."""

    time_s: float
    bound: str
    memory_s: float
    in_flight_s: float
    feed_s: float
    compute_s: float
    epilogue_s: float
    fixup_s: float
    tiles: int
    tiles_per_sm: float
    """Tiles that the busiest SM (the busiest pair, for 2sm) computes; a fraction with stream-K."""
    waves: float
    busy_sms: int
    tail_idle: float
    rows_used: float
    columns_used: float
    ctas_per_sm: int
    ctas_limit: str
    """What limits them: shared memory, registers, threads, blocks or tensor memory."""
    ctas_exact: bool
    """False where only the compiler knows the registers: as many as the other limits allow."""
    in_flight_bytes: int
    l2_bytes: int
    dram_bytes: int
    epilogue_bytes: int
    epilogue_steps: int
    direct_store: bool
    """The epilogue stores from registers, in pieces of what a thread holds, and not whole lines by TMA."""
    pipeline_steps: int
    """Stages that the busiest SM waits for, one barrier each."""
    accumulators: int | None
    """Accumulator registers of a thread; None where they are in tensor memory."""
    must_spill: bool
    work_s: float
    """Sum of the times of all resources but the bytes in flight."""


def operand_of(config: KernelConfig) -> str:
    """The tensor rate (`Gpu.peak`) that the products of `config` run at."""
    a, b = ELEMENTS[config.a], ELEMENTS[config.b]
    if config.op_class == "mixed_input":
        wide = max((a, b), key=lambda item: item.bits)
        return "fp8" if wide.bits == 8 and wide.name.startswith("e") else wide.name
    if config.op_class.startswith("block_scaled"):
        return "nvfp4" if a.bits == b.bits == 4 else "mxfp8"
    if max(a.bits, b.bits) <= 8:
        return "int8" if "int" in config.a else "fp8"
    return "bf16" if config.a == "bf16" else config.a


def traffic_of(config: KernelConfig) -> Traffic:
    """Bytes an element takes in global memory. A 2:4 sparse operand is half its elements and a bit of metadata for
    each logical one (`gemm/collective/builders/sm*_sparse_config.inl`: 2 bits a stored 16-bit element)."""
    sparse = "sparse" in config.op_class
    sparse_a, sparse_b = sparse and not config.swap_ab, sparse and config.swap_ab

    def operand(name: str, half: bool) -> float:
        fmt = ELEMENTS[name]
        scale = fmt.bits_per_element - fmt.bits
        bits = fmt.bits / 2 + 1 + scale / 2 if half else fmt.bits + scale
        return bits / 8

    a, b = operand(config.a, sparse_a), operand(config.b, sparse_b)
    if config.op_class == "blockwise" and config.scale_granularity:
        m, n, k = config.scale_granularity
        a, b = a + ACCUMULATOR_BYTES / (m * k), b + ACCUMULATOR_BYTES / (n * k)
    output = config.final_output if config.fusion == "finalize" else config.d
    d = 0.0 if output in (None, "void") else ELEMENTS[output].bits_per_element / 8
    c = 0.0 if config.c == "void" or config.fusion == "finalize" else ELEMENTS[config.c].bits / 8
    return Traffic(a, b, c, 2 * d if config.fusion == "finalize" else d)


def rate(config: KernelConfig, laid: Laid, problem: Problem, machine: Machine, traffic: Traffic) -> Rating:
    """Rate `config`, whose types are `laid`, on `problem`."""
    tm, tn, tk = config.tile
    pair_size = pair(config) if config.arch in TMEM_ARCHS else 1
    row_extent, column_extent = (tn, tm) if config.swap_ab else (tm, tn)
    cluster_m, cluster_n = max(1, config.cluster[0] // pair_size), config.cluster[1]
    row_cluster, column_cluster = (cluster_n, cluster_m) if config.swap_ab else (cluster_m, cluster_n)

    row_tiles = problem.row_tiles(row_extent)
    column_tiles = -(-problem.n // column_extent)
    padded_columns = -(-column_tiles // column_cluster) * column_cluster
    tiles = problem.row_tiles(row_extent, row_cluster) * padded_columns
    cluster_sms = config.cluster[0] * config.cluster[1]
    slots = max(1, machine.sms // cluster_sms * cluster_sms // pair_size)
    steps = -(-problem.k // tk)
    stream_k = config.tile_scheduler == "stream_k"
    per_slot = max(tiles / slots, 1 / steps) if stream_k else float(-(-tiles // slots))
    busy = min(slots, tiles * steps if stream_k else tiles)

    # What one SM loads for one tile: only what lies inside the problem is read, TMA fills the rest with zeros.
    valid_rows = problem.rows / row_tiles
    valid_columns = problem.n / column_tiles
    row_load = valid_rows * problem.k * traffic.a / pair_size
    column_load = valid_columns * problem.k * traffic.b / pair_size
    load = row_load + column_load
    shared_load = row_load / column_cluster + column_load / row_cluster
    inside = row_tiles * column_tiles * pair_size
    l2_bytes = round(shared_load * inside)

    weights = problem.count * problem.n * problem.k * traffic.b
    outputs = problem.rows * problem.n * (traffic.c + traffic.d)
    first_touch = weights + problem.rows * problem.k * traffic.a
    dram = first_touch + outputs

    ctas, limit, exact = _ctas(config, laid, machine, tm * tn)
    stage_load = load * min(tk, problem.k) / problem.k
    in_flight = max(1.0, min(ctas * max(1, laid.count.stages - 1) * stage_load, load * max(1.0, per_slot)))

    accumulators, must_spill = _accumulators(config, laid, tm * tn)
    tile_output = valid_rows * valid_columns * (traffic.c + traffic.d) / pair_size
    overlapped = _overlaps(config, laid) or ctas > 1
    fraction = min(1.0, first_touch / (load * inside))

    memory_s = dram / machine.bandwidth if machine.bandwidth else 0.0
    in_flight_s = per_slot * load * fraction * machine.latency_s / in_flight
    feed_s = per_slot * shared_load / machine.feed if machine.feed else 0.0
    compute_s = 0.0
    if machine.peak:
        peak = machine.peak * (SPARSE_RATE if "sparse" in config.op_class else 1)
        compute_s = per_slot * 2 * tm * tn * steps * tk / pair_size / (peak / machine.sms)
    epilogue_s = fixup_s = 0.0
    if machine.feed:
        epilogue_s = (1.0 if overlapped else max(1.0, per_slot)) * tile_output / machine.feed
        if stream_k and tiles % slots:
            sharers = max(2.0, slots / tiles)
            fixup_s = sharers * 2 * tm * tn * ACCUMULATOR_BYTES / machine.feed
    bounds = {"memory": memory_s, "bytes in flight": in_flight_s, "L2 reads": feed_s, "tensor cores": compute_s}
    bound = max(bounds, key=lambda name: bounds[name])
    exposed_s = EXPOSED * sum(bounds[name] for name in ("memory", "L2 reads", "tensor cores") if name != bound)
    epilogue_tile: tuple[int, int] | None = laid.figures.get("epilogue_tile")
    return Rating(
        time_s=bounds[bound] + exposed_s + epilogue_s + fixup_s + machine.latency_s, bound=bound, memory_s=memory_s,
        in_flight_s=in_flight_s, feed_s=feed_s, compute_s=compute_s, epilogue_s=epilogue_s, fixup_s=fixup_s,
        tiles=tiles, tiles_per_sm=per_slot, waves=tiles / slots, busy_sms=busy * pair_size,
        tail_idle=0.0 if stream_k else 1 - tiles / (per_slot * slots),
        rows_used=problem.rows * padded_columns / (tiles * row_extent),
        columns_used=problem.n / (padded_columns * column_extent), ctas_per_sm=ctas, ctas_limit=limit,
        ctas_exact=exact, in_flight_bytes=round(in_flight), l2_bytes=l2_bytes, dram_bytes=round(dram),
        epilogue_bytes=round(outputs),
        epilogue_steps=tm * tn // pair_size // (epilogue_tile[0] * epilogue_tile[1]) if epilogue_tile else 1,
        accumulators=accumulators, must_spill=must_spill,
        direct_store=epilogue_tile is None or "no_smem" in config.epilogue_schedule,
        pipeline_steps=math.ceil(per_slot * steps),
        work_s=memory_s + feed_s + compute_s + epilogue_s + fixup_s,
    )  # fmt: skip


def _ctas(config: KernelConfig, laid: Laid, machine: Machine, area: int) -> tuple[int, str, bool]:
    """Blocks that an SM holds at once, what limits them, and whether that is exact."""
    threads: int = laid.figures["threads"]
    limits = {
        "shared memory": machine.smem_per_sm // (laid.smem_bytes + machine.reserved_per_block),
        "threads": machine.max_threads // threads,
        "blocks": machine.max_blocks,
    }
    if config.arch in TMEM_ARCHS:
        limits["tensor memory"] = 1
        exact = True
    elif laid.figures.get("load_registers") is not None:
        # setmaxnreg moves registers between warps of a block that starts with all it may have: __launch_bounds__(n, 1).
        registers = min(machine.registers // threads // REGISTER_UNIT * REGISTER_UNIT, MAX_REGISTERS)
        limits["registers"] = machine.registers // (threads * registers)
        exact = True
    else:
        least = max(REGISTER_UNIT, area // WARP_GROUP)
        limits["registers"] = max(1, machine.registers // (threads * least))
        exact = min(limits.values()) <= 1
    least_of_all = min(limits.values())
    return max(1, least_of_all), ", ".join(key for key, value in limits.items() if value == least_of_all), exact


def _accumulators(config: KernelConfig, laid: Laid, area: int) -> tuple[int | None, bool]:
    """Accumulator registers a thread, and whether they alone are more than it may have."""
    if config.arch in TMEM_ARCHS:
        return None, False
    schedule = str(laid.figures.get("kernel_schedule") or config.schedule)
    threads = WARP_GROUP * (2 if "Cooperative" in schedule else 1)
    words = area // threads // (2 if config.acc == "f16" else 1)
    return words, words >= int(laid.figures.get("mma_registers") or MAX_REGISTERS)


def _overlaps(config: KernelConfig, laid: Laid) -> bool:
    """Whether one tile's epilogue runs beside the next tile's MMAs: two warp groups that take turns, or two sets of
    accumulators in tensor memory."""
    if config.arch in TMEM_ARCHS:
        return (laid.figures.get("accumulator_stages") or 1) > 1
    return "Pingpong" in str(laid.figures.get("kernel_schedule") or config.schedule)
