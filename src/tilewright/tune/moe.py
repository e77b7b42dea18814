"""All of one `tune moe`: the search at each number of tokens over the workers there are, the files, the document."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tilewright.errors import InputError
from tilewright.libraries.tuned.world import Device as SeenDevice
from tilewright.store.database import default_path
from tilewright.tune.builders import Builders, default_builders
from tilewright.tune.cache import build_cache, kernel_file
from tilewright.tune.compile_only import compile_only
from tilewright.tune.context import context_of, source_digest
from tilewright.tune.document import Compiled, Elsewhere, Tuned, TuneDocument
from tilewright.tune.elsewhere import measured_elsewhere
from tilewright.tune.export import OURS, Exported, check_format, write
from tilewright.tune.fleet import Fleet, LocalFleet
from tilewright.tune.ground import triton_version
from tilewright.tune.layer import Problem
from tilewright.tune.request import Request
from tilewright.tune.run import Outcome, Run, Watcher
from tilewright.tune.seen import root_of, seen
from tilewright.tune.settings import Settings
from tilewright.tune.trials import Context, Trial, TrialStore
from tilewright.tune.tuner import HINTS, Tuner

__all__ = ["NotWrittenError", "Tuner", "tune_moe"]


class NotWrittenError(InputError):
    """The run is done and its files could not be written. `document` holds what was found."""

    def __init__(self, why: InputError, document: TuneDocument) -> None:
        super().__init__(why.field, why.msg)
        self.document = document


def _fleet(tuner: Tuner, kernel: str, builders: Builders, context: Context) -> Fleet:
    settings = tuner.settings
    if settings.ray is not None:
        from tilewright.tune.ray_fleet import RayFleet

        return RayFleet(
            settings.ray, tuner.builds_of, kernel_file=kernel, command=settings.command, limit_s=settings.limit_s,
            context=context, tell=tuner.tell,
        )  # fmt: skip
    return LocalFleet(
        tuner.devices, builders, tuner.builds_of, kernel_file=kernel, command=settings.command,
        limit_s=settings.limit_s,
    )  # fmt: skip


class _Watching:
    """Passes on what happens, and remembers winners for the numbers of tokens that follow."""

    def __init__(self, tuner: Tuner, watcher: Watcher) -> None:
        self._tuner, self._watcher = tuner, watcher

    def trial(self, problem: Problem, trial: Trial, reused: bool) -> None:
        self._watcher.trial(problem, trial, reused)

    def outcome(self, outcome: Outcome) -> None:
        self._tuner.best[outcome.problem.tokens] = [trial.config for trial in outcome.ranked[:HINTS]]
        self._watcher.outcome(outcome)


class _Silent:
    def trial(self, problem: Problem, trial: Trial, reused: bool) -> None:
        """Nobody watches."""

    def outcome(self, outcome: Outcome) -> None:
        """Nobody watches."""


def _tuned(outcome: Outcome) -> Tuned:
    best, ranked = outcome.best, outcome.ranked
    common: dict[str, Any] = {
        "tokens": outcome.problem.tokens, "trials": outcome.trials, "reused": outcome.reused, "faults": outcome.faults,
    }  # fmt: skip
    if best is None:
        return Tuned(config=None, **common)
    other = ranked[1] if len(ranked) > 1 else None
    ratio = other.time_s / best.time_s if other and other.time_s and best.time_s else None
    return Tuned(
        config=best.config, time_s=best.time_s, up_s=best.up_s, down_s=best.down_s, samples=best.samples,
        next=other.config if other else None, next_ratio=ratio, **common,
    )  # fmt: skip


def _files(tuner: Tuner, outcomes: list[Outcome]) -> tuple[list[Exported], list[str]]:
    """(the files of each engine that was asked for, what its own lookup says against them)."""
    settings, device = tuner.settings, tuner.ground.device
    found = {outcome.problem.tokens: outcome.ranked for outcome in outcomes if outcome.best}
    if settings.out is None or device is None or not found:
        return [], []
    version = source_digest("ours", None) if settings.kernel == "ours" else triton_version()
    written: list[Exported] = []
    notes: list[str] = []
    for wanted in settings.formats:
        name = check_format(settings.layer, wanted)
        files = write(name, settings.layer, device.name, version, found, settings.out, force=settings.force)
        if name != OURS and (root := root_of(name, settings.kernel, settings.root)) is not None:
            there = SeenDevice(device.name, device.capability, tuner.ground.machine.limit)
            files, note = seen(name, root, settings.layer, there, version, str(Path(settings.out).absolute()), files)
            notes += [note] if note else []
        written += files
    return written, notes


def tune_moe(asked: Settings | Tuner, watcher: Watcher | None = None) -> TuneDocument:
    """Find the fastest config of a fused-MoE kernel for each number of tokens on this machine's GPUs.

    Every trial is measured in a process of its own and kept in the store as soon as it ends; with `resume` those of an
    earlier run in the same context (GPU, driver, versions, kernel text) are not measured again. Files for vLLM, SGLang
    or our own kernel are written at the end, and never over others unless `force` is set.

    Raises:
        InputError: something that is asked for cannot be or does not fit the GPU's memory, a file exists, or the store
            is a newer one's.
        NotWrittenError: everything was measured, and the files could not be written.
        TilewrightError: there is no GPU, or no worker can measure on it.
        MissingPartError: torch, Triton, cuda-bindings or Ray is not installed.
    """
    tuner = asked if isinstance(asked, Tuner) else Tuner(asked)
    for note in (*tuner.ground.notes, *tuner.shared):
        tuner.tell(note)
    if tuner.settings.compile_only:
        return compile_only(tuner)
    settings, device = tuner.settings, tuner.ground.device
    assert device is not None
    path = Path(settings.store) if settings.store else default_path()
    end = None if settings.budget_s is None else time.monotonic() + settings.budget_s
    context = context_of(device, settings.kernel, tuner.ground.source)
    with ExitStack() as stack:
        store = stack.enter_context(TrialStore.append_to(path)) if settings.keep else None
        folder = stack.enter_context(build_cache())
        builders = stack.enter_context(Builders(settings.builders or default_builders(max(1, len(tuner.devices)))))
        fleet = _fleet(tuner, kernel_file(folder, tuner.ground.source), builders, context)
        stack.callback(fleet.close)
        for problem in tuner.problems:
            fleet.prepare([Request(problem, config) for config in tuner.first_choices(problem)])
        run = Run(fleet, store, context, _Watching(tuner, watcher or _Silent()))
        outcomes = run.tune(
            tuner.problems, tuner.search_of, resume=settings.resume,
            stop=lambda: end is not None and time.monotonic() > end,
        )  # fmt: skip
        elsewhere: list[Elsewhere] = []
        if end is None or time.monotonic() < end:
            elsewhere = measured_elsewhere(Run(fleet, store, context, _Silent()), outcomes, settings.resume)
    outcomes.sort(key=lambda outcome: outcome.problem.tokens)
    files: list[Exported] = []
    notes: list[str] = []
    unwritten: InputError | None = None
    try:
        files, notes = _files(tuner, outcomes)
    except InputError as error:  # what was measured is worth more than its files
        unwritten = error
    notes += fleet.left_out
    finished = {outcome.problem.tokens for outcome in outcomes}
    document = tuner.document(
        mode="measured", results=[_tuned(outcome) for outcome in outcomes], elsewhere=elsewhere,
        files=files, notes=notes, store=str(path) if settings.keep else None, versions=context.versions,
        unfinished=[count for count in settings.tokens if count not in finished], workers=run.workers,
        compiled=Compiled(builds=builders.finished, failed=builders.failed),
    )  # fmt: skip
    if unwritten is not None:
        raise NotWrittenError(unwritten, document)
    return document
