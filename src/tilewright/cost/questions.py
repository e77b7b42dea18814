"""The questions that `predict` answers about one kernel on one GPU, or one collective among several (DESIGN 4.5).

Questions about whole models (`decode`, `prefill`) are in `tilewright.serving`. Sizes are elements, `bytes` bytes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tilewright.cost.asking import check_whole, question_of
from tilewright.errors import InputError, shown

__all__ = [
    "COLLECTIVES",
    "MAX_EXTENT",
    "MAX_GPUS",
    "MAX_MESSAGE_BYTES",
    "AllreduceQuestion",
    "GemmQuestion",
    "MoeQuestion",
    "Question",
    "check_question",
    "parse_question",
]

MAX_EXTENT: Final = 1 << 24
"""Largest m, n, k, tokens, hidden or inter that is taken: 16 million, 250 times the largest that was measured."""
MAX_EXPERTS: Final = 1 << 16
MAX_GPUS: Final = 1 << 12
MAX_MESSAGE_BYTES: Final = 1 << 40
COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")


class GemmQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="gemm"):
    """One dense GEMM: `m` tokens times an [n, k] weight. `backend` None: the usual one of the GPU for that dtype."""

    gpu: str
    dtype: str
    m: int
    n: int
    k: int
    backend: str | None = None
    id: str | None = None


class MoeQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="moe"):
    """One mixture-of-experts layer on one GPU: its shard of the experts, `tp` ways across and `ep` ways among them.

    `tokens` are those of the whole expert-parallel group, `experts` and `inter` the model's own (not divided).
    `distribution` is how tokens choose: `balanced`, `power_law_<alpha>` (1.01 and 1.2 were measured) or `uniform`.
    """

    gpu: str
    dtype: str
    tokens: int
    hidden: int
    inter: int
    topk: int
    experts: int
    tp: int = 1
    ep: int = 1
    distribution: str = "power_law_1.2"
    backend: str | None = None
    id: str | None = None


class AllreduceQuestion(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="op", tag="allreduce"
):
    """One collective among `gpus` GPUs of one host.

    `bytes` is the message of one GPU: what an all-reduce reduces, what an all-gather or an all-to-all has together
    after it, what a reduce-scatter has before it. `topology`: `same_numa`, `cross_numa` or None (as the table was
    measured); `tuned`: whether NCCL was given an algorithm and channels that suit PCIe.
    """

    gpu: str
    gpus: int
    bytes: int
    backend: str | None = None
    collective: str = "all_reduce"
    topology: str | None = None
    tuned: bool | None = None
    id: str | None = None


Question = GemmQuestion | MoeQuestion | AllreduceQuestion

_TYPES: Final[dict[str, type[GemmQuestion] | type[MoeQuestion] | type[AllreduceQuestion]]] = {
    "gemm": GemmQuestion,
    "moe": MoeQuestion,
    "allreduce": AllreduceQuestion,
}


def parse_question(raw: dict[str, Any]) -> Question:
    """The question that a JSON object asks; its `op` says which. Null means absent.

    Raises InputError naming the field.
    """
    question = question_of(raw, _TYPES)
    check_question(question)
    return question


def check_question(question: Question) -> None:
    """Raises InputError when a size is out of range or sizes do not fit together."""
    if type(question) is GemmQuestion:
        check_whole("m", question.m, MAX_EXTENT)
        check_whole("n", question.n, MAX_EXTENT)
        check_whole("k", question.k, MAX_EXTENT)
    elif type(question) is MoeQuestion:
        _check_moe(question)
    elif type(question) is AllreduceQuestion:
        check_whole("gpus", question.gpus, MAX_GPUS)
        check_whole("bytes", question.bytes, MAX_MESSAGE_BYTES)
        if question.collective not in COLLECTIVES:
            raise InputError(
                "collective", f"collective must be one of {', '.join(COLLECTIVES)}, not {shown(question.collective)}."
            )
        if question.topology not in (None, "same_numa", "cross_numa"):
            raise InputError(
                "topology", f"topology must be same_numa, cross_numa or left out, not {shown(question.topology)}."
            )


def _check_moe(question: MoeQuestion) -> None:
    check_whole("tokens", question.tokens, MAX_EXTENT)
    check_whole("hidden", question.hidden, MAX_EXTENT)
    check_whole("inter", question.inter, MAX_EXTENT)
    check_whole("experts", question.experts, MAX_EXPERTS)
    check_whole("topk", question.topk, question.experts)
    check_whole("tp", question.tp, min(MAX_GPUS, question.inter))
    check_whole("ep", question.ep, min(MAX_GPUS, question.experts))
