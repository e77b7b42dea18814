"""All-reduce over NCCL, one process a GPU (`torch.distributed`). Needs two GPUs or more.

Every decision that one process takes alone would leave the others waiting in a collective: whether the message fits,
whether a graph was captured, when sampling ends are all agreed on by an all-reduce of one number.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from inspect import signature
from typing import Any, Final

import msgspec

from tilewright.bench import environment
from tilewright.bench.job import Job, Outcome
from tilewright.bench.problem import AllreduceProblem, memory_bytes, problem_of
from tilewright.bench.reference import Error, error
from tilewright.bench.stats import sample, summarise
from tilewright.bench.timing import watched
from tilewright.hardware.gpu import GIGA

MOST_CALLS: Final = 40
"""All-reduces in a row that one sample is of: one alone is as short as what starts it."""
LEAST_CALLS: Final = 4
SAMPLE_BYTES: Final = 1 << 28
"""Bytes that the calls of one sample reduce together, about: beyond that fewer calls are enough."""
MEET_S: Final = 120
WARM_CALLS: Final = 3
CHUNK: Final = 1 << 22
"""Values that are drawn and compared at once: a check takes little memory beside the message."""
TUNING: Final = "NCCL_"
"""Variables by which NCCL is tuned: part of what was measured."""
_SEED: Final = 7
_STRIDE: Final = 1_000_003
"""Between the seeds of two processes' chunks: more than any message has chunks."""


@dataclass(frozen=True)
class Group:
    """The processes of one collective as one of them sees it. `device`: what tensors are made on."""

    torch: Any
    device: Any
    rank: int
    size: int

    def most(self, value: float) -> float:
        """The largest `value` of all processes; none goes on before all are here."""
        shared = self.torch.full((1,), value, dtype=self.torch.float64, device=self.device)
        distributed = self.torch.distributed
        distributed.all_reduce(shared, op=distributed.ReduceOp.MAX)
        return float(shared.item())

    def all(self, here: bool) -> bool:
        """Whether it is so in every process."""
        return self.most(0.0 if here else 1.0) == 0.0


_joined: tuple[str, Group] | None = None


def join(torch: Any, job: Job, size: int, *, backend: str = "nccl", device: Any = None) -> Group:
    """The group that meets at `job.meeting`; kept from one job to the next, since meeting takes seconds."""
    global _joined
    if _joined is not None and _joined[0] == job.meeting:
        return _joined[1]
    distributed = torch.distributed
    if distributed.is_initialized():
        distributed.destroy_process_group()
    more: dict[str, Any] = {}
    if device is None:
        torch.cuda.set_device(job.device)
        device = torch.device("cuda", job.device)
        if "device_id" in signature(distributed.init_process_group).parameters:
            more["device_id"] = device  # else NCCL guesses the device at the first collective
    distributed.init_process_group(
        backend, init_method=f"file://{job.meeting}", world_size=size, rank=job.rank,
        timeout=timedelta(seconds=MEET_S), **more,
    )  # fmt: skip
    _joined = (job.meeting, Group(torch, device, job.rank, size))
    return _joined[1]


def _drawn(group: Group, rank: int, chunk: int, count: int) -> Any:
    """`count` values of the message of process `rank`: the same wherever they are drawn."""
    torch = group.torch
    generator = torch.Generator(device=group.device).manual_seed(_SEED + rank * _STRIDE + chunk)
    return torch.empty(count, dtype=torch.bfloat16, device=group.device).normal_(generator=generator)


def check(group: Group, count: int) -> Error:
    """How far the sum of messages of `count` values is from what the processes put in; the worst chunk of all."""
    torch = group.torch
    message = torch.empty(count, dtype=torch.bfloat16, device=group.device)
    parts = [(chunk, slice(first, min(first + CHUNK, count))) for chunk, first in enumerate(range(0, count, CHUNK))]
    for chunk, part in parts:
        message[part] = _drawn(group, group.rank, chunk, part.stop - part.start)
    torch.distributed.all_reduce(message)
    worst = Error(0.0, 0.0)
    for chunk, part in parts:
        want = sum(_drawn(group, rank, chunk, part.stop - part.start).float() for rank in range(group.size))
        apart = error(message[part], want)
        largest, norm = (math.inf if math.isnan(value) else value for value in (apart.largest, apart.norm))
        worst = Error(max(worst.largest, largest), max(worst.norm, norm))  # no maximum keeps a NaN
    return Error(group.most(worst.largest), group.most(worst.norm))


