"""YAML as people paste it, read as far as it goes: Compose and Kubernetes files, whole or in part.

Block and flow maps and lists, plain, quoted, folded and literal scalars, comments, anchors, aliases and merge keys.
Every scalar is the text that it is written as (`8`, `0.90`, `true`), but for null. What a strict reader refuses (a
template's `{{ if }}`, a piece cut out of a file, a wrong indentation) is passed over, which is why no YAML library does
this. Text of any kind is read in time that grows with its length.
"""

from __future__ import annotations

import re
from itertools import accumulate
from typing import Final, TypeAlias

__all__ = ["Node", "documents"]

Node: TypeAlias = "str | list[Node] | dict[str, Node] | None"

_DEPTH: Final = 48
"""Levels that are followed; Kubernetes files have about twelve."""
_COLON: Final = re.compile(r":(?=\s|$)")
_QUOTED_KEY: Final = re.compile(r"""("[^"]*"|'[^']*')\s*:(?=\s|$)""")
_NO_KEY: Final = frozenset("-?:,[]{}#&*!|>'\"%@`")
"""What a plain key does not begin with."""
_BLOCK: Final = re.compile(r"([|>])([+-]?)(\d?)[+-]?(?:\s+#.*)?$")
_PROPERTY: Final = re.compile(r"(?:&([^\s,\[\]{}]+)|!\S*)(?:\s+|$)")
_ALIAS: Final = re.compile(r"\*([^\s,\[\]{}]+)")
_SINGLE: Final = re.compile(r"'((?:[^']|'')*+)'")
_DOUBLE: Final = re.compile(r'"((?:[^"\\]|\\.)*+)"', re.DOTALL)
_PLAIN: Final = re.compile(r"(?:[^,\[\]{}:\s]|:(?![\s,\[\]{}])|\s++(?!#|:\s))+")
"""A plain scalar inside of a flow collection."""
_BLANK: Final = re.compile(r"(?:\s|(?<=\s)#[^\n]*)*+")
_TEMPLATE: Final = re.compile(r"\s*\{\{.*\}\}\s*$")
_FOLD: Final = re.compile(r"[ \t]*\n[ \t]*")
_ESCAPE: Final = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|\n[ \t]*|(.))", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "a": "\a", "b": "\b", "e": "\x1b"}
_NULLS: Final = frozenset({"", "~", "null", "Null", "NULL"})


class _BrokenError(Exception):
    """A flow collection or a quote that does not close as it began."""


def documents(text: str) -> list[Node]:
    """The documents of `text`. An aliased node is the same object wherever it stands."""
    return _Reader(text).all()


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_item(content: str) -> bool:
    return content.startswith("- ") or content == "-"


def _key(content: str) -> tuple[str, int] | None:
    """(the key that a line begins with, where its value begins), or None where it begins with none."""
    if content[0] in "\"'":
        hit = _QUOTED_KEY.match(content)
        return (hit[1][1:-1], hit.end()) if hit else None
    if content[0] in _NO_KEY:
        return None
    hit = _COLON.search(content)
    if hit is None or " #" in content[: hit.start()]:
        return None
    return content[: hit.start()].rstrip(), hit.end()


def _scalar(text: str) -> str | None:
    """A plain scalar without its comment."""
    text = text if text[:1] == "#" else text.partition(" #")[0].strip()
    return None if text in _NULLS or text[0] == "#" else text


def _unescaped(text: str) -> str:
    def one(hit: re.Match[str]) -> str:
        if hit[1] or hit[2]:
            return chr(int(hit[1] or hit[2], 16))
        return "" if hit[3] is None else _ESCAPES.get(hit[3], hit[3])

    # a backslash at a line's end joins the lines, any other line's end is a blank
    return _ESCAPE.sub(one, re.sub(r"(?<!\\)[ \t]*\n[ \t]*", " ", text))


