"""The search: configs in the model's order, halved by what they measure, refined around the best, finalists again.

Trials are counted as they are asked for. Of a budget of `trials` looks (few samples each) a part goes to the start: the
model's first choices, spread over the space, and what was best at other numbers of tokens of the same layer. The rest
goes to neighbours of the best configs so far, of fewer of them each round. The finalists are then
measured with more samples, and the last few again in turn, on one worker, so that what drifts drifts for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

import msgspec

from tilewright.store.result import key_of
from tilewright.tune.layer import Problem
from tilewright.tune.order import Machine, score
from tilewright.tune.request import Request
from tilewright.tune.run import Batch, Outcome, Search
from tilewright.tune.space import Config, axes_over
from tilewright.tune.trials import Trial


@dataclass(frozen=True)
class Plan:
    """How much is measured. `trials`: looks in all, finalists' further samples not counted."""

    trials: int
    start: float = 0.4
    """Share of `trials` that the model chooses."""
    round: int = 8
    """Looks between two decisions."""
    elite: int = 6
    """Best configs whose neighbours are tried in the first round; halved as rounds go on."""
    again: int = 6
    """Configs that are sampled better."""
    finalists: int = 3
    repeats: int = 3
    """Turns of the finalists."""
    slack: float = 1.5
    """A config that one look shows to take longer than `slack` times the best is not sampled further."""
    look_samples: int = 3
    again_samples: int = 9


SHARE: Final = 0.05
"""Share of the space that is looked at unless told otherwise."""
LEAST_TRIALS: Final = 24
PRIOR_WEIGHT: Final = 1.0


def plan_of(space: int, trials: int | None = None) -> Plan:
    """The plan for a space of so many configs: 5 % of it, finalists included; or `trials` as told."""
    whole = trials if trials is not None else max(LEAST_TRIALS, int(space * SHARE))
    base = Plan(trials=whole)
    later = base.again + base.finalists * base.repeats
    return Plan(trials=max(1, whole - later)) if whole > 2 * later else Plan(trials=max(1, whole), again=0, finalists=0)


