"""A run as a result of the store, so that `results` lists, compares and exports it."""

from __future__ import annotations

from collections.abc import Mapping
from statistics import fmean, median
from typing import Any

import msgspec

from tilewright.bench.stats import percentile
from tilewright.libraries.engine_flags.withhold import kept_words
from tilewright.store.result import Result, Status
from tilewright.sweep.document import Run
from tilewright.sweep.outcome import Status as RunStatus
from tilewright.sweep.space import Server
from tilewright.sweep.trial import Rig
from tilewright.withheld import safe_value

__all__ = ["kept", "kept_server", "result_of"]

_STATUS: dict[RunStatus, Status] = {
    "measured": "ok",
    "died_starting": "failed",
    "never_ready": "timeout",
    "port_taken": "refused",
    "died_loaded": "failed",
    "hung": "timeout",
    "errors": "failed",
    "generator_failed": "refused",
}


def kept(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Flags or environment variables as a store may hold them: those that look like secrets without their values."""
    return {name: safe_value(name, value) if isinstance(value, str) else value for name, value in settings.items()}


def kept_server(server: Server) -> Server:
    """How the server is started, as a store may hold it."""
    command = None if server.command is None else tuple(kept_words(server.command))
    return msgspec.structs.replace(server, command=command)


def result_of(run: Run, rig: Rig, engine: str, gpu: str | None) -> Result:
    """`time_s` is the time an output token takes, all requests together: one over the rate, median of the repeats."""
    outcome = run.outcome
    times = sorted(1 / r.metrics["output_tok_s"] for r in outcome.repeats if r.metrics.get("output_tok_s"))
    status = _STATUS[outcome.status] if times or outcome.status != "measured" else "failed"
    names = sorted({name for r in outcome.repeats for name in r.metrics})
    figures: dict[str, Any] = {
        name: fmean([r.metrics[name] for r in outcome.repeats if name in r.metrics]) for name in names
    }
    environment: dict[str, Any] = {"generator": rig.generator.name}
    if gpu:
        environment["gpu"] = gpu
    version = rig.installed.version if rig.installed else None
    if version:
        environment["versions"] = {engine: version}
    return Result(
        kind="serve",
        backend=engine,
        at=outcome.started,
        status=status,
        problem={
            "model": rig.model or outcome.model or "",
            "load": msgspec.to_builtins(rig.space.load_of(run.assignment)),
        },
        config={"flags": kept(rig.space.flags(run.assignment)), "env": kept(rig.space.env(run.assignment))},
        environment=environment,
        time_s=median(times) if times else None,
        low_s=percentile(times, 0.1) if times else None,
        high_s=percentile(times, 0.9) if times else None,
        samples=len(times),
        marks=sorted({mark for r in outcome.repeats for mark in r.marks}),
        figures=figures,
        note=outcome.reason or "",
    )
