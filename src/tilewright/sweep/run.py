"""The sweep itself: everything is checked first, then servers are started in turn, and each result is kept at once."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.errors import InputError, ToolError, shown
from tilewright.homes import expanded
from tilewright.stopped import StoppedError
from tilewright.sweep.document import Run, SweepDocument
from tilewright.sweep.engines import HOST, Installed, check_space, find_engine
from tilewright.sweep.free_port import port_free
from tilewright.sweep.goal import Goal
from tilewright.sweep.http_client import Endpoint, HttpError, parse_url
from tilewright.sweep.load import find_generator
from tilewright.sweep.outcome import STATUSES, Outcome
from tilewright.sweep.prompts import read_dataset
from tilewright.sweep.propose import require_optuna
from tilewright.sweep.result import kept, kept_server, result_of
from tilewright.sweep.server import model_of
from tilewright.sweep.space import Assignment, Space, told
from tilewright.sweep.state import State
from tilewright.sweep.steps import Budget, Step, Steps
from tilewright.sweep.trial import Rig, run_endpoint, run_server
from tilewright.sweep.verdict import judge

__all__ = ["Question", "sweep"]

GENERATOR_FAILURES: Final = 3
"""Failures of the load generator in a row after which it, and not the servers, is what has to be looked at."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a sweep is asked. `ready_s`: longest time until ready. `gpu`, `gpus`: seed the search with advice."""

    engine: str
    space: Space
    goal: Goal
    store: Path
    model: str | None = None
    root: str | None = None
    engine_version: str | None = None
    url: str | None = None
    port: int | None = None
    trials: int = 20
    repeats: int = 3
    confirm: int = 2
    baseline: bool = True
    resume: bool = False
    seed: int = 0
    ready_s: float = 900.0
    generator: str = "auto"
    aiperf: str | None = None
    tokenizer: str | None = None
    api_key_env: str | None = None
    logs: Path | None = None
    gpu: str | None = None
    gpus: int | None = None
    progress: Callable[[str], None] = field(default=lambda _: None)


def _check_model(question: Question) -> str | None:
    """The model, a folder as an absolute path.

    Raises:
        InputError: it is missing, or names a folder that is not there.
    """
    model = question.model
    if question.url is not None:
        return model
    if model is None:
        if question.engine == "openai":
            return None
        msg = f"--engine {question.engine} needs --model: a folder with config.json, or a Hugging Face id."
        raise InputError("model", msg)
    label = shown(model)
    if "\0" in model or not model:
        raise InputError("model", f"--model {label} is no model; give a folder with config.json, or a Hugging Face id.")
    path = expanded(model)
    if path.is_dir():
        if question.engine != "openai" and not (path / "config.json").is_file():
            raise InputError("model", f"--model {label} holds no config.json; give the folder of a checkpoint.")
        return str(path.absolute())
    looks_local = model.startswith((".", "/", "~")) or model.count("/") != 1 or model.endswith("/")
    if question.engine != "openai" and looks_local:
        msg = f"There is no model at {label}; give a folder with config.json, or a Hugging Face id (OWNER/NAME)."
        raise InputError("model", msg)
    return model


def _check_url(question: Question) -> Endpoint | None:
    """The endpoint to measure, where it answers.

    Raises:
        InputError: it does not answer, or the space varies what only a start can change.
    """
    if question.url is None:
        return None
    space = question.space
    fixed = [*space.fixed_flags, *(f"env.{name}" for name in space.fixed_env)]
    started = [p.name for p in space.parameters if not p.name.startswith("load.")]
    if fixed or started or space.server.command:
        name = ([*started, *fixed] or ["server.command"])[0]
        msg = f"--url measures a server that runs, and only [load] can vary there; take {name} out of the space file."
        raise InputError("space", msg)
    if question.port is not None or question.root is not None:
        raise InputError("url", "--url measures a server that runs; --port and --root are for one to start.")
    where = _with(parse_url(question.url), _headers(question))
    try:
        model_of(where)
    except HttpError as error:
        raise InputError("url", f"--url {shown(where.url)} does not answer: {error}; start the server first.") from None
    return where


def _with(where: Endpoint, headers: dict[str, str]) -> Endpoint:
    """`where` with these headers."""
    return Endpoint(where.host, where.port, where.prefix, where.tls, headers)


