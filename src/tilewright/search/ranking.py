"""The order of the candidates, and why one stands before another."""

from __future__ import annotations

import math
from typing import Final, NamedTuple

from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.laid import Laid
from tilewright.search.machine import Machine
from tilewright.search.model import Term
from tilewright.search.rating import SAME_TIME, Rating

__all__ = ["Rated", "explain", "order", "terms"]

MICRO: Final = 1e6
ENOUGH_STAGES: Final = 3
"""With two stages one is computed while the other is loaded: a late load stops the MMAs."""
HEADROOM: Final = 2
"""Times the bytes in flight that Little's law asks for: below, what is late is not made up for. A choice."""


class Rated(NamedTuple):
    """A legal config with its types and its rating."""

    config: KernelConfig
    laid: Laid
    rating: Rating


def bucket(seconds: float) -> int:
    """Times that count as equal share a bucket."""
    return round(math.log(max(seconds, 1e-12)) / math.log1p(SAME_TIME))


def comfortable(item: Rated, machine: Machine) -> bool:
    """Whether loads run far enough ahead: three stages, and twice the bytes in flight that memory needs."""
    needed = machine.needed_in_flight or 0
    return item.laid.count.stages >= ENOUGH_STAGES and item.rating.in_flight_bytes >= HEADROOM * needed


def order(item: Rated, machine: Machine) -> tuple[object, ...]:
    """The sort key. Kernels that must spill come last; then the modelled time; among equals those whose loads run far
    enough ahead, less work of the other resources, an epilogue that stores whole lines by TMA, fewer steps of the
    pipeline (each a barrier), fewer L2 reads, fewer store steps; last what the builder counts before what is pinned."""
    config, laid, rating = item
    return (
        rating.must_spill, bucket(rating.time_s), not comfortable(item, machine), bucket(rating.work_s),
        rating.direct_store, rating.pipeline_steps, rating.l2_bytes, rating.epilogue_steps, config.stages != "auto",
        config.epilogue_tile != "auto", config.tile_scheduler is not None, config.schedule != "auto",
        config.cluster, config.swap_ab, laid.smem_bytes, config.tile, config.schedule, config.epilogue_schedule,
        laid.count.stages, str(config.epilogue_tile),
    )  # fmt: skip


def terms(item: Rated, machine: Machine) -> list[Term]:
    """Every term of `item`'s rank, in the order in which they are explained."""
    _, laid, rating = item
    needed = machine.needed_in_flight
    share = None if not needed else round(rating.in_flight_bytes / needed, 3)
    ctas = "exact" if rating.ctas_exact else "modelled"

    def time(name: str, seconds: float, known: bool) -> Term:
        return Term(name, round(seconds, 10) if known else None, "s", "modelled")

    return [
        Term("stages", laid.count.stages, "", "exact"),
        Term("shared memory", laid.smem_bytes, "B", "exact"),
        Term("threads a block", laid.figures["threads"], "", "exact"),
        Term("blocks an SM", rating.ctas_per_sm, "", ctas),
        Term("what limits blocks an SM", rating.ctas_limit, "", ctas),
        Term("accumulator registers a thread", rating.accumulators, "", "exact"),
        Term("must spill", rating.must_spill, "", "exact"),
        Term("tiles", rating.tiles, "", "exact"),
        Term("rows used", round(rating.rows_used, 4), "share", "exact"),
        Term("columns used", round(rating.columns_used, 4), "share", "exact"),
        Term("waves", round(rating.waves, 3), "", "exact"),
        Term("tiles of the busiest SM", round(rating.tiles_per_sm, 4), "", "exact"),
        Term("busy SMs", rating.busy_sms, "", "exact"),
        Term("idle in the last wave", round(rating.tail_idle, 4), "share", "exact"),
        Term("pipeline steps of the busiest SM", rating.pipeline_steps, "", "exact"),
        Term("epilogue tiles a tile", rating.epilogue_steps, "", "exact"),
        Term("epilogue stores without TMA", rating.direct_store, "", "exact"),
        Term("bytes that must move", rating.dram_bytes, "B", "exact"),
        Term("epilogue traffic", rating.epilogue_bytes, "B", "exact"),
        Term("L2 reads", rating.l2_bytes, "B", "exact"),
        Term("bytes in flight an SM", rating.in_flight_bytes, "B", "modelled"),
        Term("bytes in flight of what is needed", share, "share", "modelled"),
        Term("loads run far enough ahead", comfortable(item, machine), "", "modelled"),
        time("time: memory", rating.memory_s, machine.bandwidth is not None),
        time("time: bytes in flight", rating.in_flight_s, True),
        time("time: L2 reads", rating.feed_s, machine.feed is not None),
        time("time: tensor cores", rating.compute_s, machine.peak is not None),
        time("time: epilogue that nothing overlaps", rating.epilogue_s, machine.feed is not None),
        time("time: stream-K fix-up", rating.fixup_s, machine.feed is not None),
        time("time: first load", machine.latency_s, True),
    ]


