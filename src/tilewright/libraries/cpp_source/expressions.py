"""Reading one type or constant expression from left to right; `resolve.Resolver` knows what its names mean."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from tilewright.libraries.cpp_source.declare import Decl
from tilewright.libraries.cpp_source.tokens import NotRead, Token, match_angle, match_bracket, split_commas
from tilewright.libraries.cpp_source.types import CUTE, EXTERNAL, PLAIN, SAME_AS, Env, Type

if TYPE_CHECKING:
    from tilewright.libraries.cpp_source.resolve import Resolver

SKIPPED: Final = frozenset({"typename", "const", "volatile", "struct", "class", "template", "constexpr"})
"""Words that stand before a type without changing it for us."""
_STATIC: Final = re.compile(r"_(\d{1,6})")
_CONVERSIONS: Final = frozenset({"static_cast", "reinterpret_cast", "const_cast"})
_LEVELS: Final[tuple[tuple[str, ...], ...]] = (
    ("||",), ("&&",), ("|",), ("^",), ("==", "!="), ("<", ">", "<=", ">="), ("+", "-"), ("*", "/", "%"),
)  # fmt: skip
_PRECEDENCE: Final = {op: level for level, ops in enumerate(_LEVELS) for op in ops}
_IDENTITY: Final = frozenset({
    "remove_cv_t", "remove_const_t", "remove_cvref_t", "remove_reference_t", "decay_t", "type_identity_t",
})  # fmt: skip


class Reader:
    """One expression, read from left to right."""

    def __init__(self, resolver: Resolver, tokens: list[Token], env: Env) -> None:
        self.resolver, self.tokens, self.env, self.at = resolver, tokens, env, 0

    def peek(self) -> str:
        return self.tokens[self.at].text if self.at < len(self.tokens) else ""

    def fail(self, why: str) -> NotRead:
        place = self.tokens[min(self.at, len(self.tokens) - 1)] if self.tokens else None
        return NotRead(why, place.file if place else "", place.line if place else 0)

    def ternary(self) -> Type | int:
        condition = self.binary(0)
        if self.peek() != "?":
            return condition
        if not isinstance(condition, int):
            raise self.fail("a condition that is not decided")
        self.at += 1
        start, depth = self.at, 0
        index = start
        while index < len(self.tokens):
            text = self.tokens[index].text
            if text in "([{" and self.tokens[index].kind == "symbol":
                index = match_bracket(self.tokens, index)
            elif text == "?":
                depth += 1
            elif text == ":":
                if depth == 0:
                    break
                depth -= 1
            index += 1
        else:
            raise self.fail("a ? without a :")
        left, right = self.tokens[start:index], self.tokens[index + 1 :]
        self.at = len(self.tokens)
        return self.resolver.evaluate(left if condition else right, self.env)

    def binary(self, level: int) -> Type | int:
        """Operators that bind at least as tightly as `level`, by precedence climbing."""
        left = self.unary()
        while self.at < len(self.tokens):
            op = self.tokens[self.at].text
            here = _PRECEDENCE.get(op, -1)
            if here < level or (op == "*" and self._pointer_here()):
                break
            self.at += 1
            if op in ("&&", "||") and isinstance(left, int) and bool(left) is (op == "||"):
                self._skip_operand(here)
                left = int(op == "||")
                continue
            left = self.apply(op, left, self.binary(here + 1))
        return left

    def _pointer_here(self) -> bool:
        after = self.tokens[self.at + 1].text if self.at + 1 < len(self.tokens) else ""
        return after in ("", "*", "&", ",", ">", ")", "const")

    def _skip_operand(self, level: int) -> None:
        """Step over the right side of a decided && or ||: up to an operator that binds less tightly."""
        stops = {op for ops in _LEVELS[: level + 1] for op in ops} | {"?", ":"}
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            if token.kind == "symbol":
                if token.text in "([{":
                    self.at = match_bracket(self.tokens, self.at)
                elif token.text == "<" and self.tokens[self.at - 1].kind == "name":
                    close = match_angle(self.tokens, self.at, len(self.tokens))
                    self.at = close if close is not None else self.at
                elif token.text in stops:
                    return
            self.at += 1

    def apply(self, op: str, left: Type | int, right: Type | int) -> Type | int:
        if op in ("==", "!="):
            same = left == right
            if isinstance(left, Type) and isinstance(right, Type) and left.name == right.name:
                same = True
            return int(same is (op == "=="))
        if op in "+-*" and any(isinstance(side, Type) and side.name in ("sizeof", "sum") for side in (left, right)):
            return Type("sum", (left, right), at=self.tokens[self.at - 1])  # bytes that only a compiler knows
        if not isinstance(left, int) or not isinstance(right, int):
            raise self.fail(f"{op} between {left} and {right}")
        if op in ("/", "%"):
            if right == 0:
                raise self.fail("a division by zero")
            quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
            return quotient if op == "/" else left - quotient * right
        results = {
            "||": bool(left or right), "&&": bool(left and right), "|": left | right, "^": left ^ right,
            "<": left < right, ">": left > right, "<=": left <= right, ">=": left >= right,
            "+": left + right, "-": left - right, "*": left * right,
        }  # fmt: skip
        result = int(results[op])
        if abs(result) >= 1 << 63:
            raise self.fail("an integer that overflows")
        return result

    def unary(self) -> Type | int:
        token_text = self.peek()
        if token_text in ("!", "-", "+", "~"):
            self.at += 1
            value = self.unary()
            if not isinstance(value, int):
                raise self.fail(f"{token_text} of {value}")
            return {"!": int(not value), "-": -value, "+": value, "~": ~value}[token_text]
        return self.postfix(self.primary())

    def postfix(self, value: Type | int) -> Type | int:
        """Pointers, value initialisation and member access behind a primary."""
        while self.at < len(self.tokens):
            text = self.peek()
            if text == "{" and isinstance(value, Type):
                self.at = match_bracket(self.tokens, self.at) + 1
            elif text in ("*", "&") and isinstance(value, Type) and self._pointer_here():
                self.at += 1
                if text == "*":
                    value = Type(
                        value.name, value.args, value.pointer + 1, value.scope, value.decl, value.env, value.at
                    )
            elif text in ("const", "volatile"):
                self.at += 1
            elif text == "::" and isinstance(value, Type):
                self.at += 1
                value = self.member_of(value)
            else:
                break
        return value

    def member_of(self, owner: Type) -> Type | int:
        while self.peek() in SKIPPED:
            self.at += 1
        if self.at >= len(self.tokens) or self.tokens[self.at].kind != "name":
            raise self.fail("a :: without a name")
        name = self.tokens[self.at]
        self.at += 1
        args = self.template_args()
        if self.peek() == "(":
            self.at = match_bracket(self.tokens, self.at) + 1
        return self.resolver.member(owner, name, args, self.env)

    def template_args(self) -> list[list[Token]] | None:
        if self.peek() != "<" or self.tokens[self.at - 1].kind != "name":
            return None
        close = match_angle(self.tokens, self.at, len(self.tokens))
        if close is None:
            return None
        pieces = [self.tokens[start:end] for start, end in split_commas(self.tokens, self.at + 1, close)]
        self.at = close + 1
        return pieces

    def primary(self) -> Type | int:
        while self.peek() in SKIPPED and self.at < len(self.tokens):
            self.at += 1
        if self.at >= len(self.tokens):
            raise self.fail("an expression that ends early")
        token = self.tokens[self.at]
        if token.kind == "number":
            self.at += 1
            return self.number(token)
        if token.text == "(":
            close = match_bracket(self.tokens, self.at)
            inner = self.tokens[self.at + 1 : close]
            self.at = close + 1
            return self.resolver.evaluate(inner, self.env)
        if token.text == "::":
            self.at += 1
            return self.primary()
        if token.kind != "name":
            raise self.fail(f"{token.text!r} in an expression")
        if token.text in ("true", "false"):
            self.at += 1
            return int(token.text == "true")
        if token.text in _CONVERSIONS:
            self.at += 1
            self.template_args()
            return self.primary()
        if token.text in ("sizeof", "decltype"):
            self.at += 1
            return self.keyword(token)
        return self.name()

    def number(self, token: Token) -> int:
        digits = token.text.replace("'", "").rstrip("uUlLfF")
        try:
            return int(digits, 0) if len(digits) < 40 else 0
        except ValueError:
            raise self.fail(f"the number {token.text}") from None

    def keyword(self, token: Token) -> Type | int:
        """`sizeof(T)` and `decltype(E)`: known by what they enclose."""
        if self.peek() != "(":
            raise self.fail(f"{token.text} without brackets")
        close = match_bracket(self.tokens, self.at)
        inner = self.tokens[self.at + 1 : close]
        self.at = close + 1
        value = self.resolver.evaluate(inner, self.env)
        return value if token.text == "decltype" else Type("sizeof", (value,), at=token)

    def name(self) -> Type | int:
        """A possibly qualified name with its template arguments, members and call."""
        parts: list[Token] = []
        while True:
            token = self.tokens[self.at]
            parts.append(token)
            self.at += 1
            found = self.look(parts)
            if found is not None:
                return self.found(parts, found)
            if self.peek() == "::" and self.at + 1 < len(self.tokens):
                self.at += 1
                while self.peek() in SKIPPED:
                    self.at += 1
                if self.at < len(self.tokens) and self.tokens[self.at].kind == "name":
                    continue
            return self.external(parts)

    def look(self, parts: list[Token]) -> Type | int | list[Decl] | None:
        if len(parts) == 1:
            found = self.resolver.lookup(parts[0], self.env)
            return found if not isinstance(found, Decl) else [found]
        names = tuple(part.text for part in parts)
        if names[0] in ("std", "cute"):
            return None
        return self.resolver.globals(names, self.env.path) or None

    def found(self, parts: list[Token], found: Type | int | list[Decl]) -> Type | int:
        at = parts[-1]
        if not isinstance(found, list):
            value = found
        else:
            args = self.template_args()
            if self.peek() == "(" and found[0].kind == "function":
                self.at = match_bracket(self.tokens, self.at) + 1
                value = self.resolver.call(found, args, at, self.env)
            else:
                value = self.resolver.use(found, args, at, self.env)
        return self.postfix(value)

    def external(self, parts: list[Token]) -> Type | int:
        """A name that no header of the library declares."""
        name = parts[-1]
        text = SAME_AS.get(name.text, name.text)
        scope = tuple(part.text for part in parts[:-1])
        if not scope and text in self.resolver.visible:
            return self.postfix(Type(text, scope=self.resolver.visible[text], at=name))
        if not scope and not (text in PLAIN or text in CUTE or _STATIC.fullmatch(text)):
            args = self.template_args()
            if args is not None and self.peek() == "(":
                return self.call_external(text, args)
            if self.peek() == "::" or args is not None or text not in EXTERNAL:
                raise NotRead(f"{name.text} is declared nowhere in the sources that are read", name.file, name.line)
        elif scope and scope[0] not in EXTERNAL and scope[0] not in CUTE:
            raise NotRead(
                f"{'::'.join(scope)}::{name.text} is declared nowhere in the sources that are read",
                name.file,
                name.line,
            )
        if scope and text in ("kMinComputeCapability", "value", "type"):
            owner = Type(parts[-2].text, scope=scope[:-1], at=parts[-2])
            return self.postfix(self.resolver.member(owner, name, None, self.env))
        static = _STATIC.fullmatch(text)
        if static:
            return self.postfix(Type("Int", (int(static[1]),), at=name))
        args = self.template_args()
        if args is not None:
            if self.peek() == "(" and text in ("get", "size", "shape"):
                return self.call_external(text, args)
            return self.postfix(self.external_template(text, scope, args, name))
        if self.peek() == "(":
            self.at = match_bracket(self.tokens, self.at) + 1
        return self.postfix(Type(text, scope=scope, at=name))

    def external_template(self, text: str, scope: tuple[str, ...], args: list[list[Token]], at: Token) -> Type | int:
        resolver, env = self.resolver, self.env
        if text in ("conditional_t", "conditional") and len(args) == 3:
            chosen = resolver.evaluate(args[1] if resolver.truth(args[0], env) else args[2], env)
            return chosen if text == "conditional_t" else Type("conditional", (chosen,), at=at)
        if text in ("is_same_v", "is_same") and len(args) == 2:
            same = int(resolver.evaluate(args[0], env) == resolver.evaluate(args[1], env))
            return same if text == "is_same_v" else Type("is_same", (same,), at=at)
        values = tuple(resolver.evaluate(arg, env) for arg in args)
        if text == "sizeof_bits_v" and values and isinstance(values[0], Type):
            return resolver.bits(values[0], at)
        if text in _IDENTITY and len(values) == 1:
            return values[0]
        if text == "remove_pointer_t" and isinstance(values[0], Type):
            bare = values[0]
            return Type(bare.name, bare.args, max(0, bare.pointer - 1), bare.scope, bare.decl, bare.env, bare.at)
        if text == "C" and len(values) == 1:
            text = "Int"
        return Type(text, values, scope=scope, at=at)

    def call_external(self, text: str, args: list[list[Token]]) -> int:
        """`size<0>(Shape{})`, `get<1>(Shape{})`, `shape<2>(Shape{})` of cute, for static shapes."""
        close = match_bracket(self.tokens, self.at)
        inner = self.tokens[self.at + 1 : close]
        self.at = close + 1
        if text not in ("get", "size", "shape") or len(args) != 1:
            raise self.fail(f"a call of {text}")
        index = self.resolver.evaluate(args[0], self.env)
        shape = self.resolver.evaluate(inner, self.env)
        if isinstance(index, int) and isinstance(shape, Type) and 0 <= index < len(shape.args):
            extent = shape.args[index]
            if isinstance(extent, Type) and extent.name == "Int" and isinstance(extent.args[0], int):
                return extent.args[0]
        raise self.fail(f"{text} of a shape that is not static")
