"""What a backend is: a name, what it can do, why it cannot do it here, and how its calls are made."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module, metadata
from importlib.util import find_spec
from inspect import Parameter, signature
from typing import Any, Final

from tilewright.bench.problem import GemmProblem, MoeProblem, Problem, kind_of
from tilewright.bench.reference import Error, error
from tilewright.errors import TilewrightError

Capability = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Prepared:
    """A problem ready to be timed: `calls` do the same work on different copies of the weights, `check` says how far
    their answers are from the right one. `graph`: whether they may be captured in a CUDA graph. `config`: how the
    kernel was set up, where that is known. `remark`: what a reader of the figure has to know of it."""

    calls: Sequence[Callable[[], Any]]
    check: Callable[[], Error]
    config: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any]())
    graph: bool = True
    remark: str = ""


Prepare = Callable[[Problem, Any, int], Prepared]


@dataclass(frozen=True, slots=True)
class Backend:
    """`formats`: kind -> the formats of it ("" for kinds that have none). `missing(capability)` says in a clause why
    it cannot run on a GPU of that compute capability here, or None; it imports nothing. `prepare(problem, torch,
    copies)` makes the calls on torch's current device. `package`: the distribution whose version is recorded."""

    name: str
    formats: Mapping[str, tuple[str, ...]]
    missing: Callable[[Capability], str | None]
    prepare: Prepare
    package: str

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self.formats)

    def takes(self, problem: Problem) -> bool:
        """Whether the problem's kind and format are among those it has a kernel for."""
        dtype = problem.dtype if isinstance(problem, GemmProblem | MoeProblem) else ""
        return dtype in self.formats.get(kind_of(problem), ())


FORKS: Final[Mapping[str, tuple[str, ...]]] = {"deep-gemm": ("sgl-deep-gemm",)}
"""Distributions that bring the same module as another one."""


def version_of(package: str) -> str | None:
    """The installed version of a distribution (a fork's with its name), or None."""
    for name in (package, *FORKS.get(package, ())):
        try:
            found = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        return found if name == package else f"{name} {found}"
    return None


def not_found(module: str, package: str) -> str | None:
    """Why `module` cannot be imported, without importing it; None where it is there."""
    try:
        found = find_spec(module)
    except (ImportError, ValueError):
        found = None
    return None if found else f"{package} is not installed"


class UnsupportedError(TilewrightError):
    """A backend that is installed cannot run this problem here: its release has another call, or no kernel for it."""


def entry(package: str, *places: str) -> Any:
    """The first of `places` ("module:name") that the installed release of `package` has.

    Raises:
        UnsupportedError: it has none of them.
    """
    why = ""
    for place in places:
        module, _, name = place.partition(":")
        try:
            found = getattr(import_module(module), name, None)
        except Exception as error:  # packages raise what they like when a part of theirs does not load
            first = " ".join(str(error).split())
            why = f" ({type(error).__name__}: {first[:120]})"
            continue
        if found is not None:
            return found
    known = " and ".join(places)
    msg = f"{package} {version_of(package) or 'of an unknown version'} has no {known}{why}"
    raise UnsupportedError(msg)


def accepted(call: Any, package: str, needed: Iterable[str], optional: Mapping[str, Any] = {}) -> dict[str, Any]:
    """Those of the `optional` arguments that `call` takes, after a look whether it takes all that are `needed`.

    A call without a signature (compiled) is believed to take what is needed and nothing else.

    Raises:
        UnsupportedError: a needed one is no parameter of it.
    """
    try:
        parameters = signature(call).parameters
    except (TypeError, ValueError):
        return {}
    if any(item.kind is Parameter.VAR_KEYWORD for item in parameters.values()):
        return dict(optional)
    absent = [name for name in needed if name not in parameters]
    if absent:
        name = getattr(call, "__name__", "its call")
        release = f"{package} {version_of(package) or 'of an unknown version'}"
        msg = f"{release}: {name}() takes no {', '.join(absent)}; its interface has changed"
        raise UnsupportedError(msg)
    return {name: value for name, value in optional.items() if name in parameters}


def needs(capability: Capability, least: Capability, what: str) -> None:
    """Raises UnsupportedError where a GPU is too old for `what`."""
    reason = too_old(capability, least, what)
    if reason:
        raise UnsupportedError(reason)


def too_old(capability: Capability, least: Capability, what: str) -> str | None:
    """Why a GPU is too old for `what`; None where it is not."""
    if capability >= least:
        return None
    return f"{what} needs compute capability {least[0]}.{least[1]}, this GPU has {capability[0]}.{capability[1]}"


def by_kind(gemm: Callable[[Any, Any, int], Prepared], moe: Callable[[Any, Any, int], Prepared]) -> Prepare:
    """What prepares a GEMM with `gemm` and an expert layer with `moe`: all that most backends' `formats` name."""

    def prepare(problem: Problem, torch: Any, copies: int) -> Prepared:
        if isinstance(problem, GemmProblem):
            return gemm(problem, torch, copies)
        assert isinstance(problem, MoeProblem)
        return moe(problem, torch, copies)

    return prepare


def answers_checked(calls: Sequence[Callable[[], Any]], answer: Callable[[], Any], torch: Any) -> Callable[[], Error]:
    """A check of the first and the last call against `answer()`: the worse of both."""

    def check() -> Error:
        want = answer()
        found: list[Error] = []
        for call in (calls[0], calls[-1]):
            out = call()
            torch.cuda.synchronize()
            found.append(error(out, want))
            out.fill_(math.nan)  # calls may share it: the last one must not be right by what the first one wrote
        return max(found, key=lambda item: (math.isnan(item.norm), item.norm))

    return check
