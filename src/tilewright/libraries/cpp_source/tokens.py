"""Tokens of C++ with their file and line, preprocessor lines included."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tilewright.libraries.placed import PlacedFinding

MAX_SOURCE: Final = 4 << 20
"""Largest source that is tokenised, in characters; FlashInfer's largest launcher has 0.3 MB."""


class NotRead(PlacedFinding):
    """A construct that is not understood, with its place."""


class Token(NamedTuple):
    """One token. `kind`: name, number, text (a literal), symbol, or line (the end of a line)."""

    kind: str
    text: str
    file: str
    line: int


_TOKEN: Final = re.compile(
    r"""(?P<space>(?:[ \t\f\v]+|\\\r?\n)+)
    |(?P<comment>//(?:[^\n\\]|\\\r?\n|\\)*|/\*[\s\S]*?(?:\*/|\Z))
    |(?P<line>\r?\n)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>\.?\d(?:'?[\w.])*)
    |(?P<text>"(?:[^"\\\n]|\\[\s\S])*"?|'(?:[^'\\\n]|\\[\s\S])*'?)
    |(?P<symbol>::|->|&&|\|\||==|!=|<=|>=|\#\#|\.\.\.|\+\+|--|[\s\S])""",
    re.VERBOSE,
)


def tokenize(text: str, file: str) -> list[Token]:
    """The tokens of `text`. Comments vanish; `>>` is two tokens, as template lists need it.

    Raises:
        NotRead: the source is too large to be one.
    """
    if len(text) > MAX_SOURCE:
        raise NotRead("a source of more than 4 MiB", file, 1)
    out: list[Token] = []
    line = 1
    append = out.append
    for match in _TOKEN.finditer(text):
        kind = match.lastgroup or "symbol"
        piece = match[0]
        if kind == "space" or kind == "comment":
            line += piece.count("\n")
            continue
        append(Token(kind, piece, file, line))
        if kind == "line" or kind == "text":
            line += piece.count("\n")
    return out


_OPEN: Final = {"(": ")", "[": "]", "{": "}"}


def match_bracket(tokens: list[Token], start: int, end: int | None = None) -> int:
    """Index of the bracket that closes the one at `start`; a NotRead when none does."""
    stack: list[str] = []
    stop = len(tokens) if end is None else end
    for index in range(start, stop):
        text = tokens[index].text
        if text in _OPEN and tokens[index].kind == "symbol":
            stack.append(_OPEN[text])
        elif stack and text == stack[-1]:
            stack.pop()
            if not stack:
                return index
    raise NotRead(f"a {tokens[start].text} that nothing closes", tokens[start].file, tokens[start].line)


_STOPS_ANGLE: Final = frozenset({";", "&&", "||", "{"})


def match_angle(tokens: list[Token], start: int, end: int) -> int | None:
    """Index of the `>` that closes the `<` at `start`, or None where that is a less-than sign.

    `{}` inside (as in `size<0>(Shape{})`) belongs to the list; a semicolon, a bare `&&` or `||` ends the attempt unless
    it stands in parentheses or a nested list whose own end is found.
    """
    depth = 0
    index = start
    while index < end:
        token = tokens[index]
        text = token.text
        if token.kind == "symbol":
            if text in ("(", "[", "{"):
                try:
                    index = match_bracket(tokens, index, end)
                except NotRead:
                    return None
            elif text == "<":
                # A less-than sign follows a number or a closing bracket, a template list a name.
                if index == start or tokens[index - 1].kind == "name":
                    depth += 1
            elif text == ">":
                depth -= 1
                if depth == 0:
                    return index
            elif text in ")]};":
                return None
            elif text in ("&&", "||"):  # noqa: SIM102
                if depth == 1 and not _conditional(tokens, start):
                    return None
        index += 1
    return None


def _conditional(tokens: list[Token], start: int) -> bool:
    """Whether the list at `start` belongs to a template that takes conditions (`conditional_t`, `enable_if_t`, ...)."""
    name = tokens[start - 1].text if start else ""
    return "conditional" in name or "enable_if" in name or "bool_constant" in name


def split_commas(tokens: list[Token], start: int, end: int) -> list[tuple[int, int]]:
    """The ranges between the top-level commas of `tokens[start:end]`; an empty range answers no pieces."""
    pieces: list[tuple[int, int]] = []
    index = begin = start
    while index < end:
        token = tokens[index]
        if token.kind == "symbol":
            if token.text in _OPEN:
                index = match_bracket(tokens, index, end)
            elif token.text == "<" and index > start and tokens[index - 1].kind == "name":
                close = match_angle(tokens, index, end)
                index = close if close is not None else index
            elif token.text == ",":
                pieces.append((begin, index))
                begin = index + 1
        index += 1
    if begin < end or pieces:
        pieces.append((begin, end))
    return pieces


def shown(tokens: list[Token], limit: int = 120) -> str:
    """Tokens as text for a message."""
    text = " ".join(token.text for token in tokens)
    text = re.sub(r" ?(::|<|>|,|\(|\)) ?", r"\1", text)
    return text if len(text) <= limit else text[: limit - 3] + "..."
