"""Flags of a launch line that an engine refuses together: its own checks, kept as data (`data/flag_pairs.json`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import prod
from typing import Final, Literal

import msgspec

from tilewright.data.figures import read_packaged
from tilewright.libraries.engine_flags.model import FlagSet
from tilewright.libraries.engine_flags.reading import number
from tilewright.versions import precedes

__all__ = ["Together", "apart"]

_ELSEWHERE: Final = "--config"
"""A file of further flags: what is not in the line may be there."""

Form = Literal["divides", "at_least", "one_above", "one_or", "excludes", "needs"]


class Together(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One check, as the data file says it."""

    engine: str
    form: Form
    left: tuple[str, ...]
    right: str
    why: str
    stops: str | None
    source: str
    when: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    since: str | None = None
    given: bool = False
    """Whether both have to be in the line: the engine computes the default of one."""


class _File(msgspec.Struct, frozen=True):
    pairs: tuple[Together, ...]


@lru_cache(maxsize=1)
def pairs() -> tuple[Together, ...]:
    """Every check that is known."""
    return msgspec.convert(read_packaged("flag_pairs.json"), _File).pairs


class _Line:
    """The flags of a line by any of their names; `open_`: some of its words are variables, which may be more flags."""

    def __init__(self, flags: FlagSet, given: Mapping[str, str], spelt: Mapping[str, str], *, open_: bool) -> None:
        self.flags, self.given, self.spelt = flags, given, spelt
        self.open = open_ or _ELSEWHERE in given

    def has(self, word: str) -> bool:
        """Whether a flag is in the line; `--no-x` where it is switched off, `--x=a|b` with one of these values."""
        name, _, values = word.partition("=")
        flag = self.flags.get(name)
        if flag is None or flag.names[0] not in self.given:
            return False
        if values:
            return self.given[flag.names[0]] in values.split("|")
        return self.spelt[flag.names[0]].startswith("--no-") == name.startswith("--no-")

    def value(self, name: str, given: bool) -> int | None:
        """The whole number that counts, the declared default included unless it has to be given."""
        flag = self.flags.get(name)
        if flag is None:
            return None
        text = self.given.get(flag.names[0])
        if text is not None:
            made = number(flag, self.flags.engine, text)
            return int(made) if made is not None and made >= 1 else None
        plain = flag.default if flag.default_text is None and not given and not self.open else None
        return plain if isinstance(plain, int) and not isinstance(plain, bool) and plain >= 1 else None


def apart(
    flags: FlagSet, given: Mapping[str, str], spelt: Mapping[str, str] | None = None, *, open_: bool = False
) -> list[tuple[str, str, str]]:
    """(flag, what is wrong, place) of flags that do not go together. `given` has each flag's value by its first name,
    `spelt` the name that the line has for it; `open_`: the line has words that are not known."""
    line = _Line(flags, given, spelt if spelt is not None else {name: name for name in given}, open_=open_)
    out: list[tuple[str, str, str]] = []
    for item in pairs():
        if item.engine != flags.engine or precedes(flags.version, item.since):
            continue
        if not all(map(line.has, item.when)) or any(map(line.has, item.unless)):
            continue
        wrong = _wrong(line, item)
        if wrong:
            refuses = f"; refused at start-up by {item.stops}" if item.stops else ""
            flag = next(name for name in (*item.left, item.right) if line.has(name))
            out.append((flag, f"{wrong}: {item.why}{refuses}.", item.source))
    return out


def _wrong(line: _Line, item: Together) -> str:
    """What is wrong with the line; empty where nothing is, or it cannot be told."""
    names = (*item.left, item.right)
    if item.form == "excludes":
        both = all(map(line.has, names))
        return f"{item.left[0]} and {item.right} exclude each other" if both else ""
    if item.form == "needs":
        alone = line.has(item.left[0]) and not line.has(item.right) and not line.open and line.flags.has(item.right)
        return f"{item.left[0]} needs {item.right}" if alone else ""
    if not any(map(line.has, names)):
        return ""
    found = [line.value(name, item.given) for name in names]
    values = [value for value in found if value is not None]
    if len(values) < len(names):
        return ""
    *left, right = values
    told = " x ".join(f"{name} {value:,}" for name, value in zip(item.left, left, strict=True))
    other = f"{item.right} {right:,}"
    if item.form == "divides":
        return f"{told} is no multiple of {other}" if prod(left) % right else ""
    if item.form == "at_least":
        return f"{told} is less than {other}" if left[0] < right else ""
    if item.form == "one_above":
        return f"{told} and {other} are both above 1" if left[0] > 1 and right > 1 else ""
    return f"{told} is neither 1 nor {other}" if left[0] not in (1, right) else ""
