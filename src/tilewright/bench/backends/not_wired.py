"""Backends that are known but not called: their calls differ by release and none was run by the authors yet.

They are named, so that a table without them does not look complete, and never guessed at.
"""

from __future__ import annotations

from typing import Any, Never

from tilewright.bench.backends.base import Backend, Capability, not_found, version_of
from tilewright.bench.problem import Problem


def not_wired(name: str, module: str, package: str, formats: dict[str, tuple[str, ...]]) -> Backend:
    """A backend that says whether its package is there and that it is not wired yet."""

    def missing(_: Capability) -> str:
        return not_found(module, package) or f"{package} {version_of(package) or ''} is installed, but not wired yet"

    def prepare(problem: Problem, torch: Any, copies: int) -> Never:
        msg = f"{name} is not wired."
        raise NotImplementedError(msg)

    return Backend(name=name, formats=formats, missing=missing, prepare=prepare, package=package)
