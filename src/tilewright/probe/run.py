"""`probe`: kernel configs in, what compiling their types gave out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tilewright.cutlass.config import KernelConfig
from tilewright.probe.batch import compile_jobs
from tilewright.probe.cpp import Unsupported, kernel_types
from tilewright.probe.headers import NO_SCATTER, Headers
from tilewright.probe.ptxas import build_kernels
from tilewright.probe.result import (
    ProbeResult,
    Tools,
    compiled_result,
    overflow_result,
    refused_result,
    unsupported_result,
)
from tilewright.probe.rounds import Job, Outcome, Settings

__all__ = ["Progress", "Request", "probe"]

Progress = Callable[[str, int, int, float], None]


@dataclass(frozen=True)
class Request:
    """One config and the header tree to compile it against."""

    config: KernelConfig
    headers: Headers


def _plan(request: Request, settings: Settings) -> Job | ProbeResult:
    try:
        types = kernel_types(request.config, request.headers.tags)
    except Unsupported as no:
        return unsupported_result(request.config, no.reason)
    if types.needs_scatter and settings.extensions is None:
        return unsupported_result(request.config, NO_SCATTER)
    return Job(types, request.headers)


def _answer(request: Request, job: Job, outcome: Outcome, settings: Settings) -> ProbeResult:
    config = request.config
    if outcome.failed is not None:
        result = unsupported_result(config, f"The probe has no answer: {outcome.failed}.")
    elif outcome.error is not None:
        result = refused_result(config, outcome.error, outcome.error_at, outcome.more_errors)
    elif not outcome.scalars:
        result = overflow_result(config, outcome.assert_fired or "", outcome.error_at)
    else:
        result = compiled_result(config, outcome.scalars, outcome.fields, outcome.names, outcome.assert_fired)
    result.tools = Tools(
        nvcc=settings.compiler.version,
        nvcc_arch=job.types.arch,
        cutlass=request.headers.version,
        tree=request.headers.name,
    )
    return result


def probe(
    requests: Sequence[Request],
    settings: Settings,
    progress: Progress | None = None,
    *,
    ptxas: bool = False,
) -> list[ProbeResult]:
    """Compile the types of every request, with `ptxas` the whole kernels too, and answer in order.

    `illegal` carries the compiler's first message; `unsupported` says why there is no C++ for a config, or no answer.
    `progress(what, done, of how many, seconds since the start)` is called on the way.

    Raises:
        ToolError: the compiler cannot be used.
    """
    planned = [_plan(request, settings) for request in requests]
    jobs = [plan for plan in planned if isinstance(plan, Job)]
    outcomes = iter(compile_jobs(jobs, settings, _named(progress, "types")))
    results = [
        _answer(request, plan, next(outcomes), settings) if isinstance(plan, Job) else plan
        for request, plan in zip(requests, planned, strict=True)
    ]
    if ptxas:
        _add_kernels(results, planned, settings, progress)
    return results


def _named(progress: Progress | None, what: str) -> Callable[[int, int, float], None] | None:
    return None if progress is None else partial(progress, what)


def _add_kernels(
    results: list[ProbeResult], planned: Sequence[Job | ProbeResult], settings: Settings, progress: Progress | None
) -> None:
    """Compile the kernels of what compiles as types, and let that decide `status`.

    Where the kernel's own capacity assert has refused the types, there is no kernel to compile.
    """
    wanted = [
        (result, plan)
        for result, plan in zip(results, planned, strict=True)
        if isinstance(plan, Job) and result.smem_bytes is not None and not result.assert_fired
    ]
    builds = build_kernels([plan for _, plan in wanted], settings, _named(progress, "kernels"))
    for (result, _), build in zip(wanted, builds, strict=True):
        if isinstance(build, str):
            result.status = "unsupported"
            result.cause = f"The types compile, the whole kernel has no answer: {build}."
            continue
        result.kernel = build
        if build.compiles or build.capacity_assert:
            continue
        result.status = "illegal"
        result.rules = [*result.rules, build.errors[0]]
        result.cause = f"The types compile, the whole kernel does not: {build.errors[0]}"
