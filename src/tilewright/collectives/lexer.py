"""A lexer for C++ headers: comments, strings, preprocessor lines, brackets (template angles included).

Not a C++ front end. It serves CUTLASS's own style: declarations, template argument lists and constant expressions.
Every step is linear in the size of its input, whatever the input is, and none ever fails: what makes no sense is lexed
as single characters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

__all__ = ["Source", "Tokens", "tokenize"]

# Every alternative that can run to the end of the text accepts the end as well, so that a failed match never makes the
# scan start over: that is what keeps 1 MB of "/*" or of quotes linear.
_COMMENT: Final = re.compile(
    r"""//(?:[^\n\\]|\\[\s\S]|\\\Z)*|/\*[\s\S]*?(?:\*/|\Z)"""
    r"""|(?P<keep>"(?:[^"\\\n]|\\[\s\S]|\\\Z)*(?:"|(?=\n)|\Z)|'(?:[^'\\\n]|\\[^\n]{1,8})')"""
)
_PREPROCESSOR: Final = re.compile(r"^[ \t]*#(?:[^\n\\]|\\[\s\S]|\\\Z)*", re.M)
_STRING: Final = re.compile(r"""["](?:[^"\\\n]|\\[\s\S]|\\\Z)*(?:["]|(?=\n)|\Z)|'(?:[^'\\\n]|\\[^\n]{1,8})'""")
_DISABLED: Final = re.compile(r"^[ \t]*#[ \t]*(?:(if)(?:(n?def)\b|[ \t]+(0)[ \t]*$|\b)|(else)|(elif)|(endif)\b)", re.M)
_TOKEN: Final = re.compile(
    r"""\s*(?:([A-Za-z_]\w*)|(\d[\w.']*)|("(?:[^"\\\n]|\\[\s\S]|\\\Z)*"?)|(::|&&|\|\||->|==|!=|<=|>=|\S)|\Z)"""
)


def _blank(match: re.Match[str]) -> str:
    """What a comment becomes: a space, and as many line ends as it had."""
    if match.lastgroup == "keep":
        return match[0]
    lines = match[0].count("\n")
    return "\n" * lines if lines else " "


def _newlines(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _same_length(match: re.Match[str]) -> str:
    inside = "".join("\n" if char == "\n" else " " for char in match[0][1:-1])
    return match[0][0] + inside + match[0][-1:] if len(match[0]) > 1 else match[0]


def _drop_if_zero(text: str) -> str:
    """`text` without the branches of `#if 0`. Other conditions are not judged: all their branches stay."""
    if not re.search(r"^[ \t]*#[ \t]*if[ \t]+0[ \t]*$", text, re.M):
        return text
    pieces: list[str] = []
    stack: list[bool] = []
    dead = 0
    start = 0
    dead_from = -1
    for match in _DISABLED.finditer(text):
        opened, _, zero, other, elif_, closed = match.groups()
        if opened:
            stack.append(bool(zero))
            dead += bool(zero)
            if zero and dead_from < 0:
                dead_from = match.end()
                pieces.append(text[start:dead_from])
        elif stack and (other or elif_ or closed):
            dead -= stack[-1]
            if closed:
                stack.pop()
            else:
                stack[-1] = False
            if dead == 0 and dead_from >= 0:
                pieces.append("\n" * text.count("\n", dead_from, match.start()))
                start, dead_from = match.start(), -1
    if dead_from >= 0:
        return "".join(pieces) + "\n" * text.count("\n", dead_from)
    return "".join(pieces) + text[start:]


class Source:
    """One header: its text without comments and preprocessor lines, line numbers kept."""

    def __init__(self, path: str, text: str) -> None:
        self.path = path
        without_comments = _COMMENT.sub(_blank, text)
        if "#" in without_comments:
            without_comments = _PREPROCESSOR.sub(_newlines, _drop_if_zero(without_comments))
        self.text = without_comments
        """Without comments and preprocessor lines; strings as they are."""
        self._counted = 0, 1

    @cached_property
    def masked(self) -> str:
        """`text` with what is inside strings blanked, at the same length: brackets in it are brackets."""
        return _STRING.sub(_same_length, self.text)

    def line_at(self, position: int) -> int:
        """Line number, from 1, of a position in `text`."""
        text = self.text
        at, line = self._counted
        line += text.count("\n", at, position) if position >= at else -text.count("\n", position, at)
        self._counted = position, line
        return line


@dataclass(frozen=True, eq=False)
class Tokens:
    """Tokens of one source: their texts, start positions, and for every bracket the index of its partner.

    `partner[i]` is the index of the token that closes (or opens) what token i opens (or closes); -1 for any other
    token and for a bracket that has none. `<` and `>` are brackets where they hold template arguments.
    """

    source: Source
    texts: list[str]
    starts: list[int]
    partner: list[int]

    def line(self, index: int) -> int:
        """Line number of token `index`."""
        return self.source.line_at(self.starts[index]) if self.starts else 1

    def __len__(self) -> int:
        return len(self.texts)

    def text(self, start: int, end: int) -> str:
        """Tokens `start` to `end` as one line, spaced as C++ is usually written."""
        return join(self.texts[start:end])


_TIGHT_BEFORE: Final = frozenset(",;)]>}(<:[") | {"::", "{"}
_TIGHT_AFTER: Final = frozenset("(<[!~{") | {"::"}


def join(texts: list[str]) -> str:
    """Tokens as one line: words apart, brackets tight."""
    out: list[str] = []
    before = ""
    for text in texts:
        words = before[-1:].isalnum() and text[:1].isalnum()
        if out and (words or (text not in _TIGHT_BEFORE and before not in _TIGHT_AFTER)):
            out.append(" ")
        out.append(text)
        before = text
    return "".join(out)


def tokenize(source: Source, start: int = 0, end: int | None = None) -> Tokens:
    """Tokens of `source.text[start:end]`."""
    text = source.text
    stop = len(text) if end is None else end
    texts: list[str] = []
    starts: list[int] = []
    add_text, add_start = texts.append, starts.append
    for match in _TOKEN.finditer(text, start, stop):
        which = match.lastindex
        if which is not None:
            add_text(match[which])
            add_start(match.start(which))
    return Tokens(source, texts, starts, _match_brackets(text, texts, starts))


def _match_brackets(text: str, texts: list[str], starts: list[int]) -> list[int]:
    """Partners of all brackets.

    A `<` opens template arguments after a word (or `template`) unless it stands between blanks, as a comparison does.
    One that is still open when an enclosing bracket closes, or at `;`, was a comparison after all.
    """
    partner = [-1] * len(texts)
    stack: list[int] = []
    closers = {")": "(", "]": "[", "}": "{"}
    for i, token in enumerate(texts):
        if token in ("(", "[", "{"):
            stack.append(i)
        elif token == "<":
            before = texts[i - 1] if i else ""
            if before[-1:].isalnum() or before[-1:] == "_":
                at = starts[i]
                spaced = at > 0 and text[at - 1].isspace() and text[at + 1 : at + 2].isspace()
                if before == "template" or not spaced:
                    stack.append(i)
        elif token == ">":
            if stack and texts[stack[-1]] == "<":
                opener = stack.pop()
                partner[i], partner[opener] = opener, i
        elif token in closers:
            wanted = closers[token]
            while stack and texts[stack[-1]] == "<":
                stack.pop()
            if stack and texts[stack[-1]] == wanted:
                opener = stack.pop()
                partner[i], partner[opener] = opener, i
        elif token == ";":
            while stack and texts[stack[-1]] == "<":
                stack.pop()
    return partner
