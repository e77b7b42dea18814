"""Whether the shapes divide over the layout: heads, expert rows, scale blocks (case C63)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.models.legality import tp_verdict
from tilewright.models.memory import Parallel
from tilewright.plan.engines import launch, layout_flags
from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

TILE_K = 128
"""Elements of K in the smallest block-scaled tile; a K that is no multiple of it wastes the rest of its last tile."""
SHOWN = 4
"""Reasons that are shown; one shape often breaks several matrices for the same reason."""


def refusals(target: Target, parallel: Parallel) -> tuple[str, ...]:
    """Why this layout is not legal for the checkpoint; empty where it is."""
    return tp_verdict(target.model, parallel).problems


def legal_sizes(target: Target) -> list[int]:
    """Tensor-parallel sizes that divide the GPUs and that the checkpoint can be cut into."""
    sizes = [size for size in range(1, target.gpus + 1) if target.gpus % size == 0]
    return [size for size in sizes if not refusals(target, Parallel(tp=size))]


def _remarks(target: Target) -> Iterator[str]:
    verdict = tp_verdict(target.model, target.parallel)
    yield from (f"{note} (exact)." for note in verdict.notes[:SHOWN])
    moe = target.model.moe
    if moe and target.fp4_cores and target.expert_family in ("nvfp4", "mxfp4"):
        k = moe.inter // target.parallel.expert_tp
        if k % TILE_K:
            used = k / (-(-k // TILE_K) * TILE_K)
            yield (
                f"The down projection's K is {moe.inter} / {target.parallel.expert_tp} = {k}, no multiple of the "
                "tile's "
                f"{TILE_K}: {100 - used * 100:.0f} % of its tiles' K is padding (exact)."
            )


def run(target: Target) -> Iterator[Outcome]:
    legal = legal_sizes(target)
    yield Fact("legal_tp", legal)
    why = refusals(target, target.parallel)
    if not why:
        yield Fact("remarks", list(_remarks(target)))
        return
    fmt, tp = target.expert_format, target.parallel.tp
    best = max((size for size in legal if target.memory_of(Parallel(tp=size)).left > 0), default=0)
    spread = next(
        (
            ep
            for ep in range(2, tp + 1)
            if target.model.moe and tp % ep == 0 and not refusals(target, Parallel(tp=tp, ep=ep))
        ),
        0,
    )
    ways = ([f"TP{best}"] if best else []) + ([f"TP{tp} with EP{spread}"] if spread else [])
    flags = [layout_flags(target.engine, best)] if best else []
    flags += [layout_flags(target.engine, tp, ep=spread)] if spread else []
    more = f" (and {len(why) - SHOWN} more)" if len(why) > SHOWN else ""
    yield Draft(
        id="layout_does_not_divide",
        title=f"{target.layout} does not divide this checkpoint",
        layer="model",
        evidence=[
            Evidence("exact", "; ".join(why[:SHOWN]) + more + ".", f"shapes of {target.model_source}"),
            *(published("block128_tp") if fmt and fmt.scaling == "block" else []),
        ],
        cause="A rank must hold whole heads, whole scale blocks and whole scale vectors; a part of a block has no "
        "scale "
        "of its own.",
        fix=Fix(
            f"Use {' or '.join(ways)}."
            if ways
            else "No layout of these GPUs both divides and fits; see the other findings.",
            [launch(target.engine, target.served, each) for each in flags],
        ),
        gain=Gain("the server starts", None, None, None, "exact"),
        metric="runs",
        confidence=0.9,
        effort_h=0.5,
        confirm="The engine loads the checkpoint without a shape or scale error.",
        undo="Nothing ran before.",
    )


RULE = Rule(id="tp_shape", looks_at="whether the layout divides the model", run=run)