_RESOURCES: Final = (
    ("memory_s", "memory traffic"), ("feed_s", "L2 reads"), ("compute_s", "tensor cores, padding included"),
    ("epilogue_s", "the epilogue that nothing overlaps"), ("fixup_s", "the stream-K fix-up"),
)  # fmt: skip


def explain(first: Rated, second: Rated, machine: Machine) -> str:
    """Why `first` ranks before `second`: the key of `order` that decides, and the terms behind it."""
    a, b = first.rating, second.rating
    names = f"{name_of(first)} before {name_of(second)}: "
    if a.must_spill != b.must_spill:
        return names + (
            f"the accumulators of the second alone are {b.accumulators} registers a thread, more than it may have, so "
            "it must spill."
        )
    if bucket(a.time_s) != bucket(b.time_s):
        return (
            f"{names}modelled {a.time_s * MICRO:,.1f} us, bound by {a.bound}, against {b.time_s * MICRO:,.1f}, bound "
            f"by {b.bound}. {_causes(first, second)}"
        ).rstrip()
    same = f"{names}both model to {a.time_s * MICRO:,.1f} us, bound by {a.bound}; "
    if comfortable(first, machine) != comfortable(second, machine):
        return (
            f"{same}the loads of the first run further ahead: {first.laid.count.stages} stages and "
            f"{a.in_flight_bytes:,} bytes in flight an SM, against {second.laid.count.stages} and "
            f"{b.in_flight_bytes:,} ({machine.needed_in_flight or 0:,} are needed)."
        )
    if bucket(a.work_s) != bucket(b.work_s):
        _, key, text = max((getattr(b, key) - getattr(a, key), key, text) for key, text in _RESOURCES)
        return (
            f"{same}the first leaves more free: {text} takes {getattr(a, key) * MICRO:,.1f} us against "
            f"{getattr(b, key) * MICRO:,.1f}. {_causes(first, second)}"
        ).rstrip()
    return same + _tie(first, second)


def name_of(item: Rated) -> str:
    """`128x32x128 swapped, cluster 2x1`."""
    config = item.config
    parts = ["x".join(map(str, config.tile)) + (" swapped" if config.swap_ab else "")]
    if config.cluster != (1, 1, 1):
        parts.append("cluster " + "x".join(map(str, config.cluster[:2])))
    if config.tile_scheduler:
        parts.append(config.tile_scheduler)
    return ", ".join(parts)


def _causes(first: Rated, second: Rated) -> str:
    """The terms in which the two differ, as a sentence."""
    a, b = first.rating, second.rating
    parts: list[str] = []
    for value, other, text in (
        (a.rows_used, b.rows_used, "rows of a tile in use"), (a.columns_used, b.columns_used, "columns in use"),
        (a.tail_idle, b.tail_idle, "idle in the last wave"),
    ):  # fmt: skip
        if abs(value - other) > SAME_TIME:
            parts.append(f"{text} {value:.0%} against {other:.0%}")
    if a.busy_sms != b.busy_sms:
        parts.append(f"busy SMs {a.busy_sms} against {b.busy_sms}")
    if first.laid.count.stages != second.laid.count.stages:
        parts.append(f"stages {first.laid.count.stages} against {second.laid.count.stages}")
    if abs(a.in_flight_bytes - b.in_flight_bytes) > SAME_TIME * b.in_flight_bytes:
        parts.append(f"bytes in flight an SM {a.in_flight_bytes:,} against {b.in_flight_bytes:,}")
    if abs(a.l2_bytes - b.l2_bytes) > SAME_TIME * b.l2_bytes:
        parts.append(f"L2 reads {a.l2_bytes / MICRO:,.1f} MB against {b.l2_bytes / MICRO:,.1f}")
    if not parts:
        return ""
    text = "; ".join(parts)
    return text[0].upper() + text[1:] + "."


def _tie(first: Rated, second: Rated) -> str:
    a, b = first.rating, second.rating
    if a.direct_store != b.direct_store:
        return "the first stores whole lines by TMA, the second from registers."
    if a.pipeline_steps != b.pipeline_steps:
        return f"the first takes fewer steps of the pipeline ({a.pipeline_steps:,} against {b.pipeline_steps:,})."
    if a.l2_bytes != b.l2_bytes:
        return f"the first reads less from L2 ({a.l2_bytes:,} bytes against {b.l2_bytes:,})."
    if a.epilogue_steps != b.epilogue_steps:
        return f"the first stores a tile in fewer steps ({a.epilogue_steps} against {b.epilogue_steps})."
    return "the first is the plainer choice: what the builder counts, the smaller cluster, no operand exchanged."
