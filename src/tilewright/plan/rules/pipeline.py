"""Pipeline stages instead of tensor parallelism: twice the time a token with two stages, at few requests."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.models.memory import Parallel
from tilewright.plan.engines import layout_flags
from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome, Rejected
from tilewright.plan.modelled import pays_from, step
from tilewright.plan.registry import Rule
from tilewright.plan.rules.tp_shape import legal_sizes
from tilewright.plan.target import Target


def _reads(target: Target, tp: int, pp: int) -> tuple[float, str]:
    """(seconds in which one token passes all stages, the arithmetic): each GPU's weights of a stage, read once."""
    bandwidth = target.gpu.bandwidth("measured").value or target.gpu.bandwidth().value
    weights = target.memory_of(Parallel(tp=tp, pp=pp)).weights
    total = sum(weights.stages) if weights.stages else weights.runtime
    return total / (bandwidth * 1e9), f"{total / 1e9:.1f} GB of weights a GPU over {pp} stages, one after the other"


def run(target: Target) -> Iterator[Outcome]:
    if target.gpus < 4 or not (target.gpu.bandwidth("measured").value or target.gpu.bandwidth().value):
        return
    whole = target.gpus in legal_sizes(target) and target.memory_of(Parallel(tp=target.gpus)).left > 0
    if not whole or len(target.model.main_layers) < 2:
        return
    pp = target.parallel.pp if target.parallel.pp > 1 else 2
    tp = target.parallel.tp if target.parallel.pp > 1 else target.gpus // 2
    if tp * pp != target.gpus:
        return
    flat, _ = _reads(target, target.gpus, 1)
    staged, arithmetic = _reads(target, tp, pp)
    here = target.sm12x and target.pcie and target.gpus == 8 and target.model.key.startswith("GLM-5")
    evidence = [
        Evidence(
            "modelled",
            f"Reading all weights once: {staged * 1e3:.1f} ms with TP{tp} PP{pp} ({arithmetic}), {flat * 1e3:.1f} ms "
            "with "
            f"TP{target.gpus}. One request cannot be in two stages at once.",
            "bytes of the checkpoint / memory bandwidth",
        ),
        *(published("driving_case_pp2", "tp2_pp3") if here else []),
    ]
    ratio = staged / flat
    predicted = [step(target, 1, Parallel(tp=target.gpus)), step(target, 1, Parallel(tp=tp, pp=pp))]
    if predicted[0] is not None and predicted[1] is not None:
        evidence.append(
            Evidence(
                "modelled",
                f"Predicted at one request: {predicted[1].tok_s:,.1f} tok/s with TP{tp} PP{pp}, "
                f"{predicted[0].tok_s:,.1f} with TP{target.gpus}.",
                "tilewright layout",
            )
        )
    if target.parallel.pp == 1:
        many = pays_from(target, "pp")
        yield Rejected(
            f"TP{tp} with {pp} pipeline stages{' at few requests' if many else ''}",
            f"About {ratio:.0f}x slower a token at few requests: the stages work one after the other, so each token "
            f"waits for {ratio:.1f} times the bytes. Stages pay where requests fill all of them, or where TP does "
            "not fit.",
            evidence,
        )
        return
    yield Draft(
        id="pipeline_stages",
        title=f"{target.layout} is about {ratio:.0f}x slower a token than TP{target.gpus}",
        layer="runtime",
        evidence=evidence,
        cause="A token passes the pipeline stages one after the other; tensor parallelism reads all shares at once.",
        fix=Fix(
            f"Start with TP{target.gpus}: it divides and it fits.",
            [target.launch_as(Parallel(tp=target.gpus))],
        ),
        gain=Gain(
            "decode tok/s at few requests, %",
            30.0,
            (ratio - 1) * 100,
            (ratio - 1) * 100,
            "published" if here else "modelled",
        ),
        confidence=0.8 if here else 0.6,
        effort_h=0.5,
        risk="more all-reduce traffic: measure prefill too",
        confirm="Time a token at one request falls towards half.",
        undo=f"`{layout_flags(target.engine, tp, pp)}`",
    )


RULE = Rule(id="pipeline", looks_at="pipeline stages", run=run)
