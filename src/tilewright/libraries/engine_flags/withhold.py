"""A launch line as it may be shown: what may be a secret stands as a variable of the reader's shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tilewright.withheld import WITHHELD, holds_secret, names_secret

__all__ = ["kept_value", "kept_words", "quoted", "shown_line", "without"]

_SAFE: Final = re.compile(r"[\w@%+=:,./${}-]*")
_SETTING: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)
_SHORT: Final = 4
"""A secret of fewer characters is not looked for inside messages: it would be found in every word."""


def quoted(word: str) -> str:
    """A word for a shell; what has no blank or special character, variables included, stays as it is."""
    return word if _SAFE.fullmatch(word) and word else shlex.quote(word)


def kept_value(name: str, value: str) -> str:
    """The value of a flag or variable; `$NAME` where it may be a secret and is none of the shell's variables."""
    if value.startswith("$") or not (names_secret(name) or holds_secret(value)):
        return value
    return "$" + re.sub(r"\W+", "_", name.lstrip("-")).upper()


def kept_words(words: Iterable[str]) -> list[str]:
    """The words of a command with their secrets replaced; the words behind a flag are its values."""
    out: list[str] = []
    name = ""
    for word in words:
        setting = _SETTING.fullmatch(word)
        if word.startswith("-") and not word[1:2].isdigit():
            name, equals, value = word.partition("=")
            out.append(f"{name}={kept_value(name, value)}" if equals else word)
        elif name and kept_value(name, word) != word:
            out.append(kept_value(name, word))
        elif setting is not None and kept_value(setting[1], setting[2]) != setting[2]:
            out.append(f"{setting[1]}={kept_value(setting[1], setting[2])}")
        else:
            out.append(WITHHELD if holds_secret(word) else word)
    return out


def shown_line(words: Sequence[str], environment: Mapping[str, str] | None = None) -> str:
    """A command with the variables before it, for a shell, without its secrets."""
    settings = [f"{key}={quoted(kept_value(key, value))}" for key, value in (environment or {}).items()]
    return " ".join([*settings, *map(quoted, kept_words(words))])


def without(text: str, secrets: Iterable[str]) -> str:
    """`text` in which none of the `secrets` is left."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= _SHORT:
            text = text.replace(secret, WITHHELD)
    return text
