"""The errors of Tilewright, and what a shell sees of each.

    TilewrightError              exit 2
    ├── InputError               something the user supplied is wrong: names the field and the legal values
    │   ├── ConfigError          a kernel config breaks its contract (not: a config that cannot run)
    │   ├── UnknownNameError     no GPU, model, ... of that name; carries the nearest ones
    │   ├── AmbiguousNameError   several fit; carries the choices
    │   └── TreeError            a folder or wheel is not the source tree it was said to be
    ├── ToolError                a compiler or another program that we called failed in a way we cannot use
    └── MissingPartError         exit 3: an optional part is not installed; says which extra brings it

A kernel that does not fit is no error: it is a verdict, and a value (see `tilewright.cutlass.budget`).
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from typing import cast

__all__ = [
    "AmbiguousNameError",
    "ConfigError",
    "InputError",
    "MissingPartError",
    "TilewrightError",
    "ToolError",
    "TreeError",
    "UnknownNameError",
    "nearest",
]

MAX_SHOWN = 80
"""Longest piece of a user's own input that a message repeats, in characters."""


MAX_WORD = 300
"""Longest word of a message, in characters: a path that no message cuts may be as long."""
_LONG_WORD = re.compile(rf"\S{{{MAX_WORD},}}")


def shown(value: object) -> str:
    """`value` as a message may repeat it: its repr, cut to `MAX_SHOWN` characters, control characters escaped.

    What JSON writes otherwise than Python (true, null, the strings in a list) is shown as JSON writes it. A path loses
    its middle: the file's name is what its reader looks for.
    """
    text = _as_json(cast("object", value)) if isinstance(value, bool | list | dict | None) else repr(value)
    if len(text) <= MAX_SHOWN:
        return text
    head = MAX_SHOWN // 4 if isinstance(value, str) and "/" in value else MAX_SHOWN - 3
    return text[:head] + "..." + text[len(text) - (MAX_SHOWN - 3 - head) :]


def _cut(msg: str) -> str:
    """`msg` in which no single word is longer than `MAX_WORD`: what other libraries say (msgspec, sqlite) repeats the
    user's input whole."""
    return msg if len(msg) <= MAX_WORD else _LONG_WORD.sub(lambda found: f"{found[0][:MAX_SHOWN]}...", msg)


def _as_json(value: object) -> str:
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):  # it came from no JSON, or is nested deeper than that writes
        return repr(value)


def nearest(name: str, legal: Iterable[str], count: int = 3) -> list[str]:
    """Up to `count` of the `legal` names that look most like `name`, best first (case is ignored)."""
    by_lower = {item.lower(): item for item in legal}
    wanted = name.lower()[:200]
    # A name that the input begins with (or that begins with it) is the same thing in another edition.
    alike = [item for item in by_lower if len(item) > 3 and (wanted.startswith(item) or item.startswith(wanted))]
    alike.sort(key=lambda item: (abs(len(item) - len(wanted)), item))
    hits = difflib.get_close_matches(wanted, list(by_lower), n=count, cutoff=0.4)
    return [by_lower[hit] for hit in dict.fromkeys([*alike, *hits])][:count]


class TilewrightError(Exception):
    """Base of everything that Tilewright raises on purpose.

    `msg` is one sentence that ends in what to do. `exit_code` is what a shell gets.
    """

    exit_code = 2

    def __init__(self, msg: str) -> None:
        self.msg = _cut(msg)
        super().__init__(self.msg)


class InputError(TilewrightError):
    """Something the user supplied is wrong. `field` names it (a key, a flag, a path)."""

    def __init__(self, field: str, msg: str) -> None:
        super().__init__(msg)
        self.field = field if len(field) <= MAX_SHOWN else f"{field[: MAX_SHOWN - 3]}..."


class ConfigError(InputError):
    """A kernel config is not of the form of `docs/kernel-config.md`: unknown key, wrong type, no such value."""


class UnknownNameError(InputError):
    """No such GPU, model, library, ... `choices` holds the nearest legal names."""

    def __init__(self, field: str, name: str, legal: Sequence[str], hint: str = "") -> None:
        self.choices = nearest(name, legal) or list(legal)[:8]
        more = f" {hint}" if hint else ""
        super().__init__(
            field, f"No {field} is called {shown(name)}; the nearest are: {', '.join(self.choices)}.{more}"
        )


class AmbiguousNameError(InputError):
    """Several entries fit the name and they differ in figures that matter. `choices` holds them."""

    def __init__(self, field: str, name: str, choices: Sequence[str], why: str = "") -> None:
        self.choices = list(choices)
        reason = f" ({why})" if why else ""
        super().__init__(
            field,
            f"{shown(name)} fits more than one {field}{reason}: say which of {', '.join(self.choices)}.",
        )


class TreeError(InputError):
    """A folder or a wheel is not the source tree that it was said to be, or cannot be read."""


class ToolError(TilewrightError):
    """A program that we called (a compiler, ...) failed in a way that leaves nothing to report."""


class MissingPartError(TilewrightError):
    """An optional part is not installed. The message says which extra brings it."""

    exit_code = 3

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} is not installed; install it with: pip install 'tilewright[{extra}]'")
        self.extra = extra
