"""Rules: what one looks like, and how all of them are found and run.

A rule looks at the target (model, GPU, engine, library tree, snapshot, log) and yields what follows: findings,
rejected ideas, facts, refuted claims. It yields nothing where its input does not show the case it knows. A rule that
needs an input that was not given is not run; the plan then says what giving that input would add.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Literal

from tilewright.plan.finding import Outcome

if TYPE_CHECKING:
    from tilewright.plan.target import Target

Need = Literal["library", "observe", "log"]


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. `looks_at` says in a phrase what it answers; it is shown where the rule could not be run."""

    id: str
    looks_at: str
    run: Callable[[Target], Iterable[Outcome]]
    needs: tuple[Need, ...] = ()


@cache
def rules() -> tuple[Rule, ...]:
    """Every rule under `tilewright.plan.rules`, by module name."""
    package = import_module("tilewright.plan.rules")
    names = sorted(module.name for module in pkgutil.iter_modules(package.__path__))
    return tuple(import_module(f"tilewright.plan.rules.{name}").RULE for name in names if not name.startswith("_"))
