"""The preprocessor, as far as reading needs it: conditions are judged, macros are kept and expanded on demand."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tilewright.libraries.cpp_source.tokens import NotRead, Token, match_bracket, tokenize

_MAX_CONDITION_DEPTH: Final = 40


@dataclass(frozen=True)
class Macro:
    """A macro; `params` is None for one without arguments."""

    name: str
    params: tuple[str, ...] | None
    body: tuple[Token, ...]
    file: str
    line: int


Include = Callable[[str, str], None]
"""Called with the name that a live `#include` asks for and the file that asks."""


class _Conditions:
    """The stack of `#if` branches: whether each is taken, and whether one of its branches was."""

    def __init__(self) -> None:
        self.stack: list[tuple[bool, bool]] = []
        self.live = True

    def enter(self, taken: bool) -> None:
        self.stack.append((taken, taken))
        self.live = self.live and taken

    def other(self, taken: bool) -> None:
        if self.stack:
            _, before = self.stack[-1]
            self.stack[-1] = (taken and not before, before or taken)
            self._update()

    def leave(self) -> None:
        if self.stack:
            self.stack.pop()
            self._update()

    def _update(self) -> None:
        self.live = all(taken for taken, _ in self.stack)


class Preprocessor:
    """State of one translation unit: the macros known so far. `include` is called at each live `#include`."""

    def __init__(self, defines: dict[str, str], include: Include | None = None) -> None:
        self.known = dict(defines)
        self.macros: dict[str, Macro] = {}
        self._include = include

    def process(self, text: str, file: str) -> list[Token]:
        """The tokens of `text` outside directives that survive its conditions."""
        tokens = tokenize(text, file)
        out: list[Token] = []
        conditions = _Conditions()
        index, total = 0, len(tokens)
        start_of_line = True
        while index < total:
            token = tokens[index]
            if token.kind == "line":
                start_of_line = True
            elif start_of_line and token.text == "#":
                end = index
                while end < total and tokens[end].kind != "line":
                    end += 1
                self._directive(tokens[index + 1 : end], conditions)
                index = end
                continue
            else:
                start_of_line = False
                if conditions.live:
                    out.append(token)
            index += 1
        return out

    def _directive(self, line: list[Token], conditions: _Conditions) -> None:
        if not line:
            return
        word, rest = line[0].text, line[1:]
        if word == "ifdef" or word == "ifndef":
            conditions.enter(bool(rest) and (rest[0].text in self.known) is (word == "ifdef"))
        elif word == "if":
            conditions.enter(conditions.live and _judge(rest, self.known))
        elif word == "elif":
            conditions.other(_judge(rest, self.known))
        elif word == "else":
            conditions.other(True)
        elif word == "endif":
            conditions.leave()
        elif not conditions.live or not rest:
            return
        elif word == "define":
            macro = _macro(rest)
            self.macros[macro.name] = macro
            self.known[macro.name] = " ".join(token.text for token in macro.body) if macro.params is None else ""
        elif word == "undef":
            self.known.pop(rest[0].text, None)
        elif word == "include" and self._include is not None:
            self._include("".join(token.text for token in rest).strip('<>"'), line[0].file)


def _macro(rest: list[Token]) -> Macro:
    name = rest[0]
    params: tuple[str, ...] | None = None
    body = rest[1:]
    # A parameter list touches the name; the lexer drops spaces, so a body that starts with "(" is taken for one only
    # when it is a list of plain names.
    if body and body[0].text == "(":
        try:
            close = match_bracket(body, 0)
        except NotRead:
            close = -1
        names = [token.text for token in body[1:close] if token.text != ","] if close > 0 else ["("]
        if all(item.isidentifier() or item == "..." for item in names):
            params, body = tuple(names), body[close + 1 :]
    return Macro(name.text, params, tuple(body), name.file, name.line)


def _number(text: str) -> int | None:
    digits = text.replace("'", "").rstrip("uUlL")
    try:
        return int(digits, 0) if len(digits) < 40 else None
    except ValueError:
        return int(digits, 8) if digits.isdigit() and all(char in "01234567" for char in digits) else None


class _Condition:
    """Evaluates the expression of an `#if`. Undefined names are 0, as the standard has it."""

    def __init__(self, tokens: list[Token], known: dict[str, str]) -> None:
        self.tokens, self.known, self.at, self.depth = tokens, known, 0, 0

    def peek(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def take(self) -> str:
        text = self.peek()
        self.at += 1
        return text

    def value(self, level: int = 0) -> int:
        self.depth += 1
        if self.depth > _MAX_CONDITION_DEPTH * 10:
            raise NotRead("a condition that is nested too deeply")
        levels = (("||",), ("&&",), ("==", "!="), ("<", ">", "<=", ">="), ("+", "-"), ("*", "/", "%"))
        if level == len(levels):
            return self.unary()
        left = self.value(level + 1)
        while self.peek() in levels[level]:
            left = _apply(self.take(), left, self.value(level + 1))
        self.depth -= 1
        return left

    def unary(self) -> int:
        text = self.take()
        if text == "!":
            return int(not self.unary())
        if text == "-":
            return -self.unary()
        if text == "(":
            inner = self.value()
            if self.take() != ")":
                raise NotRead("a condition with an open bracket")
            return inner
        if text == "defined":
            bracket = self.peek() == "("
            if bracket:
                self.take()
            name = self.take()
            if bracket:
                self.take()
            return int(name in self.known)
        number = _number(text)
        if number is not None:
            return number
        if text.isidentifier():
            if self.peek() == "(":
                self.at = match_bracket(self.tokens, self.at) + 1
                return 0
            return _number(self.known.get(text, "0").strip() or "0") or 0
        raise NotRead(f"a condition with {text!r}")


def _apply(op: str, left: int, right: int) -> int:
    if op in ("/", "%"):
        if right == 0:
            raise NotRead("a condition that divides by zero")
        return left // right if op == "/" else left % right
    results = {
        "||": bool(left or right), "&&": bool(left and right), "==": left == right, "!=": left != right,
        "<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right,
        "+": left + right, "-": left - right, "*": left * right,
    }  # fmt: skip
    return int(results[op])


def _judge(tokens: list[Token], known: dict[str, str]) -> bool:
    """Whether an `#if` is taken; a condition that is not understood is not."""
    try:
        return bool(_Condition(tokens, known).value())
    except (NotRead, RecursionError):
        return False


def arguments(tokens: list[Token], opening: int) -> tuple[list[list[Token]], int]:
    """The macro arguments in the brackets at `opening`, and the index behind them. Commas in `<>` separate, as they do
    for the preprocessor."""
    close = match_bracket(tokens, opening)
    out: list[list[Token]] = [[]]
    index = opening + 1
    while index < close:
        token = tokens[index]
        if token.text in "([{" and token.kind == "symbol":
            end = match_bracket(tokens, index, close)
            out[-1].extend(tokens[index : end + 1])
            index = end + 1
            continue
        if token.text == ",":
            out.append([])
        else:
            out[-1].append(token)
        index += 1
    return (out if len(out) > 1 or out[0] else []), close + 1


@dataclass(frozen=True)
class MacroBody:
    """A macro's body with its parameters left in place. What `##` pastes is one name, whose parts are in `pasted`."""

    tokens: list[Token]
    pasted: dict[str, tuple[str, ...]]

    def text(self, name: str, args: dict[str, list[Token]]) -> str:
        """The pasted `name` under the arguments `args`; a name that nothing pasted stays as it is."""
        return "".join(
            "".join(token.text for token in args[part]) if part in args else part
            for part in self.pasted.get(name, (name,))
        )


