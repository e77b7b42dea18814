"""A model's expert layer as one GPU of a layout runs it."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.bench.problem import MoeProblem
from tilewright.errors import InputError
from tilewright.models.records import Model


def moe_shard(
    model: Model, tokens: Sequence[int], *, tp: int, ep: int, dtype: str, distribution: str = "uniform"
) -> tuple[list[MoeProblem], str]:
    """(the problems, a note where they are not the layer exactly). `tokens` are those of the whole group.

    Of a layer over `ep` GPUs, one holds experts / ep and gets tokens x topk / ep rows on average. Raises InputError
    for a model without experts or a layout that does not divide them.
    """
    moe = model.moe
    if moe is None:
        raise InputError("model", f"{model.name} has no expert layers; give one that has, or the sizes themselves.")
    if tp < 1 or moe.inter % tp:
        raise InputError(
            "tp", f"--tp {tp} does not divide the {moe.inter:,} columns of an expert of {model.name}; give a divisor."
        )
    if ep < 1 or moe.experts % ep:
        raise InputError("ep", f"--ep {ep} does not divide the {moe.experts} experts of {model.name}; give a divisor.")
    experts, note = moe.experts // ep, ""
    problems: list[MoeProblem] = []
    for count in tokens:
        topk, here = moe.topk, count
        if ep > 1:
            note = f"ep {ep}: the mean share of one GPU, {moe.topk} / {ep} rows a token"
            topk, here = (topk // ep, count) if topk % ep == 0 else (1, -(-count * topk // ep))
        problems.append(
            MoeProblem(
                tokens=here, hidden=moe.latent or model.hidden, inter=moe.inter // tp, experts=experts,
                topk=topk, dtype=dtype, distribution=distribution,
            )
        )  # fmt: skip
    return list(dict.fromkeys(problems)), note
