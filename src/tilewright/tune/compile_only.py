"""Without a GPU: prune, order, and compile what would be measured first."""

from __future__ import annotations

import time
from typing import Any, Final

from tilewright.tune.builders import Builders, default_builders
from tilewright.tune.cache import build_cache
from tilewright.tune.document import Compiled, TuneDocument
from tilewright.tune.ground import absent_compiler
from tilewright.tune.request import Request
from tilewright.tune.tuner import Tuner

SHOWN: Final = 8
"""First choices that are listed."""


def compile_only(tuner: Tuner) -> TuneDocument:
    """What is left of the space, in the model's order, and what the compiler says of the first choices."""
    settings = tuner.settings
    first = {problem.tokens: tuner.first_choices(problem) for problem in tuner.problems}
    choices = {str(tokens): configs[:SHOWN] for tokens, configs in first.items()}
    absent = absent_compiler(settings.kernel)
    if absent is not None:
        note = f"Pruned and ordered only: {absent} is not installed, so that nothing was compiled (extra `tune`)."
        return tuner.document(mode="compile only", first_choices=choices, notes=[note])
    failures: dict[str, int] = {}
    begun = time.monotonic()
    with build_cache(), Builders(settings.builders or default_builders(0)) as builders:
        futures: list[Any] = []
        for problem in tuner.problems:
            for config in first[problem.tokens]:
                futures += builders.start(tuner.builds_of(Request(problem, config)))
        unique = list(dict.fromkeys(futures))
        tuner.tell(f"{len(unique):,} builds, {builders.count} at a time.")
        for future in unique:
            outcome = future.result()
            if outcome.status != "ok":
                failures[outcome.note] = failures.get(outcome.note, 0) + 1
    compiled = Compiled(
        builds=len(unique), failed=sum(failures.values()), failures=failures,
        seconds=round(time.monotonic() - begun, 3),
    )  # fmt: skip
    note = "Compiled, not run: nothing was measured. The order of the first choices is a model's."
    return tuner.document(mode="compile only", compiled=compiled, first_choices=choices, notes=[note])
