"""Holding `fit` against the GPU of this machine: build a config's real kernel, initialise it, launch it, compare.

    from tilewright.verify import verify

The names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.verify.model import Case, Verification
    from tilewright.verify.run import Plan, verify

_HOME = {"Case": "model", "Plan": "run", "Verification": "model", "verify": "run"}

__all__ = ["Case", "Plan", "Verification", "verify"]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        msg = f"module 'tilewright.verify' has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(f"tilewright.verify.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
