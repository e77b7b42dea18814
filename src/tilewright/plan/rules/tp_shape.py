"""Whether the shapes divide over the layout: heads, expert rows, scale blocks (case C63)."""

from __future__ import annotations

from collections.abc import Iterator

from tilewright.models.legality import tp_verdict
from tilewright.models.memory import Parallel
from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome
from tilewright.plan.modelled import best_layout
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target, layout_title

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
    asked = target.asked or target.parallel
    why = refusals(target, asked)
    if target.asked is not None or not why:
        yield Fact("remarks", list(_remarks(target)))
    if not why:
        return
    fmt, tp = target.expert_format, asked.tp
    title = f"{layout_title(asked)} does not divide this checkpoint"
    if target.asked is not None:
        yield Fact(
            "summary",
            [(0, f"{title}: this plan is for {target.layout}, the best layout of these GPUs that can be cut.")],
        )
    else:
        yield Fact("summary", [(0, f"{title}, so nothing below can be measured before that is changed.")])
    best = max((size for size in legal if target.memory_of(Parallel(tp=size)).left > 0), default=0)
    spread = next(
        (
            ep
            for ep in range(2, tp + 1)
            if target.model.moe and tp % ep == 0 and not refusals(target, Parallel(tp=tp, ep=ep))
        ),
        0,
    )
    found = [Parallel(tp=best)] if best else []
    found += [Parallel(tp=tp, ep=spread)] if spread else []
    served = best_layout(target)
    if served is not None:
        fastest = Parallel(tp=served.tp, pp=served.pp, ep=served.ep)
        found = [fastest, *(each for each in found if each != fastest)]
    ways = [layout_title(each) for each in found]
    more = f" (and {len(why) - SHOWN} more)" if len(why) > SHOWN else ""
    yield Draft(
        id="layout_does_not_divide",
        title=title,
        layer="model",
        evidence=[
            Evidence("exact", "; ".join(why[:SHOWN]) + more + ".", f"shapes of {target.model_source}"),
            *(published("block128_tp") if fmt and fmt.scaling == "block" else []),
        ],
        cause="A rank must hold whole heads, whole scale blocks and whole scale vectors; a part of a block has no "
        "scale of its own.",
        fix=Fix(
            f"Use {' or '.join(ways)}."
            if ways
            else "No layout of these GPUs both divides and fits; see the other findings.",
            [target.launch_as(each) for each in found],
        ),
        gain=Gain("the server starts", None, None, None, "exact"),
        metric="runs",
        confidence=0.9,
        effort_h=0.5,
        confirm="The engine loads the checkpoint without a shape or scale error.",
        undo="Nothing ran before.",
    )


RULE = Rule(id="tp_shape", looks_at="whether the layout divides the model", run=run)
