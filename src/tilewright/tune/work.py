"""The process that measures trials: `python -m tilewright.tune.work`, one job a line in, one outcome a line out.

A process of its own, for the reasons in `bench/work.py`: a kernel that faults or hangs takes its process with it and
nothing else. What a config does wrong is its outcome, with a fault of `trials.FAULTS`; only what spoils the CUDA
context ends the process.
"""

from __future__ import annotations

import time
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from tilewright.bench.job import Job, Outcome
from tilewright.bench.parent import end_with_parent
from tilewright.bench.work import sentence, serve
from tilewright.errors import TilewrightError
from tilewright.triton_.extract import Kernel
from tilewright.tune.clock import Clock
from tilewright.tune.layer import problem_of
from tilewright.tune.moe_call import PARTS, own_kernel, read_kernel
from tilewright.tune.stage import Stage, key_of_layer, our_launches, triton_launches

LAUNCH_ONLY: Final = ("GROUP_SIZE_M", "resident")
"""Parts of a config that change the order or number of programs and not what one computes."""


@lru_cache(maxsize=4)
def kernel_of(path: str) -> Kernel:
    """The Triton kernel that the run cut out of an engine, from its file; our own one where there is none."""
    return read_kernel(Path(path).read_bytes()) if path else own_kernel()


class Bench:
    """What is kept from one trial to the next: the layer's weights, the clock."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.clock = Clock(torch)
        self.key: bytes | None = None
        self.stage: Stage | None = None
        self.right: dict[tuple[Any, ...], float] = {}

    def staged(self, problem: Any) -> Stage:
        key = key_of_layer(problem)
        if self.stage is None or key != self.key:
            self.stage = None
            self.torch.cuda.empty_cache()
            self.right.clear()
            self.stage, self.key = Stage(self.torch, problem.layer, problem.kernel == "ours"), key
        return self.stage

    def measure(self, job: Job) -> Outcome:
        """One trial: both GEMMs built, checked, timed."""
        begun = time.monotonic()
        asked = job.problem
        problem = problem_of(asked["problem"])
        config: dict[str, int] = asked["config"]
        samples, cutoff = int(asked["samples"]), asked.get("cutoff_s")
        case = self.staged(problem).case(problem.tokens)
        major, minor = self.torch.cuda.get_device_capability()
        figures: dict[str, Any] = {"built_s": 0.0}
        total = low = high = worst = 0.0
        taken, stopped = samples, False
        for part in PARTS:
            at = time.monotonic()
            if problem.kernel == "ours":
                launches = our_launches(case, part, config)
            else:
                launches = triton_launches(
                    case, part, kernel_of(asked.get("kernel_file", "")), config, major * 10 + minor
                )
            figures["built_s"] += time.monotonic() - at
            # Launch parameters alone do not make another kernel: one check of each build and number of tokens.
            build = (problem.tokens, part, *(value for name, value in config.items() if name not in LAUNCH_ONLY))
            if build not in self.right:
                apart = launches.check()
                if not apart.right("gemm"):
                    note = f"the {part} answer is off by {apart.largest:.2g} of the largest value"
                    return Outcome(status="wrong", note=note, figures={"fault": "wrong"})
                self.right[build] = apart.norm
            worst = max(worst, self.right[build])
            left = None if cutoff is None else max(0.0, cutoff - total)
            timing = self.clock.time(launches.calls, samples, left)
            figures[f"{part}_s"] = timing.median_s
            if launches.registers is not None:
                figures[f"{part}_registers"], figures[f"{part}_spills"] = launches.registers, launches.spills
            total, low, high = total + timing.median_s, low + timing.low_s, high + timing.high_s
            taken = min(taken, timing.samples)
            if timing.stopped:
                stopped = True
                break
        figures["wall_s"] = time.monotonic() - begun
        return Outcome(
            status="ok", time_s=total, low_s=low, high_s=high, samples=taken, error=worst, figures=figures,
            marks=["stopped"] if stopped else [],
        )  # fmt: skip

    def attempt(self, job: Job) -> Outcome:
        """`measure`, with what it raises as a typed fault."""
        try:
            return self.measure(job)
        except self.torch.cuda.OutOfMemoryError as error:
            self.stage = None
            return Outcome(status="refused", note=sentence(error), figures={"fault": "memory"})
        except Exception as error:  # whatever a build or a launch raises is this trial's outcome
            fault = fault_of(error)
            fatal = False
            try:
                self.torch.cuda.synchronize()
            except Exception:  # the context is gone
                fault, fatal = "crash", True
            return Outcome(status="failed", note=sentence(error), figures={"fault": fault}, fatal=fatal)


def fault_of(error: Exception) -> str:
    """The kind of a failure: `resources`, `compile` or `error`."""
    name = type(error).__name__
    if name == "OutOfResources" or "OUT_OF_RESOURCES" in str(error) or "INVALID_VALUE" in str(error):
        return "resources"
    if "Compil" in name or name in ("MLIRError", "PTXASError") or "could not compile" in str(error):
        return "compile"
    return "error"


def main() -> None:
    """Answer jobs until stdin ends or the CUDA context is lost."""
    end_with_parent()
    bench: Bench | None = None

    def answer(job: Job) -> Outcome:
        nonlocal bench
        try:
            if bench is None:
                torch = import_module("torch")
                torch.cuda.set_device(job.device)
                torch.backends.cuda.matmul.allow_tf32 = False
                bench = Bench(torch)
            return bench.attempt(job)
        except (TilewrightError, RuntimeError, ImportError) as error:  # no GPU, no torch: nothing can be measured
            return Outcome(status="refused", note=sentence(error), figures={"fault": "setup"}, fatal=True)

    serve(answer)


if __name__ == "__main__":
    main()
