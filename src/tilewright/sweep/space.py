"""What varies in a sweep: parameters with their legal values and conditions, and assignments of values to them. Pure.

A parameter is named as the space file names it: a flag by its own name without dashes (`max-num-seqs`), an environment
variable as `env.NAME`, a property of the load as `load.concurrency`. In an assignment None leaves the flag or variable
out; a parameter whose condition does not hold is not in the assignment at all.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import msgspec

__all__ = ["Assignment", "Load", "Parameter", "Server", "Space"]

Assignment = dict[str, Any]
CONCURRENCY: Final = 8
"""Requests in flight where a load says neither this nor a rate."""
COUNTED_TO: Final = 1_000_000
"""Spaces with more candidates than this are not counted: nobody measures a million servers."""


class Parameter(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing that varies. `choices` for kind `choice`; `low`, `high` (inclusive), `step`, `log` for the others."""

    name: str
    kind: Literal["choice", "int", "float"]
    choices: tuple[Any, ...] = ()
    low: float = 0
    high: float = 0
    step: float | None = None
    log: bool = False
    when: dict[str, tuple[Any, ...]] = {}
    """Other parameter -> the values of it under which this one is there."""

    @property
    def count(self) -> float:
        """How many values there are; infinite for a continuous range."""
        if self.kind == "choice":
            return len(self.choices)
        if self.step:
            return math.floor((self.high - self.low) / self.step + 1e-9) + 1
        return self.high - self.low + 1 if self.kind == "int" else math.inf

    def holds(self, value: Any) -> bool:
        """Whether `value` is a legal one."""
        if self.kind == "choice":
            return any(same(value, item) for item in self.choices)
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            return False
        if self.kind == "int" and value != int(value):
            return False
        if self.step:
            steps = (value - self.low) / self.step
            return abs(steps - round(steps)) < 1e-6
        return True

    def active(self, assignment: Mapping[str, Any]) -> bool:
        """Whether the parameter is there beside what is assigned so far."""
        return all(
            name in assignment and any(same(assignment[name], item) for item in wanted)
            for name, wanted in self.when.items()
        )

    def grid(self) -> Iterator[Any]:
        """All values, for a parameter that has finitely many."""
        if self.kind == "choice":
            yield from self.choices
            return
        step = self.step or 1
        for index in range(int(self.count)):
            value = self.low + index * step
            yield int(value) if self.kind == "int" else value


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """The load of one measurement. Either `requests` or `duration_s` ends it."""

    concurrency: int | None = None
    """Requests in flight at most; with a rate and none given, as many as arrive; without a rate, `CONCURRENCY`."""
    request_rate: float | None = None
    """Requests a second; None: the next one is sent when one is answered (closed loop)."""
    arrival: Literal["poisson", "constant"] = "poisson"
    requests: int | None = 64
    duration_s: float | None = None
    warmup_requests: int = 8
    input_tokens: int = 256
    output_tokens: int = 64
    dataset: str | None = None
    """A JSON Lines file of prompts; then `input_tokens` says nothing."""
    endpoint: Literal["completions", "chat"] = "completions"
    seed: int = 0
    extra: dict[str, Any] | None = None
    """Fields added to every request; None: those that make the engine answer with all its output tokens."""
    timeout_s: float = 600.0
    """Longest time that one measurement may take, warm-up excluded."""

    @property
    def in_flight(self) -> int | None:
        """Requests in flight at most; None: no limit."""
        return self.concurrency or (CONCURRENCY if self.request_rate is None else None)


LOAD_VARIES: Final = ("concurrency", "request_rate", "input_tokens", "output_tokens")
"""Fields of the load that may be a list or a range."""


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """How the server is started where it is not started as usual. `{host}`, `{port}` and `{model}` are filled in."""

    command: tuple[str, ...] | None = None
    health: str | None = None
    """Path that answers 200 when the server is up."""


class Space(msgspec.Struct, frozen=True, kw_only=True):
    """A space file, read. `parameters` are in an order in which conditions look back only."""

    parameters: tuple[Parameter, ...]
    fixed_flags: dict[str, Any]
    fixed_env: dict[str, str]
    load: Load
    server: Server
    baseline: Assignment
    seeds: tuple[Assignment, ...] = ()

    @property
    def count(self) -> float:
        """How many candidates there are; infinite where one of the parameters is continuous or nobody would count."""
        total = math.prod(item.count for item in self.parameters)
        if not any(item.when for item in self.parameters) or total > COUNTED_TO:
            return total if total <= COUNTED_TO else math.inf
        return sum(1 for _ in self.assignments())

    def assignments(self) -> Iterator[Assignment]:
        """Every candidate of a finite space."""

        def walk(index: int, so_far: Assignment) -> Iterator[Assignment]:
            if index == len(self.parameters):
                yield dict(so_far)
                return
            item = self.parameters[index]
            if not item.active(so_far):
                yield from walk(index + 1, so_far)
                return
            for value in item.grid():
                yield from walk(index + 1, {**so_far, item.name: value})

        yield from walk(0, {})

    def holds(self, assignment: Mapping[str, Any]) -> bool:
        """Whether the space has exactly this candidate."""
        so_far: Assignment = {}
        for item in self.parameters:
            if item.active(so_far) != (item.name in assignment):
                return False
            if item.name in assignment:
                if not item.holds(assignment[item.name]):
                    return False
                so_far[item.name] = assignment[item.name]
        return len(so_far) == len(assignment)

    def flags(self, assignment: Mapping[str, Any]) -> dict[str, Any]:
        """All flags of a candidate, the fixed ones first; None where one is left out."""
        varied = {name: value for name, value in assignment.items() if not name.startswith(("env.", "load."))}
        return {**self.fixed_flags, **varied}

    def env(self, assignment: Mapping[str, Any]) -> dict[str, str]:
        """The environment variables that a candidate sets."""
        varied = {
            name.removeprefix("env."): env_text(value)
            for name, value in assignment.items()
            if name.startswith("env.") and value is not None
        }
        return {**self.fixed_env, **varied}

    def load_of(self, assignment: Mapping[str, Any]) -> Load:
        """The load under which a candidate is measured."""
        varied = {
            name.removeprefix("load."): value
            for name, value in assignment.items()
            if name.startswith("load.") and value is not None
        }
        return msgspec.structs.replace(self.load, **varied) if varied else self.load


def same(one: Any, other: Any) -> bool:
    """Whether two values are one value: true is not 1, and 1 is 1.0."""
    return isinstance(one, bool) == isinstance(other, bool) and one == other


def env_text(value: Any) -> str:
    """A value as an environment variable holds it: switches are 1 and 0."""
    return ("1" if value else "0") if isinstance(value, bool) else str(value)


def told(assignment: Mapping[str, Any]) -> str:
    """An assignment as one line for people."""
    if not assignment:
        return "nothing varied"
    return ", ".join(
        f"{name} left out" if value is None else f"{name}={value_text(value)}" for name, value in assignment.items()
    )


def value_text(value: Any) -> str:
    """A value as a command line holds it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.12g}"
    if isinstance(value, dict | list | tuple):
        return msgspec.json.encode(value).decode()
    return str(value)
