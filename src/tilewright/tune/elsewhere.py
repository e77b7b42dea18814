"""What a winner takes at another number of tokens: decode's at the chunk size, and the chunk's at decode."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from tilewright.tune.document import Elsewhere
from tilewright.tune.layer import Problem
from tilewright.tune.request import Request
from tilewright.tune.run import Batch, Outcome, Run, Search
from tilewright.tune.space import Config
from tilewright.tune.trials import Trial

DECODE_TOKENS: Final = 64
"""Largest number of tokens that counts as decode."""
SAMPLES: Final = 9


def pairs_elsewhere(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """(whose winner, where it is measured): the largest decode number against the largest of all, both ways."""
    done = sorted((item for item in outcomes if item.best), key=lambda item: item.problem.tokens)
    decode = [item for item in done if item.problem.tokens <= DECODE_TOKENS]
    if not decode or len(done) < 2 or done[-1] is decode[-1]:
        return []
    return [(decode[-1], done[-1]), (done[-1], decode[-1])]


def measured_elsewhere(run: Run, outcomes: Sequence[Outcome], resume: bool) -> list[Elsewhere]:
    """What a winner takes at the other end, each measured beside the winner there."""
    found: list[Elsewhere] = []
    for whose, where in pairs_elsewhere(outcomes):
        assert whose.best is not None
        assert where.best is not None
        config, home = whose.best.config, where.best.config
        if config == home:
            found.append(Elsewhere(best_at=whose.problem.tokens, tokens=where.problem.tokens, ratio=1.0))
            continue
        turns: list[Trial] = []

        def both(problem: Problem, pair: tuple[Config, Config] = (config, home), turns: list[Trial] = turns) -> Search:
            turns += yield Batch([Request(problem, item, "final", SAMPLES) for item in pair], together=True)
            return Outcome(problem, None, [], 0)

        run.tune([where.problem], both, resume=resume)
        times = [trial.time_s for trial in turns]
        if len(times) == 2 and times[0] and times[1]:
            found.append(
                Elsewhere(best_at=whose.problem.tokens, tokens=where.problem.tokens, ratio=times[0] / times[1])
            )
    return found
