"""All-reduce over NCCL, one process a GPU (`torch.distributed`). Needs two GPUs or more."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any, Final

from tilewright.bench.job import Job, Outcome
from tilewright.bench.problem import AllreduceProblem, problem_of
from tilewright.bench.reference import Error, error
from tilewright.bench.stats import sample, summarise

CALLS: Final = 20
"""All-reduces between two events: one alone is as short as what starts it."""
MEET_S: Final = 120
_SEED: Final = 7


def _message(torch: Any, size: int, rank: int) -> Any:
    generator = torch.Generator(device="cuda").manual_seed(_SEED + rank)
    return torch.empty(size // 2, dtype=torch.bfloat16, device="cuda").normal_(generator=generator)


def _check(torch: Any, distributed: Any, problem: AllreduceProblem, rank: int) -> Error:
    out = _message(torch, problem.bytes, rank)
    distributed.all_reduce(out)
    want = sum(_message(torch, problem.bytes, each).float() for each in range(problem.gpus))
    return error(out, want)


def measure_rank(job: Job, torch: Any) -> Outcome:
    """What one of the processes measures; every process gets the slowest one's samples, so that all sample as often."""
    from tilewright.bench.work import sentence

    try:
        problem = problem_of(job.kind, job.problem)
        assert isinstance(problem, AllreduceProblem)
        return _measure(job, problem, torch)
    except Exception as caught:  # whatever NCCL raises is the result
        return Outcome(status="failed", note=sentence(caught), fatal=True)


def _measure(job: Job, problem: AllreduceProblem, torch: Any) -> Outcome:
    distributed = torch.distributed
    torch.cuda.set_device(job.device)
    distributed.init_process_group(
        "nccl", init_method=f"file://{job.meeting}", world_size=problem.gpus, rank=job.rank,
        timeout=timedelta(seconds=MEET_S),
    )  # fmt: skip
    apart = _check(torch, distributed, problem, job.rank)
    versions = {"torch": str(torch.__version__), "nccl": ".".join(map(str, torch.cuda.nccl.version()))}
    if not apart.right("allreduce"):
        note = f"the sum is off by {apart.largest:.2g} of the largest value"
        return Outcome(status="wrong", note=note, versions=versions)
    message = torch.zeros(problem.bytes // 2, dtype=torch.bfloat16, device="cuda")
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    shared = torch.zeros(1, dtype=torch.float64, device="cuda")

    def slowest(value: float) -> float:
        shared.fill_(value)
        distributed.all_reduce(shared, op=distributed.ReduceOp.MAX)
        return float(shared.item())

    def once() -> float:
        distributed.barrier()
        start.record()
        for _ in range(CALLS):
            distributed.all_reduce(message)
        end.record()
        end.synchronize()
        return slowest(start.elapsed_time(end) / 1e3 / CALLS)

    once()
    # The clock that ends sampling must be the same for all, too: a process that stops alone leaves the others waiting.
    taken = sample(once, budget_s=job.budget_s, now=lambda: slowest(time.monotonic()))
    summary = summarise(taken)
    distributed.destroy_process_group()
    return Outcome(
        status="ok", time_s=summary.median_s, low_s=summary.low_s, high_s=summary.high_s, samples=summary.samples,
        error=apart.largest, figures={"error_norm": apart.norm, "median_half_width": summary.half_width},
        config={"calls": CALLS, "graph": False}, versions=versions, cuda=torch.version.cuda,
    )  # fmt: skip
