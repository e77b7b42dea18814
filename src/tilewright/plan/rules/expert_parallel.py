"""Expert parallelism over PCIe: 4 to 5 % slower in decode where it was measured (case 5.31, claim W16)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.models.memory import Parallel
from tilewright.plan.engines import layout_flags
from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome, Rejected
from tilewright.plan.modelled import pays_from
from tilewright.plan.registry import Rule
from tilewright.plan.rules.tp_shape import refusals
from tilewright.plan.seen import flag
from tilewright.plan.target import Target


def run(target: Target) -> Iterator[Outcome]:
    moe = target.model.moe
    if moe is None or target.gpus < 2 or not target.pcie or target.parallel.tp < 2:
        return
    on = target.parallel.ep > 1 or flag(target.snapshot, "--enable-expert-parallel", "--ep-size", "--ep") not in (
        None, False, 1,
    )  # fmt: skip
    tp = target.parallel.tp
    if refusals(target, Parallel(tp=tp)):
        return  # without EP this layout would not divide: nothing to reject
    if not on:
        many = pays_from(target, "ep")
        beyond = f" From {many} requests on predictions favour a layout with it: compare there." if many else ""
        yield Rejected(
            f"Expert parallelism (EP{tp}){' at few requests' if many else ''}",
            f"On PCIe it lost 4 to 5 % in decode where it was measured. Each GPU would hold {moe.experts // tp} whole "
            f"experts, and the GPU with the most tokens decides the time of every layer.{beyond}",
            published("ep_pcie"),
        )
        return
    yield Draft(
        id="expert_parallel",
        title="Expert parallelism over PCIe costs decode speed",
        layer="runtime",
        evidence=[
            Evidence("exact", f"Layout: {target.layout}; the GPUs have no NVLink.", f"gpus {target.gpu.key}"),
            *published("ep_pcie"),
        ],
        cause="With whole experts on each GPU the fullest one sets the pace of every layer, and nothing is saved on a "
        "PCIe link.",
        fix=Fix(
            "Switch it off and compare at your concurrency; long prefill may be the exception.",
            [target.launch_as(Parallel(tp=tp, pp=target.parallel.pp))],
        ),
        gain=Gain("decode tok/s, %", 0.0, 4.0, 5.0, "published"),
        confidence=0.5,
        effort_h=0.5,
        confirm="The same load twice, on and off: tok/s at 1 and at your usual number of requests.",
        undo=f"`{layout_flags(target.engine, tp, target.parallel.pp, max(target.parallel.ep, 2))}`",
    )


RULE = Rule(id="expert_parallel", looks_at="expert parallelism", run=run)
