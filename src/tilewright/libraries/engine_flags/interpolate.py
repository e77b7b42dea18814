"""Variables in the text of a command, filled in as far as the file at hand says what they are.

Docker Compose fills `$A`, `${A:-b}` and their kin before anything runs, from the environment that it is started in
and from `.env` (Compose specification, "Interpolation"): neither is read here, so a default is taken where there is
one, and what has none stays `${A}`. Compose does not look at the `environment` of a service: that is the container's
own, and a shell in it (`$$A` in the file) or Kubernetes (`$(A)`) fills from there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

__all__ = ["Filled", "of_compose", "of_kubernetes", "of_shell"]

_BRACED: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(:?[-?+]|\})")
_NAMED: Final = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
_KUBERNETES: Final = re.compile(r"\$\$|\$\(([A-Za-z_.][\w.-]*)\)")
_PLAIN: Final = re.compile(r"[^$}\\'\"]+")
"""Text in which nothing is to be done."""
MAX_FILLED: Final = 200_000
"""Characters above which known values are no longer put in (a hundred thousand times `$A` would be gigabytes): twice
what a command may have."""


@dataclass(slots=True)
class Filled:
    """`text` with what is known, `defaults` the variables that were taken at their default, `unknown` those that stay,
    `wrong` the places that Compose refuses."""

    text: str = ""
    defaults: dict[str, str] = field(default_factory=lambda: dict[str, str]())
    unknown: list[str] = field(default_factory=lambda: list[str]())
    wrong: list[str] = field(default_factory=lambda: list[str]())

    def add(self, other: Filled) -> None:
        """What was found in another text of the same command."""
        self.defaults |= other.defaults
        self.unknown += [name for name in other.unknown if name not in self.unknown]
        self.wrong += other.wrong


@dataclass(slots=True)
class _Open:
    """A `${NAME:-` whose brace is not yet closed."""

    start: int
    name: str
    mark: str
    parts: list[str]
    found: Filled


def of_compose(text: str) -> Filled:
    """A value of a Compose file as Compose makes it of an environment that is not known."""
    return _fill(text, {}, shell=False) if "$" in text else Filled(text)


def of_shell(text: str, known: Mapping[str, str]) -> Filled:
    """A shell's command with its variables from `known`; what is not there stays as it is."""
    return _fill(text, known, shell=True) if "$" in text and known else Filled(text)


def of_kubernetes(text: str, known: Mapping[str, str]) -> str:
    """A word of a container's `command` or `args`: `$(A)` is the container's own variable, `$$` a dollar."""
    return _KUBERNETES.sub(lambda hit: "$" if hit[1] is None else known.get(hit[1], hit[0]), text)


def _fill(text: str, values: Mapping[str, str], *, shell: bool) -> Filled:
    outer = _Open(0, "", "", [], Filled())
    stack = [outer]
    known = _Known(values)
    index, quote = 0, ""
    while index < len(text):
        here = stack[-1]
        if (plain := _PLAIN.match(text, index)) is not None:
            here.parts.append(plain[0])
            index = plain.end()
            continue
        char = text[index]
        if shell and char == "\\":
            here.parts.append(text[index : index + 2])
            index += 2
        elif shell and char in "'\"" and quote in ("", char):
            end = text.find("'", index + 1) if char == "'" else index
            here.parts.append(text[index : end + 1] if end >= 0 else text[index:])
            index = end + 1 if end >= 0 else len(text)
            if char == '"':
                quote = "" if quote else char
        elif char == "}" and len(stack) > 1:
            done = stack.pop()
            stack[-1].parts.append(_closed(done, text[done.start : index + 1], known, stack[-1].found, shell=shell))
            index += 1
        elif char == "$" and not shell and text.startswith("$$", index):
            here.parts.append("$")
            index += 2
        elif char == "$" and (hit := _BRACED.match(text, index)) is not None:
            index = hit.end()
            if hit[2] != "}":
                stack.append(_Open(hit.start(), hit[1], hit[2], [], Filled()))
                continue
            here.parts.append(_value(hit[1], hit[0], known, here.found))
        elif char == "$" and (hit := _NAMED.match(text, index)) is not None:
            index = hit.end()
            here.parts.append(_value(hit[1], hit[0] if shell else f"${{{hit[1]}}}", known, here.found))
        else:
            if char == "$" and not shell:
                here.found.wrong.append(text[index : index + 12])
            here.parts.append(char)
            index += 1
    if len(stack) > 1:  # a brace that is never closed
        outer.parts.append(text[stack[1].start :])
        if not shell:
            outer.found.wrong.append(text[stack[1].start : stack[1].start + 12])
    outer.found.text = "".join(outer.parts)
    return outer.found


class _Known:
    """What is known of variables, handed out up to `MAX_FILLED` characters in all."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values, self._room = values, MAX_FILLED

    def get(self, name: str) -> str | None:
        value = self._values.get(name)
        if value is None or len(value) > self._room:
            return None
        self._room -= len(value)
        return value


def _value(name: str, raw: str, known: _Known, found: Filled) -> str:
    value = known.get(name)
    if value is not None:
        return value
    if name not in found.unknown:
        found.unknown.append(name)
    return raw


def _closed(done: _Open, raw: str, known: _Known, found: Filled, *, shell: bool) -> str:
    """What `${NAME:-word}` becomes; `word` is filled already."""
    word = "".join(done.parts)
    found.wrong += done.found.wrong
    value = known.get(done.name)
    there = value if value or not done.mark.startswith(":") else None
    if done.mark.endswith("-"):
        if there is not None:
            return there
        found.add(done.found)
        if value is None:
            found.defaults[done.name] = word
        return word
    if value is not None:
        return (word if there is not None else "") if done.mark.endswith("+") else value
    if done.name not in found.unknown:
        found.unknown.append(done.name)
    return raw if shell else f"${{{done.name}}}"
