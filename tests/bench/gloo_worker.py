"""One process of a collective on the CPU: what `bench.work` does for an all-reduce, over gloo, timed by the host.

Its problem's `mode` names what goes wrong: nothing, a rank whose sum is wrong, one that fails or dies.
"""

from __future__ import annotations

import os
import time
from typing import Any

import torch

from tilewright.bench import allreduce
from tilewright.bench.job import Job, Outcome
from tilewright.bench.work import sentence, serve


class HostClock:
    """All-reduces timed by the host. Rank 1 is slower by far, and its noise never ends."""

    graph = False

    def __init__(self, group: allreduce.Group, message: Any) -> None:
        self.group, self.message, self.turn = group, message, 0

    def once(self) -> float:
        self.turn += 1
        torch.distributed.all_reduce(self.message)
        return self.group.most(1e-3 * (1 + self.group.rank) * (1 + 0.5 * (self.turn % 3)))


def answer(job: Job) -> Outcome:
    mode, size = job.problem["mode"], int(job.problem["gpus"])
    try:
        group = allreduce.join(torch, job, size, backend="gloo", device="cpu")
        if mode == "fail" and job.rank == 1:
            raise ValueError("no memory left on this GPU")  # noqa: TRY301
        if mode == "die" and job.rank == 1:
            os.abort()
        if mode == "nan" and job.rank == 1:
            drawn = allreduce._drawn

            def spoilt(group: Any, rank: int, chunk: int, count: int) -> Any:
                return drawn(group, rank, chunk, count) * (float("nan") if rank == 1 else 1.0)

            allreduce._drawn = spoilt
        apart = allreduce.check(group, int(job.problem["bytes"]) // 2)
        if not apart.right("allreduce"):
            return Outcome(status="wrong", note="the sum is wrong")
        # Each process has a clock of its own, and they do not agree on what time it is.
        time.monotonic = lambda start=time.monotonic, skew=1000.0 * job.rank: start() + skew  # type: ignore[assignment]
        message = torch.zeros(8, dtype=torch.bfloat16)
        looks: list[int] = []
        outcome = allreduce.timed(group, HostClock(group, message), job.budget_s, lambda: looks.append(1))
        return Outcome(
            status="ok", time_s=outcome.time_s, samples=outcome.samples, error=apart.largest,
            marks=[*outcome.marks, f"rank {job.rank}"], figures={"pid": os.getpid(), "looks": len(looks)},
        )  # fmt: skip
    except Exception as error:
        return Outcome(status="failed", note=sentence(error), fatal=True)


if __name__ == "__main__":
    serve(answer)
