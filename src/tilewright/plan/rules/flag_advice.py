"""Server flags that no other rule speaks of, as advised for the version at hand: what they bring, what does nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tilewright.errors import InputError
from tilewright.plan import modelled
from tilewright.plan.engine_version import known_flags
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Metric, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target

if TYPE_CHECKING:
    from tilewright.libraries.engine_flags.model import FlagSet
    from tilewright.serving.advice.answer import Advice, Effect, Suggestion

ID: Final = "flag_"
"""How the ids of these findings begin."""
WORTH: Final = 5.0
"""Per cent of a predicted gain below which a flag is no finding: a third of what such predictions are wrong by."""
_OTHERS: Final = frozenset({"drafting", "moe_backend", "all_reduce", "no_shared_fusion"})
"""Concepts that have rules of their own: speculative, moe_backend, all_reduce, shared_experts."""
_SAID: Final = ("--num-continuous-decode-steps", "allreduce-fusion")
"""Words of flags that the rules noop_steps and reduce_fusion speak of."""


def _line(target: Target, flags: FlagSet) -> str | None:
    """The server's launch line as a snapshot shows its flags; None without one."""
    engine = target.snapshot.engine if target.snapshot is not None else None
    if engine is None or not engine.flags:
        return None
    words: list[str] = [
        "python3 -m sglang.launch_server" if target.engine == "sglang" else "vllm serve " + target.served
    ]
    for name, value in engine.flags.items():
        spelt = name if name.startswith("-") else "--" + name.replace("_", "-")
        if value is None or value is False:
            continue
        flag = flags.get(spelt)
        bare = value is True or (flag is not None and flag.kind in ("switch", "bool"))
        words += [spelt] if bare else [spelt, shlex.quote(str(value))]
    return " ".join(words)


def advice(target: Target) -> Advice | None:
    """The advice for the target's server at the requests that it serves or could; None where nothing is predicted."""
    from tilewright.serving.advice.advise import advise_state, load_of, present_state
    from tilewright.serving.advice.context import Context
    from tilewright.serving.advice.present import read_present

    base, flags = modelled.scenario(target), known_flags(target)
    if base is None or flags is None or target.gpu.memory_bytes is None:
        return None
    try:
        if target.cache_words:  # what the checkpoint asks for, so that the advice says why it does not do
            base = replace(base, kv_layout="fp8")
        line = _line(target, flags)
        present = read_present(flags, line) if line is not None else None
        now = present_state(base, flags, present, None)
        load = load_of(now, modelled.CONTEXT, modelled.CONTEXT, modelled.requests(target), "throughput")
        return advise_state(Context(flags, now, load, "throughput", present), "as the plan has it")
    except InputError:
        return None


def run(target: Target) -> Iterator[Outcome]:
    made = advice(target)
    if made is None:
        return
    where = f"flags of {target.engine_title} {made.version}{', packaged' if made.packaged else ' in the tree given'}"
    yield Fact("flags", {"version": made.version, "packaged": made.packaged, "launch": made.launch})
    for item in made.suggestions:
        if item.concept not in _OTHERS and not (item.concept == "kv_dtype" and item.action == "try"):
            yield from _finding(target, made, item, where)
    yield from _idle(made, where)


def _serves(target: Target) -> bool:
    """Whether the snapshot shows a server that answers: what would keep it from starting does not."""
    metrics = target.snapshot.metrics if target.snapshot is not None else None
    return metrics is not None and bool(metrics.running or metrics.generation_tok_s)


def _best(item: Suggestion, phase: str, at: int) -> Effect | None:
    found = [e for e in item.effects if e.phase == phase and e.concurrency in (at, None) and e.gain_percent is not None]
    return found[0] if found else None


