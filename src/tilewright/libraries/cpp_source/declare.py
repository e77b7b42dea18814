"""Declarations and statements in a list of tokens: names, template parameters and the tokens that define them.

Only what types depend on is kept: aliases, constants, structs, functions (their bodies unparsed), `if constexpr`
branches and returns. Everything else is stepped over with its brackets balanced.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from tilewright.libraries.cpp_source.heads import Param, struct_head, template_params
from tilewright.libraries.cpp_source.tokens import NotRead, Token, match_angle, match_bracket

MAX_DECLARATIONS: Final = 200_000


@dataclass(eq=False)
class Decl:
    """One declaration or statement.

    `kind` is alias, value, struct, function, enum, using, branch, return, block, instantiation or statement. `tokens`
    is what defines it: the aliased type, the initialiser, the body, the condition (branch). `spec` is the argument list
    an explicit or partial specialisation.
    """

    kind: str
    name: str
    path: tuple[str, ...]
    tokens: list[Token]
    file: str
    line: int
    params: tuple[Param, ...] | None = None
    spec: list[Token] | None = None
    bases: list[Token] = field(default_factory=list[Token])
    then: list[Token] = field(default_factory=list[Token])
    other: list[Token] = field(default_factory=list[Token])
    inner: list[Decl] | None = None
    """Declarations inside a struct or namespace body, once parsed."""
    branches: tuple[list[Decl], list[Decl]] | None = None
    """Statements of the two branches of an `if`, once parsed."""

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"

    def branch_bodies(self) -> tuple[list[Decl], list[Decl]]:
        """The statements of the taken and of the other branch of an `if`."""
        if self.branches is None:
            self.branches = parse(self.then, self.path), parse(self.other, self.path)
        return self.branches

    def body(self) -> list[Decl]:
        """The declarations in the body of a struct or function."""
        if self.inner is None:
            self.inner = parse(self.tokens, (*self.path, self.name) if self.name else self.path)
        return self.inner


_TAGS: Final = frozenset({"struct", "class", "union"})


class _Parser:
    def __init__(self, tokens: list[Token], path: tuple[str, ...]) -> None:
        self.tokens, self.path, self.at = tokens, path, 0
        self.out: list[Decl] = []

    def text(self, offset: int = 0) -> str:
        index = self.at + offset
        return self.tokens[index].text if index < len(self.tokens) else ""

    def run(self) -> list[Decl]:
        while self.at < len(self.tokens):
            before = self.at
            self.declaration(None)
            if self.at <= before:
                self.at = before + 1
            if len(self.out) > MAX_DECLARATIONS:
                raise NotRead("more declarations than any library has", self.tokens[0].file, 1)
        return self.out

    def add(self, kind: str, name: str, tokens: list[Token], at: Token, **more: object) -> Decl:
        decl = Decl(kind, name, self.path, tokens, at.file, at.line)
        for key, value in more.items():
            setattr(decl, key, value)
        self.out.append(decl)
        return decl

    def skip_to_semicolon(self) -> tuple[int, int]:
        """Step behind the next `;` outside brackets; the range stepped over. A `{}` body without `;` ends it too."""
        start = self.at
        tokens = self.tokens
        while self.at < len(tokens):
            text = tokens[self.at].text
            if tokens[self.at].kind == "symbol":
                if text in "([{":
                    close = match_bracket(tokens, self.at)
                    self.at = close
                elif text == ";":
                    self.at += 1
                    return start, self.at - 1
                elif text == "}":
                    return start, self.at
            self.at += 1
        return start, self.at

    def declaration(self, params: tuple[Param, ...] | None) -> None:
        token = self.tokens[self.at]
        text = token.text
        if text in (";", "}") or (text in ("public", "private", "protected") and self.text(1) == ":"):
            self.at += 2 if text[0] == "p" else 1
        elif text == "namespace" or (text == "inline" and self.text(1) == "namespace"):
            self.namespace()
        elif text == "extern" and self.text(1).startswith('"') and self.text(2) == "{":
            self.at += 3
        elif text == "template":
            self.template()
        elif text == "using":
            self.using(params)
        elif text == "typedef":
            start, end = self.skip_to_semicolon()
            if end - start > 2 and self.tokens[end - 1].kind == "name":
                self.add("alias", self.tokens[end - 1].text, self.tokens[start + 1 : end - 1], token, params=params)
        elif text == "enum":
            self.enum(token)
        elif text in _TAGS and self.struct(params):
            pass
        elif text == "if":
            self.branch(token)
        elif text == "return":
            start, end = self.skip_to_semicolon()
            self.add("return", "", self.tokens[start + 1 : end], token)
        elif text == "{":
            close = match_bracket(self.tokens, self.at)
            self.add("block", "", self.tokens[self.at + 1 : close], token)
            self.at = close + 1
        else:
            self.value_or_function(token, params)

    def namespace(self) -> None:
        if self.text() == "inline":
            self.at += 1
        self.at += 1
        names: list[str] = []
        while self.at < len(self.tokens) and self.text() not in ("{", "=", ";"):
            if self.tokens[self.at].kind == "name" and self.text() != "inline":
                names.append(self.text())
            self.at += 1
        if self.text() != "{":
            self.skip_to_semicolon()
            return
        close = match_bracket(self.tokens, self.at)
        inner = _Parser(self.tokens[self.at + 1 : close], (*self.path, *names))
        self.out.extend(inner.run())
        self.at = close + 1

    def template(self) -> None:
        token = self.tokens[self.at]
        if self.text(1) != "<":
            # An explicit instantiation: template void f<...>(...);
            self.at += 1
            start, end = self.skip_to_semicolon()
            self.add("instantiation", "", self.tokens[start:end], token)
            return
        close = match_angle(self.tokens, self.at + 1, len(self.tokens))
        if close is None:
            raise NotRead("a template parameter list that does not end", token.file, token.line)
        params = template_params(self.tokens, self.at + 2, close)
        self.at = close + 1
        while self.text() == "template" and self.text(1) == "<":  # a member template defined outside its class
            close = match_angle(self.tokens, self.at + 1, len(self.tokens))
            if close is None:
                return
            self.at = close + 1
        if self.text() == "requires":
            self.skip_to_semicolon()
            return
        if self.at < len(self.tokens):
            self.declaration(params)

    def using(self, params: tuple[Param, ...] | None) -> None:
        token = self.tokens[self.at]
        start, end = self.skip_to_semicolon()
        piece = self.tokens[start + 1 : end]
        if piece and piece[0].text == "namespace":
            self.add("using", "namespace", piece[1:], token)
        elif len(piece) > 2 and piece[1].text == "=":
            self.add("alias", piece[0].text, piece[2:], piece[0], params=params)
        elif piece and piece[-1].kind == "name":
            self.add("using", piece[-1].text, piece, token)

    def enum(self, token: Token) -> None:
        self.at += 1
        if self.text() in _TAGS:
            self.at += 1
        name = self.text() if self.at < len(self.tokens) and self.tokens[self.at].kind == "name" else ""
        while self.at < len(self.tokens) and self.text() not in ("{", ";"):
            self.at += 1
        body: list[Token] = []
        if self.text() == "{":
            close = match_bracket(self.tokens, self.at)
            body = self.tokens[self.at + 1 : close]
            self.at = close
        self.skip_to_semicolon()
        self.add("enum", name, body, token)

    def struct(self, params: tuple[Param, ...] | None) -> bool:
        """A struct or class with or without a body; False where `struct` only starts a type."""
        tokens = self.tokens
        head = struct_head(tokens, self.at)
        if head is None:
            return False
        if self.tokens[head.end].text == "{":
            close = match_bracket(tokens, head.end)
            body, name = tokens[head.end + 1 : close], head.name
            self.add("struct", name.text, body, name, params=params, spec=head.spec, bases=head.bases)
            self.at = close + 1
            if self.text() != ";":
                self.skip_to_semicolon()
        else:
            self.at = head.end + 1
        return True

    def branch(self, token: Token) -> None:
        index = self.at + 1
        if self.text(1) == "constexpr":
            index += 1
        if index >= len(self.tokens) or self.tokens[index].text != "(":
            self.at += 1
            return
        close = match_bracket(self.tokens, index)
        condition = self.tokens[index + 1 : close]
        self.at = close + 1
        then = self.controlled()
        other: list[Token] = []
        if self.text() == "else":
            self.at += 1
            other = self.controlled()
        self.add("branch", "constexpr" if self.tokens[index - 1].text == "constexpr" else "", condition, token,
                 then=then, other=other)  # fmt: skip

    def controlled(self) -> list[Token]:
        """The statement or block that a condition controls, without its braces."""
        tokens = self.tokens
        if self.at >= len(tokens):
            return []
        if self.text() == "{":
            close = match_bracket(tokens, self.at)
            body = tokens[self.at + 1 : close]
            self.at = close + 1
            return body
        start = self.at
        if self.text() == "if":
            nested = _Parser(tokens[start:], self.path)
            nested.branch(tokens[start])
            self.at = start + nested.at
            return tokens[start : self.at]
        self.skip_to_semicolon()
        return tokens[start : self.at]

    def value_or_function(self, token: Token, params: tuple[Param, ...] | None) -> None:
        """`constexpr int x = 3;`, `template <...> bool f() { ... }`, or something to step over."""
        tokens = self.tokens
        start = index = self.at
        constant = False
        paren: int | None = None
        while index < len(tokens):
            text, kind = tokens[index].text, tokens[index].kind
            if text in ("constexpr", "const"):
                constant = True
            if kind == "symbol":
                if text == "<" and index > start and tokens[index - 1].kind == "name":
                    close = match_angle(tokens, index, len(tokens))
                    index = close if close is not None else index
                elif text == "(":
                    if paren is None and index > start:
                        paren = index
                    index = match_bracket(tokens, index)
                elif text == "[":
                    index = match_bracket(tokens, index)
                elif text == "=":
                    self.at = index
                    begin, end = self.skip_to_semicolon()
                    if constant and paren is None and tokens[index - 1].kind == "name":
                        self.add("value", tokens[index - 1].text, tokens[begin + 1 : end], tokens[index - 1],
                                 params=params)  # fmt: skip
                    else:
                        self.add("statement", "", tokens[start:end], token)
                    return
                elif text == "{":
                    close = match_bracket(tokens, index)
                    self.function_or_brace(token, params, start, index, close, paren, constant)
                    return
                elif text == ";":
                    self.at = index + 1
                    self.add("statement", "", tokens[start:index], token)
                    return
                elif text == "}":
                    self.at = index
                    return
                elif text == ":" and paren is not None:  # a constructor's initialisers
                    while index + 1 < len(tokens) and tokens[index + 1].text != "{":
                        index += 1
                        if tokens[index].text == "(":
                            index = match_bracket(tokens, index)
                        elif tokens[index].text == ";":
                            break
            index += 1
        self.at = index

    def function_or_brace(
        self,
        token: Token,
        params: tuple[Param, ...] | None,
        start: int,
        opening: int,
        close: int,
        paren: int | None,
        constant: bool,
    ) -> None:
        tokens = self.tokens
        self.at = close + 1
        if paren is None:
            name = tokens[opening - 1] if opening > start else token
            if constant and name.kind == "name":
                self.add("value", name.text, tokens[opening + 1 : close], name, params=params)
            else:
                self.add("statement", "", tokens[start:close], token)
            self.skip_to_semicolon()
            return
        name_at = paren - 1
        if tokens[name_at].text == ">":
            depth = 0
            while name_at > start:
                depth += {">": 1, "<": -1}.get(tokens[name_at].text, 0)
                name_at -= 1
                if depth == 0:
                    break
        name = tokens[name_at]
        if name.kind == "name" and name.text not in ("for", "while", "switch", "catch", "do", "try"):
            self.add("function", name.text, tokens[opening + 1 : close], name, params=params)
            if self.text() == ";":
                self.at += 1
            return
        self.add("block", name.text, tokens[opening + 1 : close], name)


def parse(tokens: list[Token], path: tuple[str, ...] = ()) -> list[Decl]:
    """The declarations and statements of `tokens`, those of nested namespaces included (with their path).

    Raises:
        NotRead: brackets do not match.
    """
    try:
        return _Parser(tokens, path).run()
    except RecursionError:
        raise NotRead("declarations that nest too deeply", tokens[0].file, tokens[0].line) from None


__all__ = ["Decl", "parse"]
