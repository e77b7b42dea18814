"""Where `CollectiveMma` and `CollectiveEpilogue` are specialised in one header.

The headers of the collectives are large (2.7 MB in CUTLASS 4.7.0) and nearly all device code, so only the heads of the
specialisations and their class-level static_asserts are lexed; the rest is skipped by matching braces.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tilewright.collectives.declarations import Assertion, Range, Scope, parse, split
from tilewright.collectives.lexer import Source, tokenize

__all__ = ["Specialisation", "find_specialisations"]

_HEAD: Final = re.compile(r"\b(?:struct|class)\b(?:\s*\[\[[^\]\n]{0,200}\]\])?\s+(Collective(?:Mma|Epilogue))\s*<")
_BRACE_OR_ASSERT: Final = re.compile(r"[{}]|\bstatic_assert\b")
_ENDS_HEAD: Final = re.compile(r"[{;]|\b(?:struct|class|template)\b")
MAX_HEAD: Final = 20_000
"""Characters that the head of a specialisation may take; the longest in CUTLASS 4.7.0 takes 1,200."""


@dataclass(frozen=True, slots=True)
class Specialisation:
    """One `struct CollectiveMma<Policy<...>, ...>` or `class CollectiveEpilogue<...>`."""

    template: str
    policy: str
    args: tuple[str, ...]
    line: int
    assertions: tuple[Assertion, ...]
    body: str
    """The class body as text, comments removed."""


def find_specialisations(source: Source) -> list[Specialisation]:
    """Every specialisation that `source` defines, in order; forward declarations are not definitions."""
    found: list[Specialisation] = []
    behind = 0
    for match in _HEAD.finditer(source.masked):
        if match.start() < behind:
            continue
        head_end = _head_end(source.masked, match.end())
        if head_end < 0:
            continue
        tokens = tokenize(source, match.start(1), head_end + 1)
        closing = tokens.partner[1] if len(tokens) > 1 else -1
        if closing < 0 or tokens.texts[-1] != "{" or tokens.texts[closing + 1] not in ("{", ":", "final"):
            continue
        args = [Range(tokens, *span) for span in split(tokens, 2, closing)]
        if not args:
            continue
        body_end, asserts = _body(source.masked, head_end)
        behind = body_end
        words = [text for text in _until_angle(args[0].texts) if text[0].isalpha() or text[0] == "_"]
        scope = Scope()
        for at in asserts:
            scope.merge(_assertion_at(source, at))
        found.append(
            Specialisation(
                match[1],
                words[-1] if words else "",
                tuple(str(arg) for arg in args),
                source.line_at(match.start()),
                tuple(scope.assertions),
                source.text[head_end + 1 : body_end],
            )
        )
    return found


def _until_angle(texts: list[str]) -> list[str]:
    return texts[: texts.index("<")] if "<" in texts else texts


def _head_end(masked: str, start: int) -> int:
    """Position of the `{` that opens the body; -1 where there is none (a forward declaration, or no code at all)."""
    limit = start + MAX_HEAD
    at = start
    while True:
        match = _ENDS_HEAD.search(masked, at, limit)
        if match is None or match[0] != "{":
            return -1
        if masked[match.end() : match.end() + 1] != "}":
            return match.start()
        at = match.end()  # a value such as X{} in an argument


def _body(masked: str, opening: int) -> tuple[int, list[int]]:
    """End of the body that opens at `opening`, and where its class-level static_asserts are."""
    depth = 0
    asserts: list[int] = []
    for match in _BRACE_OR_ASSERT.finditer(masked, opening):
        text = match[0]
        if text == "{":
            depth += 1
        elif text == "}":
            depth -= 1
            if depth == 0:
                return match.start(), asserts
        elif depth == 1:
            asserts.append(match.start())
    return len(masked), asserts


def _assertion_at(source: Source, position: int) -> Scope:
    end = source.masked.find(";", position, position + MAX_HEAD)
    return parse(tokenize(source, position, len(source.text) if end < 0 else end + 1)) if end >= 0 else Scope()
