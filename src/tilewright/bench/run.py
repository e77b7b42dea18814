"""All of one `bench`: every backend on every problem, each result stored as soon as it is there."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.bench.backends import NAMES, Backend, backend
from tilewright.bench.device import Device
from tilewright.bench.document import BenchDocument, BenchLine, Prediction
from tilewright.bench.job import Job, Outcome
from tilewright.bench.problem import (
    W4A4,
    WORD,
    AllreduceProblem,
    CopyProblem,
    GemmProblem,
    MoeProblem,
    Problem,
    ReadProblem,
    as_dict,
    flops,
    kind_of,
    memory_bytes,
    moved_bytes,
    touched_bytes,
)
from tilewright.bench.process import COMMAND, MeasuringProcess, Together
from tilewright.errors import InputError, TilewrightError, shown
from tilewright.hardware.gpu import GIGA, TERA
from tilewright.store.database import default_path
from tilewright.store.result import Result
from tilewright.store.store import Store

NCCL: Final = "nccl"
READERS: Final = ("triton", "torch")
"""Backends that can read, the better one first."""


@dataclass(frozen=True, slots=True)
class Options:
    """How to measure. `backends`: only these; empty: all that are there. `store` None: the default one."""

    backends: tuple[str, ...] = ()
    store: str | None = None
    keep: bool = True
    limit_s: float = 120.0
    budget_s: float = 2.0
    command: Sequence[str] = COMMAND


def published_limit_s(problem: Problem, device: Device) -> float | None:
    """The larger of bytes over the GPU's published bandwidth and operations over its published dense rate, seconds.

    NVFP4 weights with bf16 activations are multiplied in bf16. On a GPU whose tensor cores lack the format there is no
    rate for it, and only bytes count. None where the catalogue does not know the GPU.
    """
    entry = device.entry
    if entry is None or isinstance(problem, AllreduceProblem):
        return None
    bandwidth = entry.bandwidth().value
    if not bandwidth:
        return None
    memory = moved_bytes(problem) / (bandwidth * GIGA)
    work = flops(problem)
    if not work or not isinstance(problem, GemmProblem | MoeProblem):
        return memory
    peak = entry.peak({"fp8": "fp8", W4A4: "nvfp4"}.get(problem.dtype, "bf16")).value
    return max(memory, work / (peak * TERA)) if peak else memory


def prediction(problem: Problem, device: Device) -> Prediction | None:
    """What `predict` says of an all-reduce of this message, from what it knows of other machines; None of anything else
    and where it does not know the GPU."""
    if not isinstance(problem, AllreduceProblem) or device.entry is None:
        return None
    from tilewright.cost.collective_estimate import estimate_collective
    from tilewright.cost.questions import AllreduceQuestion

    question = AllreduceQuestion(gpu=device.entry.key, gpus=problem.gpus, bytes=problem.bytes, backend=NCCL)
    try:
        found = estimate_collective(question, tables=True)
    except TilewrightError:
        return None
    return Prediction(time_s=found.time_s, low_s=found.low_s, high_s=found.high_s, basis=found.basis)


def foresee(problems: Sequence[Problem], device: Device) -> None:
    """Raises InputError where a problem cannot fit in the memory that is free, before anything is started."""
    for problem in problems:
        need = memory_bytes(problem, 1)
        if device.free_bytes is not None and need > device.free_bytes:
            fields = " ".join(f"{name}={value}" for name, value in as_dict(problem).items())
            msg = (
                f"{kind_of(problem)} {fields} needs {need / GIGA:,.1f} GB of GPU memory and {device.name} has "
                f"{device.free_bytes / GIGA:,.1f} GB free; give a smaller problem."
            )
            raise InputError("memory", msg)


def choose(problems: Sequence[Problem], device: Device, names: Sequence[str]) -> tuple[list[Backend], dict[str, str]]:
    """(backends that can run some of the problems here, name -> why another cannot).

    Raises InputError for an unknown name, and where none of those that were asked for can run anything.
    """
    able: list[Backend] = []
    missing: dict[str, str] = {}
    for name in dict.fromkeys(names or NAMES):
        item = backend(name)
        if not any(item.takes(problem) for problem in problems):
            if names:
                missing[name] = f"has no {kind_of(problems[0])} of this format here"
            continue
        reason = item.missing(device.capability)
        if reason is None:
            able.append(item)
        else:
            missing[name] = reason
    if not able:
        why = "; ".join(f"{name}: {reason}" for name, reason in missing.items())
        raise InputError("backend", f"No backend can run this here ({why}).")
    return able, missing


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def result_of(problem: Problem, name: str, outcome: Outcome, device: Device, at: str) -> Result:
    """What is stored of one outcome."""
    environment: dict[str, Any] = {"gpu": device.gpu, "device": device.name, "versions": outcome.versions}
    if device.driver:
        environment["driver"] = device.driver
    if outcome.cuda:
        environment["cuda"] = outcome.cuda
    figures = dict(outcome.figures)
    if outcome.status == "ok":
        figures["weight_bytes"] = touched_bytes(problem)
    return Result(
        kind=kind_of(problem), backend=name, at=at, status=outcome.status, problem=as_dict(problem),
        config=outcome.config, environment=environment, time_s=outcome.time_s, low_s=outcome.low_s,
        high_s=outcome.high_s, samples=outcome.samples, error=outcome.error, marks=outcome.marks, figures=figures,
        note=outcome.note,
    )  # fmt: skip


def line_of(problem: Problem, result: Result, device: Device, read_s: float | None, best_s: float | None) -> BenchLine:
    """A result beside the limits and the best."""
    time_s = result.time_s
    limit = published_limit_s(problem, device)
    if not time_s:
        return BenchLine(result=result, read_limit_s=read_s, published_limit_s=limit)
    moved = 2 * problem.bytes if isinstance(problem, CopyProblem) else touched_bytes(problem)
    work = flops(problem)
    predicted = prediction(problem, device)
    return BenchLine(
        result=result,
        predicted=predicted,
        within=predicted.low_s <= time_s <= predicted.high_s if predicted else None,
        bandwidth_tbs=moved / time_s / TERA,
        tflops=work / time_s / TERA if work else None,
        read_limit_s=read_s,
        of_read_limit=read_s / time_s if read_s else None,
        published_limit_s=limit,
        of_published_limit=limit / time_s if limit else None,
        ratio_to_best=time_s / best_s if best_s else None,
    )


class _Run:
    """One run: its store, its results so far, its words to the user."""

    def __init__(self, device: Device, options: Options, store: Store | None, tell: Callable[[str], None]) -> None:
        self.device, self.options, self.store, self.tell = device, options, store, tell
        self.results: dict[int, list[Result]] = {}
        self.reads: dict[int, float] = {}

    def keep(self, problem: Problem, name: str, outcome: Outcome) -> Result:
        result = result_of(problem, name, outcome, self.device, _now())
        if self.store is not None:
            self.store.append([result])
        told = f"{outcome.time_s * 1e6:,.2f} us" if outcome.time_s else outcome.note
        fields = " ".join(f"{key}={value}" for key, value in as_dict(problem).items())
        self.tell(f"{name}: {kind_of(problem)} {fields}: {outcome.status}, {told}")
        return result

    def ask(self, process: MeasuringProcess, problem: Problem, name: str) -> Result:
        job = Job(
            backend=name, kind=kind_of(problem), problem=as_dict(problem), device=self.device.index,
            budget_s=self.options.budget_s,
        )  # fmt: skip
        return self.keep(problem, name, process.ask(job, self.options.limit_s))

    def read_limits(self, problems: Sequence[Problem]) -> None:
        """How long reading the bytes of each GEMM or MoE problem takes, on this GPU, now."""
        sizes = {-(-touched_bytes(p) // WORD) * WORD for p in problems if isinstance(p, GemmProblem | MoeProblem)}
        name = next((item for item in READERS if backend(item).missing(self.device.capability) is None), None)
        if name is None or not sizes:
            return
        with MeasuringProcess(self.options.command) as process:
            for size in sorted(sizes):
                result = self.ask(process, ReadProblem(bytes=size), name)
                if result.status == "ok" and result.time_s:
                    self.reads[size] = result.time_s

    def read_of(self, problem: Problem) -> float | None:
        if not isinstance(problem, GemmProblem | MoeProblem):
            return None
        return self.reads.get(-(-touched_bytes(problem) // WORD) * WORD)

    def lines(self, problems: Sequence[Problem]) -> list[BenchLine]:
        made: list[BenchLine] = []
        for at, problem in enumerate(problems):
            results = self.results.get(at, [])
            times = [result.time_s for result in results if result.status == "ok" and result.time_s]
            best = min(times, default=None)
            made += [line_of(problem, item, self.device, self.read_of(problem), best) for item in results]
        return made


def bench(
    problems: Sequence[Problem], device: Device, options: Options = Options(), tell: Callable[[str], None] = print
) -> BenchDocument:
    """Measure `problems` on `device` with every backend that is there, each in a process of its own.

    A backend that raises, crashes or hangs loses its own result only. Raises InputError for problems that do not fit
    in memory, backends that are none, or a store that cannot be used.
    """
    foresee(problems, device)
    able, missing = choose(problems, device, options.backends)
    path = Path(options.store) if options.store else default_path()
    with ExitStack() as stack:
        store = stack.enter_context(Store.append_to(path)) if options.keep else None
        run = _Run(device, options, store, tell)
        run.read_limits(problems)
        for item in able:
            with MeasuringProcess(options.command) as process:
                for at, problem in enumerate(problems):
                    if item.takes(problem):
                        run.results.setdefault(at, []).append(run.ask(process, problem, item.name))
        return _document(device, str(path) if options.keep else None, run.lines(problems), missing)


def _document(device: Device, store: str | None, lines: list[BenchLine], missing: dict[str, str]) -> BenchDocument:
    return BenchDocument(
        gpu=device.gpu, device_name=device.name, driver=device.driver,
        environment=lines[0].result.environment if lines else {}, store=store, lines=lines, missing=missing,
    )  # fmt: skip


def of_all(outcomes: Sequence[Outcome]) -> Outcome:
    """What the processes of a collective say together: the slowest one's times with the marks of all. Where any failed,
    what each of those says: which one was the cause, and which only lost the other, no process can tell."""
    bad = {rank: outcome for rank, outcome in enumerate(outcomes) if outcome.status != "ok"}
    if bad:
        if any(outcome.status != "timeout" for outcome in bad.values()):
            bad = {rank: outcome for rank, outcome in bad.items() if outcome.status != "timeout"}
        first = next(iter(bad.values()))
        if len({outcome.note for outcome in bad.values()}) == 1:
            return first
        note = "; ".join(f"GPU {rank}: {outcome.note}" for rank, outcome in bad.items())
        return msgspec.structs.replace(first, note=note)
    marks = list(dict.fromkeys(mark for outcome in outcomes for mark in outcome.marks))
    slowest = max(outcomes, key=lambda outcome: outcome.time_s or 0.0)
    return msgspec.structs.replace(slowest, marks=marks)


def bench_allreduce(
    problems: Sequence[AllreduceProblem],
    device: Device,
    options: Options = Options(),
    tell: Callable[[str], None] = print,
) -> BenchDocument:
    """Measure all-reduces over the first `gpus` GPUs, one process each, all ended at the time limit.

    The slowest process's times count. Raises InputError where more GPUs are asked for than are there, a message is too
    large, or a backend is named that is not NCCL.
    """
    for name in options.backends:
        if name != NCCL:
            raise InputError("backend", f"--backend {shown(name)} makes no all-reduce; {NCCL} is the only one.")
    for problem in problems:
        if problem.gpus > device.count:
            msg = f"--gpus {problem.gpus} is more than the {device.count} that this machine shows."
            raise InputError("gpus", msg)
    foresee(problems, device)
    path = Path(options.store) if options.store else default_path()
    with ExitStack() as stack:
        store = stack.enter_context(Store.append_to(path)) if options.keep else None
        run = _Run(device, options, store, tell)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for gpus in dict.fromkeys(problem.gpus for problem in problems):
            with Together(gpus, options.command) as processes:
                meetings = 0
                for at, problem in enumerate(problems):
                    if problem.gpus != gpus:
                        continue
                    jobs = [
                        Job(
                            backend=NCCL, kind="allreduce", problem=as_dict(problem), device=rank, rank=rank,
                            budget_s=options.budget_s, meeting=str(folder / f"{gpus}-{meetings}"),
                        )
                        for rank in range(gpus)
                    ]  # fmt: skip
                    outcome = of_all(processes.ask(jobs, options.limit_s))
                    meetings += outcome.status != "ok"  # those that are started again meet elsewhere
                    run.results[at] = [run.keep(problem, NCCL, outcome)]
        return _document(device, str(path) if options.keep else None, run.lines(problems), {})
