"""Constant expressions and type names of C++ headers, parsed once into small trees.

`condition(range)` reads `a || (b && !c)` down to names; `type_name(range)` reads `ns::name<args...>::rest`. What is
neither is kept as "other". Depth is bounded; nothing is raised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tilewright.collectives.declarations import Range

__all__ = ["NOISE", "Condition", "TypeName", "condition", "type_name"]

MAX_DEPTH: Final = 40
"""Nesting of conditions that is read; CUTLASS 4.7.0 needs 6."""

NOISE: Final = frozenset({"typename", "const", "constexpr", "static", "inline", "struct", "class"})
"""Words that may stand before a type name and do not change it."""

_OR: Final = frozenset({"||", "or"})
_AND: Final = frozenset({"&&", "and"})


@dataclass(frozen=True, slots=True, eq=False)
class TypeName:
    """`a::b::name<args>rest`: the last component before the arguments, the arguments (None: no list), what follows."""

    name: str
    args: tuple[Range, ...] | None
    rest: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A node of a condition. `name` is a predicate or a constant; `true` and `false` are what they say."""

    kind: Literal["or", "and", "not", "name", "true", "false", "other"]
    parts: tuple[Condition, ...] = ()
    name: TypeName | None = None


_OTHER: Final = Condition("other")
_NOTHING: Final = TypeName("", None, ())


def type_name(value: Range) -> TypeName:
    """`value` as a (template) name; its `name` is "" where it is none."""
    texts, partner = value.tokens.texts, value.tokens.partner
    at, end = value.start, value.end
    while at < end and texts[at] in NOISE:
        at += 1
    if at < end and texts[at] == "::":
        at += 1
    name = ""
    while at < end and (texts[at][0].isalpha() or texts[at][0] == "_"):
        name = texts[at]
        at += 1
        if at + 1 < end and texts[at] == "::" and (texts[at + 1][0].isalpha() or texts[at + 1][0] == "_"):
            at += 2 if texts[at + 1] == "template" else 1
            continue
        break
    if not name:
        return _NOTHING
    args: tuple[Range, ...] | None = None
    if at < end and texts[at] == "<" and partner[at] > at:
        args = tuple(Range(value.tokens, at + 1, min(partner[at], end)).split())
        at = partner[at] + 1
    return TypeName(name, args, tuple(texts[at:end]))


def condition(value: Range, depth: int = 0) -> Condition:
    """`value` as a condition."""
    if depth > MAX_DEPTH or not len(value):
        return _OTHER
    tokens = value.tokens
    texts, partner = tokens.texts, tokens.partner
    alternatives = _split_any(value, _OR)
    if len(alternatives) > 1:
        return Condition("or", tuple(condition(part, depth + 1) for part in alternatives))
    demands = _split_any(value, _AND)
    if len(demands) > 1:
        return Condition("and", tuple(condition(part, depth + 1) for part in demands))
    first = texts[value.start]
    if first in ("!", "not"):
        return Condition("not", (condition(Range(tokens, value.start + 1, value.end), depth + 1),))
    if first == "(" and partner[value.start] == value.end - 1:
        return condition(Range(tokens, value.start + 1, value.end - 1), depth + 1)
    if len(value) == 1 and first == "true":
        return Condition("true")
    if len(value) == 1 and first == "false":
        return Condition("false")
    name = type_name(value)
    if name.name and name.rest in ((), ("::", "value"), ("(", ")"), ("{", "}")):
        return Condition("name", (), name)
    return _OTHER


def _split_any(value: Range, separators: frozenset[str]) -> list[Range]:
    """Parts of `value` between any of `separators` outside brackets."""
    tokens = value.tokens
    texts, partner = tokens.texts, tokens.partner
    parts: list[Range] = []
    at = begin = value.start
    while at < value.end:
        close = partner[at]
        if close > at:
            at = min(close, value.end - 1)
        elif texts[at] in separators:
            parts.append(Range(tokens, begin, at))
            begin = at + 1
        at += 1
    parts.append(Range(tokens, begin, value.end))
    return parts
