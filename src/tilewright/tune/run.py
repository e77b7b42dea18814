"""A tuning run: searches that ask for trials, a fleet that measures them, a store that keeps each as it comes."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from tilewright.errors import TilewrightError
from tilewright.store.result import key_of
from tilewright.tune.fleet import Done, Fleet
from tilewright.tune.layer import Problem
from tilewright.tune.request import Request, trial_of
from tilewright.tune.space import Config
from tilewright.tune.trials import Context, Rung, Trial, TrialStore

MOST_SETUPS: Final = 2
"""Workers that may fail to start in a row before the run gives up: nothing can be measured then."""


@dataclass(frozen=True)
class Batch:
    """Trials that a search wants. `together`: on one worker, in this order (they will be compared closely)."""

    requests: list[Request]
    together: bool = False


@dataclass
class Outcome:
    """What a search found. `best` None: no config ran. `ranked`: configs that were measured, best first."""

    problem: Problem
    best: Trial | None
    ranked: list[Trial]
    trials: int
    reused: int = 0
    faults: dict[str, int] = field(default_factory=lambda: dict[str, int]())


Search = Generator[Batch, list[Trial], Outcome]
"""Asks for batches, is sent the trials of each in its order, returns what it found."""


class Watcher(Protocol):
    """Is told how the run goes."""

    def trial(self, problem: Problem, trial: Trial, reused: bool) -> None:
        """One trial ended (or was found in the store)."""
        ...

    def outcome(self, outcome: Outcome) -> None:
        """One problem is done."""
        ...


class _Active:
    """A search under way: its batch, and which of its trials are there."""

    def __init__(self, problem: Problem, search: Search, known: list[Trial]) -> None:
        self.problem, self.search = problem, search
        self.known: dict[tuple[str, Rung], list[Trial]] = {}
        for trial in known:
            self.known.setdefault((key_of(trial.config), trial.rung), []).append(trial)
        self.batch: Batch | None = None
        self.found: list[Trial | None] = []
        self.places: dict[int, list[int]] = {}
        self.trials = self.reused = 0

    def recall(self, request: Request) -> Trial | None:
        """A trial of an earlier sitting that answers `request`; each answers one."""
        kept = self.known.get((key_of(request.config), request.rung))
        return kept.pop(0) if kept else None


class Run:
    """One run over several problems."""

    def __init__(self, fleet: Fleet, store: TrialStore | None, context: Context, watcher: Watcher) -> None:
        self.fleet, self.store, self.context, self.watcher = fleet, store, context, watcher
        self.workers: list[str] = []
        self._setups = 0
        self._waiting: dict[int, tuple[_Active, int]] = {}

    def tune(
        self, problems: Sequence[Problem], search_of: Callable[[Problem], Search], *, resume: bool,
        stop: Callable[[], bool] = lambda: False,
    ) -> list[Outcome]:  # fmt: skip
        """Search every problem; as many at once as there are workers. `stop` is asked between trials: nothing new is
        asked for once it says so, and what was found until then is answered.

        Raises:
            TilewrightError: no worker can measure, or the store cannot be written.
        """
        outcomes: list[Outcome] = []
        left = list(problems)
        active: list[_Active] = []
        while (left or active) and not stop():
            while left and len(active) < self.fleet.width:
                problem = left.pop(0)
                known = self.store.of(self.context, problem) if resume and self.store else []
                item = _Active(problem, search_of(problem), known)
                active.append(item)
                self._advance(item, None, outcomes, active)
            if active:
                self._receive(outcomes, active)
        return outcomes

    def _advance(
        self, item: _Active, trials: list[Trial] | None, outcomes: list[Outcome], active: list[_Active]
    ) -> None:
        """Hand `trials` to the search and act on what it wants next, until something has to be measured."""
        while True:
            try:
                batch = item.search.send(trials) if trials is not None else next(item.search)
            except StopIteration as end:
                outcome: Outcome = end.value
                outcome.trials, outcome.reused = item.trials, item.reused
                outcomes.append(outcome)
                active.remove(item)
                self.watcher.outcome(outcome)
                return
            item.batch = batch
            item.found = [item.recall(request) for request in batch.requests]
            missing: list[Request] = []
            for at, (request, trial) in enumerate(zip(batch.requests, item.found, strict=True)):
                if trial is None:
                    missing.append(request)
                    self._waiting[id(request)] = (item, at)
                else:
                    item.reused += 1
                    self.watcher.trial(item.problem, trial, True)
            if missing:
                self.fleet.give(missing, together=batch.together)
                return
            trials = [trial for trial in item.found if trial is not None]

    def _receive(self, outcomes: list[Outcome], active: list[_Active]) -> None:
        done = self.fleet.done.get()
        if isinstance(done, BaseException):
            raise done
        item, at = self._waiting.pop(id(done.request))
        trial = trial_of(done.request, done.outcome, done.worker)
        if trial.fault == "setup":
            self._refused(done, item, at)
            return
        self._setups = 0
        if done.worker not in self.workers:
            self.workers.append(done.worker)
        if self.store is not None:
            self.store.append(self.context, item.problem, trial)
        done.kept.set()
        item.trials += 1
        item.found[at] = trial
        self.watcher.trial(item.problem, trial, False)
        if all(found is not None for found in item.found):
            self._advance(item, [found for found in item.found if found is not None], outcomes, active)

    def _refused(self, done: Done, item: _Active, at: int) -> None:
        """A worker could not even start: that says nothing of the config, which is asked for again."""
        self._setups += 1
        done.kept.set()
        if self._setups >= MOST_SETUPS * self.fleet.width:
            raise TilewrightError(f"No worker can measure here: {done.outcome.note}")
        self._waiting[id(done.request)] = (item, at)
        self.fleet.give([done.request])


def exhaustive(problem: Problem, configs: Sequence[Config], samples: int = 3, slack: float = 3.0) -> Search:
    """Every config, once: what any search is held against. Configs that one look shows to take `slack` times the best
    so far are not sampled further."""
    best: Trial | None = None
    ranked: list[Trial] = []
    faults: dict[str, int] = {}
    step = 32
    for first in range(0, len(configs), step):
        cutoff = best.time_s * slack if best and best.time_s else None
        trials = yield Batch(
            [Request(problem, config, "look", samples, cutoff) for config in configs[first : first + step]]
        )
        for trial in trials:
            if not trial.ok:
                faults[trial.fault] = faults.get(trial.fault, 0) + 1
                continue
            ranked.append(trial)
            if best is None or (trial.time_s or 0) < (best.time_s or 0):
                best = trial
    ranked.sort(key=lambda trial: trial.time_s or 0)
    return Outcome(problem, best, ranked, 0, faults=faults)
