"""What a CUTLASS builder does with a schedule tag, worked out from its source in three-valued logic.

A builder is chosen by an `enable_if` condition over types, and picks its collective by `conditional_t`, `if constexpr`
and helper templates. `Evaluator.truth` evaluates such conditions with some template parameters bound (the schedule
tag, the arch): True, False, or None where it depends on something not bound (operand types, tile, alignment).
`Evaluator.reach` follows an expression to the dispatch policies that it can end at.

Everything here is bounded in depth and never raises; what is not understood is None, or reaches nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tilewright.collectives.declarations import Param, Range, Scope, Struct, parse

__all__ = ["Env", "Evaluator"]

MAX_DEPTH: Final = 40
"""Nesting of expressions, aliases and helper templates that is followed; CUTLASS 4.7.0 needs 12."""

MAX_STEPS: Final = 3_000_000
"""Expressions evaluated for one tree before the evaluator gives up on it (None, reaches nothing): CUTLASS 4.7.0 takes
30,000. A tree that was made to explode ends here."""

_OR: Final = frozenset({"||", "or"})
_AND: Final = frozenset({"&&", "and"})
_NOISE: Final = frozenset({"typename", "const", "constexpr", "static", "inline", "struct", "class"})


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A template argument: an expression and the environment in which its names have a meaning."""

    value: Range
    env: Env


@dataclass(eq=False)
class Env:
    """Names that have a meaning: bound template parameters (to a type name, an expression, or None for anything), the
    scopes looked into, and truth values assumed for constants that could not be worked out."""

    bindings: dict[str, str | Bound | None] = field(default_factory=dict[str, "str | Bound | None"])
    scopes: tuple[Scope, ...] = ()
    assumed: dict[str, bool] = field(default_factory=dict[str, bool])
    undecided: set[str] = field(default_factory=set[str])
    """Constants that came out as None, collected for the caller."""

    def inner(self, params: Iterable[Param], args: list[Range], scopes: tuple[Scope, ...]) -> Env:
        """The environment inside a template whose `params` get `args` (written in this environment)."""
        bindings: dict[str, str | Bound | None] = {}
        for index, param in enumerate(params):
            value = args[index] if index < len(args) else param.default
            bindings[param.name] = None if value is None else Bound(value, self)
        return Env(bindings, scopes, self.assumed, self.undecided)


def _name_and_args(value: Range) -> tuple[str, Range | None, list[str]]:
    """`a::b::name<args>rest` as (name, args, rest); name "" where it is no such thing."""
    texts, partner = value.tokens.texts, value.tokens.partner
    at, end = value.start, value.end
    name = ""
    while at < end and texts[at] in _NOISE:
        at += 1
    if at < end and texts[at] == "::":
        at += 1
    while at < end and (texts[at][0].isalpha() or texts[at][0] == "_"):
        name = texts[at]
        at += 1
        if at + 1 < end and texts[at] == "::" and (texts[at + 1][0].isalpha() or texts[at + 1][0] == "_"):
            at += 1
            if texts[at] == "template":
                at += 1
            continue
        break
    args: Range | None = None
    if name and at < end and texts[at] == "<" and partner[at] > at:
        args = Range(value.tokens, at + 1, min(partner[at], end))
        at = partner[at] + 1
    return name, args, texts[at:end]