class Found:
    """What is known so far of one problem: the best time of each config."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.configs: dict[str, Config] = {}
        self.trials: dict[str, Trial] = {}
        self.asked: set[str] = set()
        self.faults: dict[str, int] = {}

    def add(self, trial: Trial) -> None:
        key = key_of(trial.config)
        if not trial.ok:
            self.faults[trial.fault] = self.faults.get(trial.fault, 0) + 1
            return
        assert trial.time_s is not None
        self.times[key] = trial.time_s
        self.configs[key] = trial.config
        self.trials[key] = trial

    def ranked(self) -> list[Config]:
        return [self.configs[key] for key in sorted(self.times, key=lambda key: self.times[key])]

    @property
    def best_s(self) -> float | None:
        return min(self.times.values(), default=None)


def spread(configs: Sequence[Config], count: int, axes: dict[str, tuple[int, ...]]) -> list[Config]:
    """`count` of `configs`, which are in order of promise: early ones, but no two that differ in one small step unless
    there is nothing else."""
    chosen: list[Config] = []
    rest: list[Config] = []
    for config in configs:
        if len(chosen) >= count:
            break
        (rest if any(_steps(config, other, axes) <= 1 for other in chosen) else chosen).append(config)
    return [*chosen, *rest][:count]


def _steps(one: Config, other: Config, axes: dict[str, tuple[int, ...]]) -> int:
    """Steps along the axes from one config to another."""
    return sum(abs(axes[name].index(one[name]) - axes[name].index(other[name])) for name in axes)


def neighbours(config: Config, axes: dict[str, tuple[int, ...]], reach: int = 1) -> Iterable[Config]:
    """Configs that differ along one axis by up to `reach` steps, or along two by one each."""
    names = list(axes)
    at = {name: axes[name].index(config[name]) for name in names}

    def moved(changes: dict[str, int]) -> Config | None:
        made = dict(config)
        for name, step in changes.items():
            place = at[name] + step
            if not 0 <= place < len(axes[name]):
                return None
            made[name] = axes[name][place]
        return made

    for name in names:
        for step in range(-reach, reach + 1):
            if step and (made := moved({name: step})) is not None:
                yield made
    for first, name in enumerate(names):
        for other in names[first + 1 :]:
            for one, two in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
                if (made := moved({name: one, other: two})) is not None:
                    yield made


def beginning(problem: Problem, promising_first: Sequence[Config], plan: Plan, hints: Sequence[Config]) -> list[Config]:
    """What a search measures before it decides anything: hints, and the model's first choices spread over the space."""
    start = max(1, min(len(promising_first), plan.trials, round(plan.trials * plan.start)))
    legal = {key_of(config) for config in promising_first}
    hinted = [config for config in hints if key_of(config) in legal][: max(1, start // 2)]
    first = [*hinted, *spread(promising_first, start, axes_over(problem.kernel, promising_first))]
    return list({key_of(config): config for config in first}.values())[:start]


def search(
    problem: Problem, configs: Sequence[Config], machine: Machine, plan: Plan, hints: Sequence[Config] = ()
) -> Search:
    """Look for the fastest of `configs` (those that can run). `hints`: configs that were best nearby, best first."""
    axes = axes_over(problem.kernel, configs)
    legal = {key_of(config): config for config in configs}
    guess = {key: score(problem, config, machine) for key, config in legal.items()}
    found = Found()
    left = min(plan.trials, len(legal))

    def requests(wanted: Iterable[Config]) -> list[Request]:
        best = found.best_s
        cutoff = best * plan.slack if best is not None else None
        return [Request(problem, config, "look", plan.look_samples, cutoff) for config in wanted]

    queue = beginning(problem, [legal[key] for key in sorted(legal, key=lambda key: guess[key])], plan, hints)
    elite = plan.elite
    while queue and left > 0:
        batch, queue = queue[: min(plan.round, left)], queue[min(plan.round, left) :]
        found.asked.update(key_of(config) for config in batch)
        left -= len(batch)
        for trial in (yield Batch(requests(batch))):
            found.add(trial)
        if not queue and left > 0:
            queue = promising(found, legal, guess, axes, elite)[: plan.round]
            elite = max(2, elite - 1)
    outcome = yield from finals(problem, found, plan)
    return outcome


def promising(
    found: Found, legal: dict[str, Config], guess: dict[str, float], axes: dict[str, tuple[int, ...]], elite: int
) -> list[Config]:
    """Configs that were not tried, the most promising first: neighbours of the `elite` best, valued by what their own
    measured neighbours took, corrected by what the model says of the difference."""
    best = found.ranked()[:elite]
    candidates: dict[str, float] = {}
    for reach in (1, 2):
        for config in best:
            for other in neighbours(config, axes, reach):
                key = key_of(other)
                if key in legal and key not in found.asked and key not in candidates:
                    candidates[key] = expected(other, key, found, guess, axes)
        if len(candidates) >= 4 * elite:
            break
    if not candidates:  # the neighbourhood is used up: the model's next choices
        candidates = {key: guess[key] for key in legal if key not in found.asked}
    return [legal[key] for key in sorted(candidates, key=lambda key: candidates[key])]


def expected(
    config: Config, key: str, found: Found, guess: dict[str, float], axes: dict[str, tuple[int, ...]]
) -> float:
    """What a config may take: near configs' times, weighted by nearness, times what the model says they differ by."""
    top = weight = 0.0
    for other, time_s in found.times.items():
        steps = _steps(config, found.configs[other], axes)
        near = 4.0**-steps
        ratio = (guess[key] / guess[other]) ** PRIOR_WEIGHT if other in guess else 1.0
        top += near * time_s * min(2.0, max(0.5, ratio))
        weight += near
    return top / weight if weight else guess[key]


def finals(problem: Problem, found: Found, plan: Plan) -> Search:
    """More samples for the best, then the last few in turn. The winner is the one whose median over turns is least."""
    ranked = found.ranked()
    if plan.again and len(ranked) > 1:
        chosen = ranked[: plan.again]
        better = yield Batch(
            [Request(problem, config, "again", plan.again_samples) for config in chosen], together=True
        )
        again = [trial for trial in better if trial.ok]
        for trial in better:
            found.add(trial)
        # Only what was sampled better stands above the rest: a lucky look must not win.
        again.sort(key=lambda trial: trial.time_s or 0.0)
        last = [trial.config for trial in again[: plan.finalists]]
        if len(last) > 1:
            turns = [config for turn in range(plan.repeats) for config in (last if turn % 2 == 0 else last[::-1])]
            trials = yield Batch(
                [Request(problem, config, "final", plan.again_samples) for config in turns], together=True
            )
            return decided(problem, found, again, trials)
        if again:
            return decided(problem, found, again, again[:1])
    best = found.trials[key_of(ranked[0])] if ranked else None
    return Outcome(problem, best, [found.trials[key_of(config)] for config in ranked], 0, faults=found.faults)


def decided(problem: Problem, found: Found, again: Sequence[Trial], trials: Sequence[Trial]) -> Outcome:
    """The outcome after the finalists' turns: each finalist's time is the median of its turns."""
    turns: dict[str, list[Trial]] = {}
    for trial in trials:
        if trial.ok:
            turns.setdefault(key_of(trial.config), []).append(trial)
        else:
            found.faults[trial.fault] = found.faults.get(trial.fault, 0) + 1
    merged = [_merged(those) for those in turns.values()]
    merged.sort(key=lambda trial: trial.time_s or 0.0)
    named = {key_of(trial.config) for trial in merged}
    rest = [trial for trial in again if key_of(trial.config) not in named]
    named |= {key_of(trial.config) for trial in rest}
    others = [found.trials[key_of(config)] for config in found.ranked() if key_of(config) not in named]
    ranked = [*merged, *rest, *others]
    return Outcome(problem, ranked[0] if ranked else None, ranked, 0, faults=found.faults)


def _merged(turns: Sequence[Trial]) -> Trial:
    """One trial for the turns of a finalist: medians of its times, samples of all."""

    def middle(name: str) -> float | None:
        values: list[float] = [value for trial in turns if (value := getattr(trial, name)) is not None]
        return median(values) if values else None

    return msgspec.structs.replace(
        turns[-1], time_s=middle("time_s"), up_s=middle("up_s"), down_s=middle("down_s"),
        samples=sum(trial.samples for trial in turns),
    )  # fmt: skip
