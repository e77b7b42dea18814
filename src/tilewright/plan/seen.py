"""Readings of a snapshot that rules share: medians over GPUs, shares of limits, launch flags by any spelling."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from statistics import median

from tilewright.observe.snapshot import Gpu, Snapshot

IDLE_UTILISATION = 5.0
"""Percent; below it NVML saw hardly any kernel in its window."""
BUSY_UTILISATION = 95.0
"""Percent; NVML's utilisation is the share of time in which some kernel was resident, spinning ones included."""
SPIN_POWER_SHARE = 0.30
"""Share of the power limit. The published cases of spinning GPUs drew 85 to 140 W of 600 (14 to 23 %), real decode
235 to 300 W (39 to 50 %): evidence entries spin_wait and decode_power."""
LOW_POWER_SHARE = 0.55
"""Below this share of its limit a GPU is not limited by power in any published reading."""
LOW_CLOCK_SHARE = 0.60
"""Share of the highest SM clock; below it, with power to spare, the GPU has clocked down for want of work. At its full
600 W an RTX PRO 6000 still runs at 0.67 (Workstation) to 0.79 (Server) of it: packaged measurement natural_draw."""
AT_CAP_SHARE = 0.95
"""Share of the power limit from which a GPU counts as held by it (readings fluctuate by a few percent)."""


def middle(values: Iterable[float | None]) -> float | None:
    """The median of the values that are known, or None."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def share(gpu: Gpu, now: Callable[[Gpu], float | None], most: Callable[[Gpu], float | None]) -> float | None:
    top, value = most(gpu), now(gpu)
    return value / top if top and value is not None else None


def power_share(snapshot: Snapshot) -> float | None:
    """Median over the GPUs of power draw / power limit."""
    return middle(share(gpu, lambda g: g.power_draw_w, lambda g: g.power_limit_w) for gpu in snapshot.gpus)


def clock_share(snapshot: Snapshot) -> float | None:
    """Median over the GPUs of SM clock / highest SM clock."""
    return middle(share(gpu, lambda g: g.clock_sm_mhz, lambda g: g.clock_sm_max_mhz) for gpu in snapshot.gpus)


def utilisation(snapshot: Snapshot) -> float | None:
    return middle(gpu.utilization_gpu_pct for gpu in snapshot.gpus)


def watts(snapshot: Snapshot) -> tuple[float | None, float | None]:
    """Median power draw and power limit, W."""
    return middle(gpu.power_draw_w for gpu in snapshot.gpus), middle(gpu.power_limit_w for gpu in snapshot.gpus)


def reasons(snapshot: Snapshot) -> dict[str, list[int]]:
    """Throttle reason -> indices of the GPUs that report it."""
    found: dict[str, list[int]] = {}
    for gpu in snapshot.gpus:
        for reason in gpu.throttle_reasons or ():
            found.setdefault(reason, []).append(gpu.index)
    return found


def under_load(gpu: Gpu) -> bool:
    """Whether the GPU was working when it was read: its links and clocks then say something."""
    return gpu.utilization_gpu_pct is not None and gpu.utilization_gpu_pct > IDLE_UTILISATION


def flag(snapshot: Snapshot | None, *names: str) -> str | int | float | bool | None:
    """The value of the launch flag called by one of `names` (dashes or underscores), or None."""
    if snapshot is None or snapshot.engine is None:
        return None
    wanted = {name.strip("-").replace("_", "-") for name in names}
    for name, value in snapshot.engine.flags.items():
        if name.strip("-").replace("_", "-") in wanted:
            return value
    return None


def gpu_list(indices: Iterable[int]) -> str:
    """`GPU 0` or `GPUs 0, 1, 5`."""
    numbers = sorted(set(indices))
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
