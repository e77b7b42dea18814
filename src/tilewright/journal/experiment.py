"""One experiment: what was expected, what was changed, what was measured before and after, what came of it."""

from __future__ import annotations

from typing import Literal

import msgspec

from tilewright.errors import InputError

Verdict = Literal["kept", "reverted", "inconclusive"]
VERDICTS: tuple[Verdict, ...] = ("kept", "reverted", "inconclusive")
Better = Literal["higher", "lower"]

CONDITIONS: tuple[str, ...] = (
    "model", "checkpoint", "gpu", "gpus", "engine", "engine_version", "tp", "pp", "ep", "library", "library_version",
)  # fmt: skip
"""What an experiment held under; the names are those of a plan's `target`."""
MAX_SAMPLES = 10_000


class Experiment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One experiment. `before` and `after` are samples of `metric` (whose name carries the unit).

    `finding` is the id of the plan's finding that it tried, empty for an idea of one's own. `conditions` are those of
    the plan's target that were known. `supersedes` is the number of an entry that this one corrects.
    """

    at: str
    hypothesis: str
    change: str
    verdict: Verdict
    metric: str
    before: list[float]
    after: list[float]
    better: Better = "higher"
    finding: str = ""
    command: str = ""
    conditions: dict[str, str | int] = {}
    note: str = ""
    supersedes: int | None = None


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment with its number in the journal."""

    id: int
    experiment: Experiment


def check(experiment: Experiment) -> Experiment:
    """`experiment`, if it says what can be.

    Raises:
        InputError: it has no text or no samples, a sample is no number, or a condition is not known.
    """
    for name in ("hypothesis", "change", "metric"):
        if not getattr(experiment, name).strip():
            raise InputError(name, f"--{name} is empty; an experiment needs a text there.")
    for name in ("before", "after"):
        samples: list[float] = getattr(experiment, name)
        if not samples:
            raise InputError(name, f"--{name} has no sample; give what was measured, for example --{name} 50.4,50.1.")
        if len(samples) > MAX_SAMPLES:
            raise InputError(name, f"--{name} has {len(samples):,} samples; give at most {MAX_SAMPLES:,}.")
        if any(not 0 <= value < float("inf") for value in samples):
            raise InputError(name, f"--{name} takes finite numbers from 0 up; one of them is not.")
    unknown = sorted(set(experiment.conditions) - set(CONDITIONS))
    if unknown:
        raise InputError("conditions", f"No condition is called {unknown[0]!r}; they are {', '.join(CONDITIONS)}.")
    return experiment
