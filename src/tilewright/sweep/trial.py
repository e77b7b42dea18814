"""One candidate, once: start, first completion, warm-up, repeats, metrics, stop. Whatever happens is an `Outcome`."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.errors import InputError, ToolError
from tilewright.libraries.engine_flags.withhold import kept_words
from tilewright.sweep.engines import HOST, Installed, command_of
from tilewright.sweep.free_port import free_port, port_free
from tilewright.sweep.http_client import Endpoint, HttpError
from tilewright.sweep.load import Generator, LoadFailedError, LoadTimeoutError, Target
from tilewright.sweep.load_own import OwnClient
from tilewright.sweep.metrics import client_metrics
from tilewright.sweep.outcome import Outcome, Repeat, Status
from tilewright.sweep.prompts import DatasetPrompt, prompt_of, request_body, vocabulary
from tilewright.sweep.server import LiveServer, NotReadyError, ended, first_completion, merged_env, model_of
from tilewright.sweep.server_log import explain_log
from tilewright.sweep.server_metrics import MetricsWatch
from tilewright.sweep.space import Load, Space

__all__ = ["Rig", "run_endpoint", "run_server"]

COUNT_TOLERANCE: Final = 0.02
"""Relative difference between the server's count of output tokens and the client's above which one of them is wrong."""
_WARM_SEED: Final = 1 << 20
"""Seed of the warm-up's prompts: none that is measured was in the prefix cache before."""
_BRIEF_TOKENS: Final = 4
"""Output tokens of the first completion."""


@dataclass(frozen=True, kw_only=True)
class Rig:
    """All that is the same for every candidate."""

    space: Space
    generator: Generator
    repeats: int
    ready_s: float
    logs: Path
    installed: Installed | None = None
    endpoint: Endpoint | None = None
    model: str | None = None
    tokenizer: str | None = None
    port: int | None = None
    headers: Mapping[str, str] = field(default_factory=lambda: dict[str, str]())
    dataset: Sequence[DatasetPrompt] = ()
    progress: Callable[[str], None] = lambda _: None


class _Stopped(Exception):  # noqa: N818 - carries an outcome, not a fault of ours
    def __init__(self, status: Status, reason: str) -> None:
        super().__init__(reason)
        self.status: Status = status


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _target(rig: Rig, load: Load, where: Endpoint, model: str) -> Target:
    path = "/v1/chat/completions" if load.endpoint == "chat" else "/v1/completions"
    engine = rig.installed.engine if rig.installed else None
    extra: dict[str, Any] = dict(load.extra if load.extra is not None else engine.extra if engine else {})
    tokenizer = rig.tokenizer or rig.model
    return Target(where, model, path, extra, vocabulary(rig.tokenizer or rig.model), tokenizer)


def _first_body(load: Load, target: Target, dataset: Sequence[DatasetPrompt]) -> bytes:
    prompt, _ = prompt_of(load, dataset, 0, load.seed + _WARM_SEED, target.ids)
    return request_body(load, target.model, prompt, _BRIEF_TOKENS, target.extra)


def _marks(watch: MetricsWatch, counted: int, failed: int) -> tuple[str, ...]:
    """Where the server's own count does not agree with the client's."""
    out: list[str] = []
    theirs = watch.generated
    if failed:
        out.append(f"{failed:,} requests failed")
    elif theirs is not None and abs(theirs - counted) > COUNT_TOLERANCE * max(counted, 1):
        out.append(f"the server counted {theirs:,.0f} output tokens, the client {counted:,}")
    return tuple(out)


def _measure(rig: Rig, load: Load, target: Target, alive: Callable[[], bool]) -> tuple[list[Repeat], dict[str, Any]]:
    """Warm-up and repeats.

    Raises:
        _Stopped: the server ended, hung, or answered nothing but errors, or the generator failed.
    """

    def sent(generator: Generator, shape: Load, seed: int) -> Any:
        try:
            return generator.measure(target, shape, rig.dataset, seed)
        except LoadTimeoutError as error:
            raise _Stopped("died_loaded" if not alive() else "hung", str(error)) from None
        except LoadFailedError as error:
            raise _Stopped("died_loaded" if not alive() else "generator_failed", str(error)) from None

    if load.warmup_requests:
        warm = msgspec.structs.replace(load, requests=load.warmup_requests, duration_s=None, request_rate=None)
        sent(OwnClient(), warm, load.seed + _WARM_SEED)
    repeats: list[Repeat] = []
    section: dict[str, Any] = {}
    for number in range(rig.repeats):
        begun = time.monotonic()
        with MetricsWatch(target.endpoint) as watch:
            records = sent(rig.generator, load, load.seed + number)
        if not alive():
            raise _Stopped("died_loaded", "the server ended under load")
        values = client_metrics(records)
        good = [item for item in records if item.error is None]
        if not good or "output_tok_s" not in values:
            first = next((item.error for item in records if item.error), "none came back")
            raise _Stopped("errors", f"all {len(records):,} requests failed: {first}")
        counted = sum(item.output_tokens for item in good)
        marks = _marks(watch, counted, len(records) - len(good))
        section = watch.section
        took = time.monotonic() - begun
        repeats.append(Repeat(metrics={**values, **watch.figures}, requests=len(records), seconds=took, marks=marks))
        rig.progress(f"    {number + 1}/{rig.repeats}: {values['output_tok_s']:,.1f} output tok/s")
    return repeats, section


