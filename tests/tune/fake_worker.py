"""A measuring process without a GPU: answers by rule, and does to order what a bad kernel does.

num_stages 5 with GROUP_SIZE_M 32 and num_warps 8 hangs, GROUP_SIZE_M 64 with num_warps 8 takes the process down,
BLOCK_SIZE_K 256 with BLOCK_SIZE_N 256 answers wrongly, BLOCK_SIZE_M 256 asks for too much. The rest is fastest at N=128
and K=128 with 3 stages.
Environment: FAKE_SLOW_S, a pause before every answer; FAKE_LOG, a file that gets a line for every trial.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import msgspec

from tilewright.bench.job import Job, Outcome


def answer(job: Job) -> Outcome:
    config = job.problem["config"]
    log = os.environ.get("FAKE_LOG")
    if log:
        with Path(log).open("a") as stream:
            stream.write(f"{job.problem['problem']['tokens']} {sorted(config.items())}\n")
    time.sleep(float(os.environ.get("FAKE_SLOW_S", "0")))
    if (config["num_stages"], config["GROUP_SIZE_M"], config["num_warps"]) == (5, 32, 8):
        time.sleep(3600)
    if config["GROUP_SIZE_M"] == 64 and config["num_warps"] == 8:
        os.abort()
    if config["BLOCK_SIZE_K"] == 256 and config["BLOCK_SIZE_N"] == 256:
        return Outcome(status="wrong", note="the up answer is off", figures={"fault": "wrong"})
    if config["BLOCK_SIZE_M"] == 256:
        return Outcome(status="failed", note="OutOfResources: shared memory", figures={"fault": "resources"})
    away = abs(config["BLOCK_SIZE_N"] - 128) / 128 + abs(config["BLOCK_SIZE_K"] - 128) / 128
    away += abs(config["num_stages"] - 3) * 0.1 + config["BLOCK_SIZE_M"] / 160 + (config["num_warps"] == 8) * 0.05
    time_s = 1e-4 * (1 + away)
    return Outcome(
        status="ok", time_s=time_s, low_s=time_s, high_s=time_s, samples=job.problem["samples"], error=0.001,
        figures={"up_s": time_s * 0.6, "down_s": time_s * 0.4, "wall_s": 0.001},
    )  # fmt: skip


for line in sys.stdin.buffer:
    sys.stdout.buffer.write(msgspec.json.encode(answer(msgspec.json.decode(line, type=Job))) + b"\n")
    sys.stdout.buffer.flush()
