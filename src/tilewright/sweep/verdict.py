"""From runs to an answer: candidates with their means, who leads, and whether that is more than noise. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Any, Final

from tilewright.store.result import canonical
from tilewright.sweep.document import Candidate, Run, Verdict
from tilewright.sweep.goal import Constraint, Goal
from tilewright.sweep.outcome import STATUSES
from tilewright.sweep.significance import Comparison, compare, holm
from tilewright.sweep.space import told

__all__ = ["candidates_of", "goal_with_errors", "judge", "key_of", "starts_of"]

MAX_ERRORS: Final = Constraint("error_rate", "<=", 0.01)
"""Kept by every candidate unless the goal speaks of error_rate: a server that drops requests looks fast."""


def goal_with_errors(goal: Goal) -> Goal:
    """The goal with `MAX_ERRORS`, where it says nothing about errors."""
    if "error_rate" in {goal.metric, *(item.metric for item in goal.constraints)}:
        return goal
    return Goal(goal.direction, goal.metric, (*goal.constraints, MAX_ERRORS))


def key_of(assignment: dict[str, Any]) -> bytes:
    """What makes two assignments the same candidate."""
    return canonical(assignment)


def starts_of(runs: Sequence[Run], metric: str) -> list[list[float]]:
    """The samples of a metric, one list a start."""
    found = [[r.metrics[metric] for r in run.outcome.repeats if metric in r.metrics] for run in runs]
    return [start for start in found if start]


def _grouped(runs: Sequence[Run]) -> list[list[Run]]:
    groups: dict[bytes, list[Run]] = {}
    for run in runs:
        groups.setdefault(key_of(run.assignment), []).append(run)
    return list(groups.values())


def candidates_of(runs: Sequence[Run], goal: Goal) -> list[Candidate]:
    """Every assignment that was run, in the order in which they first were; numbered from 0."""
    strict = goal_with_errors(goal)
    out: list[Candidate] = []
    for number, group in enumerate(_grouped(runs)):
        repeats = [r for run in group for r in run.outcome.repeats]
        names = {name for r in repeats for name in r.metrics}
        means = {name: fmean([r.metrics[name] for r in repeats if name in r.metrics]) for name in sorted(names)}
        failed = [run for run in group if run.outcome.status != "measured"]
        # One start in three that dies is not a server to recommend.
        status = failed[-1].outcome.status if failed else "measured"
        missed = [
            f"{bound} (is {means[bound.metric]:.4g})" if bound.metric in means else f"{bound} (not measured)"
            for bound, over in zip(strict.constraints, strict.violations(means), strict=True)
            if over > 0
        ]
        values = [r.metrics[goal.metric] for r in repeats if goal.metric in r.metrics]
        mean = fmean(values) if values else 0.0
        out.append(
            Candidate(
                number=number,
                origin=group[0].origin,
                assignment=group[0].assignment,
                status=status,
                runs=[run.number for run in group],
                repeats=len(repeats),
                metrics=means,
                spread_pct=(max(values) - min(values)) / 2 / abs(mean) * 100 if len(values) > 1 and mean else None,
                feasible=status == "measured" and strict.feasible(means),
                missed=missed if repeats else [],
                reason=failed[-1].outcome.reason if failed else None,
                marks=sorted({mark for r in repeats for mark in r.marks}),
            )
        )
    return out


def ranked(candidates: Sequence[Candidate], goal: Goal) -> list[Candidate]:
    """The feasible ones, best mean first."""
    feasible = [item for item in candidates if item.feasible]
    return sorted(feasible, key=lambda item: item.metrics[goal.metric], reverse=goal.direction == "max")


def judge(runs: Sequence[Run], goal: Goal) -> tuple[list[Candidate], Verdict]:
    """Candidates and verdict."""
    candidates = candidates_of(runs, goal)
    order = ranked(candidates, goal)
    by_number = {run.number: run for run in runs}

    def starts(item: Candidate) -> list[list[float]]:
        return starts_of([by_number[n] for n in item.runs], goal.metric)

    if not order:
        return candidates, Verdict(
            winner=None,
            leader=None,
            tied=[],
            comparisons=[],
            over_baseline=None,
            text=_nothing(candidates, goal),
            notes=[],
        )
    leader, rivals = order[0], order[1:]
    found = holm([compare(item.number, starts(leader), starts(item)) for item in rivals])
    tied = [item.with_candidate for item in found if not item.significant]
    baseline = next((item for item in candidates if item.origin == "baseline"), None)
    over: Comparison | None = None
    if baseline is not None and baseline.number != leader.number and goal.metric in baseline.metrics:
        # The leader was chosen by these same figures, so this comparison is one of many like the others.
        corrected = [item for item in found if item.with_candidate == baseline.number]
        over = corrected[0] if corrected else compare(baseline.number, starts(leader), starts(baseline))
    return candidates, Verdict(
        winner=leader.number if not tied else None,
        leader=leader.number,
        tied=tied,
        comparisons=found,
        over_baseline=over,
        text=_said(leader, rivals, tied, baseline, over, goal),
        notes=_notes(leader, [by_number[n] for n in leader.runs], goal),
    )


def _nothing(candidates: Sequence[Candidate], goal: Goal) -> str:
    measured = [item for item in candidates if item.status == "measured" and goal.metric in item.metrics]
    if not measured:
        return "Nothing could be measured: every candidate failed."
    strict = goal_with_errors(goal)
    nearest = min(measured, key=lambda item: sum(max(0.0, v) for v in strict.violations(item.metrics)))
    return (
        f"No candidate keeps the limits. The nearest is {nearest.number} ({told(nearest.assignment)}): it misses "
        f"{' and '.join(nearest.missed)}."
    )


def _gain(over: Comparison, goal: Goal) -> str:
    text = f"{over.difference_pct:+.1f} % {goal.metric}" if over.difference_pct is not None else goal.metric
    if over.low_pct is not None and over.high_pct is not None:
        text += f" (95 %: {over.low_pct:+.1f} to {over.high_pct:+.1f})"
    return text


def _said(
    leader: Candidate,
    rivals: Sequence[Candidate],
    tied: Sequence[int],
    baseline: Candidate | None,
    over: Comparison | None,
    goal: Goal,
) -> str:
    name = f"candidate {leader.number} ({told(leader.assignment)})"
    value = f"{goal.metric} {leader.metrics[goal.metric]:.4g}"
    if not rivals:
        text = f"Only {name} could be measured within the limits: {value}."
    elif not tied:
        text = f"The winner is {name}: {value}, significantly better than all {len(rivals):,} others within the limits."
    else:
        others = ", ".join(str(number) for number in sorted(tied))
        plural = "s" if len(tied) > 1 else ""
        text = (
            f"No significant difference between the best, {name}: {value}, and candidate{plural} {others}: "
            "more repeats or starts would be needed to tell them apart, if they differ."
        )
    if baseline is not None and baseline.number == leader.number:
        text += " The best is the baseline itself: change nothing."
    elif over is not None:
        alone = over.low_pct is not None and over.high_pct is not None and not over.low_pct <= 0 <= over.high_pct
        doubt = f", not significant among {len(rivals):,} comparisons" if alone else ", which is within the noise"
        sure = "" if over.significant else doubt
        text += f" Against the baseline: {_gain(over, goal)}{sure}."
    elif baseline is not None:
        text += f" The baseline could not be compared: {STATUSES.get(baseline.status, baseline.status)}."  # type: ignore[arg-type]
    return text


def _notes(leader: Candidate, runs: Sequence[Run], goal: Goal) -> list[str]:
    out: list[str] = []
    repeats = [r for run in runs for r in run.outcome.repeats]
    for bound in goal_with_errors(goal).constraints:
        missed = sum(1 for r in repeats if bound.metric in r.metrics and bound.violation(r.metrics[bound.metric]) > 0)
        if missed:
            out.append(f"Candidate {leader.number} misses {bound} in {missed} of {len(repeats)} repeats: borderline.")
    if len(repeats) < 2:
        out.append("One repeat shows no noise: nothing can be called significant.")
    elif len(runs) < 2:
        out.append("The best was started once: how much a restart changes is not in these figures (--confirm).")
    out += [f"Candidate {leader.number}: {mark}." for mark in leader.marks]
    return out
