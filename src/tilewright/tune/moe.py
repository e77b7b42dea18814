"""All of one `tune moe`: the space, what can be built, the search at each number of tokens, the engines' files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from tilewright.bench.backends.base import version_of
from tilewright.errors import InputError, MissingPartError, TilewrightError
from tilewright.store.database import default_path
from tilewright.tune.build import CACHE_VARIABLE, builds
from tilewright.tune.builders import Builders, default_builders
from tilewright.tune.context import context_of
from tilewright.tune.document import Compiled, Elsewhere, Space, Tuned, TuneDocument
from tilewright.tune.export import check_format, check_targets, targets, write
from tilewright.tune.fleet import Fleet, LocalFleet
from tilewright.tune.layer import Problem, check_kernel, check_layer
from tilewright.tune.moe_call import engine_kernel, kernel_text, own_kernel
from tilewright.tune.order import Machine, machine_of, ordered
from tilewright.tune.request import Request
from tilewright.tune.run import Batch, Outcome, Run, Search, Watcher, exhaustive
from tilewright.tune.search import Plan, plan_of, search
from tilewright.tune.settings import Settings
from tilewright.tune.space import Config, Pruned, prune
from tilewright.tune.start import nearest, read_start
from tilewright.tune.trials import Trial, TrialStore

if TYPE_CHECKING:
    from tilewright.bench.device import Device
    from tilewright.triton_.extract import Kernel

HINTS: Final = 4
"""Best configs of a neighbouring number of tokens that a search starts with."""
SHOWN: Final = 8
"""First choices that are listed where nothing is measured."""
DECODE_TOKENS: Final = 64
"""Largest number of tokens that counts as decode where winners are held against each other."""


@dataclass(frozen=True)
class _Ground:
    """Where and with what is tuned."""

    machine: Machine
    gpu: str
    device: Device | None
    source: Kernel | None
    source_label: str
    notes: tuple[str, ...]


def _source(settings: Settings) -> tuple[Kernel | None, str, list[str]]:
    """(the Triton kernel's text, whose it is, notes); None for our CUDA kernel."""
    if settings.kernel == "ours":
        return None, "tilewright's NVFP4 grouped GEMM (nvfp4_grouped.cu)", []
    engine = settings.kernel.split("-", 1)[0]
    if settings.root is not None or find_spec(engine) is not None:
        kernel = engine_kernel(settings.kernel, settings.layer, settings.root)
        return kernel, f"{engine}: {kernel.file}:{kernel.line}", []
    note = (
        f"{engine} is not installed here: tilewright's own kernel of the same parameters stands in for it. Tune with "
        "--root DIR_OR_WHEEL of the version that you serve with before relying on the last few percent."
    )
    return own_kernel(), "tilewright's own Triton kernel (not the engine's)", [note]


def _ground(settings: Settings) -> _Ground:
    """The GPU and the kernel.

    Raises:
        InputError: there is no GPU to measure on, or `gpu` is another one; an engine or its kernel is not there.
    """
    from tilewright.bench.device import read_device
    from tilewright.hardware.names import resolve_gpu

    source, label, notes = _source(settings)
    if settings.compile_only and settings.gpu is not None:
        entry = resolve_gpu(settings.gpu)
        return _Ground(machine_of(entry), entry.key, None, source, label, tuple(notes))
    try:
        device = read_device(settings.devices[0] if settings.devices else 0)
    except (TilewrightError, MissingPartError) as error:
        if settings.compile_only:
            raise InputError("gpu", "There is no GPU here to ask: name the one to compile for with --gpu.") from None
        if isinstance(error, MissingPartError):
            raise MissingPartError("PyTorch or nvidia-ml-py, which tuning measures with,", "tune") from None
        if isinstance(error, InputError):
            raise
        msg = (
            "No NVIDIA driver answers on this machine, and tuning measures on its GPU; --compile-only --gpu NAME "
            "prunes the space and compiles what is left without one."
        )
        raise TilewrightError(msg) from None
    if settings.gpu is not None and resolve_gpu(settings.gpu).key != device.gpu:
        msg = f"--gpu {settings.gpu} is not the GPU here ({device.name}); --compile-only takes another one."
        raise InputError("gpu", msg)
    if device.entry is None:
        raise InputError("device", f"The catalogue does not know {device.name}, so that nothing can be pruned for it.")
    return _Ground(machine_of(device.entry), device.gpu, device, source, label, tuple(notes))


_MEASURING: Final = {
    "out": "--out", "devices": "--devices", "ray": "--ray", "resume": "--resume", "budget_s": "--budget",
    "store": "--store",
}  # fmt: skip
"""Settings that mean nothing where nothing is measured, by the option that gives them."""


def _checked(settings: Settings) -> Settings:
    """`settings` with its format and export checked, before anything is looked for."""
    idle = [flag for name, flag in _MEASURING.items() if settings.compile_only and getattr(settings, name)]
    if idle:
        raise InputError(idle[0].strip("-"), f"{idle[0]} needs measurements, and --compile-only makes none: drop one.")
    dtype = check_kernel(settings.kernel, settings.layer.dtype)
    layer = check_layer(msgspec.structs.replace(settings.layer, dtype=dtype), settings.kernel)
    formats = settings.formats
    if settings.out is not None and not formats:
        formats = ("vllm",) if settings.kernel.startswith("vllm") else ("sglang",)
        if settings.kernel == "ours":
            formats = ("vllm",)
    if settings.out is not None:
        for name in formats:
            check_format(layer, name)
    elif formats:
        raise InputError("out", "--format says how files are written; say where with --out DIR.")
    if settings.start is not None and settings.kernel == "ours":
        raise InputError("start", "--start takes tiles of vLLM and SGLang; tilewright's own kernel has others.")
    from dataclasses import replace

    return replace(settings, layer=layer, formats=formats)


@contextlib.contextmanager
def _cache() -> Generator[Path]:
    """A folder for builds, kept between runs: what was compiled once need not be again."""
    named = os.environ.get(CACHE_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME")
    folder = Path(named) if named else (Path(base) if base else Path.home() / ".cache") / "tilewright" / "tune"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        folder = Path(tempfile.mkdtemp(prefix="tilewright-tune-"))
    os.environ[CACHE_VARIABLE] = str(folder)
    try:
        yield folder
    finally:
        if named is None:
            del os.environ[CACHE_VARIABLE]


def _kernel_file(folder: Path, source: Kernel | None) -> str:
    """The engine's kernel where measuring processes read it; "" where the kernel is ours."""
    if source is None or source is own_kernel():
        return ""
    data = kernel_text(source)
    path = folder / "kernels" / f"{hashlib.sha256(data).hexdigest()[:24]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        temp = path.with_name(f".{path.name}.{os.getpid()}")
        temp.write_bytes(data)
        temp.replace(path)
    return str(path)


class Tuner:
    """One run: everything that its parts share."""

    def __init__(self, settings: Settings, tell: Callable[[str], None] = print) -> None:
        self.settings = _checked(settings)
        self.tell = tell
        self.begun = time.monotonic()
        self.ground = _ground(self.settings)
        machine = self.ground.machine
        self.pruned: Pruned = prune(self.settings.kernel, self.settings.layer, machine.sm, machine.limit, clamp=True)
        if not self.pruned.kept:
            reasons = "; ".join(f"{count:,} {reason}" for reason, count in self.pruned.dropped.items())
            raise InputError("space", f"No config of {self.settings.kernel} can run this layer on this GPU: {reasons}.")
        self.plan: Plan = plan_of(len(self.pruned.kept), self.settings.trials)
        self.starts = read_start(self.settings.start) if self.settings.start else {}
        self.best: dict[int, list[Config]] = {}
        self.problems = [
            Problem(kernel=self.settings.kernel, layer=self.settings.layer, tokens=count)
            for count in self.settings.tokens
        ]
        device = self.ground.device
        if self.settings.out is not None and device is not None:
            for engine in self.settings.formats:
                paths = targets(check_format(self.settings.layer, engine), self.settings.layer, device.name, _triton(),
                                self.settings.out)  # fmt: skip
                check_targets(paths, self.settings.out, force=self.settings.force)

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

    def hints(self, problem: Problem) -> list[Config]:
        """What was best at the nearest numbers of tokens, and the entry of --start."""
        found = [nearest(self.starts, problem.tokens)] if self.starts else []
        for count in sorted(
            self.best, key=lambda count: abs(count / problem.tokens - 1) + abs(problem.tokens / count - 1)
        )[:2]:
            found += self.best[count][:HINTS]
        return found

    def search_of(self, problem: Problem) -> Search:
        """The search of one number of tokens, in an order and with hints of now."""
        if self.settings.exhaustive:
            return exhaustive(problem, ordered(problem, self.pruned.kept, self.ground.machine))
        return search(problem, self.pruned.kept, self.ground.machine, self.plan, self.hints(problem))

    def first_choices(self, problem: Problem) -> list[Config]:
        """What the model would have measured first."""
        count = self.looks if self.settings.exhaustive else max(1, round(self.plan.trials * self.plan.start))
        return ordered(problem, self.pruned.kept, self.ground.machine)[:count]

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
        notes = [*ground.notes, *fields.pop("notes", [])]
        return TuneDocument(**common, **fields, notes=notes)


def _triton() -> str:
    found = version_of("triton")
    if found is None:
        raise MissingPartError("Triton, which compiles the engines' kernels,", "tune")
    return found


def _absent_compiler(kernel: str) -> str | None:
    """The package that compiles `kernel`, where it is not installed."""
    module, name = ("cuda", "cuda-bindings") if kernel == "ours" else ("triton", "Triton")
    return name if find_spec(module) is None else None


def compile_only(tuner: Tuner) -> TuneDocument:
    """Prune, order and compile what would be measured first; no GPU is needed."""
    settings = tuner.settings
    absent = _absent_compiler(settings.kernel)
    if absent is not None:
        choices = {str(problem.tokens): tuner.first_choices(problem)[:SHOWN] for problem in tuner.problems}
        note = f"Pruned and ordered only: {absent} is not installed, so that nothing was compiled (extra `tune`)."
        return tuner.document(mode="compile only", first_choices=choices, notes=[note])
    failures: dict[str, int] = {}
    choices: dict[str, list[dict[str, int]]] = {}
    begun = time.monotonic()
    with _cache(), Builders(settings.builders or default_builders(0)) as builders:
        futures: list[Any] = []
        for problem in tuner.problems:
            first = tuner.first_choices(problem)
            choices[str(problem.tokens)] = first[:SHOWN]
            for config in first:
                futures += builders.start(tuner.builds_of(Request(problem, config)))
        unique = list(dict.fromkeys(futures))
        tuner.tell(f"{len(unique):,} builds on {builders.count} cores.")
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


def _fleet(tuner: Tuner, kernel_file: str, builders: Builders) -> Fleet:
    settings = tuner.settings
    if settings.ray is not None:
        from tilewright.tune.ray_fleet import RayFleet

        return RayFleet(
            settings.ray, tuner.builds_of, kernel_file=kernel_file, command=settings.command, limit_s=settings.limit_s
        )
    assert tuner.ground.device is not None
    devices = settings.devices or tuple(range(tuner.ground.device.count))
    for device in devices:
        if not 0 <= device < tuner.ground.device.count:
            msg = f"--device {device} is not there; this machine's are 0 to {tuner.ground.device.count - 1}."
            raise InputError("device", msg)
    return LocalFleet(
        devices, builders, tuner.builds_of, kernel_file=kernel_file, command=settings.command,
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


def pairs_elsewhere(outcomes: Sequence[Outcome]) -> list[tuple[Outcome, Outcome]]:
    """(whose winner, where it is measured): the largest decode number against the largest of all, both ways."""
    done = sorted((item for item in outcomes if item.best), key=lambda item: item.problem.tokens)
    decode = [item for item in done if item.problem.tokens <= DECODE_TOKENS]
    if not decode or len(done) < 2 or done[-1] is decode[-1]:
        return []
    return [(decode[-1], done[-1]), (done[-1], decode[-1])]


def _elsewhere(run: Run, outcomes: Sequence[Outcome], resume: bool) -> list[Elsewhere]:
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
            turns += yield Batch([Request(problem, item, "final", 9) for item in pair], together=True)
            return Outcome(problem, None, [], 0)

        run.tune([where.problem], both, resume=resume)
        times = [trial.time_s for trial in turns]
        if len(times) == 2 and times[0] and times[1]:
            found.append(
                Elsewhere(best_at=whose.problem.tokens, tokens=where.problem.tokens, ratio=times[0] / times[1])
            )
    return found


def tune_moe(asked: Settings | Tuner, watcher: Watcher | None = None) -> TuneDocument:
    """Find the fastest config of a fused-MoE kernel for each number of tokens on this machine's GPUs.

    Every trial is measured in a process of its own and kept in the store as soon as it ends; with `resume` those of an
    earlier run in the same context (GPU, driver, versions, kernel text) are not measured again. Files for vLLM and
    SGLang are written at the end, and never over others unless `force` is set.

    Raises:
        InputError: something that is asked for cannot be, a file exists, or the store is a newer one's.
        TilewrightError: there is no GPU, or no worker can measure on it.
        MissingPartError: torch, Triton, cuda-bindings or Ray is not installed.
    """
    tuner = asked if isinstance(asked, Tuner) else Tuner(asked)
    for note in tuner.ground.notes:
        tuner.tell(note)
    if tuner.settings.compile_only:
        return compile_only(tuner)
    settings, device = tuner.settings, tuner.ground.device
    assert device is not None
    if settings.kernel != "ours":
        _triton()
    path = Path(settings.store) if settings.store else default_path()
    end = None if settings.budget_s is None else time.monotonic() + settings.budget_s
    context = context_of(device, settings.kernel, tuner.ground.source)
    with ExitStack() as stack:
        store = stack.enter_context(TrialStore.append_to(path)) if settings.keep else None
        folder = stack.enter_context(_cache())
        builders = stack.enter_context(Builders(settings.builders or default_builders(max(1, len(settings.devices)))))
        fleet = _fleet(tuner, _kernel_file(folder, tuner.ground.source), builders)
        stack.callback(fleet.close)
        for problem in tuner.problems:
            fleet.prepare([Request(problem, config) for config in tuner.first_choices(problem)[: tuner.plan.round]])
        run = Run(fleet, store, context, _Watching(tuner, watcher or _Silent()))
        outcomes = run.tune(
            tuner.problems, tuner.search_of, resume=settings.resume,
            stop=lambda: end is not None and time.monotonic() > end,
        )  # fmt: skip
        elsewhere: list[Elsewhere] = []
        if end is None or time.monotonic() < end:
            elsewhere = _elsewhere(run, outcomes, settings.resume)
    outcomes.sort(key=lambda outcome: outcome.problem.tokens)
    found = {outcome.problem.tokens: outcome.ranked for outcome in outcomes if outcome.best}
    files = [
        file
        for name in settings.formats
        if settings.out is not None and found
        for file in write(
            check_format(settings.layer, name), settings.layer, device.name, _triton(), found, settings.out,
            force=settings.force,
        )
    ]  # fmt: skip
    finished = {outcome.problem.tokens for outcome in outcomes}
    return tuner.document(
        mode="measured", results=[_tuned(outcome) for outcome in outcomes], elsewhere=elsewhere, files=files,
        store=str(path) if settings.keep else None, versions=context.versions,
        unfinished=[count for count in settings.tokens if count not in finished], workers=run.workers,
        compiled=Compiled(builds=builders.finished, failed=builders.failed),
    )  # fmt: skip


class _Silent:
    def trial(self, problem: Problem, trial: Trial, reused: bool) -> None:
        """Nobody watches."""

    def outcome(self, outcome: Outcome) -> None:
        """Nobody watches."""
