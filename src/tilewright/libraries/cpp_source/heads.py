"""Heads of declarations: template parameters, and what stands before the body of a struct."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tilewright.libraries.cpp_source.tokens import Token, match_angle, match_bracket, split_commas


@dataclass(frozen=True)
class Param:
    """A template parameter; `default` is the tokens behind its `=`, or None."""

    name: str
    is_type: bool
    default: tuple[Token, ...] | None = None
    pack: bool = False


def template_params(tokens: list[Token], start: int, end: int) -> tuple[Param, ...]:
    """The parameters between the angle brackets of `template <...>`: `tokens[start:end]`."""
    out: list[Param] = []
    for begin, stop in split_commas(tokens, start, end):
        piece = tokens[begin:stop]
        equals = next((i for i, token in enumerate(piece) if token.text == "="), len(piece))
        head, default = piece[:equals], piece[equals + 1 :]
        names = [token.text for token in head if token.kind == "name"]
        is_type = bool(names) and names[0] in ("typename", "class") and "template" not in names
        pack = any(token.text == "..." for token in head)
        own = names[-1] if len(names) > 1 or (names and not is_type) else ""
        if is_type and len(names) == 1:
            own = ""
        out.append(Param(own, is_type, tuple(default) if equals < len(piece) else None, pack))
    return tuple(out)


class StructHead(NamedTuple):
    """`struct name<spec> : bases`, and where the `{` or `;` behind it stands."""

    name: Token
    spec: list[Token] | None
    bases: list[Token]
    end: int


def struct_head(tokens: list[Token], at: int) -> StructHead | None:
    """The head of the struct or class at `at`; None where the word only starts a type."""
    index = at + 1
    while index < len(tokens) and (tokens[index].text in ("alignas", "[") or tokens[index].text.startswith("__")):
        if tokens[index].text == "[" or (index + 1 < len(tokens) and tokens[index + 1].text == "("):
            index = match_bracket(tokens, index if tokens[index].text == "[" else index + 1)
        index += 1
    if index >= len(tokens) or tokens[index].kind != "name":
        return None
    name = tokens[index]
    index += 1
    spec: list[Token] | None = None
    if index < len(tokens) and tokens[index].text == "<":
        close = match_angle(tokens, index, len(tokens))
        if close is None:
            return None
        spec = tokens[index + 1 : close]
        index = close + 1
    if index < len(tokens) and tokens[index].text == "final":
        index += 1
    bases: list[Token] = []
    if index < len(tokens) and tokens[index].text == ":":
        begin = index + 1
        while index < len(tokens) and tokens[index].text not in ("{", ";"):
            if tokens[index].text == "(":
                index = match_bracket(tokens, index)
            index += 1
        bases = tokens[begin:index]
    if index >= len(tokens) or tokens[index].text not in ("{", ";"):
        return None
    return StructHead(name, spec, bases, index)


__all__ = ["Param", "StructHead", "struct_head", "template_params"]
