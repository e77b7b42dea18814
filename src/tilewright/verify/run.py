"""`verify`: kernel configs in; built, initialised, launched and compared with `fit`, each in a process of its own."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from tilewright._version import __version__
from tilewright.cutlass.config import KernelConfig, config_to_dict
from tilewright.cutlass.fit import fit
from tilewright.probe.compiler import kill_all, stoppable
from tilewright.probe.cpp import Unsupported, kernel_types
from tilewright.probe.headers import NO_SCATTER, Headers
from tilewright.probe.rounds import Job, Settings
from tilewright.verify.build import Built, Target, build_all
from tilewright.verify.device import Device, arch_needed, read_clocks
from tilewright.verify.execute import read_sizes, run_program
from tilewright.verify.judge import judge
from tilewright.verify.model import (
    Build,
    Case,
    Clocks,
    HeaderTree,
    Machine,
    Outcome,
    Predicted,
    Run,
    Tally,
    Verification,
)
from tilewright.verify.source import depth_of

__all__ = ["Plan", "Progress", "verify"]

Progress = Callable[[str, int, int, float], None]
_PATHS: Final = re.compile(r"(?<![\w.])(?:/[\w.+@-]+){2,}/?")
"""Absolute paths, of which a bundle keeps the last part only."""


@dataclass(frozen=True)
class Plan:
    """One config and the headers to build it from."""

    config: KernelConfig
    headers: Headers


def verify(
    plans: Sequence[Plan],
    settings: Settings,
    device: Device | None,
    *,
    run_timeout_s: float = 60.0,
    library: str | None = None,
    progress: Progress | None = None,
    on_case: Callable[[int, Case], None] | None = None,
) -> Verification:
    """Build every config, run those that this GPU can, compare with `fit`. `device` None: build only.

    Kernels run one at a time. `on_case(number from 1, case)` is called as each is settled.

    Raises:
        ToolError: the compiler cannot be used.
    """
    predicted = [_predicted(plan.config) for plan in plans]
    targets, skipped = _targets(plans, settings, device)
    built = dict(zip(targets, build_all(list(targets.values()), settings, progress), strict=True))
    before, driver = read_clocks(device) if device else (None, None)
    cases: list[Case] = []
    with stoppable():
        try:
            for index, plan in enumerate(plans):
                made = built.get(index)
                if made is None:
                    case = _case(plan, predicted[index], outcome="not_run", why=skipped[index])
                else:
                    case = _settle(plan, predicted[index], made, device, run_timeout_s)
                cases.append(case)
                if on_case is not None:
                    on_case(index + 1, case)
        except BaseException:
            kill_all()
            raise
    after = read_clocks(device)[0] if device else None
    counts = Counter(case.outcome for case in cases)
    return Verification(
        tilewright=__version__,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%MZ"),
        build_only=device is None,
        machine=_machine(device, driver, before, after) if device else None,
        nvcc=settings.compiler.version,
        library=library,
        headers=_trees(plans),
        summary=Tally(
            total=len(cases),
            agree=counts["agree"],
            differ=counts["differ"],
            not_run=counts["not_run"],
            no_prediction=counts["no_prediction"],
        ),
        cases=cases,
        notes=_notes(device, before, cases),
    )


def _machine(device: Device, driver: str | None, before: Clocks | None, after: Clocks | None) -> Machine:
    major, minor = device.capability
    return Machine(
        gpu=device.name,
        compute_capability=f"{major}.{minor}",
        sm_count=device.sm_count,
        limit_bytes=device.limit_bytes,
        cuda_driver=device.cuda_driver,
        driver=driver,
        before=before,
        after=after,
    )


def _trees(plans: Sequence[Plan]) -> list[HeaderTree]:
    seen = {plan.headers.digest: plan.headers for plan in plans}
    return [
        HeaderTree(cutlass=item.version, fingerprint=item.fingerprint, digest=item.digest) for item in seen.values()
    ]


def _notes(device: Device | None, clocks: Clocks | None, cases: Sequence[Case]) -> list[str]:
    notes: list[str] = []
    if device is not None and clocks is None:
        notes.append("Clocks and the driver's version are missing: NVML did not answer, or the extra gpu is missing.")
    limits = {case.predicted.limit_bytes for case in cases if case.run is not None}
    if device is not None and device.limit_bytes is not None and limits - {device.limit_bytes, None}:
        notes.append(
            f"This GPU grants a block {device.limit_bytes:,} bytes; fit reckons with "
            f"{', '.join(f'{limit:,}' for limit in sorted(item for item in limits if item))}."
        )
    return notes


def _predicted(config: KernelConfig) -> Predicted:
    budget = fit(config, brief=True)
    return Predicted(
        status=budget.status,
        smem_bytes=budget.smem_bytes,
        limit_bytes=budget.limit_bytes,
        stages=budget.stages,
        status_basis=budget.status_basis,
        rules=[scrubbed(rule) for rule in budget.rules],
    )


def _targets(
    plans: Sequence[Plan], settings: Settings, device: Device | None
) -> tuple[dict[int, Target], dict[int, str]]:
    """({number of the plan: what to build}, {number: why it is not tried})."""
    targets: dict[int, Target] = {}
    skipped: dict[int, str] = {}
    for index, plan in enumerate(plans):
        if device is not None and device.arch != plan.config.arch:
            have = ".".join(map(str, device.capability))
            skipped[index] = (
                f"{plan.config.arch} kernels run on compute capability {arch_needed(plan.config.arch)} only; this GPU "
                f"has {have}."
            )
            continue
        try:
            types = kernel_types(plan.config, plan.headers.tags)
        except Unsupported as no:
            skipped[index] = no.reason
            continue
        if types.needs_scatter and settings.extensions is None:
            skipped[index] = NO_SCATTER
            continue
        targets[index] = Target(plan.config, Job(types, plan.headers))
    return targets, skipped


def _settle(plan: Plan, predicted: Predicted, made: Built, device: Device | None, timeout_s: float) -> Case:
    build = made.build
    depth = depth_of(plan.config)
    run: Run | None = None
    if made.program is not None:
        smem, threads = read_sizes(made.program)
        build = msgspec.structs.replace(build, smem_bytes=smem, threads=threads)
        if smem is None:
            why = "The program that was built does not start on this machine; nothing was learned."
            return _case(plan, predicted, build=build, outcome="not_run", why=why)
        if device is not None:
            run = run_program(made.program, device.index, timeout_s)
            if run.last_words is not None:
                run = msgspec.structs.replace(run, last_words=scrubbed(run.last_words))
    build = msgspec.structs.replace(build, errors=[scrubbed(error) for error in build.errors])
    outcome, why = judge(predicted, build, run, launched=depth.launch)
    return _case(plan, predicted, build=build, run=run, outcome=outcome, why=why, not_tried=depth.why)


def _case(
    plan: Plan,
    predicted: Predicted,
    *,
    outcome: Outcome,
    why: str,
    build: Build | None = None,
    run: Run | None = None,
    not_tried: str = "",
) -> Case:
    return Case(
        id=plan.config.id,
        config={key: value for key, value in config_to_dict(plan.config).items() if key != "id"},
        headers=plan.headers.fingerprint,
        predicted=predicted,
        build=build,
        run=run,
        outcome=outcome,
        why=scrubbed(why),
        not_tried=not_tried,
    )


def scrubbed(text: str) -> str:
    """`text` with absolute paths cut to their last part: a bundle is shared, and paths hold names of people."""
    return _PATHS.sub(lambda found: found[0].rstrip("/").rsplit("/", 1)[-1], text)
