"""What a sweep does next, from what it has done: baseline, seeds, search, then the finalists once more. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from tilewright.sweep.document import Origin, Run
from tilewright.sweep.goal import Goal
from tilewright.sweep.propose import Proposer
from tilewright.sweep.space import Assignment, Space
from tilewright.sweep.verdict import goal_with_errors, judge, key_of

__all__ = ["Budget", "Step", "Steps"]

FINALISTS: Final = 3
"""Candidates that are started again at the end: the leader and those next to it that noise may have put behind it."""
SAME_FAILURES: Final = 3
"""Candidates that may fail in one and the same way from the start before the cause is sought elsewhere."""
_NOT_THE_SERVER: Final = ("generator_failed", "port_taken")
"""Failures that say nothing about the candidate."""


class Budget(NamedTuple):
    """How much is measured: candidates besides the baseline, and extra starts of each finalist."""

    trials: int
    confirm: int
    baseline: bool = True


class Step(NamedTuple):
    """One run to make."""

    assignment: dict[str, Any]
    origin: Origin


class Steps:
    """Decides; is told of every run in the order in which they end."""

    def __init__(
        self, space: Space, goal: Goal, budget: Budget, seeds: Sequence[Assignment], runs: Sequence[Run], seed: int
    ) -> None:
        self._space, self._goal, self._budget = space, goal, budget
        self._seeds = list(seeds)
        self._proposer = Proposer(space, maximise=goal.direction == "max", seed=seed, told=len(runs))
        self.runs: list[Run] = []
        for run in runs:
            self.add(run)

    def add(self, run: Run) -> None:
        """A run has ended."""
        self.runs.append(run)
        strict = goal_with_errors(self._goal)
        candidates, _ = judge([r for r in self.runs if key_of(r.assignment) == key_of(run.assignment)], self._goal)
        metrics = candidates[0].metrics
        value = metrics.get(self._goal.metric) if candidates[0].status == "measured" else None
        self._proposer.tell(run.assignment, value, strict.violations(metrics))

    def _done(self, assignment: dict[str, Any]) -> bool:
        """Whether this candidate has been measured, or failed by itself."""
        key = key_of(assignment)
        mine = [run for run in self.runs if key_of(run.assignment) == key]
        judged = [run for run in mine if run.outcome.status not in _NOT_THE_SERVER]
        return bool(judged) or len(mine) > 1

    def _searched(self) -> int:
        keys = {key_of(run.assignment) for run in self.runs if run.origin in ("seed", "search")}
        return len(keys)

    def next(self, cut_off: Sequence[Step] = ()) -> Step | None:
        """The next run, or None where all is done. `cut_off`: runs of an earlier session that never ended."""
        for step in cut_off:
            if step.origin == "baseline" or self._space.holds(step.assignment):
                return step
        baseline = self._space.baseline
        if self._budget.baseline and not self._done(baseline):
            return Step(baseline, "baseline")
        for run in self.runs:  # a generator that failed is no verdict on the candidate: once more
            known = run.origin == "baseline" or self._space.holds(run.assignment)
            if run.outcome.status in _NOT_THE_SERVER and known and not self._done(run.assignment):
                return Step(run.assignment, run.origin)
        while self._seeds and self._searched() < self._budget.trials:
            found = self._proposer.ask(self._seeds.pop(0))
            if found is not None:
                return Step(found, "seed")
        if self._searched() < self._budget.trials and self._space.parameters:
            found = self._proposer.ask()
            if found is not None:
                return Step(found, "search")
        return self._confirmation()

    def _confirmation(self) -> Step | None:
        """The finalist with the fewest starts, until each has its number: in turn, so that drift hits all alike."""
        if not self._budget.confirm:
            return None
        first = [run for run in self.runs if run.origin != "confirm"]
        candidates, verdict = judge(first, self._goal)
        if verdict.leader is None:
            return None
        by_number = {item.number: item for item in candidates}
        near = sorted(
            (by_number[number] for number in verdict.tied),
            key=lambda item: item.metrics[self._goal.metric],
            reverse=self._goal.direction == "max",
        )
        chosen = [by_number[verdict.leader], *near[: FINALISTS - 1]]
        # What a change gives is told against the baseline: it deserves the same care.
        chosen += [item for item in candidates if item.origin == "baseline" and item.feasible and item not in chosen]
        if len(chosen) < 2:
            return None
        starts = [
            (sum(1 for run in self.runs if key_of(run.assignment) == key_of(item.assignment)), index, item)
            for index, item in enumerate(chosen)
        ]
        count, _, item = min(starts, key=lambda entry: entry[:2])
        return Step(item.assignment, "confirm") if count < 1 + self._budget.confirm else None

    def hopeless(self) -> str | None:
        """Why going on makes no sense, where it does not."""
        if len(self.runs) < SAME_FAILURES or any(run.outcome.status == "measured" for run in self.runs):
            return None
        last = self.runs[-SAME_FAILURES:]
        shapes = {(run.outcome.status, run.outcome.explained[:1], run.outcome.reason) for run in last}
        if len(shapes) > 1:
            return None
        outcome = last[0].outcome
        said = f": {outcome.explained[0].line}" if outcome.explained else ""
        return f"the first {len(self.runs)} candidates failed in one and the same way ({outcome.reason}{said})"
