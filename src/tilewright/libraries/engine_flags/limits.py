"""Which numbers an engine refuses for a flag although its parser takes them.

vLLM's config classes declare their bounds (`Field(ge=1)`), and the reader of each version's sources has them in
`Flag.limits`. SGLang states its own in checks behind the parser: those that hold for every start are kept as data,
`data/flag_ranges.json`, each with the place in the sources.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from tilewright.data.figures import read_packaged
from tilewright.libraries.engine_flags.model import Flag, FlagSet, Limits
from tilewright.libraries.engine_flags.reading import number
from tilewright.versions import precedes

__all__ = ["legal", "limits_of", "outside"]

_MANY: Final = 2**53
"""Whole numbers up to here are written out as such."""


class _Range(msgspec.Struct, frozen=True):
    """`Limits` of flags of one engine, as the data file has them."""

    engine: str
    flags: tuple[str, ...]
    source: str
    stops: str | None
    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    since: str | None = None
    because: str | None = None


class _File(msgspec.Struct, frozen=True):
    ranges: tuple[_Range, ...]


@lru_cache(maxsize=1)
def _ranges() -> tuple[_Range, ...]:
    return msgspec.convert(read_packaged("flag_ranges.json"), _File).ranges


def limits_of(flags: FlagSet, flag: Flag) -> Limits | None:
    """The bounds of a flag in this version: its declaration's, else those of the data file; None: none are known."""
    if flag.limits is not None:
        return flag.limits
    for item in _ranges():
        if item.engine != flags.engine or not set(item.flags).intersection(flag.names):
            continue
        if precedes(flags.version, item.since):
            continue
        return Limits(
            item.at_least, item.above, item.at_most, item.below, item.stops, item.source, because=item.because
        )
    return None


def _text(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < _MANY else f"{value:g}"


def legal(limits: Limits) -> str:
    """The numbers inside the bounds, in words: `1 or more`, `above 0, at most 1`."""
    low = f"above {_text(limits.above)}" if limits.above is not None else ""
    high = f"below {_text(limits.below)}" if limits.below is not None else ""
    if limits.at_least is not None:
        if limits.at_most is not None:
            return f"{_text(limits.at_least)} to {_text(limits.at_most)}"
        low = f"{_text(limits.at_least)} or more"
    if limits.at_most is not None:
        high = f"at most {_text(limits.at_most)}"
    return ", ".join(part for part in (low, high) if part)


def outside(limits: Limits, flag: Flag, engine: str, text: str) -> bool:
    """Whether `text` is a number to the parser that lies outside of the bounds (NaN does)."""
    value = number(flag, engine, text)
    if value is None:
        return False
    inside = (
        (limits.at_least is None or value >= limits.at_least)
        and (limits.above is None or value > limits.above)
        and (limits.at_most is None or value <= limits.at_most)
        and (limits.below is None or value < limits.below)
    )
    return not inside
