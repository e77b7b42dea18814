"""Speculative decoding: only where the checkpoint has prediction layers, with as many drafts as pay at the load."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.serving.advice.answer import Left, Suggestion
from tilewright.serving.advice.context import Context, Found
from tilewright.serving.advice.effects import effects, gain_at
from tilewright.serving.advice.state import State, default_requests
from tilewright.serving.launch import drafting_words
from tilewright.serving.scenario import Scenario

__all__ = ["advise_drafting"]

DRAFTS: Final = (1, 2, 3)
"""Drafts a step that are tried: as many as published tables have acceptance for."""
WORTH: Final = 1.10
"""A predicted gain below this is within what the acceptance of your own text moves it by."""
_ACCEPTANCE: Final = (
    "the acceptance of drafts is the mean of published tables of other models; your text decides, so look at the "
    "acceptance length in the metrics"
)


def with_drafts(state: State, drafts: int) -> State:
    """The state with so many drafts; requests are capped as before, or as the engine does when it drafts."""
    scenario: Scenario = replace(state.scenario, speculative_tokens=drafts, acceptance_length=None)
    return replace(state, scenario=scenario)


def advise_drafting(context: Context, found: Found) -> None:
    """Set, keep or drop drafts in `found`."""
    model, scenario = context.model, found.state.scenario
    name, given = context.name("drafting"), context.given("drafting")
    if not model.mtp_layers or not scenario.checkpoint.has_mtp:
        if model.mtp_layers:
            why = (
                f"{scenario.checkpoint.name} leaves out the prediction layers that {model.name} has; another "
                "checkpoint may have them ('tilewright models')"
            )
        else:
            why = f"{model.name} has no prediction layers; another kind of draft needs a model that is not given here"
        found.left.append(Left("drafting", name, why))
        return
    if name is None or not drafting_words(context.flags, 1):
        found.left.append(Left("drafting", None, f"{context.named} has no flags for the checkpoint's own drafts"))
        return
    if scenario.parallel.pp > 1:
        why = "pipeline stages and drafting exclude each other in SGLang, and vLLM pairs were not published"
        found.left.append(Left("drafting", name, why))
        return
    off = with_drafts(found.state, 0)
    held = replace(off, cap=min(off.limit(), max(context.load.sweep)))
    tried = {drafts: replace(with_drafts(held, drafts)) for drafts in DRAFTS}
    rates = {drafts: gain_at(held, state, context.load) for drafts, state in tried.items()}
    fitting = {drafts: rate for drafts, rate in rates.items() if tried[drafts].memory().fits}
    if not fitting:
        found.left.append(Left("drafting", name, "the prediction layers do not fit beside the others in this layout"))
        return
    best = max(fitting, key=lambda drafts: (round(fitting[drafts], 2), -drafts))
    if fitting[best] < WORTH:
        if given is None:
            why = (
                f"at {context.at} drafts are predicted to bring "
                f"{(fitting[best] - 1) * 100:+.0f} %: less than their acceptance moves it by"
            )
            found.left.append(Left("drafting", name, why))
        else:
            now = context.now
            found.suggestions.append(
                Suggestion(
                    concept="drafting", title=context.title("drafting"), flag=name, words=[], action="remove",
                    without="no drafts", given=given, effects=effects(now, with_drafts(now, 0), context.load),
                    why=f"At {context.at} drafts cost about what they save: {_ACCEPTANCE}.",
                    confidence=0.4,
                )
            )  # fmt: skip
            found.state = off
        return
    chosen = tried[best]
    before = off if not scenario.speculative_tokens else context.now
    same = scenario.speculative_tokens == best
    conflicts: list[str] = []
    capped = default_requests(chosen.scenario)
    if context.engine == "sglang" and context.load.concurrency > capped:
        conflicts.append(
            f"while it drafts, SGLang lets {capped} requests run unless {context.name('max_requests')} says more"
        )
    if context.engine == "sglang":
        conflicts.append("pipeline stages")
    found.state = with_drafts(found.state, best)
    if same:
        found.left.append(Left("drafting", name, f"your line drafts {best} a step already, which is what pays here"))
        return
    found.suggestions.append(
        Suggestion(
            concept="drafting",
            title=context.title("drafting"),
            flag=name,
            words=drafting_words(context.flags, best),
            action="set" if given is None else "change",
            without="no drafts" if given is None else f"your line drafts {scenario.speculative_tokens}",
            given=given,
            why=f"A step waits for weights, launches and all-reduces, and costs little more for {best + 1} tokens a "
            f"request than for one. {best} a step {'are' if best > 1 else 'is'} predicted to pay most at {context.at}; "
            f"{_ACCEPTANCE}.",
            effects=effects(replace(before, cap=held.cap), replace(chosen, cap=held.cap), context.load),
            conflicts=conflicts,
            numerics="unchanged in distribution: drafts are verified by the model",
            confidence=0.5,
            effort_h=1.0,
        )
    )
