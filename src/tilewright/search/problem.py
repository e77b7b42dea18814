"""The problem that a kernel is searched for: how many rows of how many groups, times an N x K weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.errors import InputError, shown

__all__ = ["Problem", "dense_problem", "grouped_problem"]

MAX_EXTENT: Final = 1 << 28
"""Largest extent of a problem, elements: above it is a typing error (CUTLASS counts extents in 32 bits)."""
MAX_GROUPS: Final = 1 << 16


@dataclass(frozen=True, slots=True)
class Problem:
    """`groups` holds (rows, count): so many groups of so many rows each, each times an `n` x `k` weight of its own.

    A dense GEMM is one group. Rows are tokens, `n` the outputs, `k` the elements summed over.
    """

    groups: tuple[tuple[int, int], ...]
    n: int
    k: int

    @property
    def rows(self) -> int:
        """Rows of all groups."""
        return sum(rows * count for rows, count in self.groups)

    @property
    def count(self) -> int:
        """Groups that have rows."""
        return sum(count for _, count in self.groups)

    @property
    def flops(self) -> int:
        """Useful operations, a multiplication and an addition each counted."""
        return 2 * self.rows * self.n * self.k

    def row_tiles(self, extent: int, multiple: int = 1) -> int:
        """Tiles of `extent` rows that cover all groups, those of each group rounded up to `multiple` (a cluster)."""
        step = extent * multiple
        return sum(-(-rows // step) * multiple * count for rows, count in self.groups)


def _extent(field: str, value: int | None, most: int = MAX_EXTENT) -> int:
    if value is None:
        raise InputError(field, f"--{field}: it is missing; a search needs the extents of the problem.")
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(field, f"--{field}: {shown(value)} is not a whole number from 1 to {most:,}.")
    return value


def dense_problem(m: int | None, n: int | None, k: int | None) -> Problem:
    """One GEMM of `m` rows. Raises InputError for an extent that is missing or out of range."""
    return Problem(((_extent("m", m), 1),), _extent("n", n), _extent("k", k))


def grouped_problem(
    m: int | None, n: int | None, k: int | None, experts: int | None, tokens_per_expert: int | None
) -> Problem:
    """A grouped GEMM: `tokens_per_expert` rows for each of `experts`, or `m` rows spread over them as evenly as can be.

    Raises InputError when neither or both are given, or one is out of range.
    """
    count = _extent("experts", experts, MAX_GROUPS)
    if (m is None) == (tokens_per_expert is None):
        raise InputError(
            "tokens-per-expert",
            "--tokens-per-expert: a grouped search takes either it (rows of each expert) or --m (rows of all), "
            "one of the two.",
        )
    if tokens_per_expert is not None:
        groups = ((_extent("tokens-per-expert", tokens_per_expert), count),)
    else:
        total = _extent("m", m)
        small, larger = divmod(total, count)
        groups = tuple(part for part in ((small + 1, larger), (small, count - larger)) if part[0] and part[1])
    return Problem(groups, _extent("n", n), _extent("k", k))
