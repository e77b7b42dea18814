"""Module patterns of quantised checkpoints: which modules a list of names, globs and regular expressions means.

Four ways to write a module are in use, and all are read:
- a full name (`model.layers.3.mlp.gate`) means that module and everything below it;
- a name without dots (`lm_head`, `gate`, `vision_tower`) means every module that has it as a part of its path;
- a glob (`model.layers.0*`, `*.mlp.shared_expert.*`) is matched as fnmatch does, against the name and its parents;
- `re:` introduces a regular expression, matched from the start of the name (compressed-tensors).

Multimodal checkpoints put `language_model.` before the names; patterns and names are compared without such prefixes.

A regular expression comes from a stranger's file, so only those are compiled that cannot run away: no repeated group,
and few unbounded repetitions.
"""

from __future__ import annotations

import fnmatch
import re
import time
from collections.abc import Iterable, Sequence

from tilewright.errors import InputError, shown

__all__ = ["MAX_PATTERNS", "Patterns"]

MAX_PATTERNS = 1_000_000
"""Most patterns that are read; the largest real list (every expert of every layer) has about 60,000."""
MAX_PATTERN_LENGTH = 512
MAX_WILDCARDS = 5000
MAX_UNBOUNDED = 4
"""Most unbounded repetitions in one regular expression: matching takes at most about length^4 / 24 steps."""
MAX_EXPRESSION_SECONDS = 5.0
"""Time that all expressions of one list may take together; real lists take milliseconds."""
_PREFIX = re.compile(r"^(?:(?:model|language_model|backbone|transformer)\.)+")
_GLOB = re.compile(r"[*?\[]")
_REPEATED_GROUP = re.compile(r"\)(?:[*+]|\{)")
_UNBOUNDED = re.compile(r"(?<!\\)(?:[*+]|\{\d*,\})")


def stripped(name: str) -> str:
    """A module name without the prefixes that differ between a model and its multimodal wrapper."""
    return _PREFIX.sub("", name)


def _check(pattern: object, where: str) -> str:
    if not isinstance(pattern, str):
        raise InputError("quantization_config", f"{where}: a module pattern must be a text, not {shown(pattern)}.")
    if len(pattern) > MAX_PATTERN_LENGTH:
        raise InputError(
            "quantization_config",
            f"{where}: a module pattern of {len(pattern):,} characters is not read (at most {MAX_PATTERN_LENGTH}).",
        )
    return pattern


def _compile(expression: str, where: str) -> re.Pattern[str]:
    if _REPEATED_GROUP.search(expression) or len(_UNBOUNDED.findall(expression)) > MAX_UNBOUNDED:
        raise InputError(
            "quantization_config",
            f"{where}: the pattern {shown('re:' + expression)} is not run, because it could take for ever: a repeated "
            f"group, or more than {MAX_UNBOUNDED} unbounded repetitions.",
        )
    try:
        return re.compile(expression)
    except (re.error, OverflowError, RecursionError) as error:
        raise InputError(
            "quantization_config", f"{where}: {shown('re:' + expression)} is no regular expression: {error}."
        ) from None


class Patterns:
    """A set of module patterns, made to answer quickly for many names."""

    def __init__(self, patterns: Iterable[object], where: str) -> None:
        exact: set[str] = set()
        parts: set[str] = set()
        globs: list[str] = []
        expressions: list[re.Pattern[str]] = []
        self.texts: tuple[str, ...] = tuple(_check(item, where) for item in patterns)
        if len(self.texts) > MAX_PATTERNS:
            raise InputError(
                "quantization_config", f"{where}: more than {MAX_PATTERNS:,} module patterns are not read."
            )
        for text in self.texts:
            if text.startswith("re:"):
                expressions.append(_compile(text[3:], where))
            elif _GLOB.search(text):
                globs += [text, stripped(text)]
            elif "." in text:
                exact.add(stripped(text))
            else:
                parts.add(text)
        globs = sorted(set(globs))
        expressions = list(dict.fromkeys(expressions))
        if len(globs) + len(expressions) > MAX_WILDCARDS:
            raise InputError(
                "quantization_config", f"{where}: more than {MAX_WILDCARDS:,} wildcard patterns are not read."
            )
        self._exact, self._parts, self._expressions = exact, parts, expressions
        self._where = where
        self._seconds = 0.0
        self._known: dict[str, bool] = {}
        self._glob = re.compile("|".join(fnmatch.translate(glob) for glob in globs)) if globs else None

    def __bool__(self) -> bool:
        return bool(self.texts)

    def __len__(self) -> int:
        return len(self.texts)

    def matches(self, name: str) -> bool:
        """Whether one of the patterns means the module called `name` or a parent of it.

        Raises InputError when the list's expressions take too long.
        """
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = self._matches(name)
        return known

    def _matches(self, name: str) -> bool:
        short = stripped(name)
        pieces = short.split(".")
        if not self._parts.isdisjoint(pieces):
            return True
        parents = [".".join(pieces[: i + 1]) for i in range(len(pieces))]
        if not self._exact.isdisjoint(parents):
            return True
        if self._glob is not None:
            # A glob may spell the prefix out or start with a star that stands for it.
            if name != short:
                full = name.split(".")
                parents += [".".join(full[: i + 1]) for i in range(len(full))]
            if any(self._glob.match(parent) for parent in parents):
                return True
        return bool(self._expressions) and self._matches_expression(name, short)

    def names_exactly(self, name: str) -> bool:
        """Whether the module itself (not a parent, not a class of modules) is named."""
        return stripped(name) in self._exact or name in self._parts

    def _matches_expression(self, name: str, short: str) -> bool:
        candidates: Sequence[str] = tuple(
            dict.fromkeys(
                (name, short, f"model.{short}", f"language_model.model.{short}", f"model.language_model.{short}")
            )
        )
        start = time.perf_counter()
        found = any(item.match(candidate) for item in self._expressions for candidate in candidates)
        self._seconds += time.perf_counter() - start
        if self._seconds > MAX_EXPRESSION_SECONDS:
            raise InputError(
                "quantization_config",
                f"{self._where}: matching its {len(self._expressions):,} regular expressions takes more than "
                f"{MAX_EXPRESSION_SECONDS:g} seconds, so they are not used.",
            )
        return found