def calls_of(size: int) -> int:
    """All-reduces of `size` bytes in one sample."""
    return max(LEAST_CALLS, min(MOST_CALLS, SAMPLE_BYTES // size))


class CudaClock:
    """Seconds an all-reduce takes, by events around `calls` of them: in one CUDA graph, as engines launch them at
    decode, where every process could capture it; else one by one, and then short ones are charged with their start."""

    def __init__(self, group: Group, message: Any, calls: int) -> None:
        torch = group.torch
        self._group, self._calls = group, calls
        self._start, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        self._token = torch.zeros(1, dtype=torch.float32, device=group.device)
        reduce: Callable[[], Any] = lambda: torch.distributed.all_reduce(message)  # noqa: E731

        def one_by_one() -> None:
            for _ in range(calls):
                reduce()

        for _ in range(WARM_CALLS):
            reduce()
        torch.cuda.synchronize()
        made = torch.cuda.CUDAGraph()
        try:
            # NCCL's watchdog is another thread: what it asks the driver meanwhile must not end the capture.
            with torch.cuda.graph(made, capture_error_mode="thread_local"):
                one_by_one()
            captured = True
        except RuntimeError:
            torch.cuda.synchronize()
            captured = False
        self.graph = group.all(captured)
        self._work: Callable[[], Any] = made.replay if self.graph else one_by_one

    def once(self) -> float:
        """What the slowest process took."""
        # This one begins together everywhere, since none gets past its end before all have begun it.
        self._group.torch.distributed.all_reduce(self._token)
        self._start.record()
        self._work()
        self._end.record()
        self._end.synchronize()
        return self._group.most(self._start.elapsed_time(self._end) / 1e3 / self._calls)


def timed(group: Group, clock: Any, budget_s: float, observe: Callable[[], None]) -> Outcome:
    """Samples of `clock` until all processes agree that they are enough: the same ones in all."""
    clock.once()
    observe()
    taken = sample(watched(clock.once, observe), budget_s=budget_s, now=lambda: group.most(time.monotonic()))
    observe()
    summary = summarise(taken)
    return Outcome(
        status="ok", time_s=summary.median_s, low_s=summary.low_s, high_s=summary.high_s, samples=summary.samples,
        figures={"median_half_width": summary.half_width}, config={"graph": clock.graph},
        marks=[] if clock.graph else ["not captured in a graph"],
    )  # fmt: skip


def bus_gbs(size: int, gpus: int, time_s: float) -> float:
    """Bus bandwidth in GB/s, as nccl-tests counts it (doc/PERFORMANCE.md): what each GPU has to send for the sum,
    2 (n - 1) / n times the message."""
    return 2 * (gpus - 1) / gpus * size / time_s / GIGA


def measure_rank(job: Job, torch: Any) -> Outcome:
    """What one of the processes measures."""
    from tilewright.bench.work import sentence

    try:
        problem = problem_of(job.kind, job.problem)
        assert isinstance(problem, AllreduceProblem)
        return _measure(job, problem, torch)
    except Exception as caught:  # whatever NCCL raises is the result
        return Outcome(status="failed", note=sentence(caught), fatal=True)


def _measure(job: Job, problem: AllreduceProblem, torch: Any) -> Outcome:
    from tilewright.bench.work import RESERVE_BYTES, nvml_index
    from tilewright.hardware.nvml import NvmlDevice, load_nvml, session

    group = join(torch, job, problem.gpus)
    versions = {"torch": str(torch.__version__), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    torch.cuda.empty_cache()
    need = memory_bytes(problem, 1) + RESERVE_BYTES
    free = int(torch.cuda.mem_get_info()[0])
    if not group.all(need <= free):
        note = f"needs {need / GIGA:,.1f} GB of memory on each GPU, {free / GIGA:,.1f} GB are free on GPU {job.device}"
        return Outcome(status="refused", note=note, versions=versions)
    apart = check(group, problem.bytes // 2)
    if not apart.right("allreduce"):
        note = f"the sum is off by {apart.largest:.2g} of the largest value"
        return Outcome(status="wrong", note=note, versions=versions)
    calls = calls_of(problem.bytes)
    readings: list[environment.Reading] = []
    nvml = load_nvml()
    with session(nvml):
        index = nvml_index(torch, nvml, job.device)

        def observe() -> None:
            if index is not None:
                readings.append(environment.read(NvmlDevice(nvml, index)))

        message = torch.zeros(problem.bytes // 2, dtype=torch.bfloat16, device=group.device)
        outcome = timed(group, CudaClock(group, message, calls), job.budget_s, observe)
    peers = all(torch.cuda.can_device_access_peer(job.device, at) for at in range(problem.gpus) if at != job.device)
    assert outcome.time_s is not None
    return msgspec.structs.replace(
        outcome,
        error=apart.largest,
        config={**outcome.config, "calls": calls, **tuning(os.environ)},
        marks=[*outcome.marks, *(environment.marks(readings) if readings else ["clocks not read"])],
        figures={
            **(environment.figures(readings) if readings else {}), **outcome.figures, "error_norm": apart.norm,
            "peer_access": peers, "bus_gbs": round(bus_gbs(problem.bytes, problem.gpus, outcome.time_s), 3),
        },
        versions=versions,
        cuda=torch.version.cuda,
    )  # fmt: skip


def tuning(variables: Any) -> dict[str, str]:
    """NCCL's variables that are set, but for what it writes and where."""
    return {
        name: variables[name][:80]
        for name in sorted(variables)
        if name.startswith(TUNING) and not name.startswith("NCCL_DEBUG")
    }
