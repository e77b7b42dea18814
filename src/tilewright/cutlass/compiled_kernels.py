"""Of which releases whole kernels were compiled to see a rule broken that the types alone do not show.

The facts are `data/cutlass_kernels.json`. A rule is `compiled` for a release and a kind of kernel of which one was
built, and `inferred` from the headers everywhere else.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, Literal

from tilewright.data.figures import read_packaged

__all__ = ["SCALE_COLUMNS", "SCALE_FACTORS_SHORT", "basis"]

SCALE_FACTORS_SHORT: Final = "scale_factors_short"
"""Shared memory holds fewer scale factors than the tile has."""
SCALE_COLUMNS: Final = "scale_columns"
"""Scale factors of B come in blocks that the tile's N does not divide."""


@lru_cache(maxsize=1)
def _compiled() -> frozenset[tuple[str, str, str]]:
    """(rule, op_class/kind, release) of every kernel that was compiled."""
    rules = read_packaged("cutlass_kernels.json")["rules"]
    return frozenset(
        (rule, kernel, release)
        for rule, kernels in rules.items()
        for kernel, releases in kernels.items()
        for release in releases
    )


def basis(rule: str, op_class: str, kind: str, release: str) -> Literal["compiled", "inferred"]:
    """What the verdict of `rule` on kernels of `op_class` and `kind` rests on in CUTLASS `release`."""
    return "compiled" if (rule, f"{op_class}/{kind}", release) in _compiled() else "inferred"
