"""Measure every config of the space on many layers, into a store: the tables that the search is held against.

    python tools/tune_exhaustive.py --kernel vllm-fused-moe --dtype bf16 --store all.sqlite --seconds 200

Stops after --seconds; run again with the same store it goes on where it was. Needs a GPU and the extra `bench`.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "src"))

from tilewright.bench.device import read_device
from tilewright.errors import TilewrightError
from tilewright.tune.build import CACHE_VARIABLE, builds
from tilewright.tune.builders import Builders, default_builders
from tilewright.tune.context import context_of
from tilewright.tune.fleet import LocalFleet
from tilewright.tune.layer import Layer, Problem
from tilewright.tune.request import Request
from tilewright.tune.run import Outcome, Run, Search, exhaustive
from tilewright.tune.space import Config, prune
from tilewright.tune.trials import Trial, TrialStore
from tilewright.tune.work import kernel_of

SHAPES = {
    "GLM-5 TP8": (6144, 256, 256, 8),
    "DeepSeek-V3 TP8": (7168, 256, 256, 8),
    "Qwen3-30B-A3B TP1": (2048, 768, 128, 8),
    "Mixtral-8x7B TP2": (4096, 7168, 8, 2),
    "GLM-4.5-Air TP4": (4096, 352, 128, 8),
    "Qwen3.5-397B-A17B TP4": (4096, 256, 512, 10),
    "Kimi-K2 TP8": (7168, 256, 384, 8),
    "MiniMax-M2 TP4": (3072, 384, 256, 8),
    "Llama-4-Maverick TP8": (5120, 1024, 128, 1),
    "DeepSeek-V3 EP8": (7168, 2048, 32, 1),
    "Qwen3-235B-A22B TP4": (4096, 384, 128, 8),
    "DeepSeek-V4-Flash TP4": (4096, 512, 256, 6),
    "GLM-4.5 TP8": (5120, 192, 160, 8),
    "Qwen3-Next-80B-A3B TP4": (2048, 128, 512, 10),
}
"""(hidden, inter of the shard, experts of the GPU, top-k): `tilewright models`."""


MOST_TOLD = 8


class Told:
    """Counts, one line a problem."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.new = self.reused = self.faults = 0

    def trial(self, problem: Problem, trial: Trial, reused: bool) -> None:
        self.reused += reused
        self.new += not reused
        if trial.fault and not reused:
            self.faults += 1
            if self.faults <= MOST_TOLD:
                print(f"{trial.fault}: {trial.config}: {trial.note}", flush=True)

    def outcome(self, outcome: Outcome) -> None:
        best = outcome.best
        told = f"{(best.time_s or 0) * 1e6:9.2f} us {best.config}" if best else "nothing ran"
        layer = outcome.problem.layer
        print(
            f"{time.monotonic() - self.begun:6.1f} s  {layer.hidden}x{layer.inter} E{layer.experts} top{layer.topk} "
            f"{layer.dtype} M={outcome.problem.tokens}: {outcome.trials} new, {outcome.reused} reused, "
            f"{outcome.faults or 'no faults'}; best {told}",
            flush=True,
        )


def prepare_all(fleet: LocalFleet, problems: Sequence[Problem], configs_of: Callable[[Problem], list[Config]]) -> None:
    """Have everything compiled, in the order in which it is measured."""
    for problem in problems:
        fleet.prepare([Request(problem, config) for config in configs_of(problem)])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", default="vllm-fused-moe")
    parser.add_argument("--dtype", default="bf16")
    parser.add_argument("--tokens", default="16,2048")
    parser.add_argument("--shapes", type=int, default=len(SHAPES))
    parser.add_argument(
        "--kernel-file", default="", help="An engine's kernel, as tilewright.tune.moe_call.kernel_text wrote it."
    )
    parser.add_argument("--skip", type=int, default=0, help="Leave out so many of the shapes, the first ones.")
    parser.add_argument("--store", required=True)
    parser.add_argument("--seconds", type=float, default=1e9)
    asked = parser.parse_args(arguments)
    device = read_device(0)
    sm = device.capability[0] * 10 + device.capability[1]
    source = kernel_of(asked.kernel_file)
    if asked.kernel == "ours":
        source = None
    limit: int = device.entry.smem_optin_bytes if device.entry and device.entry.smem_optin_bytes else 101_376
    problems: list[Problem] = []
    for hidden, inter, experts, topk in list(SHAPES.values())[asked.skip : asked.skip + asked.shapes]:
        layer = Layer(hidden=hidden, inter=inter, experts=experts, topk=topk, dtype=asked.dtype)
        problems += [
            Problem(kernel=asked.kernel, layer=layer, tokens=int(tokens)) for tokens in asked.tokens.split(",")
        ]

    def builds_of(request: Request) -> list[dict[str, Any]]:
        wanted = request.problem
        return builds(wanted.kernel, wanted.layer, wanted.tokens, request.config, sm, source)

    def configs_of(problem: Problem) -> list[Config]:
        return prune(problem.kernel, problem.layer, sm, limit, clamp=True).kept

    def search_of(problem: Problem) -> Search:
        return exhaustive(problem, configs_of(problem))

    os.environ.setdefault(CACHE_VARIABLE, str(Path(tempfile.gettempdir()) / "tilewright-tune"))
    told, end = Told(), time.monotonic() + asked.seconds
    with Builders(default_builders(1)) as builders, TrialStore.append_to(Path(asked.store)) as store:
        fleet = LocalFleet([0], builders, builds_of, kernel_file=asked.kernel_file)
        ahead = threading.Thread(target=prepare_all, args=(fleet, problems, configs_of), daemon=True)
        ahead.start()
        try:
            run = Run(fleet, store, context_of(device, asked.kernel, source), told)
            run.tune(problems, search_of, resume=True, stop=lambda: time.monotonic() > end)
        finally:
            fleet.close()
        print(
            f"{told.new} trials ({told.faults} faults), {told.reused} reused, "
            f"{builders.finished} builds ({builders.failed} failed), "
            f"{time.monotonic() - told.begun:.1f} s"
        )
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except TilewrightError as error:
        sys.exit(f"tune_exhaustive: {error.msg}")
