"""Numbers of tokens to tune for: a range as `1..4096`, or a list."""

from __future__ import annotations

import re
from typing import Final

from tilewright.errors import InputError, shown
from tilewright.number_lists import whole_numbers
from tilewright.tune.layer import MAX_COUNTS, MAX_TOKENS

GRID: Final = (
    1,
    2,
    4,
    8,
    16,
    24,
    32,
    48,
    64,
    96,
    128,
    256,
    512,
    1024,
    1536,
    2048,
    3072,
    4096,
    6144,
    8192,
    12288,
    16384,
)
"""Where a range is cut: the 18 numbers of vLLM's own tuner (benchmarks/kernels/benchmark_moe.py), and the chunk sizes
of larger servers."""
_RANGE: Final = re.compile(r"(\d{1,9})\.\.(\d{1,9})")


def parse_tokens(text: str) -> list[int]:
    """The numbers of tokens that `text` means, ascending: `1..4096` (those of `GRID` and both ends), `1,16,64`.

    Raises:
        InputError: it is neither, names none, or one that no server runs.
    """
    found = _RANGE.fullmatch(text.strip())
    if found:
        first, last = int(found[1]), int(found[2])
        if first > last:
            msg = f"--tokens {shown(text)} is empty: {first} is more than {last}; give LEAST..MOST, such as 1..4096."
            raise InputError("tokens", msg)
        counts = {first, last, *(count for count in GRID if first <= count <= last)}
    else:
        listed = whole_numbers(text, digits=9)
        if listed is None:
            msg = f"--tokens takes a range like 1..4096 or numbers like 1,16,64, not {shown(text)}."
            raise InputError("tokens", msg)
        counts = set(listed)
    if min(counts) < 1 or max(counts) > MAX_TOKENS:
        wrong = min(counts) if min(counts) < 1 else max(counts)
        raise InputError("tokens", f"--tokens must be from 1 to {MAX_TOKENS:,}, not {wrong:,}.")
    if len(counts) > MAX_COUNTS:
        raise InputError("tokens", f"--tokens names {len(counts)} numbers; at most {MAX_COUNTS} are tuned in one run.")
    return sorted(counts)
