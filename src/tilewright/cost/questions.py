"""The questions that `predict` answers about one kernel on one GPU, or one collective among several (DESIGN 4.5).

Questions about whole models (`decode`, `prefill`) are in `tilewright.serving`. Sizes are elements, `bytes` bytes.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tilewright.errors import InputError, nearest, shown

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
    op = raw.get("op")
    kind = _TYPES.get(op) if isinstance(op, str) else None
    if kind is None:
        raise InputError("op", f"op must be one of {', '.join(_TYPES)}, not {shown(op)}.")
    if None in raw.values():
        raw = {key: value for key, value in raw.items() if value is not None}
    try:
        question: Question = msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error), raw, kind) from None
    check_question(question)
    return question


def _explain(text: str, raw: dict[str, Any], kind: type[Any]) -> InputError:
    fields = kind.__struct_fields__
    for key in raw:
        if key != "op" and key not in fields:
            near = nearest(str(key), fields) or list(fields)
            return InputError(
                str(key), f"{shown(key)} is no field of this question; the nearest are {', '.join(near)}."
            )
    message, _, path = text.partition(" - at `$.")
    if path:
        field = path.rstrip("`")
        return InputError(field, f"{field}: {message}, got {shown(raw.get(field))}.")
    missing = message.partition("required field `")[2].rstrip("`")
    if missing:
        return InputError(missing, f"{missing} is missing; this question needs {', '.join(_needed(kind))}.")
    return InputError("question", f"{message}.")


def _needed(kind: type[Any]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(kind) if field.required]


def _whole(name: str, value: int, high: int, low: int = 1) -> None:
    # A bool is an int to Python; from Python code anything may come.
    if type(value) is not int or not low <= value <= high:
        raise InputError(name, f"{name} must be a whole number from {low} to {high:,}, not {shown(value)}.")


def check_question(question: Question) -> None:
    """Raises InputError when a size is out of range or sizes do not fit together."""
    if type(question) is GemmQuestion:
        _whole("m", question.m, MAX_EXTENT)
        _whole("n", question.n, MAX_EXTENT)
        _whole("k", question.k, MAX_EXTENT)
    elif type(question) is MoeQuestion:
        _check_moe(question)
    elif type(question) is AllreduceQuestion:
        _whole("gpus", question.gpus, MAX_GPUS)
        _whole("bytes", question.bytes, MAX_MESSAGE_BYTES)
        if question.collective not in COLLECTIVES:
            raise InputError(
                "collective", f"collective must be one of {', '.join(COLLECTIVES)}, not {shown(question.collective)}."
            )
        if question.topology not in (None, "same_numa", "cross_numa"):
            raise InputError(
                "topology", f"topology must be same_numa, cross_numa or left out, not {shown(question.topology)}."
            )


def _check_moe(question: MoeQuestion) -> None:
    _whole("tokens", question.tokens, MAX_EXTENT)
    _whole("hidden", question.hidden, MAX_EXTENT)
    _whole("inter", question.inter, MAX_EXTENT)
    _whole("experts", question.experts, MAX_EXPERTS)
    _whole("topk", question.topk, question.experts)
    _whole("tp", question.tp, min(MAX_GPUS, question.inter))
    _whole("ep", question.ep, min(MAX_GPUS, question.experts))
