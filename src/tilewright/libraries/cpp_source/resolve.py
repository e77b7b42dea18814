"""Evaluating type expressions in the scope where they stand."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from tilewright.libraries.cpp_source.declare import Decl
from tilewright.libraries.cpp_source.expressions import SKIPPED, Reader
from tilewright.libraries.cpp_source.heads import Param
from tilewright.libraries.cpp_source.tokens import NotRead, Token, match_angle, shown, split_commas
from tilewright.libraries.cpp_source.types import (
    ELEMENT_BITS,
    Env,
    Pending,
    Type,
)
from tilewright.libraries.cpp_source.unit import Headers

MAX_WORK: Final = 400_000
"""Most evaluation steps for one kernel."""
MAX_DEPTH: Final = 40
"""Deepest nesting of expressions; FlashInfer's launchers reach 26."""

_ARCH: Final = re.compile(r"Sm(\d{2,3})")


class Resolver:
    """Evaluates expressions against the declarations of `headers`."""

    def __init__(self, headers: Headers, visible: Mapping[str, tuple[str, ...]] | None = None) -> None:
        self.headers = headers
        self.visible = visible or {}
        """Names of other libraries that a using directive brings into sight, with the namespace of each."""
        self.work = MAX_WORK
        self.depth = 0
        self._known: dict[Decl, Type | int] = {}
        self._globals: dict[tuple[tuple[str, ...], tuple[str, ...], int], list[Decl]] = {}
        self._patterns: dict[Decl, list[list[Token]]] = {}
        self._closed: dict[tuple[Decl, tuple[Token, ...]], Type | int | None] = {}

    def refill(self) -> None:
        """Start counting work anew: for the next kernel."""
        self.work, self.depth = MAX_WORK, 0

    def evaluate(self, tokens: list[Token], env: Env) -> Type | int:
        """The value of a type or constant expression.

        Raises:
            NotRead: it uses something that is not understood or not declared.
        """
        self.work -= 1 + len(tokens) // 16
        if self.work < 0 or self.depth > MAX_DEPTH:
            place = tokens[0] if tokens else None
            raise NotRead("types that unfold without end", place.file if place else "", place.line if place else 0)
        self.depth += 1
        try:
            reader = Reader(self, tokens, env)
            value = reader.ternary()
            if reader.at < len(tokens):
                stop = tokens[reader.at]
                raise NotRead(f"{shown(tokens)!r} is not understood", stop.file, stop.line)
        except RecursionError:
            place = tokens[0] if tokens else None
            raise NotRead(
                "types that nest too deeply", place.file if place else "", place.line if place else 0
            ) from None
        else:
            return value
        finally:
            self.depth -= 1

    def truth(self, tokens: list[Token], env: Env) -> bool:
        """The value of a condition."""
        value = self.evaluate(tokens, env)
        if isinstance(value, int):
            return bool(value)
        raise NotRead(f"the condition {shown(tokens)!r} is not decided", tokens[0].file, tokens[0].line)

    def type_of(self, tokens: list[Token], env: Env) -> Type:
        value = self.evaluate(tokens, env)
        if isinstance(value, Type):
            return value
        raise NotRead(f"{shown(tokens)!r} is a number where a type belongs", tokens[0].file, tokens[0].line)

    # names

    def lookup(self, name: Token, env: Env) -> Type | int | Decl | list[Decl] | None:
        """What the unqualified `name` means at `env`: a value, or the declarations of that name."""
        here: Env | None = env
        while here is not None:
            if name.text in here.names:
                return self.settle(here, name.text)
            if name.text in here.decls:
                found = [decl for decl in here.decls[name.text] if decl.kind != "using"]
                if found:
                    return found
            if here.owner is not None and here.owner.bases:
                inherited = self.inherited(here, name, env)
                if inherited is not None:
                    return inherited
            here = here.parent
        return self.globals((name.text,), env.path) or None

    def base_of(self, env: Env) -> Type | None:
        """The base class of the struct whose scope `env` is."""
        assert env.owner is not None
        bases = [token for token in env.owner.bases if token.text not in ("public", "private", "protected")]
        pieces = split_commas(bases, 0, len(bases))
        base = self.evaluate(bases[pieces[0][0] : pieces[0][1]], env.parent or Env(env.path)) if pieces else None
        return base if isinstance(base, Type) else None

    def inherited(self, here: Env, name: Token, env: Env) -> Type | int | None:
        """The member `name` of the base class of the struct whose scope `here` is, where it has one of that name."""
        base = self.base_of(here)
        if base is None or base.env is None or name.text not in {*base.env.names, *base.env.decls}:
            return None
        return self.own_member(base, name, None, env)

    def settle(self, env: Env, name: str) -> Type | int:
        value = env.names[name]
        if isinstance(value, Pending):
            tokens = value.tokens
            env.names[name] = Type(f"<{name}>")  # a name that needs itself is not understood further down
            value = self.evaluate(tokens, value.env)
            env.names[name] = value
        return value

    def globals(self, parts: tuple[str, ...], path: tuple[str, ...]) -> list[Decl]:
        """Declarations of the headers whose qualified name ends in `parts`, the nearest scope first."""
        key = parts, path, len(self.headers.files)
        known = self._globals.get(key)
        if known is None:
            known = self._globals[key] = self._find_globals(parts, path)
        return known

    def _find_globals(self, parts: tuple[str, ...], path: tuple[str, ...]) -> list[Decl]:
        name, qualifier = parts[-1], parts[:-1]
        found = [decl for decl in self.headers.declarations(name) if decl.kind != "using" and decl.kind != "statement"]
        if qualifier:
            found = [decl for decl in found if decl.path[len(decl.path) - len(qualifier) :] == qualifier]
        if len({decl.path for decl in found}) > 1:

            def shared(decl: Decl) -> int:
                return next((i for i, (a, b) in enumerate(zip(decl.path, path, strict=False)) if a != b),
                            min(len(decl.path), len(path)))  # fmt: skip

            best = max(shared(decl) for decl in found)
            nearest = [decl for decl in found if shared(decl) == best]
            shortest = min(len(decl.path) for decl in nearest)
            found = [decl for decl in nearest if len(decl.path) == shortest]
        return found

    # declarations

    def use(self, decls: list[Decl], args: list[list[Token]] | None, at: Token, env: Env) -> Type | int:
        """The value of a declared name with template arguments `args` (unevaluated)."""
        first = decls[0]
        if first.kind in ("alias", "value"):
            if first.params:
                return self.evaluate(env.substituted(first.tokens), self.bind(first, args, env, at))
            return self.plain(first, env)
        if first.kind == "enum":
            return Type(first.name, scope=first.path, decl=first, at=at)
        if first.kind == "struct":
            values = tuple(self.evaluate(arg, env) for arg in args) if args is not None else ()
            return self.instantiate(decls, values, at, env)
        raise NotRead(f"{first.name} is a {first.kind}, which has no value", at.file, at.line)

    def plain(self, decl: Decl, env: Env) -> Type | int:
        """The value of an alias or constant without parameters, evaluated once in each scope."""
        home = self.home(decl, env)
        if decl in home.decls.get(decl.name, ()):
            value = self.evaluate(home.substituted(decl.tokens), home)
            home.names[decl.name] = value
            return value
        if decl not in self._known:
            self._known[decl] = self.evaluate(decl.tokens, home)
        return self._known[decl]

    def home(self, decl: Decl, env: Env) -> Env:
        """The scope in which `decl` itself stands."""
        here: Env | None = env
        while here is not None:
            if decl in here.decls.get(decl.name, ()):
                return here
            here = here.parent
        return Env(decl.path)

    def bind(self, decl: Decl, args: list[list[Token]] | None, env: Env, at: Token) -> Env:
        """The scope of `decl`'s definition with its template parameters bound."""
        home = self.home(decl, env)
        if not decl.params:
            return home
        inner = Env(home.path, home)
        values = [Pending(arg, env) for arg in args or []]
        self.bind_params(decl.params, list(values), inner, at)
        return inner

    def bind_params(self, params: tuple[Param, ...], values: list[Type | int | Pending], inner: Env, at: Token) -> None:
        for index, param in enumerate(params):
            if param.pack:
                return
            if index < len(values):
                inner.names[param.name] = values[index]
            elif param.default is not None:
                inner.names[param.name] = Pending(list(param.default), inner)
            elif param.name:
                raise NotRead(f"template parameter {param.name} has no value", at.file, at.line)

    def instantiate(self, decls: list[Decl], values: tuple[Type | int, ...], at: Token, env: Env) -> Type:
        """The struct that `values` select among the primary template and its specialisations."""
        chosen: Decl | None = None
        bound: dict[str, Type | int] = {}
        for decl in decls:
            if decl.kind != "struct" or decl.spec is None:
                continue
            found = self.matches(decl, values)
            if found is not None:
                chosen, bound = decl, found
        if chosen is None:
            chosen = next((decl for decl in decls if decl.kind == "struct" and decl.spec is None), None)
            if chosen is None:
                names = ", ".join(str(value) for value in values)
                raise NotRead(f"no specialisation of {decls[0].name} takes <{names}>", at.file, at.line)
            inner = Env((*chosen.path, chosen.name), self.home(chosen, env), owner=chosen)
            if chosen.params:
                self.bind_params(chosen.params, list(values), inner, at)
        else:
            inner = Env((*chosen.path, chosen.name), self.home(chosen, env), dict(bound), owner=chosen)
        inner.add(chosen.body())
        return Type(chosen.name, values, scope=chosen.path, decl=chosen, env=inner, at=at)

    def matches(self, decl: Decl, values: tuple[Type | int, ...]) -> dict[str, Type | int] | None:
        """The parameters of the specialisation `decl` when its pattern fits `values`."""
        patterns = self._patterns.get(decl)
        if patterns is None:
            spec = decl.spec or []
            patterns = [
                [token for token in spec[start:end] if token.text not in SKIPPED]
                for start, end in split_commas(spec, 0, len(spec))
            ]
            self._patterns[decl] = patterns
        if len(patterns) != len(values):
            return None
        bound: dict[str, Type | int] = {}
        names = {param.name for param in decl.params or ()}
        for pattern, value in zip(patterns, values, strict=True):
            if not self.fits(pattern, value, names, bound, decl):
                return None
        return bound

    def fits(
        self, pattern: list[Token], value: Type | int, names: set[str], bound: dict[str, Type | int], decl: Decl
    ) -> bool:
        if len(pattern) == 1 and pattern[0].text in names:
            known = bound.setdefault(pattern[0].text, value)
            return known == value
        used = {token.text for token in pattern} & names
        if used and isinstance(value, Type):
            opening = next((i for i, token in enumerate(pattern) if token.text == "<"), None)
            if opening is None or pattern[opening - 1].text != value.name:
                return False
            close = match_angle(pattern, opening, len(pattern))
            parts = split_commas(pattern, opening + 1, close) if close is not None else []
            return len(parts) == len(value.args) and all(
                self.fits(pattern[start:end], arg, names, bound, decl)
                for (start, end), arg in zip(parts, value.args, strict=True)
            )
        return self._pattern_value(pattern, decl) == value

    def _pattern_value(self, pattern: list[Token], decl: Decl) -> Type | int | None:
        """What a pattern without parameters of its own names, evaluated once; None where that cannot be read."""
        key = decl, tuple(pattern)
        if key not in self._closed:
            try:
                self._closed[key] = self.evaluate(pattern, Env(decl.path))
            except NotRead:
                if self.work < 0:
                    return None  # the kernel's work is used up: it says nothing about the pattern
                self._closed[key] = None
        return self._closed[key]

    # members

    def member(self, owner: Type, name: Token, args: list[list[Token]] | None, env: Env) -> Type | int:
        """`owner::name<args>`."""
        if owner.decl is not None and owner.decl.kind == "enum":
            return Type(name.text, scope=(owner.name,), at=name)
        if owner.env is not None:
            return self.own_member(owner, name, args, env)
        builtin = self.builtin_member(owner, name)
        if builtin is not None:
            return builtin
        values = tuple(self.evaluate(arg, env) for arg in args or [])
        return Type(name.text, (owner, *values), scope=(*owner.scope, owner.name), at=name)

    def own_member(self, owner: Type, name: Token, args: list[list[Token]] | None, env: Env) -> Type | int:
        inner = owner.env
        assert inner is not None
        if name.text in inner.names and name.text not in inner.decls:
            return self.settle(inner, name.text)
        decls = [decl for decl in inner.decls.get(name.text, ()) if decl.kind != "using"]
        if decls:
            if decls[0].params and args is not None:
                values = [Pending(arg, env) for arg in args]
                if decls[0].kind in ("alias", "value"):
                    scope = Env(inner.path, inner)
                    self.bind_params(decls[0].params, list(values), scope, name)
                    return self.evaluate(decls[0].tokens, scope)
                found = tuple(self.evaluate(arg, env) for arg in args)
                return self.instantiate(decls, found, name, inner)
            return self.use(decls, None, name, inner)
        for enumerator in (decl for group in inner.decls.values() for decl in group if decl.kind == "enum"):
            if any(token.text == name.text for token in enumerator.tokens):
                return Type(name.text, scope=(enumerator.name,), at=name)
        if inner.owner is not None and inner.owner.bases:
            base = self.base_of(inner)
            if base is not None:
                return self.member(base, name, args, env)
        return Type(name.text, (owner,), scope=(*owner.scope, owner.name), at=name)

    def builtin_member(self, owner: Type, name: Token) -> Type | int | None:
        text = name.text
        if text == "kMinComputeCapability":
            arch = _ARCH.fullmatch(owner.name)
            return int(arch[1]) if arch else None
        if text in ("value", "type") and owner.name in ("is_same", "conditional", "sizeof_bits", "integral_constant"):
            if owner.name == "sizeof_bits" and owner.args and isinstance(owner.args[0], Type):
                return self.bits(owner.args[0], name)
            return owner.args[0] if owner.args else None
        if owner.name in ("true_type", "false_type") and text == "value":
            return int(owner.name == "true_type")
        if text == "value" and owner.name == "Int":
            return owner.args[0]
        if text == "type" and owner.name in ("remove_pointer", "remove_cv", "remove_reference", "decay"):
            return owner.args[0]
        return None

    def bits(self, element: Type, at: Token) -> int:
        """`cutlass::sizeof_bits<element>::value`."""
        bits = ELEMENT_BITS.get(element.name)
        if bits is None or element.args or element.pointer:
            raise NotRead(f"the width of {element} is not known", at.file, at.line)
        return bits

    # functions

    def call(self, decls: list[Decl], args: list[list[Token]] | None, at: Token, env: Env) -> Type | int:
        """The value of a constexpr function without run-time arguments, its body followed."""
        functions = [decl for decl in decls if decl.kind == "function" and decl.tokens]
        if not functions:
            raise NotRead(f"{decls[0].name} has no body to follow", at.file, at.line)
        function = functions[0]
        inner = Env(function.path, self.home(function, env))
        if function.params:
            self.bind_params(function.params, [Pending(arg, env) for arg in args or []], inner, at)
        result = self.follow(function.body(), inner)
        if result is None:
            raise NotRead(f"{function.name} returns nothing that is understood", function.file, function.line)
        return result

    def follow(self, body: list[Decl], env: Env) -> Type | int | None:
        """Run the statements of a constexpr function; its result, or None when it falls through."""
        for decl in body:
            self.work -= 1
            if decl.kind == "return":
                return self.evaluate(decl.tokens, env)
            if decl.kind == "branch":
                then, other = decl.branch_bodies()
                result = self.follow(then if self.truth(decl.tokens, env) else other, Env(env.path, env))
                if result is not None:
                    return result
            elif decl.kind == "block":
                result = self.follow(decl.body(), Env(env.path, env))
                if result is not None:
                    return result
            else:
                env.add([decl])
        return None
