"""Multi-token prediction, where the same stack was measured with and without it."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from tilewright.plan.finding import Draft, Evidence, Fix, Gain, Outcome, Rejected
from tilewright.plan.modelled import drafting_lacks, ratio_gain, step
from tilewright.plan.registry import Rule
from tilewright.plan.rules.memory_fit import gib
from tilewright.plan.seen import flag
from tilewright.plan.tables import speculation
from tilewright.plan.target import Target

_FLAGS = {
    "sglang": (
        "--speculative-algorithm EAGLE",
        "--speculative-num-steps 3",
        "--speculative-eagle-topk 1",
        "--speculative-num-draft-tokens 4",
    ),
    "vllm": ("""--speculative-config '{"method":"mtp","num_speculative_tokens":3}'""",),
}


def run(target: Target) -> Iterator[Outcome]:
    if not target.model.mtp_layers or target.engine not in _FLAGS:
        return
    if flag(target.snapshot, "--speculative-algorithm", "--speculative-algo", "--speculative-config") not in (
        None,
        False,
    ):
        return
    lacking = drafting_lacks(target)
    if lacking:
        yield Rejected(
            "Multi-token prediction in this layout",
            f"Its layers do not fit beside the others: {gib(lacking)} GiB of the fullest GPU are missing. Take a "
            "layout or a checkpoint that leaves room for them first.",
            [Evidence("modelled", f"{target.layout}, {target.model.checkpoint.name}.", "tilewright layout")],
        )
        return
    pair = speculation(target)
    if pair is None:
        yield from _predicted(target)
        return
    evidence = [
        Evidence(
            "published",
            f"{target.model.key} ({pair.weights}) on {target.gpu_title}, tok/s without -> with multi-token "
            f"prediction: {pair.text()} "
            "requests.",
            pair.source,
        )
    ]
    if not target.model.checkpoint.has_mtp:
        yield Draft(
            id="mtp_checkpoint",
            title="This checkpoint has no multi-token-prediction layer; one that has it decodes faster",
            layer="model",
            evidence=evidence,
            cause="Speculative decoding needs the prediction layer's weights, and this checkpoint leaves them out.",
            fix=Fix(
                "Take a checkpoint of this model that has them: 'tilewright models' lists which do.",
                [f"tilewright models {target.model.key}"],
            ),
            gain=_gain([gain for _, gain in pair.gains()]),
            confidence=0.4,
            effort_h=4.0,
            numerics="another checkpoint",
            confirm="The engine logs an acceptance length above 1; tok/s at one request rises.",
            undo="Serve the former checkpoint.",
        )
        return
    extra = target.memory_of(target.parallel, mtp=True)
    cost = extra.weights.runtime - target.memory.weights.runtime
    yield _draft(
        target,
        evidence=[
            *evidence,
            Evidence(
                "exact",
                f"Its weights take {gib(cost)} GiB a GPU in {target.layout}; room for {extra.tokens:,} KV tokens is "
                "left "
                f"(without it {target.memory.tokens:,}).",
                f"{target.model.checkpoint.name}, as stored",
            ),
        ],
        cause="At few requests a step costs the same for one token as for four: it waits for weights, launches and "
        "all-reduces. Drafted tokens use what is there already.",
        gain=_gain([gain for _, gain in pair.gains()]),
        confidence=0.6,
    )


DRAFTS = 3
"""Tokens drafted a step: what the published tables used, and what _FLAGS ask for."""
COUNTS = (1, 8)
"""Requests at which the prediction is shown: drafts pay most where a step waits for weights."""


def _predicted(target: Target) -> Iterator[Outcome]:
    """Where nobody published both: what the model of a step says, with the mean of published acceptance."""
    if not target.model.checkpoint.has_mtp or target.memory.left <= 0:
        return
    pairs = [(count, step(target, count, drafts=0), step(target, count, drafts=DRAFTS)) for count in COUNTS]
    known = [(count, off.tok_s, on.tok_s) for count, off, on in pairs if off is not None and on is not None]
    if not known or known[0][2] <= known[0][1]:
        return
    text = ", ".join(f"{off:,.0f} -> {on:,.0f} at {count}" for count, off, on in known)
    yield _draft(
        target,
        evidence=[
            Evidence(
                "modelled",
                f"Predicted tok/s without -> with {DRAFTS} drafted tokens: {text} requests, at the acceptance that "
                "published tables of other models had on average; yours decides.",
                "tilewright predict",
            )
        ],
        cause="At few requests a step costs nearly the same for one token as for four: it waits for weights and "
        "launches. Drafted tokens use what is there already.",
        gain=ratio_gain("decode tok/s, %", known[0][2] / known[0][1]),
        confidence=0.4,
    )


def _draft(target: Target, *, evidence: list[Evidence], cause: str, gain: Gain, confidence: float) -> Draft:
    """The finding, whatever it rests on."""
    return Draft(
        id="speculative_decoding",
        title="Switch multi-token prediction on, unless it already is",
        layer="runtime",
        evidence=evidence,
        cause=cause,
        fix=Fix(
            "Draft three tokens a step and look at the acceptance length before trying more.",
            [target.launch(*_FLAGS[target.engine])],
        ),
        gain=gain,
        confidence=confidence,
        effort_h=1.0,
        risk="with large batches the drafts cost more than they save; measure at your own load",
        numerics="unchanged in distribution: drafts are verified by the model",
        confirm="Acceptance length above 2 in the metrics, tok/s at 1 and at your usual number of requests.",
        undo="Start without the speculative flags.",
    )


def _gain(values: list[float]) -> Gain:
    return Gain("decode tok/s, %", round(min(values), 1), round(median(values), 1), round(max(values), 1), "published")


RULE = Rule(id="speculative", looks_at="speculative decoding", run=run)