class _Reader:
    """Goes through the lines once; `_at` is the line that is next."""

    def __init__(self, text: str) -> None:
        self._written = text.split("\n")
        self._lines = ["" if _TEMPLATE.match(line) else line.replace("\t", " ") for line in self._written]
        self._text = text
        self._starts = list(accumulate((len(line) + 1 for line in self._written), initial=0))
        self._at = 0
        self._anchors: dict[str, Node] = {}
        self._broken = False
        """Whether some bracket or quote did not close: those that follow are then taken as text."""

    def all(self) -> list[Node]:
        out: list[Node] = []
        while self._next() is not None:
            before = self._at
            if self._lines[before].startswith(("---", "...")):
                self._at += 1
                continue
            out.append(self._node(-1, 0))
            self._at = max(self._at, before + 1)
        return out

    def _next(self) -> str | None:
        """The next line that is neither blank nor a comment; None at the end."""
        while self._at < len(self._lines):
            line = self._lines[self._at]
            content = line.lstrip()
            if content and content[0] != "#":
                return line
            self._at += 1
        return None

    def _node(self, parent: int, depth: int) -> Node:
        """The node that begins in the next line, below one with `parent` blanks before it."""
        line = self._lines[self._at]
        content = line.lstrip()
        if depth > _DEPTH:
            self._at += 1
            return None
        if _is_item(content):
            return self._list(_indent(line), depth)
        if _key(content) is not None:
            return self._map(_indent(line), depth)
        return self._value(_indent(line), parent, depth, in_map=False)

    def _list(self, indent: int, depth: int) -> list[Node]:
        out: list[Node] = []
        while (line := self._next()) is not None:
            own, content = _indent(line), line.lstrip()
            if own < indent or (own == indent and not _is_item(content)):
                break
            if own > indent:
                self._at += 1
                continue
            rest = content[1:].lstrip()
            column = len(line) - len(rest)
            if rest and (_is_item(rest) or _key(rest) is not None):
                self._lines[self._at] = " " * column + rest  # a map or list whose first entry stands behind the dash
                out.append(self._node(indent, depth + 1))
            else:
                out.append(self._value(column, indent, depth + 1, in_map=False))
        return out

    def _map(self, indent: int, depth: int) -> dict[str, Node]:
        out: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        while (line := self._next()) is not None:
            own, content = _indent(line), line.lstrip()
            if own < indent or (own == 0 and content.startswith(("---", "..."))):
                break
            found = _key(content) if own == indent else None
            if found is None:
                if own == indent and _is_item(content):
                    break
                self._at += 1
                continue
            name, end = found
            column = len(line) - len(content[end:].lstrip())
            value = self._value(column, indent, depth + 1, in_map=True)
            if name == "<<":
                for each in value if isinstance(value, list) else [value]:
                    if isinstance(each, dict):
                        merged = {**each, **merged}
            else:
                out[name] = value
        return {**merged, **out}

    def _value(self, column: int, parent: int, depth: int, *, in_map: bool) -> Node:
        """The node that begins at `column` of the next line; what belongs to it below is deeper than `parent`."""
        rest = self._lines[self._at][column:]
        anchor = None
        while (hit := _PROPERTY.match(rest)) is not None:
            anchor = hit[1] or anchor
            column += hit.end()
            rest = rest[hit.end() :]
        value = self._plain_or_nested(rest, column, parent, depth, in_map)
        if anchor is not None:
            self._anchors[anchor] = value
        return value

    def _plain_or_nested(self, rest: str, column: int, parent: int, depth: int, in_map: bool) -> Node:
        if not rest.strip() or rest[0] == "#":
            self._at += 1
            line = self._next()
            if line is None:
                return None
            own = _indent(line)
            below = own > parent or (in_map and own == parent and _is_item(line.lstrip()))
            return self._node(parent, depth + 1) if below else None
        block = _BLOCK.match(rest.rstrip())
        if block is not None:
            self._at += 1
            return self._block(block[1] == ">", int(block[3] or 0), parent)
        alias = _ALIAS.match(rest)
        if alias is not None and not _scalar(rest[alias.end() :] or "#"):
            self._at += 1
            return self._anchors.get(alias[1])
        if rest[0] in "\"'[{" and not rest.startswith("{{") and not self._broken:
            try:
                return self._closed(self._starts[self._at] + column, depth)
            except _BrokenError:
                pass
        return self._plain(rest, parent)

    def _closed(self, start: int, depth: int) -> Node:
        """A flow collection or a quoted scalar that begins at `start` of the text and may end lines below."""
        try:
            value, end = self._flow(start, depth)
        except _BrokenError:
            self._broken = True
            raise
        stop = self._text.find("\n", end)
        behind = self._text[end : stop if stop >= 0 else len(self._text)]
        if _scalar(" " + behind) is not None:
            self._broken = "\n" in self._text[start:end]
            raise _BrokenError
        while self._at < len(self._lines) and self._starts[self._at] < end:
            self._at += 1
        return value

    def _plain(self, rest: str, parent: int) -> str | None:
        """A plain scalar, which may go on in deeper lines."""
        first = _scalar(rest)
        self._at += 1
        parts = [first or ""]
        while self._at < len(self._lines):
            line = self._lines[self._at]
            content = line.strip()
            if content and (_indent(line) <= parent or content[0] == "#"):
                break
            self._at += 1
            if content:
                parts.append(_scalar(content) or "")
        return " ".join(part for part in parts if part) or None

    def _block(self, folded: bool, extra: int, parent: int) -> str:
        """A literal or folded scalar; `extra` is the indentation that its head states."""
        indent = max(parent, 0) + extra if extra else -1
        out: list[str] = []
        while self._at < len(self._lines):
            line = self._written[self._at]  # templates included
            if line.strip():
                own = _indent(line)
                indent = own if indent < 0 else indent
                if own <= parent or own < indent:
                    break
            out.append(line[indent:] if indent > 0 else line)
            self._at += 1
        lines = [line if line.strip() else "" for line in out]
        return (_folded(lines) if folded else "\n".join(lines)).strip("\n")

    def _flow(self, at: int, depth: int) -> tuple[Node, int]:
        """(the node that begins at `at`, where it ends)."""
        at = self._skip(at)
        anchor = None
        while (hit := _PROPERTY.match(self._text, at)) is not None:
            anchor, at = hit[1] or anchor, hit.end()
        value, at = self._flow_value(at, depth)
        if anchor is not None:
            self._anchors[anchor] = value
        return value, at

    def _flow_value(self, at: int, depth: int) -> tuple[Node, int]:
        char = self._text[at : at + 1]
        if not char or depth > _DEPTH:
            raise _BrokenError
        if char == "[":
            return self._flow_list(at + 1, depth + 1)
        if char == "{":
            return self._flow_map(at + 1, depth + 1)
        if char in "\"'":
            hit = (_DOUBLE if char == '"' else _SINGLE).match(self._text, at)
            if hit is None:
                raise _BrokenError
            inside = _unescaped(hit[1]) if char == '"' else _FOLD.sub(" ", hit[1]).replace("''", "'")
            return inside, hit.end()
        alias = _ALIAS.match(self._text, at)
        if alias is not None:
            return self._anchors.get(alias[1]), alias.end()
        hit = _PLAIN.match(self._text, at)
        if hit is None:
            raise _BrokenError
        text = _FOLD.sub(" ", hit[0]).strip()
        return None if text in _NULLS else text, hit.end()

    def _skip(self, at: int) -> int:
        hit = _BLANK.match(self._text, at)
        return at if hit is None else hit.end()

    def _flow_list(self, at: int, depth: int) -> tuple[list[Node], int]:
        out: list[Node] = []
        while True:
            at = self._skip(at)
            if self._text.startswith("]", at):
                return out, at + 1
            value, at = self._flow(at, depth)
            at = self._skip(at)
            if self._text.startswith(":", at):
                key = value if isinstance(value, str) else ""
                value, at = self._flow(at + 1, depth)
                value = {key: value}
            out.append(value)
            at = self._ended(at, "]")

    def _flow_map(self, at: int, depth: int) -> tuple[dict[str, Node], int]:
        out: dict[str, Node] = {}
        while True:
            at = self._skip(at)
            if self._text.startswith("}", at):
                return out, at + 1
            name, at = self._flow(at, depth)
            at = self._skip(at)
            value: Node = None
            if self._text.startswith(":", at):
                at = self._skip(at + 1)
                if self._text[at : at + 1] not in (",", "}"):
                    value, at = self._flow(at, depth)
            out[name if isinstance(name, str) else ""] = value
            at = self._ended(at, "}")

    def _ended(self, at: int, closing: str) -> int:
        """Behind the comma at `at`, or at the bracket that closes."""
        at = self._skip(at)
        if self._text.startswith(",", at):
            return at + 1
        if not self._text.startswith(closing, at):
            raise _BrokenError
        return at


def _folded(lines: list[str]) -> str:
    """Lines of a folded scalar: one line's end is a blank, but beside an empty or a deeper line."""
    out: list[str] = []
    for index, line in enumerate(lines):
        before = lines[index - 1] if index else ""
        deeper = line[:1] == " " or before[:1] == " "
        if index and line and before and not deeper:
            out.append(" ")
        elif index and (not line or deeper):
            out.append("\n")
        out.append(line)
    return "".join(out)
