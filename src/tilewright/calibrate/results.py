"""Measured rows as the result store of `bench` holds them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from tilewright.bench.problem import GemmProblem, MoeProblem, Problem, problem_of
from tilewright.calibrate.rows import Group, Sample
from tilewright.errors import AmbiguousNameError, InputError, UnknownNameError, shown
from tilewright.hardware.names import resolve_gpu
from tilewright.store.result import Result, key_of
from tilewright.store.store import Query, Store

__all__ = ["groups_of", "joined", "read_results"]

DTYPES: Final = {"bf16": "bfloat16", "fp8": "fp8", "nvfp4": "w4a16_nvfp4", "nvfp4_w4a4": "nvfp4"}
"""Formats of `bench` as the kernel tables name them: its plain NVFP4 is that of weights, activations are bf16."""
DOUBTFUL: Final = ("shared gpu", "throttled", "clocks moved")
"""Marks (their beginnings) with which a time says less about the kernel than about that moment."""

_Key = tuple[str, str, str, str]


def _sample(problem: Problem, time_s: float) -> tuple[str, str, Sample] | None:
    """(op, format, sample); None for what is no kernel of the models. A layer's sizes are those of one GPU's shard."""
    if isinstance(problem, GemmProblem):
        return "gemm", problem.dtype, Sample((problem.m, problem.n, problem.k), "", time_s)
    if isinstance(problem, MoeProblem) and problem.distribution == "uniform":
        sizes = (problem.tokens, problem.hidden, problem.inter, problem.topk, problem.experts, 1, 1)
        return "moe", problem.dtype, Sample(sizes, problem.distribution, time_s)
    return None


def groups_of(results: Iterable[Result]) -> list[Group]:
    """The times of each kernel on each GPU: of a problem that was measured often, the best config's median.

    Left out: results that are not ok, whose marks say that the GPU was not itself, of GPUs that the catalogue does not
    know, and of other kinds.
    """
    times: dict[_Key, dict[tuple[tuple[int, ...], str], dict[str, list[float]]]] = {}
    for result in results:
        if result.status != "ok" or not result.time_s or result.kind not in ("gemm", "moe"):
            continue
        if any(mark.startswith(DOUBTFUL) for mark in result.marks):
            continue
        try:
            gpu = resolve_gpu(str(result.environment.get("gpu", ""))).key
            found = _sample(problem_of(result.kind, result.problem), result.time_s)
        except (UnknownNameError, AmbiguousNameError, ValueError):  # ValueError: fields of a store of other hands
            continue
        if found is None or found[1] not in DTYPES:
            continue
        op, dtype, sample = found
        kernel = times.setdefault((op, gpu, result.backend, DTYPES[dtype]), {})
        configs = kernel.setdefault((sample.sizes, sample.distribution), {})
        configs.setdefault(key_of(result.config), []).append(result.time_s)
    return [
        Group(
            *key,
            "tilewright bench",
            tuple(
                Sample(sizes, distribution, min(median(taken) for taken in configs.values()))
                for (sizes, distribution), configs in sorted(kernel.items())
            ),
        )
        for key, kernel in sorted(times.items())
    ]


def read_results(path: str) -> list[Group]:
    """The kernels that the store `path` has GEMM or expert-layer times of. Raises InputError where it has none."""
    with Store.read(Path(path)) as store:
        groups = groups_of(item.result for item in store.find(Query(status="ok")))
    if not groups:
        msg = f"--results {shown(path)} holds no usable time of a GEMM or an expert layer; `bench` measures them."
        raise InputError("--results", msg)
    return groups


def joined(first: Iterable[Group], second: Iterable[Group]) -> list[Group]:
    """The kernels of both, one group each; where both have a time of the same problem, that of `first`."""
    found: dict[_Key, Group] = {}
    for group in (*first, *second):
        key = (group.op, group.gpu, group.backend, group.dtype)
        before = found.get(key)
        if before is None:
            found[key] = group
            continue
        known = {(sample.sizes, sample.distribution) for sample in before.samples}
        more = (sample for sample in group.samples if (sample.sizes, sample.distribution) not in known)
        samples = sorted((*before.samples, *more), key=lambda sample: (sample.sizes, sample.distribution))
        found[key] = replace(before, samples=tuple(samples))
    return [found[key] for key in sorted(found)]
