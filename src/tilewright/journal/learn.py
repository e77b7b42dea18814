"""What a plan learns from experiments: what is done, what was refuted here, and what was tried elsewhere. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from tilewright.journal.experiment import CONDITIONS, Recorded
from tilewright.journal.judge import gave, judge
from tilewright.plan.finding import Draft, Evidence, Gain, Rejected

DOUBT: Final = 0.5
"""An experiment that settled nothing, or one that failed under other conditions, halves a finding's confidence."""
TRUST: Final = 0.8
"""Confidence of a finding that was measured and kept on the same GPU and model under other conditions."""
_ALIKE: Final = ("model", "gpu")
"""What has to be equal for an experiment under other conditions to say anything about this plan."""


@dataclass(frozen=True)
class Learnt:
    """What became of the drafts, and the experiments that bear on this plan, oldest first."""

    drafts: list[Draft]
    rejected: list[Rejected]
    tried: list[dict[str, Any]]


def same_conditions(known: dict[str, Any], target: dict[str, Any]) -> bool:
    """Whether an experiment was made under the plan's conditions, as far as both say."""
    return all(
        known[name] == target[name]
        for name in CONDITIONS
        if known.get(name) is not None and target.get(name) is not None
    )


def _alike(known: dict[str, Any], target: dict[str, Any]) -> bool:
    return all(known.get(name) == target.get(name) for name in _ALIKE)


def said(item: Recorded) -> str:
    """An experiment's outcome in one sentence."""
    what = judge(item.experiment)
    change = gave(what, item.experiment.better)
    told = f" ({change})" if change else ""
    noise = "" if what.apart else ", within the spread"
    note = f" {item.experiment.note.strip()}" if item.experiment.note.strip() else ""
    return (
        f"{item.experiment.at[:10]}: {item.experiment.metric} {what.before:g} -> {what.after:g}{told}{noise}, "
        f"{item.experiment.verdict}.{note}"
    )


def _evidence(item: Recorded, *, here: bool) -> Evidence:
    where = "" if here else " Under other conditions."
    return Evidence("measured", said(item) + where, f"journal entry {item.id}")


def learn(
    drafts: Iterable[Draft], rejected: Iterable[Rejected], entries: Iterable[Recorded], target: dict[str, Any]
) -> Learnt:
    """Apply what was tried. The last entry of a finding under these conditions decides about it."""
    here: dict[str, Recorded] = {}
    elsewhere: dict[str, list[Recorded]] = {}
    tried: list[dict[str, Any]] = []
    for item in entries:
        known: dict[str, Any] = dict(item.experiment.conditions)
        same = same_conditions(known, target)
        if not same and not _alike(known, target):
            continue
        tried.append(_row(item, same))
        if item.experiment.finding:
            if same:
                here[item.experiment.finding] = item
            else:
                elsewhere.setdefault(item.experiment.finding, []).append(item)
    kept: list[Draft] = []
    refused = list(rejected)
    for draft in drafts:
        decided = here.get(draft.id)
        if decided is not None and decided.experiment.verdict == "reverted":
            why = "It was tried under these conditions and taken back."
            refused.append(Rejected(draft.title, why, [_evidence(decided, here=True), *draft.evidence]))
        elif decided is not None and decided.experiment.verdict == "kept":
            continue  # done: it stands among what was tried
        else:
            kept.append(_informed(draft, decided, elsewhere.get(draft.id, [])))
    return Learnt(kept, refused, tried)


def _row(item: Recorded, same: bool) -> dict[str, Any]:
    what = judge(item.experiment)
    return {
        "id": item.id,
        "at": item.experiment.at,
        "finding": item.experiment.finding,
        "change": item.experiment.change,
        "metric": item.experiment.metric,
        "before": what.before,
        "after": what.after,
        "better": item.experiment.better,
        "gave": gave(what, item.experiment.better),
        "change_pct": None if what.change_pct is None else round(what.change_pct, 1),
        "gain_pct": None if what.gain_pct is None else round(what.gain_pct, 1),
        "spread_pct": None if what.spread_pct is None else round(what.spread_pct, 1),
        "verdict": item.experiment.verdict,
        "same_conditions": same,
        "note": item.experiment.note,
    }


def _same_metric(gain: str, measured: str) -> bool:
    """Whether an experiment measured what a gain is stated in (`decode tok/s, %` and `decode tok/s at 8 requests`)."""
    one, two = (text.removesuffix(", %").casefold().strip() for text in (gain, measured))
    return one.startswith(two) or two.startswith(one)


def _informed(draft: Draft, undecided: Recorded | None, others: list[Recorded]) -> Draft:
    """A finding that is still open, with what experiments say of it."""
    confidence, gain = draft.confidence, draft.gain
    evidence = [_evidence(item, here=False) for item in others]
    if undecided is not None:
        confidence *= DOUBT
        evidence.insert(0, _evidence(undecided, here=True))
    elif others:
        last = others[-1]
        if last.experiment.verdict == "reverted":
            confidence *= DOUBT
        elif last.experiment.verdict == "kept":
            confidence = max(confidence, TRUST)
            measured = judge(last.experiment).gain_pct
            if measured is not None and gain.expected is not None and _same_metric(gain.metric, last.experiment.metric):
                low, high = gain.low, gain.high
                gain = Gain(
                    gain.metric,
                    measured if low is None else min(low, measured),
                    round(measured, 1),
                    measured if high is None else max(high, measured),
                    "measured",
                )
    return replace(draft, evidence=[*evidence, *draft.evidence], confidence=confidence, gain=gain)
