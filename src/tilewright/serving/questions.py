"""The questions about whole models that `predict` answers: a decode step, a prefill (DESIGN 4.5).

A question is plain data as it comes from JSON; `tilewright.serving.scenario` resolves its names.
"""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from tilewright.cost.asking import check_whole, question_of
from tilewright.errors import InputError, shown
from tilewright.versions import version_key

__all__ = [
    "MAX_CONCURRENCY",
    "MAX_CONTEXT",
    "CheckpointSpec",
    "DecodeQuestion",
    "PrefillQuestion",
    "ServingQuestion",
    "parse_serving_question",
]

MAX_CONCURRENCY: Final = 1 << 17
MAX_CONTEXT: Final = 1 << 24
MAX_SPECULATIVE: Final = 64
MAX_GPUS: Final = 1 << 12


class CheckpointSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A checkpoint by what it quantises: these components (or groups: experts, mlp, linear) in that format."""

    format: str
    quantized: tuple[str, ...] = ("experts",)


class _Common(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What both questions say. Absent (null) fields take what the engine or the checkpoint takes by itself.

    `gpus` = tp x pp x copies of the whole model that share the requests out. `attention_dp` copies of the attention
    run inside a tensor-parallel group. `attention`: dense or sparse, for models with sparse attention.
    `checkpoint`: a name of one of the model's checkpoints, or what is quantised.
    """

    model: str
    gpu: str
    gpus: int = 1
    checkpoint: CheckpointSpec | str | None = None
    engine: str = "sglang"
    engine_version: str | None = None
    attention: str | None = None
    tp: int | None = None
    pp: int = 1
    ep: int = 1
    dcp: int = 1
    attention_dp: int = 1
    kv_dtype: str | None = None
    moe_backend: str | None = None
    allreduce_backend: str | None = None
    cuda_graphs: bool = True
    id: str | None = None


class DecodeQuestion(_Common, frozen=True, kw_only=True, tag_field="op", tag="decode"):
    """One decode step of `concurrency` running requests, each with `context` tokens behind it.

    `speculative_tokens` are drafted and verified in one step; `acceptance_length` is how many tokens a request gains
    a step on average, the verified one included (null: the published mean for that many drafts).
    """

    concurrency: int = 1
    context: int = 0
    speculative_tokens: int = 0
    acceptance_length: float | None = None


class PrefillQuestion(_Common, frozen=True, kw_only=True, tag_field="op", tag="prefill"):
    """The prompt of one request: the answer is the time to its first token, nothing else queued.

    `chunk_tokens`: how many tokens the engine takes at once (null: its default).
    """

    prompt_tokens: int
    context: int = 0
    """Tokens that are cached already (a shared prefix)."""
    chunk_tokens: int | None = None
    concurrency: int = 1
    speculative_tokens: int = 0
    acceptance_length: float | None = None


ServingQuestion = DecodeQuestion | PrefillQuestion
_TYPES: Final[dict[str, type[DecodeQuestion] | type[PrefillQuestion]]] = {
    "decode": DecodeQuestion,
    "prefill": PrefillQuestion,
}


def parse_serving_question(raw: dict[str, Any]) -> ServingQuestion:
    """The question that a JSON object asks; its `op` says which. Null means absent.

    Raises InputError naming the field.
    """
    checkpoint = raw.get("checkpoint")
    if isinstance(checkpoint, dict) and checkpoint:
        given = cast("dict[str, Any]", checkpoint)
        raw = {**raw, "checkpoint": {key: value for key, value in given.items() if value is not None} or None}
    question = question_of(raw, _TYPES)
    check_serving_question(question)
    return question


def check_serving_question(question: ServingQuestion) -> None:
    """Raises InputError when a size is out of range or sizes do not fit together."""
    for name in ("gpus", "pp", "ep", "dcp", "attention_dp"):
        check_whole(name, getattr(question, name), MAX_GPUS)
    if question.tp is not None:
        check_whole("tp", question.tp, MAX_GPUS)
    check_whole("concurrency", question.concurrency, MAX_CONCURRENCY)
    check_whole("context", question.context, MAX_CONTEXT, 0)
    check_whole("speculative_tokens", question.speculative_tokens, MAX_SPECULATIVE, 0)
    if isinstance(question, PrefillQuestion):
        check_whole("prompt_tokens", question.prompt_tokens, MAX_CONTEXT)
        if question.chunk_tokens is not None:
            check_whole("chunk_tokens", question.chunk_tokens, MAX_CONTEXT)
    length = question.acceptance_length
    if length is not None:
        most = question.speculative_tokens + 1
        if isinstance(length, bool) or not 1 <= length <= most:
            raise InputError(
                "acceptance_length",
                f"acceptance_length counts the tokens gained a step: from 1 to speculative_tokens + 1 = {most}, "
                f"not {shown(length)}.",
            )
    if question.engine_version is not None:
        version_key(question.engine_version, "engine_version")
    if question.attention not in (None, "dense", "sparse"):
        raise InputError("attention", f"attention must be dense or sparse, not {shown(question.attention)}.")
