"""Findings in, ranked plan out. One rule a file, found through a registry.

`tilewright.plan(model=..., gpu=..., ...)` is the public function (DESIGN 4.7), and `tilewright.plan` is this package as
well: so the package can be called, with the arguments of `tilewright.plan.make.make_target`, and answers a `Plan`.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tilewright.plan.finding import Plan


class _Callable(ModuleType):
    """A module that answers a plan when it is called."""

    def __call__(self, **inputs: Any) -> Plan:
        from tilewright.plan.make import plan

        return plan(**inputs)


sys.modules[__name__].__class__ = _Callable
