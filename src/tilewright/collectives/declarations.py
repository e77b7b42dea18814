"""Declarations of a C++ header, as far as CUTLASS's collectives, builders and policies need them.

`parse(tokens)` walks namespaces and answers a `Scope`: struct templates and their specialisations, aliases, constants,
functions, static_asserts. Bodies are not parsed until somebody asks (`Struct.scope`, `Function` bodies are ranges of
tokens). What is not understood is skipped to its `;` or `}`; nothing is ever raised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from tilewright.collectives.lexer import Tokens

__all__ = ["Alias", "Assertion", "Constant", "Function", "Param", "Range", "Scope", "Struct", "parse", "split"]

MAX_DEPTH: Final = 64
"""Nesting of namespaces and bodies that is followed; CUTLASS has about 5."""

_STRUCT: Final = frozenset({"struct", "class"})
_ACCESS: Final = frozenset({"public", "private", "protected"})


@dataclass(frozen=True, slots=True)
class Range:
    """Tokens `start` to `end` (exclusive) of one source."""

    tokens: Tokens
    start: int
    end: int

    def __len__(self) -> int:
        return max(0, self.end - self.start)

    @property
    def texts(self) -> list[str]:
        return self.tokens.texts[self.start : self.end]

    @property
    def line(self) -> int:
        return self.tokens.line(self.start)

    def __str__(self) -> str:
        return self.tokens.text(self.start, self.end)

    def split(self, separator: str = ",") -> list[Range]:
        """Parts between separators that are outside all brackets; no parts where the range is empty."""
        return [Range(self.tokens, start, end) for start, end in split(self.tokens, self.start, self.end, separator)]


def split(tokens: Tokens, start: int, end: int, separator: str = ",") -> list[tuple[int, int]]:
    """Spans between `separator`s outside all brackets of tokens `start` to `end`."""
    if start >= end:
        return []
    spans: list[tuple[int, int]] = []
    texts, partner = tokens.texts, tokens.partner
    at = begin = start
    while at < end:
        close = partner[at]
        if close > at:
            at = min(close, end - 1)
        elif texts[at] == separator:
            spans.append((begin, at))
            begin = at + 1
        at += 1
    spans.append((begin, end))
    return spans


@dataclass(frozen=True, slots=True)
class Param:
    """One template parameter: `class Schedule = void` has name Schedule and a default."""

    name: str
    default: Range | None


@dataclass(frozen=True)
class Struct:
    """A struct or class definition. `args` are the arguments of a partial specialisation, None for a primary one."""

    name: str
    params: tuple[Param, ...]
    args: tuple[Range, ...] | None
    bases: tuple[Range, ...]
    body: Range
    path: str
    line: int
    final: bool = False

    @cached_property
    def scope(self) -> Scope:
        """Members of the body."""
        return parse(self.body.tokens, self.body.start, self.body.end)


@dataclass(frozen=True, slots=True)
class Alias:
    name: str
    params: tuple[Param, ...]
    value: Range


@dataclass(frozen=True, slots=True)
class Constant:
    """`static constexpr bool Name = value;`, also a variable template."""

    name: str
    params: tuple[Param, ...]
    value: Range


@dataclass(frozen=True, slots=True)
class Function:
    name: str
    params: tuple[Param, ...]
    body: Range


@dataclass(frozen=True, slots=True)
class Assertion:
    """`static_assert(condition, "message");`"""

    condition: Range
    message: str
    line: int


@dataclass
class Scope:
    """What one namespace or class body declares. A name may have several declarations (specialisations, branches of a
    preprocessor condition)."""

    structs: dict[str, list[Struct]] = field(default_factory=dict[str, "list[Struct]"])
    aliases: dict[str, list[Alias]] = field(default_factory=dict[str, "list[Alias]"])
    constants: dict[str, list[Constant]] = field(default_factory=dict[str, "list[Constant]"])
    functions: dict[str, list[Function]] = field(default_factory=dict[str, "list[Function]"])
    assertions: list[Assertion] = field(default_factory=list["Assertion"])

    def merge(self, other: Scope) -> None:
        """Add what `other` declares."""
        for name, structs in other.structs.items():
            self.structs.setdefault(name, []).extend(structs)
        for name, aliases in other.aliases.items():
            self.aliases.setdefault(name, []).extend(aliases)
        for name, constants in other.constants.items():
            self.constants.setdefault(name, []).extend(constants)
        for name, functions in other.functions.items():
            self.functions.setdefault(name, []).extend(functions)
        self.assertions += other.assertions


def parse(tokens: Tokens, start: int = 0, end: int | None = None) -> Scope:
    """Declarations among tokens `start` to `end`; namespaces are looked into, their names are dropped."""
    scope = Scope()
    _parse_into(scope, tokens, start, len(tokens) if end is None else end, 0)
    return scope


def _is_word(text: str) -> bool:
    return bool(text) and (text[0].isalpha() or text[0] == "_")


def _parse_into(scope: Scope, tokens: Tokens, start: int, end: int, depth: int) -> None:
    texts, partner = tokens.texts, tokens.partner
    at = start
    while at < end:
        text = texts[at]
        if text == "namespace" or (text == "extern" and at + 1 < end and texts[at + 1].startswith('"')):
            brace = _find(tokens, at, end, "{", ";")
            if brace is None:
                at += 1
            elif texts[brace] == ";" or partner[brace] < 0:
                at = brace + 1
            else:
                if depth < MAX_DEPTH:
                    _parse_into(scope, tokens, brace + 1, min(partner[brace], end), depth + 1)
                at = partner[brace] + 1
        elif text in _ACCESS and at + 1 < end and texts[at + 1] == ":":
            at += 2
        elif text in (";", "}", "{", ")", ":"):
            at = partner[at] + 1 if partner[at] > at else at + 1
        else:
            at = max(at + 1, _declaration(scope, tokens, at, end))


def _find(tokens: Tokens, start: int, end: int, *wanted: str) -> int | None:
    """First token outside brackets that is one of `wanted` (which may be opening brackets)."""
    texts, partner = tokens.texts, tokens.partner
    at = start
    while at < end:
        if texts[at] in wanted:
            return at
        at = partner[at] + 1 if partner[at] > at else at + 1
    return None


def _params(tokens: Tokens, opening: int, closing: int) -> tuple[Param, ...]:
    found: list[Param] = []
    for start, end in split(tokens, opening + 1, closing):
        equals = _find(tokens, start, end, "=")
        stop = end if equals is None else equals
        name = next((tokens.texts[i] for i in range(stop - 1, start - 1, -1) if _is_word(tokens.texts[i])), "")
        found.append(Param(name, None if equals is None else Range(tokens, equals + 1, end)))
    return tuple(found)


def _declaration(scope: Scope, tokens: Tokens, start: int, end: int) -> int:
    """Read one declaration at `start`; the index after it."""
    texts, partner = tokens.texts, tokens.partner
    params: tuple[Param, ...] = ()
    at = start
    while at + 1 < end and texts[at] == "template" and texts[at + 1] == "<" and partner[at + 1] > 0:
        params = _params(tokens, at + 1, partner[at + 1])
        at = partner[at + 1] + 1
    if at >= end:
        return end
    text = texts[at]
    if text in _STRUCT:
        return _struct(scope, tokens, at, end, params)
    if text == "using":
        return _alias(scope, tokens, at, end, params)
    if text == "static_assert":
        return _assertion(scope, tokens, at, end)
    return _constant_or_function(scope, tokens, at, end, params)


def _struct(scope: Scope, tokens: Tokens, start: int, end: int, params: tuple[Param, ...]) -> int:
    texts, partner = tokens.texts, tokens.partner
    at = start + 1
    while at < end and not _is_word(texts[at]):  # [[deprecated("...")]]
        if texts[at] in (";", "{"):
            return at + 1
        at = partner[at] + 1 if partner[at] > at else at + 1
    while at + 1 < end and texts[at] in ("alignas", "CUTLASS_ALIGNAS", "__align__") and texts[at + 1] == "(":
        at = max(partner[at + 1], at + 1) + 1
    if at >= end:
        return end
    name_at = at
    args: tuple[Range, ...] | None = None
    at += 1
    while at + 1 < end and texts[at] == "::":  # an out-of-class definition: A::B
        name_at, at = at + 1, at + 2
    if at < end and texts[at] == "<" and partner[at] > at:
        args = tuple(Range(tokens, *span) for span in split(tokens, at + 1, partner[at]))
        at = partner[at] + 1
    final = at < end and texts[at] == "final"
    at += final
    bases: tuple[Range, ...] = ()
    if at < end and texts[at] == ":":
        brace = _find(tokens, at, end, "{", ";")
        if brace is None:
            return end
        bases = tuple(Range(tokens, *span) for span in split(tokens, at + 1, brace))
        at = brace
    if at >= end or texts[at] != "{" or partner[at] < 0:
        semicolon = _find(tokens, at, end, ";", "{")
        if semicolon is None:
            return end
        return partner[semicolon] + 1 if partner[semicolon] > semicolon else semicolon + 1
    name = texts[name_at]
    close = min(partner[at], end)
    line = tokens.line(start)
    scope.structs.setdefault(name, []).append(
        Struct(name, params, args, bases, Range(tokens, at + 1, close), tokens.source.path, line, final)
    )
    return close + 1


def _alias(scope: Scope, tokens: Tokens, start: int, end: int, params: tuple[Param, ...]) -> int:
    texts = tokens.texts
    stop = _find(tokens, start, end, ";")
    stop = end if stop is None else stop
    if start + 2 < stop and texts[start + 2] == "=" and _is_word(texts[start + 1]):
        name = texts[start + 1]
        scope.aliases.setdefault(name, []).append(Alias(name, params, Range(tokens, start + 3, stop)))
    return stop + 1


def _assertion(scope: Scope, tokens: Tokens, start: int, end: int) -> int:
    texts, partner = tokens.texts, tokens.partner
    opening = start + 1
    if opening >= end or texts[opening] != "(" or partner[opening] < 0:
        return start + 1
    closing = min(partner[opening], end)
    parts = split(tokens, opening + 1, closing)
    message = ""
    if len(parts) > 1 and texts[parts[-1][0]].startswith('"'):
        message = "".join(t[1:-1] for t in texts[parts[-1][0] : parts[-1][1]] if t.startswith('"'))
        parts.pop()
    if parts:
        condition = Range(tokens, parts[0][0], parts[-1][1])
        scope.assertions.append(Assertion(condition, message.replace("\\n", " ").strip(), tokens.line(start)))
    return closing + 1


def _constant_or_function(scope: Scope, tokens: Tokens, start: int, end: int, params: tuple[Param, ...]) -> int:
    texts, partner = tokens.texts, tokens.partner
    at = start
    while at < end:
        text = texts[at]
        if text == ";":
            return at + 1
        if text == "=" and at > start and _is_word(texts[at - 1]):
            stop = _find(tokens, at, end, ";")
            stop = end if stop is None else stop
            name = texts[at - 1]
            scope.constants.setdefault(name, []).append(Constant(name, params, Range(tokens, at + 1, stop)))
            return stop + 1
        if text == "(" and partner[at] > 0:
            if at > start and _is_word(texts[at - 1]):
                brace = _find(tokens, partner[at] + 1, end, "{", ";")
                if brace is None:
                    return end
                if texts[brace] == ";" or partner[brace] < 0:
                    return brace + 1
                name = texts[at - 1]
                body = Range(tokens, brace + 1, min(partner[brace], end))
                scope.functions.setdefault(name, []).append(Function(name, params, body))
                return partner[brace] + 1
            at = partner[at] + 1
        elif text == "{":
            return partner[at] + 1 if partner[at] > at else at + 1
        else:
            at = partner[at] + 1 if partner[at] > at else at + 1
    return end
