"""The measuring process: `python -m tilewright.bench.work`, one job a line on stdin, one outcome a line on stdout.

A process of its own, because a kernel that faults leaves the CUDA context of its process unusable, and one that hangs
cannot be stopped from inside. It ends after the first measurement that fails.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

import msgspec

from tilewright.bench import environment, timing
from tilewright.bench.backends import Backend, Prepared, backend
from tilewright.bench.backends.base import UnsupportedError, version_of
from tilewright.bench.job import Job, Outcome
from tilewright.bench.parent import end_with_parent
from tilewright.bench.problem import (
    W4A4,
    GemmProblem,
    MoeProblem,
    Problem,
    memory_bytes,
    problem_of,
    touched_bytes,
    weight_bytes,
)
from tilewright.errors import MissingPartError, TilewrightError
from tilewright.hardware.nvml import NvmlDevice, load_nvml, session

RESERVE_BYTES: Final = 1 << 30
"""Memory left for what libraries take besides tensors: cuBLAS's workspaces, modules, graphs."""
COPY_SHARE: Final = 0.5
"""Share of the free memory that copies of the weights may take: the rest is for operands and references."""
MAX_NOTE: Final = 300
_GB: Final = 10**9


def sentence(error: BaseException) -> str:
    """What went wrong, in one line."""
    text = " ".join((str(error) or type(error).__name__).split())
    name = "" if isinstance(error, TilewrightError) else f"{type(error).__name__}: "
    return (name + text)[:MAX_NOTE]


def nvml_index(torch: Any, nvml: Any, device: int) -> int | None:
    """The NVML number of torch's device (CUDA_VISIBLE_DEVICES renumbers them), found by its bus address."""
    count = int(nvml.nvmlDeviceGetCount())
    properties = torch.cuda.get_device_properties(device)
    bus, domain = getattr(properties, "pci_bus_id", None), getattr(properties, "pci_domain_id", 0)
    if bus is None:  # a PyTorch that does not say
        return 0 if count == 1 else None
    wanted = (domain, bus, properties.pci_device_id)
    for index in range(count):
        told = NvmlDevice(nvml, index).bus_id  # 00000000:3B:00.0
        try:
            parts = (told or "").replace(".", ":").split(":")
            found = (int(parts[0], 16), int(parts[1], 16), int(parts[2], 16))
        except (ValueError, IndexError):
            continue
        if found == wanted:
            return index
    return 0 if count == 1 else None


def copies_of(problem: Problem, free: int) -> int:
    """Copies of the weights that the measurement goes round over, in `free` bytes."""
    each = max(1, weight_bytes(problem))
    return timing.copies_for(touched_bytes(problem), int(free * COPY_SHARE), each)


def refusal(problem: Problem, free: int) -> str | None:
    """Why `problem` does not fit in `free` bytes, or None. Of weights one copy more than is timed: what is repacked."""
    repacked = isinstance(problem, GemmProblem | MoeProblem)
    need = memory_bytes(problem, copies_of(problem, free) + repacked) + RESERVE_BYTES
    if need <= free:
        return None
    return f"needs {need / _GB:,.1f} GB of memory, {free / _GB:,.1f} GB are free"


def cold(torch: Any, problem: Problem, copies: int, device: int) -> bool:
    """Whether so many bytes lie between two uses of the same weights that L2 cannot hold them."""
    between = copies * touched_bytes(problem)
    l2 = int(getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0))  # a PyTorch that does not say: 0
    return between >= timing.COLD_BYTES or (l2 > 0 and between >= timing.COLD_TIMES * l2)


def versions(torch: Any, of: Backend) -> dict[str, str]:
    """Versions of what takes part."""
    told = {"torch": str(torch.__version__)}
    for name, package in (("triton", "triton"), (of.name, of.package)):
        found = version_of(package)
        if name not in told and found:
            told[name] = found
    return told