def run_server(rig: Rig, assignment: Mapping[str, Any], log: Path) -> Outcome:
    """Start a server with the candidate's flags, measure it, stop it.

    Raises:
        InputError: the port that the user gave was taken between two candidates.
    """
    assert rig.installed is not None
    started, begun = _now(), time.monotonic()
    load = rig.space.load_of(assignment)
    port = rig.port or free_port(HOST)
    if rig.port is not None and not port_free(HOST, port):
        msg = f"--port {port} is in use by another program; give another one and --resume."
        raise InputError("port", msg)
    command = tuple(command_of(rig.installed, rig.space, rig.space.flags(assignment), rig.model, port))
    where = Endpoint(HOST, port, headers=dict(rig.headers))
    health = rig.space.server.health or rig.installed.engine.health
    status: Status = "measured"
    reason: str | None = None
    ready: float | None = None
    model: str | None = None
    code: int | None = None
    repeats: list[Repeat] = []
    section: dict[str, Any] = {}
    try:
        with LiveServer(command, merged_env(os.environ, rig.space.env(assignment)), log, where) as server:
            try:
                model = server.wait_ready(health, rig.ready_s)
                target = _target(rig, load, where, model)
                ready = server.complete_first(target.path, _first_body(load, target, rig.dataset), rig.ready_s)
                rig.progress(f"    ready after {ready:,.1f} s")
                repeats, section = _measure(rig, load, target, lambda: _settled(server))
                repeats = [msgspec.structs.replace(r, metrics={**r.metrics, "ready_s": ready}) for r in repeats]
            except (NotReadyError, _Stopped) as stop:
                status, reason = stop.status, str(stop)
            code = server.exit_code  # before we end it ourselves
            if status == "died_loaded":
                reason = f"the server ended with {ended(code)} under load"
    except ToolError as error:
        status, reason = "died_starting", error.msg
    return Outcome(
        status=status,
        started=started,
        seconds=time.monotonic() - begun,
        reason=reason,
        ready_s=ready,
        exit_code=code,
        command=tuple(kept_words(command)),
        repeats=tuple(repeats),
        explained=() if status == "measured" else explain_log(log),
        log=str(log),
        model=model,
        server_metrics=section or None,
    )


def _settled(server: LiveServer) -> bool:
    """Whether the server runs; a process that is just dying is waited for a moment."""
    for _ in range(4):
        if not server.running:
            return False
        time.sleep(0.05)
    return True


def run_endpoint(rig: Rig, assignment: Mapping[str, Any]) -> Outcome:
    """Measure a server that runs, under the candidate's load."""
    assert rig.endpoint is not None
    started, begun = _now(), time.monotonic()
    load = rig.space.load_of(assignment)
    status: Status = "measured"
    reason: str | None = None
    model: str | None = None
    repeats: list[Repeat] = []
    section: dict[str, Any] = {}
    where = rig.endpoint

    def alive() -> bool:
        try:
            model_of(where)
        except HttpError:
            return False
        return True

    try:
        model = rig.model if rig.model and not os.path.isdir(rig.model) else model_of(where)  # noqa: PTH112
        target = _target(rig, load, where, model)
        problem = first_completion(where, target.path, _first_body(load, target, rig.dataset), rig.ready_s)
        if problem is None:
            repeats, section = _measure(rig, load, target, alive)
            repeats = [msgspec.structs.replace(r, metrics={**r.metrics, "ready_s": 0.0}) for r in repeats]
        else:
            status, reason = "errors", f"the first completion failed: {problem}"
    except HttpError as error:
        status, reason = "never_ready", f"{where.url} does not answer: {error}"
    except _Stopped as stop:
        status, reason = stop.status, str(stop)
    return Outcome(
        status=status,
        started=started,
        seconds=time.monotonic() - begun,
        reason=reason,
        repeats=tuple(repeats),
        model=model,
        server_metrics=section or None,
    )
