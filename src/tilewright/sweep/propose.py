"""Which candidate next: Optuna's TPE with constraints, told everything that was measured, in earlier sessions too.

Conditions make the space a tree: parameters are suggested in their order, those whose condition does not hold are
not asked for. Lists of numbers are searched by their order. A candidate is never proposed twice.
"""

from __future__ import annotations

import math
import random
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tilewright.errors import MissingPartError
from tilewright.sweep.space import Assignment, Parameter, Space, same
from tilewright.sweep.verdict import key_of

__all__ = ["Proposer", "require_optuna"]

STARTUP: Final = 8
"""Candidates drawn at random before the model of what is good is used; Optuna's default, 10, suits longer searches."""
_TRIES: Final = 100
_FAILED: Final = 1e6
"""How far a candidate that did not run misses its constraint: more than any that ran does."""
_VIOLATIONS: Final = "violations"


def require_optuna() -> Any:
    """The optuna module, quiet.

    Raises:
        MissingPartError: it is not installed.
    """
    try:
        import optuna
    except ImportError:
        raise MissingPartError("Optuna, which drives the search,", "sweep") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _ordered(item: Parameter) -> bool:
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in item.choices)
    return item.kind == "choice" and numbers and list(item.choices) == sorted(item.choices) and len(item.choices) > 2


def _violations(trial: Any) -> tuple[float, ...]:
    return trial.user_attrs.get(_VIOLATIONS, (0.0,))


class Proposer:
    """Asks Optuna for candidates of `space`. Values told are those of one metric; `maximise` says which way."""

    def __init__(self, space: Space, *, maximise: bool, seed: int, told: int = 0) -> None:
        """`told`: results that an earlier session had, so that the generator of random numbers moves on."""
        self._space = space
        self._optuna = require_optuna()
        self._seen: set[bytes] = set()
        self._worst: float | None = None
        self._maximise = maximise
        self._draw = random.Random(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # multivariate, group and constraints are marked experimental
            sampler = self._optuna.samplers.TPESampler(
                seed=(seed + told) % (1 << 31),
                n_startup_trials=STARTUP,
                multivariate=True,
                group=True,
                constraints_func=_violations,
            )
            self._study = self._optuna.create_study(direction="maximize" if maximise else "minimize", sampler=sampler)

    def _suggest(self, trial: Any) -> Assignment:
        out: Assignment = {}
        for item in self._space.parameters:
            if not item.active(out):
                continue
            if item.kind == "choice" and _ordered(item):
                out[item.name] = item.choices[trial.suggest_int(item.name, 0, len(item.choices) - 1)]
            elif item.kind == "choice":
                out[item.name] = item.choices[trial.suggest_categorical(item.name, list(range(len(item.choices))))]
            elif item.kind == "int":
                step = int(item.step or 1)
                out[item.name] = trial.suggest_int(item.name, int(item.low), int(item.high), step=step, log=item.log)
            else:
                value = trial.suggest_float(item.name, item.low, item.high, step=item.step, log=item.log)
                out[item.name] = float(f"{value:.12g}")
        return out

    def _coded(self, assignment: Mapping[str, Any]) -> dict[str, Any]:
        """An assignment, or a part of one, as Optuna holds it."""
        by_name = {item.name: item for item in self._space.parameters}
        out: dict[str, Any] = {}
        for name, value in assignment.items():
            item = by_name[name]
            if item.kind == "choice":
                out[name] = next(i for i, choice in enumerate(item.choices) if same(choice, value))
            else:
                out[name] = value
        return out

    def tell(self, assignment: Mapping[str, Any], value: float | None, violations: list[float]) -> None:
        """What was measured of a candidate. `value` None: it did not run. Candidates outside the space (the baseline)
        are remembered and not learnt from."""
        self._seen.add(key_of(dict(assignment)))
        if not self._space.holds(assignment) or not self._space.parameters:
            return
        bounds = [min(item, _FAILED) for item in violations]
        if value is not None:
            worse = min if self._maximise else max
            self._worst = value if self._worst is None else worse(value, self._worst)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._study.enqueue_trial(self._coded(assignment))
            trial = self._study.ask()
            self._suggest(trial)
            trial.set_user_attr(_VIOLATIONS, (0.0, *bounds) if value is not None else (_FAILED, *(0.0 for _ in bounds)))
            self._study.tell(trial, value if value is not None else self._worst or 0.0)

    def ask(self, part: Mapping[str, Any] | None = None) -> Assignment | None:
        """The next candidate, with what `part` fixes of it; None where every candidate was proposed, or that part's."""
        for _ in range(1 if part else _TRIES):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if part:
                    self._study.enqueue_trial(self._coded(part))
                trial = self._study.ask()
                found = self._suggest(trial)
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)  # told again once it is measured
            if key_of(found) not in self._seen:
                self._seen.add(key_of(found))
                return found
        return None if part else self._left()

    def _left(self) -> Assignment | None:
        """A candidate that was never proposed, of a space in which they have become rare."""
        if math.isinf(self._space.count):
            return None
        kept: Assignment | None = None
        for number, item in enumerate(self._unseen(), 1):
            if self._draw.random() * number < 1:  # each of them equally likely, without holding all
                kept = item
        if kept is not None:
            self._seen.add(key_of(kept))
        return kept

    def _unseen(self) -> Iterator[Assignment]:
        return (item for item in self._space.assignments() if key_of(item) not in self._seen)
