"""What the parts of one run share: the space that is left, what a search starts with, what a document begins with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tilewright.errors import InputError, MissingPartError
from tilewright.tune.build import builds
from tilewright.tune.document import Space, TuneDocument
from tilewright.tune.export import check_format, check_targets, targets
from tilewright.tune.ground import Ground, absent_compiler, devices_of, ground_of, triton_version
from tilewright.tune.layer import Problem
from tilewright.tune.memory import check_memory
from tilewright.tune.order import ordered
from tilewright.tune.our_builds import default_build, other_kernels
from tilewright.tune.request import Request
from tilewright.tune.run import Search, exhaustive
from tilewright.tune.search import Plan, beginning, plan_of, search
from tilewright.tune.settings import Settings, checked
from tilewright.tune.space import Config, Pruned, prune, reason_against
from tilewright.tune.start import nearest, read_start

if TYPE_CHECKING:
    from tilewright.bench.device import Device

HINTS: Final = 4
"""Best configs of a neighbouring number of tokens that a search starts with."""


def shared(devices: Sequence[Device]) -> list[str]:
    """A note for each GPU that others compute on: what is measured beside them may name the wrong winner."""
    return [
        f"GPU {device.index} is shared with {device.processes} other process{'es' if device.processes > 1 else ''}: "
        "times beside them may mislead; --devices takes other GPUs."
        for device in devices
        if device.processes
    ]


class Tuner:
    """One run, checked before anything starts.

    Raises:
        InputError: something that is asked for cannot be, does not fit the GPU's memory, or a file exists.
        TilewrightError: there is no GPU.
        MissingPartError: torch or Triton is not installed.
    """

    def __init__(self, settings: Settings, tell: Callable[[str], None] = print) -> None:
        self.settings = checked(settings)
        self.tell = tell
        self.begun = time.monotonic()
        self.ground: Ground = ground_of(self.settings)
        machine = self.ground.machine
        self.pruned: Pruned = prune(self.settings.kernel, self.settings.layer, machine.sm, machine.limit, clamp=True)
        if not self.pruned.kept:
            reasons = "; ".join(f"{count:,} {reason}" for reason, count in self.pruned.dropped.items())
            raise InputError("space", f"No config of {self.settings.kernel} can run this layer on this GPU: {reasons}.")
        self.plan: Plan = plan_of(len(self.pruned.kept), self.settings.trials)
        self.starts = read_start(self.settings.start) if self.settings.start is not None else {}
        self.best: dict[int, list[Config]] = {}
        self.problems = [
            Problem(kernel=self.settings.kernel, layer=self.settings.layer, tokens=count)
            for count in self.settings.tokens
        ]
        self.devices: tuple[int, ...] = ()
        self.shared: list[str] = []
        if self.ground.device is not None and not self.settings.compile_only:
            self._check_machine(self.ground.device.name)

    def _check_machine(self, name: str) -> None:
        """Refuse before anything starts what could not be measured or written afterwards."""
        settings = self.settings
        triton = triton_version() if settings.kernel != "ours" else ""
        if settings.kernel == "ours" and settings.ray is None and absent_compiler("ours") is not None:
            raise MissingPartError("cuda-bindings, which compiles our kernel,", "tune")
        if settings.ray is None:
            there = devices_of(settings, self.ground)
            self.devices = tuple(device.index for device in there)
            self.shared = shared(there)
            check_memory(settings.layer, settings.tokens, there)
        if settings.out is not None:
            paths = [
                path for engine in settings.formats
                for path in targets(check_format(settings.layer, engine), settings.layer, name, triton, settings.out)
            ]  # fmt: skip
            check_targets(paths, settings.out, force=settings.force)

    @property
    def looks(self) -> int:
        """Trials of one number of tokens, at most."""
        if self.settings.exhaustive:
            return len(self.pruned.kept)
        plan = self.plan
        return min(plan.trials, len(self.pruned.kept)) + plan.again + plan.finalists * plan.repeats

    def builds_of(self, request: Request) -> list[dict[str, Any]]:
        """What has to be compiled for a request."""
        wanted = request.problem
        return builds(
            wanted.kernel, wanted.layer, wanted.tokens, request.config, self.ground.machine.sm, self.ground.source
        )

    def configs_of(self, problem: Problem) -> list[Config]:
        """Those of the space that can run, and what our kernel runs untuned."""
        kept, machine = self.pruned.kept, self.ground.machine
        untuned = default_build(problem, machine) if problem.kernel == "ours" else None
        if untuned is None or untuned in kept:
            return kept
        against = reason_against(problem.kernel, problem.layer, untuned, machine.sm, machine.limit)
        return kept if against else [*kept, untuned]

    def hints(self, problem: Problem) -> list[Config]:
        """The entry of --start or what our kernel runs untuned, and what was best at the nearest numbers of tokens."""
        found = [nearest(self.starts, problem.tokens)] if self.starts else []
        if problem.kernel == "ours" and (untuned := default_build(problem, self.ground.machine)) is not None:
            found.append(untuned)
        for count in sorted(
            self.best, key=lambda count: abs(count / problem.tokens - 1) + abs(problem.tokens / count - 1)
        )[:2]:
            found += self.best[count][:HINTS]
        return found

    def search_of(self, problem: Problem) -> Search:
        """The search of one number of tokens, in an order and with hints of now."""
        if self.settings.exhaustive:
            return exhaustive(problem, ordered(problem, self.configs_of(problem), self.ground.machine))
        return search(problem, self.configs_of(problem), self.ground.machine, self.plan, self.hints(problem))

    def first_choices(self, problem: Problem) -> list[Config]:
        """What is measured first, the most promising first."""
        promising_first = ordered(problem, self.configs_of(problem), self.ground.machine)
        if self.settings.exhaustive:
            return promising_first
        return beginning(problem, promising_first, self.plan, self.hints(problem))

    def space(self) -> Space:
        return Space(
            total=self.pruned.total, kept=len(self.pruned.kept), dropped=self.pruned.dropped, looked_at=self.looks
        )

    def document(self, **fields: Any) -> TuneDocument:
        """The document with what every run has."""
        device, ground = self.ground.device, self.ground
        layer = {**msgspec.structs.asdict(self.settings.layer), "block_shape": self.settings.layer.block_shape}
        common: dict[str, Any] = {
            "kernel": self.settings.kernel, "kernel_source": ground.source_label, "layer": layer, "gpu": ground.gpu,
            "device_name": device.name if device else None, "driver": device.driver if device else None,
            "space": self.space(), "elapsed_s": round(time.monotonic() - self.begun, 3),
        }  # fmt: skip
        notes = [*ground.notes, *self.shared, *other_kernels(self.problems, ground.machine), *fields.pop("notes", [])]
        return TuneDocument(**common, **fields, notes=notes)