class Evaluator:
    """Evaluates expressions against the declarations of one tree.

    `scope` holds what is declared at namespace level; `policies` the names of the dispatch policies to reach.
    `delegate` answers what another `CollectiveBuilder<args...>` reaches.
    """

    def __init__(self, scope: Scope, policies: frozenset[str]) -> None:
        self.scope = scope
        self.policies = policies
        self._ancestors: dict[str, frozenset[str]] = {}
        self._bodies: dict[int, Scope] = {}
        self._keep: list[Range] = []
        self.steps = 0

    def _spent(self, depth: int) -> bool:
        """Whether this step is one too many."""
        self.steps += 1
        return depth > MAX_DEPTH or self.steps > MAX_STEPS

    def delegate(self, args: list[Range], env: Env, depth: int) -> set[str]:
        """What `CollectiveBuilder<args>::CollectiveOp` reaches; a subclass that knows the builders says so."""
        return set()

    # Types -----------------------------------------------------------------------------------------------------

    def ancestors(self, name: str) -> frozenset[str]:
        """`name` and every struct that it derives from."""
        known = self._ancestors.get(name)
        if known is not None:
            return known
        found: set[str] = set()
        pending = [name]
        while pending:
            current = pending.pop()
            if current in found or len(found) > 256:
                continue
            found.add(current)
            for struct in self.scope.structs.get(current, ()):
                if struct.args is None:
                    for base in struct.bases:
                        words = [t for t in base.texts if t not in ("public", "private", "protected", "virtual")]
                        head = words[: words.index("<")] if "<" in words else words
                        if head:
                            pending.append(head[-1])
        answer = frozenset(found)
        self._ancestors[name] = answer
        return answer

    def canonical(self, name: str) -> str:
        """`name` with namespace-level aliases without parameters resolved."""
        for _ in range(8):
            aliases = self.scope.aliases.get(name)
            if not aliases or aliases[0].params or name in self.scope.structs:
                return name
            target, _, rest = _name_and_args(aliases[0].value)
            if not target or rest or target == name:
                return name
            name = target
        return name

    def types(self, value: Range, env: Env, depth: int = 0) -> frozenset[str] | None:
        """Names of the types that `value` can be, or None where it could be any."""
        if self._spent(depth) or not len(value):
            return None
        name, args, rest = _name_and_args(value)
        if not name or name == "decltype" or (rest and rest not in (["{", "}"],)):
            if name in ("conditional", "conditional_t") and rest[:2] == ["::", "type"]:
                return self._conditional_types(args, env, depth)
            return None
        if name == "conditional_t":
            return self._conditional_types(args, env, depth)
        if args is None and name in env.bindings:
            bound = env.bindings[name]
            if isinstance(bound, str):
                return frozenset({bound})
            return None if bound is None else self.types(bound.value, bound.env, depth + 1)
        if args is None:
            for scope in env.scopes:
                if name in scope.aliases:
                    found: set[str] = set()
                    for alias in scope.aliases[name]:
                        some = self.types(alias.value, env, depth + 1)
                        if some is None:
                            return None
                        found |= some
                    return frozenset(found)
        return frozenset({self.canonical(name)})

    def _conditional_types(self, args: Range | None, env: Env, depth: int) -> frozenset[str] | None:
        parts = args.split() if args is not None else []
        if len(parts) != 3:
            return None
        truth = self.truth(parts[0], env, depth + 1)
        if truth is not None:
            return self.types(parts[1] if truth else parts[2], env, depth + 1)
        left, right = self.types(parts[1], env, depth + 1), self.types(parts[2], env, depth + 1)
        return None if left is None or right is None else left | right

    # Truth -----------------------------------------------------------------------------------------------------

    def truth(self, value: Range, env: Env, depth: int = 0) -> bool | None:
        """Truth of the constant expression `value`; None where it is not decided."""
        if self._spent(depth) or not len(value):
            return None
        texts = value.tokens.texts
        for operators, decisive in ((_OR, True), (_AND, False)):
            parts = _split_any(value, operators)
            if len(parts) > 1:
                unknown = False
                for part in parts:
                    truth = self.truth(part, env, depth + 1)
                    if truth is decisive:
                        return decisive
                    unknown = unknown or truth is None
                return None if unknown else not decisive
        first = texts[value.start]
        if first in ("!", "not"):
            truth = self.truth(Range(value.tokens, value.start + 1, value.end), env, depth + 1)
            return None if truth is None else not truth
        if first == "(" and value.tokens.partner[value.start] == value.end - 1:
            return self.truth(Range(value.tokens, value.start + 1, value.end - 1), env, depth + 1)
        if len(value) == 1 and first in ("true", "false"):
            return first == "true"
        return self._predicate(value, env, depth)

    def _predicate(self, value: Range, env: Env, depth: int) -> bool | None:
        name, args, rest = _name_and_args(value)
        if not name or rest not in ([], ["::", "value"], ["(", ")"], ["{", "}"]):
            return None
        parts = args.split() if args is not None else []
        plain = name.removesuffix("_v")
        if plain in ("is_same", "is_base_of") and len(parts) == 2:
            return self._relation(plain, parts[0], parts[1], env, depth)
        if plain == "is_any_of" and len(parts) > 1:
            answers = [self._relation("is_same", parts[0], part, env, depth) for part in parts[1:]]
            return True if True in answers else None if None in answers else False
        if plain in ("is_kernel_tag_of", "is_asymmetric_dma_kernel_tag_of") and len(parts) == 2:
            return self._relation("is_same", parts[0], parts[1], env, depth)
        if args is None:
            return self._constant(name, env, depth)
        for constant in self.scope.constants.get(name, ())[:1]:
            if constant.params:
                return self.truth(constant.value, env.inner(constant.params, parts, ()), depth + 1)
        if name in self.scope.structs:
            return self._trait(self.scope.structs[name], parts, env, depth)
        return None

    def _constant(self, name: str, env: Env, depth: int) -> bool | None:
        bound = env.bindings.get(name)
        if isinstance(bound, Bound):
            return self.truth(bound.value, bound.env, depth + 1)
        for scope in env.scopes:
            if name in scope.constants:
                truths = {self.truth(constant.value, env, depth + 1) for constant in scope.constants[name]}
                truth = truths.pop() if len(truths) == 1 else None
                if truth is None:
                    truth = env.assumed.get(name)
                if truth is None:
                    env.undecided.add(name)
                return truth
        return None

    def _relation(self, kind: str, left: Range, right: Range, env: Env, depth: int) -> bool | None:
        first, second = self.types(left, env, depth + 1), self.types(right, env, depth + 1)
        if first is None or second is None or not first or not second:
            return None
        if kind == "is_same":
            if first.isdisjoint(second):
                return False
            return True if len(first) == len(second) == 1 else None
        answers = {base in self.ancestors(derived) for base in first for derived in second}
        return answers.pop() if len(answers) == 1 else None

    def _trait(self, structs: list[Struct], parts: list[Range], env: Env, depth: int) -> bool | None:
        """A trait struct that derives from true_type or false_type: the specialisation that matches the argument."""
        if len(parts) != 1:
            return None
        types = self.types(parts[0], env, depth + 1)
        if types is None or len(types) != 1:
            return None
        (name,) = types
        chosen: Struct | None = None
        for struct in structs:
            if struct.args is None:
                chosen = chosen or struct
            elif len(struct.args) == 1 and _name_and_args(struct.args[0])[0] == name:
                chosen = struct
                break
        bases = [text for base in chosen.bases for text in base.texts] if chosen is not None else []
        return True if "true_type" in bases else False if "false_type" in bases else None

    # Reach -----------------------------------------------------------------------------------------------------

    def body_scope(self, body: Range) -> Scope:
        """Declarations in a function's body, parsed once."""
        key = id(body)
        if key not in self._bodies:
            self._bodies[key] = parse(body.tokens, body.start, body.end)
            self._keep.append(body)  # the key is an id: keep what it identifies
        return self._bodies[key]

    def reach(self, value: Range, env: Env, depth: int = 0) -> set[str]:
        """Dispatch policies that the type expression (or function body) `value` can end at."""
        found: set[str] = set()
        if self._spent(depth):
            return found
        texts, partner = value.tokens.texts, value.tokens.partner
        at, end = value.start, value.end
        while at < end:
            text = texts[at]
            if text == "if" and at + 2 < end and texts[at + 1] == "constexpr" and texts[at + 2] == "(":
                at = self._branches(value, at, env, depth, found)
                continue
            if not (text[0].isalpha() or text[0] == "_") or text in _NOISE:
                at += 1
                continue
            args: Range | None = None
            after = at + 1
            if after < end and texts[after] == "<" and partner[after] > after:
                close = min(partner[after], end)
                args = Range(value.tokens, after + 1, close)
                after = close + 1
            at = self._follow(text, args, Range(value.tokens, after, end), env, depth, found) or at + 1
        return found

    def _follow(self, name: str, args: Range | None, rest: Range, env: Env, depth: int, found: set[str]) -> int:
        """Follow one (template) name; the index to go on from, or 0 for the next token."""
        parts = args.split() if args is not None else []
        if name in ("conditional_t", "conditional") and len(parts) == 3:
            truth = self.truth(parts[0], env, depth + 1)
            if truth is not False:
                found |= self.reach(parts[1], env, depth + 1)
            if truth is not True:
                found |= self.reach(parts[2], env, depth + 1)
            return rest.start
        if name in ("CollectiveMma", "CollectiveEpilogue") and parts:
            found |= self.reach(parts[0], env, depth + 1)
            return rest.start
        if name == "CollectiveBuilder" and parts:
            found |= self.delegate(parts, env, depth + 1)
            return rest.start
        if name in self.policies:
            found.add(name)
            return rest.start
        if name in env.bindings:
            bound = env.bindings[name]
            if isinstance(bound, Bound):
                found |= self.reach(bound.value, bound.env, depth + 1)
            return rest.start
        for scope in env.scopes:
            if name in scope.aliases:
                for alias in scope.aliases[name]:
                    found |= self.reach(alias.value, env, depth + 1)
                return rest.start
        member = rest.texts[1] if len(rest) > 1 and rest.texts[0] == "::" else ""
        structs = next((s.structs[name] for s in (*env.scopes, self.scope) if name in s.structs), None)
        if structs is not None and member:
            for struct in self._matching(structs, parts, env, depth):
                inside = struct.scope
                inner = env.inner(struct.params, parts if struct.args is None else [], (inside,))
                for alias in inside.aliases.get(member, ()):
                    found |= self.reach(alias.value, inner, depth + 1)
            return rest.start + 2
        if args is not None and name in self.scope.functions:
            for function in self.scope.functions[name]:
                inner = env.inner(function.params, parts, (self.body_scope(function.body),))
                found |= self.reach(function.body, inner, depth + 1)
            return rest.start
        return 0

    def _matching(self, structs: list[Struct], parts: list[Range], env: Env, depth: int) -> list[Struct]:
        """The specialisations of a helper struct that its arguments select: those whose pattern names a policy that the
        argument reaches; the primary template where none does."""
        chosen: list[Struct] = []
        for struct in structs:
            if struct.args is None:
                continue
            for pattern, part in zip(struct.args, parts, strict=False):
                wanted = _name_and_args(pattern)[0]
                if wanted in self.policies and wanted in self.reach(part, env, depth + 1):
                    chosen.append(struct)
                    break
        return chosen or [struct for struct in structs if struct.args is None]

    def _branches(self, value: Range, at: int, env: Env, depth: int, found: set[str]) -> int:
        """Follow `if constexpr (condition) {...} else ...` at `at`: only the branches that can be taken."""
        texts, partner = value.tokens.texts, value.tokens.partner
        while at < value.end:
            closing = partner[at + 2]
            if closing < 0 or closing + 1 >= value.end:
                return at + 1
            truth = self.truth(Range(value.tokens, at + 3, closing), env, depth + 1)
            block = _statement(value, closing + 1)
            if truth is not False:
                found |= self.reach(block, env, depth + 1)
            after = block.end + (1 if block.end < value.end and texts[block.end] in ("}", ";") else 0)
            if after >= value.end or texts[after] != "else":
                return after
            if truth is True:  # the rest of the chain is dead
                return _skip_chain(value, after)
            if texts[after + 1 : after + 4] == ["if", "constexpr", "("]:
                at = after + 1
                continue
            block = _statement(value, after + 1)
            found |= self.reach(block, env, depth + 1)
            return block.end + 1
        return at


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


def _statement(value: Range, at: int) -> Range:
    """The statement at `at`: the inside of its braces, or the tokens up to its `;`."""
    texts, partner = value.tokens.texts, value.tokens.partner
    if at < value.end and texts[at] == "{" and partner[at] > at:
        return Range(value.tokens, at + 1, min(partner[at], value.end))
    end = at
    while end < value.end and texts[end] != ";":
        end = partner[end] + 1 if partner[end] > end else end + 1
    return Range(value.tokens, at, min(end, value.end))


def _skip_chain(value: Range, at: int) -> int:
    """The index behind `else if constexpr (...) {...} else {...}` that starts at `at`."""
    texts, partner = value.tokens.texts, value.tokens.partner
    while at < value.end and texts[at] == "else":
        at += 1
        if texts[at : at + 3] == ["if", "constexpr", "("] and partner[at + 2] > 0:
            at = partner[at + 2] + 1
        at = _statement(value, at).end + 1
    return at