def _headers(question: Question) -> dict[str, str]:
    if question.api_key_env is None:
        return {}
    secret = os.environ.get(question.api_key_env)
    if not secret or not secret.isprintable():
        msg = f"--api-key-env: the variable {shown(question.api_key_env)} is not set (or holds no key)."
        raise InputError("api_key_env", msg)
    return {"Authorization": f"Bearer {secret}"}


_AGAIN_S = 0.01
"""Seconds until a signal that was swallowed is sent again: the destructor that it came in has ended by then."""


@contextmanager
def _terminable() -> Generator[None]:
    """SIGTERM and SIGHUP end the sweep as Ctrl-C does, with one sentence. What was ignored before (nohup) stays so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def unraisable(found: sys.UnraisableHookArgs) -> None:
        # What is interrupted (a loop in the making, a request) complains when it is taken down; it has no news. But a
        # signal that came inside a destructor has not been heard: it is sent again, a moment later.
        if isinstance(found.exc_value, StoppedError):
            threading.Timer(_AGAIN_S, signal.pthread_kill, (main_thread, found.exc_value.number)).start()

    def stop(number: int, _frame: object) -> None:
        sys.unraisablehook = unraisable
        warnings.simplefilter("ignore")
        raise StoppedError(number)

    main_thread = threading.get_ident()
    heard = [n for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN]
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _conditions(question: Question, installed: Installed | None, model: str | None, generator: str) -> dict[str, Any]:
    """What has to be equal for measurements to be comparable: everything but what varies and how it is searched."""
    space = question.space
    return {
        "engine": question.engine,
        "version": installed.version if installed else None,
        "program": installed.program if installed else None,
        "model": model,
        "url": question.url,
        "flags": kept(space.fixed_flags),
        "env": kept(space.fixed_env),
        "load": msgspec.to_builtins(space.load),
        "server": msgspec.to_builtins(kept_server(space.server)),
        "generator": generator,
    }


def _seeds(question: Question, installed: Installed | None) -> list[Assignment]:
    """What is worth measuring early: the space file's own seeds, then what the models advise for --gpu.

    Raises:
        InputError: the model or the GPU is not known, or --gpu goes with what has no advice.
    """
    found = list(question.space.seeds)
    if question.gpu is None:
        return found
    if installed is None or installed.flags is None or question.model is None:
        msg = "--gpu seeds the search with advice on --engine vllm or sglang for --model; give both, and no --url."
        raise InputError("gpu", msg)
    from tilewright.sweep.seeds import advised_lines, command_seeds

    lines = advised_lines(question, installed.flags, question.gpu, question.gpus or 1)
    found += [item for item in command_seeds(question.space, installed.flags, lines) if item not in found]
    return found


def sweep(question: Question) -> SweepDocument:
    """Run it, or what is left of it.

    Raises:
        InputError: something is wrong with what was given; nothing was started.
        MissingPartError: Optuna, or a load generator that was asked for, is not installed.
        ToolError: the load generator fails again and again.
    """
    require_optuna()
    space = question.space
    notes: list[str] = []
    endpoint = _check_url(question)
    model = _check_model(question)
    installed: Installed | None = None
    if endpoint is None:
        installed = find_engine(question.engine, question.root, question.engine_version, space)
        notes += [installed.note] if installed.note else []
        notes += check_space(installed, space)
        if question.port is not None and not port_free(HOST, question.port):
            raise InputError("port", f"--port {question.port} is in use; stop what listens there, or give another one.")
    if not space.parameters and not question.baseline:
        raise InputError("space", "The space file varies nothing, and without a baseline there is nothing to measure.")
    seeds = _seeds(question, installed)
    headers = endpoint.headers if endpoint else _headers(question)
    dataset = read_dataset(space.load) if space.load.dataset else []
    logs = question.logs or question.store.absolute().parent / f"{question.store.name}.logs"
    wanted = "own" if headers and question.generator == "auto" else question.generator
    generator, note = find_generator(wanted, question.aiperf, logs)
    notes += [note] if note else []
    try:
        logs.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"The folder for logs, {shown(str(logs))}, cannot be made: {error.strerror}; give another --logs."
        raise InputError("logs", msg) from None
    named = f"{generator.name} {generator.version}" if generator.version else generator.name
    conditions = _conditions(question, installed, model, named)
    with State.open(question.store, conditions, resume=question.resume) as state, _terminable():
        if question.resume and not state.resumed:
            notes.append("Nothing to resume: no sweep under these conditions is in the store. A new one began.")
        rig = Rig(
            space=space,
            generator=generator,
            repeats=question.repeats,
            ready_s=question.ready_s,
            logs=logs,
            installed=installed,
            endpoint=endpoint,
            model=model,
            tokenizer=question.tokenizer,
            port=question.port,
            headers=headers,
            dataset=dataset,
            progress=question.progress,
        )
        budget = Budget(question.trials, question.confirm, question.baseline)
        usable = [run for run in state.runs if run.origin == "baseline" or space.holds(run.assignment)]
        if state.resumed:
            question.progress(
                f"Sweep {state.sweep} continues: {len(usable)} runs kept, {len(state.cut_off)} cut off and repeated."
            )
        steps = Steps(space, question.goal, budget, seeds, usable, question.seed)
        stopped = _loop(question, rig, state, steps)
        return _document(question, installed, endpoint, model, named, state, steps.runs, notes, stopped)


def _loop(question: Question, rig: Rig, state: State, steps: Steps) -> str | None:
    """Runs until all is done; why it ended earlier, where it did."""
    failures = 0
    while True:
        step = steps.next([Step(plan.assignment, plan.origin) for plan in state.cut_off])
        if step is None:
            return None
        number = state.plan(step.assignment, step.origin)
        question.progress(f"[{number}] {step.origin}: {told(step.assignment)}")
        outcome = _run(rig, step, state, number)
        run = state.end(number, outcome)
        _keep_result(question, rig, run)
        steps.add(run)
        if outcome.status != "measured":
            question.progress(f"    {outcome.status}: {outcome.reason or STATUSES[outcome.status]}")
            for item in outcome.explained:
                question.progress(f"    {item.title}: {item.line[:200]}")
        failures = failures + 1 if outcome.status == "generator_failed" else 0
        if failures >= GENERATOR_FAILURES:
            msg = f"The load generator failed {failures} times in a row ({outcome.reason}); mend that, then --resume."
            raise ToolError(msg)
        if (why := steps.hopeless()) is not None:
            return why


def _run(rig: Rig, step: Step, state: State, number: int) -> Outcome:
    if rig.endpoint is not None:
        return run_endpoint(rig, step.assignment)
    return run_server(rig, step.assignment, rig.logs / f"sweep{state.sweep}-run{number}.log")


def _keep_result(question: Question, rig: Rig, run: Run) -> None:
    """The run among the results of the store, where `tilewright results` lists them."""
    from tilewright.store import Store

    with Store.append_to(question.store) as store:
        store.append([result_of(run, rig, question.engine, question.gpu)])


def _document(
    question: Question,
    installed: Installed | None,
    endpoint: Endpoint | None,
    model: str | None,
    generator: str,
    state: State,
    runs: list[Run],
    notes: list[str],
    stopped: str | None,
) -> SweepDocument:
    candidates, verdict = judge(runs, question.goal)
    launch: str | None = None
    if verdict.leader is not None and endpoint is None:
        from tilewright.libraries.engine_flags.withhold import shown_line

        numbers = candidates[verdict.leader].runs
        launch = next(shown_line(run.outcome.command) for run in runs if run.number in numbers)
    size = question.space.count
    return SweepDocument(
        engine=question.engine,
        engine_version=installed.version if installed else None,
        model=model or next((run.outcome.model for run in runs if run.outcome.model), None),
        url=endpoint.url if endpoint else None,
        goal=str(question.goal),
        generator=generator,
        load=msgspec.to_builtins(question.space.load),
        space_size=size if size != float("inf") else None,
        sweep=state.sweep,
        store=str(question.store),
        resumed=state.resumed,
        seconds=sum(run.outcome.seconds for run in runs),
        candidates=candidates,
        runs=runs,
        verdict=verdict,
        launch=launch,
        journal_entry=None,
        stopped=stopped,
        notes=notes,
    )
