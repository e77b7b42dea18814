"""A measuring process that compiles and does not run: both GEMMs' kernels through Triton for SM90, no GPU needed.

The "time" of a config is made of what the compiler says of its build, so that it is the same wherever it was compiled.
"""

from __future__ import annotations

import re
import sys

import msgspec

from tilewright.bench.job import Job, Outcome
from tilewright.tune.build import triton_kernel
from tilewright.tune.layer import problem_of
from tilewright.tune.moe_call import PARTS, compilation, own_kernel


def answer(job: Job) -> Outcome:
    problem, config = problem_of(job.problem["problem"]), job.problem["config"]
    kernel = own_kernel()
    figures: dict[str, float] = {}
    for part in PARTS:
        made = triton_kernel(
            kernel.source, kernel.name, compilation(kernel, problem.layer, problem.tokens, part, config, 90)
        )
        products = len(re.findall(r"mma", made.asm["ptx"]))
        figures[f"{part}_s"] = 1e-6 * (made.metadata.shared / 1024 + products + config["GROUP_SIZE_M"] / 64)
    total = sum(figures.values())
    return Outcome(status="ok", time_s=total, low_s=total, high_s=total, samples=1, figures=figures)


for line in sys.stdin.buffer:
    sys.stdout.buffer.write(msgspec.json.encode(answer(msgspec.json.decode(line, type=Job))) + b"\n")
    sys.stdout.buffer.flush()
