"""Sums of small decision trees, as coefficient files hold them, and their evaluation in plain Python.

A tree is stored in preorder: the left child of an inner node follows it. Inner nodes hold a feature and a threshold,
leaves a value. A sum visits a few hundred nodes; no library is needed at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from tilewright.errors import InputError

__all__ = ["LEAF", "Forest", "Trees"]

LEAF: Final = -1
VALUE_UNIT: Final = 1e-4
"""Leaf values are stored as whole multiples of this: 0.01% of a time."""
MAX_NODES: Final = 1 << 20


class Trees(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`feature[i]`: index of the feature that node i looks at, or -1 for a leaf. `cut[i]`: index into `cuts` of that
    feature, or a leaf's value in units of 0.0001. The trees follow one another."""

    feature: list[int]
    cut: list[int]
    cuts: list[list[float]]


class Forest:
    """Trees made ready for evaluation: `value(x)` is the sum over all."""

    __slots__ = ("_roots",)

    def __init__(self, trees: Trees, features: int) -> None:
        """Raises InputError when the nodes are no trees over `features` features."""
        count = len(trees.feature)
        if count != len(trees.cut) or count > MAX_NODES or len(trees.cuts) != features:
            raise InputError("coefficients", "A coefficient file holds broken trees; run 'tilewright calibrate' again.")
        self._roots = _linked(trees, features)

    def value(self, x: Sequence[float]) -> float:
        """The sum of the leaves that `x` falls into."""
        total = 0.0
        for feature, value, left, right in self._roots:
            while feature >= 0:
                feature, value, left, right = left if x[feature] <= value else right
            total += value
        return total


# (feature, threshold, left, right); a leaf is (-1, value, None, None). Tuples in tuples: the walk is what takes time.
_Node = tuple[int, float, Any, Any]


def _linked(trees: Trees, features: int) -> list[_Node]:
    """The roots, in order. Preorder is read backwards, so that children are there when their parent comes."""
    done: list[_Node] = []
    for feature, cut in zip(reversed(trees.feature), reversed(trees.cut), strict=True):
        if feature == LEAF:
            done.append((LEAF, cut * VALUE_UNIT, None, None))
            continue
        if not (0 <= feature < features and 0 <= cut < len(trees.cuts[feature])) or len(done) < 2:
            raise InputError("coefficients", "A coefficient file names a feature or threshold that it does not hold.")
        left, right = done.pop(), done.pop()
        done.append((feature, trees.cuts[feature][cut], left, right))
    done.reverse()
    return done