def macro_body(macro: Macro) -> MacroBody:
    """The body of `macro`, each chain of `a##b##c` made one name."""
    out: list[Token] = []
    pasted: dict[str, tuple[str, ...]] = {}
    parts: list[str] = []
    paste = False
    for token in macro.body:
        if token.text == "##":
            paste = bool(out)
            continue
        if paste:
            last = out.pop()
            parts = [*parts, token.text] if last.text in pasted and parts else [last.text, token.text]
            name = "pasted_" + "_".join(part for part in parts if part.isidentifier())
            pasted[name] = tuple(parts)
            out.append(Token("name", name, last.file, last.line))
        else:
            parts = []
            out.append(token)
        paste = False
    return MacroBody(out, pasted)


def bind_arguments(macro: Macro, args: list[list[Token]]) -> dict[str, list[Token]]:
    """Arguments by parameter name.

    Raises:
        NotRead: their number does not fit.
    """
    params = macro.params or ()
    if params and params[-1] == "...":
        fixed = len(params) - 1
        rest: list[Token] = []
        for piece in args[fixed:]:
            rest = [*rest, Token("symbol", ",", macro.file, macro.line), *piece] if rest else list(piece)
        return dict(zip(params[:-1], args[:fixed], strict=False)) | {"__VA_ARGS__": rest}
    if len(args) != len(params):
        raise NotRead(f"{macro.name} takes {len(params)} arguments and gets {len(args)}", macro.file, macro.line)
    return dict(zip(params, args, strict=True))