def _finding(target: Target, made: Advice, item: Suggestion, where: str) -> Iterator[Draft]:
    decode, prefill = _best(item, "decode", made.concurrency), _best(item, "prefill", made.concurrency)
    metric: Metric
    if decode is not None and (decode.gain_percent or 0) >= WORTH:
        effect, metric, unit = decode, "decode", f"decode tok/s at {made.concurrency} requests, %"
    elif prefill is not None and (prefill.gain_percent or 0) >= WORTH:
        effect, metric, unit = prefill, "prefill", "prefill tok/s, %"
    elif item.start and not _serves(target):
        effect, metric, unit = None, "runs", "the server starts"
    else:
        return
    gain = Gain(unit, None, None, None, "published")
    shown: list[Evidence] = []
    if effect is not None:
        gain = Gain(unit, effect.low_percent, effect.gain_percent, effect.high_percent, "modelled")
        figures = f"{effect.metric}: {effect.before:,.4g} -> {effect.after:,.4g}"
        shown.append(
            Evidence("modelled", f"Predicted {figures}, everything else as it is.", "tilewright flags --advise")
        )
    shown += [Evidence(ground.kind, ground.text, ground.source) for ground in item.evidence]
    shown.append(Evidence("published", f"{item.flag}; without it: {item.without}.", where))
    words = " ".join(item.words)
    yield Draft(
        id=ID + item.concept,
        title=f"{'Remove ' + (item.given or item.flag) if item.action == 'remove' else words}: {item.title}",
        layer="runtime",
        evidence=shown,
        cause=item.why,
        fix=Fix(
            f"Start without {item.flag}." if item.action == "remove" else f"Start with {words}.",
            [made.launch if made.judged or item.action == "remove" else target.launch(words)],
        ),
        gain=gain,
        metric=metric,
        confidence=item.confidence,
        effort_h=item.effort_h,
        risk="; ".join(f"not together with {conflict}" for conflict in item.conflicts) or "none known",
        numerics=item.numerics,
        confirm="tok/s and time to the first token at your own number of requests, before and after.",
        undo=f"{item.given}" if item.given else f"Start without {item.flag}.",
    )


def _idle(made: Advice, where: str) -> Iterator[Draft]:
    """Words of the server's line that do nothing, are renamed or refused in this version."""
    words = [item for item in made.judged if item.verdict != "default" and not any(said in item.word for said in _SAID)]
    if not words:
        return
    yield Draft(
        id=ID + "line",
        title=f"{len(words)} flag{'s' if len(words) > 1 else ''} of the launch line "
        f"{'are' if len(words) > 1 else 'is'} not what {'they seem' if len(words) > 1 else 'it seems'} in this version",
        layer="runtime",
        evidence=[
            Evidence("published", f"{item.word}: {item.verdict}. {item.text}", item.source or where) for item in words
        ],
        cause="Flags are renamed, dropped and left unread from release to release, and some serve other GPUs only.",
        fix=Fix("Start with the line as this version reads it.", [made.launch]),
        gain=Gain("the line says what the server does", None, None, None, "published"),
        metric="startup",
        confidence=0.8,
        effort_h=0.25,
        confirm=f"The line passes 'tilewright flags {made.engine} --check-launch' without a remark.",
        undo="Start with the former line.",
    )


def undoubled(drafts: list[Draft]) -> list[Draft]:
    """`drafts` without those of this rule whose flag another finding proposes or speaks of."""
    others = {
        word.strip(".,:;()")
        for item in drafts
        if not item.id.startswith(ID)
        for text in (item.title, item.fix.text, *(line for line in item.fix.commands if line.startswith("--")))
        for word in text.split()
    }
    return [item for item in drafts if not item.id.startswith(ID) or not _spoken(item, others)]


def _spoken(item: Draft, others: set[str]) -> bool:
    """Whether another finding's title, text or bare flags name this finding's flag. Whole launch lines do not count:
    they set a layout and name many flags."""
    name = next((word for word in item.title.split() if word.startswith("--")), "").rstrip(":")
    return name in others


RULE = Rule(id="flag_advice", looks_at="server flags", run=run)
