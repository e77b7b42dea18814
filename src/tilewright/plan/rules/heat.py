"""GPUs that slow down because of heat, the power brake or a hardware slowdown: real throttling, in the snapshot."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.seen import gpu_list, middle, reasons
from tilewright.plan.target import Target

_REAL = {
    "hw_thermal_slowdown": "heat (hardware slowdown)",
    "sw_thermal_slowdown": "heat (driver)",
    "hw_power_brake_slowdown": "the power brake signal of the power supply or board",
    "hw_slowdown": "a hardware slowdown (heat, power brake or the supply)",
}


def _clock(target: Target, indices: set[int], hot: bool) -> float | None:
    assert target.snapshot is not None
    return middle(gpu.clock_sm_mhz for gpu in target.snapshot.gpus if (gpu.index in indices) == hot)


def run(target: Target) -> Iterator[Outcome]:
    assert target.snapshot is not None
    found = {name: which for name, which in reasons(target.snapshot).items() if name in _REAL}
    if not found:
        return
    indices = {index for which in found.values() for index in which}
    slow, fine = _clock(target, indices, True), _clock(target, indices, False)
    clocks = f" at {slow:.0f} MHz, the others at {fine:.0f}" if slow is not None and fine is not None else ""
    lost = (fine / slow - 1) * 100 if slow and fine and fine > slow else None
    why = "; ".join(f"{_REAL[name]}: {gpu_list(which)}" for name, which in sorted(found.items()))
    yield Fact(
        "summary", [(0, f"{gpu_list(indices)} throttled{clocks}: {why}. All GPUs of a layer wait for the slowest.")]
    )
    yield Draft(
        id="throttled",
        title=f"{gpu_list(indices)} throttled{clocks}",
        layer="system",
        evidence=[Evidence("measured", f"Throttle reasons in the snapshot: {why}.", target.snapshot_source)],
        cause="Tensor parallelism runs at the pace of the slowest GPU, so one hot card slows all of them.",
        fix=Fix(
            "Improve cooling or airflow, check the power cables and the supply's brake signal; a lower power limit "
            "on the hot cards holds a steadier clock than thermal throttling.",
            ["nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER"],
        ),
        gain=Gain("decode tok/s, %", 0.0, None if lost is None else lost / 2, lost, "modelled"),
        metric="health",
        confidence=0.8,
        effort_h=2.0,
        numerics="unchanged",
        confirm="No thermal or brake reason under load in `nvidia-smi -q -d PERFORMANCE`, and the same clock on all "
        "GPUs.",
        undo="Nothing to undo.",
    )


RULE = Rule(id="heat", looks_at="throttling by heat or power brake", run=run, needs=("observe",))
