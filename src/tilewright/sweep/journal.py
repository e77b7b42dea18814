"""What a sweep found, as an experiment in the journal: baseline against best, with all their samples."""

from __future__ import annotations

from datetime import UTC, datetime

from tilewright.errors import InputError, shown
from tilewright.journal import Experiment, Journal
from tilewright.journal.plan_head import PlanHead, read_plan
from tilewright.sweep.document import SweepDocument
from tilewright.sweep.goal import parse_goal
from tilewright.sweep.run import Question
from tilewright.sweep.space import told
from tilewright.sweep.verdict import starts_of

__all__ = ["check_plan", "record_sweep"]


def check_plan(plan_file: str | None, finding: str) -> PlanHead | None:
    """The head of the plan, if one is given.

    Raises:
        InputError: it cannot be read, has no such finding, or a finding is named without a plan.
    """
    if plan_file is None:
        if finding:
            raise InputError("finding", "--finding names a finding of a plan; pass --plan with its plan.json as well.")
        return None
    plan = read_plan(plan_file)
    known = [item.id for item in plan.findings]
    if finding and finding not in known:
        raise InputError("finding", f"--finding {shown(finding)} is none of the plan's: {', '.join(known) or 'none'}.")
    return plan


def record_sweep(found: SweepDocument, question: Question, plan: PlanHead | None, finding: str) -> int | None:
    """Record it; the entry's number, or None where baseline and best are not both there."""
    goal = parse_goal(found.goal)
    verdict = found.verdict
    baseline = next((item for item in found.candidates if item.origin == "baseline"), None)
    if verdict.leader is None or baseline is None or baseline.number == verdict.leader:
        return None
    runs = {run.number: run for run in found.runs}
    best = found.candidates[verdict.leader]

    def samples(numbers: list[int]) -> list[float]:
        return [value for start in starts_of([runs[n] for n in numbers], goal.metric) for value in start]

    before, after = samples(baseline.runs), samples(best.runs)
    if not before or not after:
        return None
    significant = verdict.over_baseline is not None and verdict.over_baseline.significant
    conditions: dict[str, str | int] = {}
    if plan is not None:
        from tilewright.journal.experiment import CONDITIONS

        conditions = {name: plan.target[name] for name in CONDITIONS if isinstance(plan.target.get(name), str | int)}
    elif found.model:
        conditions = {"model": found.model, "engine": found.engine}
        conditions |= {"engine_version": found.engine_version} if found.engine_version else {}
        conditions |= {"gpu": question.gpu} if question.gpu else {}
    title = next((item.title for item in plan.findings if item.id == finding), "") if plan else ""
    experiment = Experiment(
        at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        finding=finding,
        hypothesis=title or f"flags that the sweep tries: {goal}",
        change=told(best.assignment),
        command=found.launch or "",
        metric=goal.metric,
        better="higher" if goal.direction == "max" else "lower",
        before=before,
        after=after,
        verdict="kept" if significant else "inconclusive",
        conditions=conditions,
        note=f"Sweep {found.sweep}: {verdict.text}",
    )
    with Journal.append_to(question.store) as journal:
        return journal.record(experiment).id
