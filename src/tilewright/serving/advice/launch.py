"""The launch line of an advised server, in the words of one version, checked by that version's own rules."""

from __future__ import annotations

from typing import Final

from tilewright.libraries.engine_flags.command_line import take_apart
from tilewright.libraries.engine_flags.concepts import concepts, name_of, names, value_for
from tilewright.libraries.engine_flags.launch import Remark, check_launch, groups
from tilewright.libraries.engine_flags.withhold import kept_value, quoted
from tilewright.serving.advice.answer import Judged, Suggestion
from tilewright.serving.advice.context import Context
from tilewright.serving.advice.state import State
from tilewright.serving.launch import STARTS, layout_words, served_name

__all__ = ["line_of"]

_LAYOUT: Final = ("model", "tp", "pp", "ep", "dp", "attention_dp", "attention_dp_switch", "dcp")
"""Concepts that the line begins with, whatever the user's own line has."""


def _own_words(context: Context, skip: set[str], judged: list[Judged]) -> list[str]:
    """Flags of the user's line that the advice leaves alone, renamed where the version renamed them."""
    present = context.present
    if present is None:
        return []
    flags = context.flags
    bad: dict[str, Judged] = {}
    for item in judged:
        bad.setdefault(item.word.split()[0], item)  # the worst verdict stands first
    remarks: list[Remark] = []
    out: list[str] = []
    for name, flag, values in groups(flags, take_apart(present.check.command).words, remarks):
        item = bad.get(name)
        if item is not None and item.verdict in ("refused", "gone", "not yet", "not for this GPU", "no effect"):
            continue
        if name in skip:
            continue
        words = [name, *(quoted(kept_value(name, value)) for value in values)]
        if item is not None and item.instead:
            new, *fixed = item.instead
            words = [new, *(fixed or words[1:])]
            name, flag = new, flags.get(new)
        if flag is None or skip.intersection(flag.names):
            continue
        if name == "--model" and flags.engine == "vllm":
            continue
        out += words
    return out


def line_of(
    context: Context,
    state: State,
    length: int,
    suggestions: list[Suggestion],
    judged: list[Judged],
    kv: str | None,
) -> tuple[str, bool, list[str]]:
    """(the launch line, whether the version's parser takes it, words that it did not take and that were left out).

    `kv`: the cache format where it was asked for. What the advice sets comes first, the user's other flags after it.
    """
    flags = context.flags
    scenario = state.scenario
    given = context.present.text.get("model") if context.present is not None else None
    name = quoted(given) if given else served_name(scenario.model, scenario.checkpoint)
    start = STARTS[flags.engine]
    first = f"{start} {name}" if flags.engine == "vllm" else f"{start} {name_of(flags, 'model')} {name}"
    settings: list[tuple[str, list[str]]] = []
    limit = name_of(flags, "context")
    if limit is not None:
        settings.append(("context", [limit, str(length)]))
    if kv is not None:
        dtype, value = name_of(flags, "kv_dtype"), value_for(flags, "kv_dtype", kv)
        if dtype is not None and value is not None:
            settings.append(("kv_dtype", [dtype, value]))
    settings += [(item.concept, item.words) for item in suggestions if item.in_launch]
    removed = {item.concept for item in suggestions if item.action == "remove"}
    taken = {ident for ident, _ in settings} | removed | set(_LAYOUT)
    if {"drafting"} & taken:
        taken |= {"draft_steps", "draft_topk", "draft_tokens"}
    skip = {spelling for ident in taken & set(concepts()) for spelling in names(ident, flags.engine)}
    environment = context.present.check.environment if context.present is not None else {}
    idle = {item.word for item in judged if item.verdict == "no effect"}
    variables = [f"{key}={quoted(kept_value(key, value))}" for key, value in environment.items() if key not in idle]
    own = _own_words(context, skip, judged)
    dropped: list[str] = []
    while True:
        words = [*layout_words(flags, scenario), *(word for _, listed in settings for word in listed), *own]
        line = " ".join([*variables, first, *words])
        judged_line = check_launch(flags, line)
        if judged_line.accepted is not False:
            return line, judged_line.accepted is True, dropped
        faults = {remark.word.split("=")[0] for remark in judged_line.remarks if remark.stops}
        kept = [item for item in settings if item[1][0] not in faults]
        if len(kept) < len(settings):
            dropped += [item[1][0] for item in settings if item[1][0] in faults]
            settings = kept
        elif own:
            dropped += [word for word in own if word.startswith("-")]
            own = []
        else:
            return line, False, dropped