def _timed(torch: Any, job: Job, prepared: Prepared, config: dict[str, Any]) -> Outcome:
    readings: list[environment.Reading] = []
    nvml = load_nvml()
    with session(nvml):
        index = nvml_index(torch, nvml, job.device)

        def observe() -> None:
            if index is not None:
                readings.append(environment.read(NvmlDevice(nvml, index)))

        summary, graph = timing.measure(
            torch, prepared.calls, graph=prepared.graph, budget_s=job.budget_s, observe=observe
        )
    marks = environment.marks(readings) if readings else ["clocks not read"]
    if prepared.graph and not graph:
        marks.append("not captured in a graph")
    figures = environment.figures(readings) if readings else {}
    figures["median_half_width"] = summary.half_width
    return Outcome(
        status="ok",
        time_s=summary.median_s,
        low_s=summary.low_s,
        high_s=summary.high_s,
        samples=summary.samples,
        config={**config, "graph": graph},
        marks=marks,
        figures=figures,
        note=prepared.remark,
    )


def measure(job: Job, torch: Any) -> Outcome:
    """One measurement: memory foreseen, the answer checked, then timed."""
    problem = problem_of(job.kind, job.problem)
    of = backend(job.backend)
    torch.cuda.set_device(job.device)
    torch.cuda.empty_cache()
    torch.backends.cuda.matmul.allow_tf32 = False
    free = int(torch.cuda.mem_get_info()[0])
    told = versions(torch, of)
    reason = refusal(problem, free)
    if reason is not None:
        return Outcome(status="refused", note=reason, versions=told)
    copies = copies_of(problem, free)
    prepared = of.prepare(problem, torch, copies)
    config = {**prepared.config, "copies": copies}
    apart = prepared.check()
    torch.cuda.synchronize()
    quantising = isinstance(problem, MoeProblem) and problem.dtype == W4A4
    if not apart.right(job.kind, quantising=quantising):
        largest = apart.largest if math.isfinite(apart.largest) else None
        note = f"the answer is off by {apart.largest:.2g} of the largest value, {apart.norm:.2g} in norm"
        return Outcome(status="wrong", error=largest, config=config, note=note, versions=told)
    outcome = _timed(torch, job, prepared, config)
    if not cold(torch, problem, copies, job.device):
        outcome = msgspec.structs.replace(outcome, marks=[*outcome.marks, "L2 not cold"])
    return msgspec.structs.replace(
        outcome,
        error=apart.largest,
        figures={**outcome.figures, "error_norm": apart.norm},
        versions=told,
        cuda=torch.version.cuda,
    )


def attempt(job: Job, torch: Any) -> Outcome:
    """`measure`, with what it raises as an outcome."""
    try:
        return measure(job, torch)
    except (MissingPartError, UnsupportedError) as error:
        return Outcome(status="refused", note=sentence(error), versions=versions(torch, backend(job.backend)))
    except torch.cuda.OutOfMemoryError as error:
        return Outcome(status="refused", note=f"out of memory: {sentence(error)}"[:MAX_NOTE], fatal=True)
    except Exception as error:  # whatever a backend raises is its result
        return Outcome(status="failed", note=sentence(error), fatal=True)


def serve(answer: Callable[[Job], Outcome]) -> None:
    """Answer jobs, one a line on stdin, one outcome a line on stdout, until stdin ends or an outcome is fatal."""
    # Libraries print; what they print must not get between the outcomes.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    decoder = msgspec.json.Decoder(Job)
    for text in sys.stdin.buffer:
        outcome = answer(decoder.decode(text))
        answers.write(msgspec.json.encode(outcome) + b"\n")
        answers.flush()
        if outcome.fatal:
            break
    answers.flush()
    os._exit(0)  # a faulted context may hang in its own clean-up


def measured(job: Job) -> Outcome:
    """The outcome of one measurement."""
    torch = import_module("torch")
    if job.kind == "allreduce":
        from tilewright.bench.allreduce import measure_rank

        return measure_rank(job, torch)
    return attempt(job, torch)


if __name__ == "__main__":
    end_with_parent()
    serve(measured)
