"""Which collective a builder's `CollectiveOp` ends at, followed through the source.

A builder picks by `conditional_t`, `if constexpr`, aliases, helper structs (`detail::Sm120TmaBuilderImpl<...>`), helper
functions that return the policy, and other builders. `Reacher.reach` follows all of them to dispatch policies, taking
only the branches that the bound schedule tag allows; what is not decided takes both. It is bounded and never raises.
"""

from __future__ import annotations

from tilewright.collectives.conditions import Bound, Env, Evaluator
from tilewright.collectives.declarations import Range, Scope, Struct, parse
from tilewright.collectives.expressions import NOISE

__all__ = ["Reacher"]


class Reacher(Evaluator):
    """Evaluates and follows expressions of one tree. `policies` are the names of the dispatch policies to reach."""

    def __init__(self, scope: Scope, distinct: frozenset[str], policies: frozenset[str]) -> None:
        super().__init__(scope, distinct)
        self.policies = policies
        self._bodies: dict[tuple[int, int], Scope] = {}

    def delegate(self, args: list[Range], env: Env, depth: int) -> frozenset[str]:
        """What `CollectiveBuilder<args>::CollectiveOp` reaches; a subclass that knows the builders says so."""
        return frozenset()

    def body_scope(self, body: Range) -> Scope:
        """Declarations in a function's body, parsed once."""
        key = (id(body.tokens), body.start)
        if key not in self._bodies:
            self._bodies[key] = parse(body.tokens, body.start, body.end)
        return self._bodies[key]

    def reach(self, value: Range, env: Env, depth: int = 0) -> frozenset[str]:
        """Dispatch policies that the type expression `value` can end at."""
        key = (id(value.tokens), value.start, value.end)
        known = env.reached.get(key)
        if known is not None or self.spent(depth):
            return known or frozenset()
        env.reached[key] = frozenset()  # an expression that leads back to itself adds nothing
        found: set[str] = set()
        texts, partner = value.tokens.texts, value.tokens.partner
        at, end = value.start, value.end
        while at < end:
            text = texts[at]
            if not (text[0].isalpha() or text[0] == "_") or text in NOISE:
                at += 1
                continue
            args: Range | None = None
            after = at + 1
            if after < end and texts[after] == "<" and partner[after] > after:
                close = min(partner[after], end)
                args = Range(value.tokens, after + 1, close)
                after = close + 1
            at = self._follow(text, args, Range(value.tokens, after, end), env, depth, found) or at + 1
        env.reached[key] = frozenset(found)
        return env.reached[key]

    def _follow(self, name: str, args: Range | None, rest: Range, env: Env, depth: int, found: set[str]) -> int:
        """Follow one (template) name; the index to go on from, or 0 for the next token."""
        if name in self.policies:
            found.add(name)
            return rest.start
        if name in env.bindings:
            bound = env.bindings[name]
            if isinstance(bound, Bound):
                found |= self.reach(bound.value, bound.env, depth + 1)
            return rest.start
        if args is not None and name in _SPECIAL:
            return self._special(name, args, rest, env, depth, found)
        for scope in env.scopes:
            if name in scope.aliases:
                for alias in scope.aliases[name]:
                    found |= self.reach(alias.value, env, depth + 1)
                return rest.start
            if name in scope.functions:
                for function in scope.functions[name]:
                    scopes = (self.body_scope(function.body), *env.scopes)
                    found |= self._returns(
                        function.body, Env(env.bindings, scopes, env.assumed, env.undecided), depth + 1
                    )
                return rest.start
        parts = args.split() if args is not None else []
        texts = rest.tokens.texts
        if len(rest) > 1 and texts[rest.start] == "::":
            structs = next((s.structs[name] for s in (*env.scopes, self.scope) if name in s.structs), None)
            if structs is not None:
                self._member(structs, parts, texts[rest.start + 1], env, depth, found)
                return rest.start + 2
        if args is not None and name in self.scope.functions:
            for function in self.scope.functions[name]:
                inner = env.inner(function.params, parts, (self.body_scope(function.body),))
                found |= self._returns(function.body, inner, depth + 1)
            return rest.start
        return 0

    def _special(self, name: str, args: Range, rest: Range, env: Env, depth: int, found: set[str]) -> int:
        parts = args.split()
        if name in ("conditional_t", "conditional"):
            if len(parts) != 3:
                return 0
            truth = self.truth(parts[0], env, depth + 1)
            if truth is not False:
                found |= self.reach(parts[1], env, depth + 1)
            if truth is not True:
                found |= self.reach(parts[2], env, depth + 1)
        elif name == "CollectiveBuilder":
            found |= self.delegate(parts, env, depth + 1)
        elif parts:  # CollectiveMma<Policy, ...>: the rest of its arguments choose nothing
            found |= self.reach(parts[0], env, depth + 1)
        return rest.start

    def _member(
        self, structs: list[Struct], parts: list[Range], member: str, env: Env, depth: int, found: set[str]
    ) -> None:
        """Follow `Helper<parts...>::member`."""
        for struct in self._matching(structs, parts, env, depth):
            inner = env.inner(struct.params, parts if struct.args is None else [], (struct.scope,))
            for alias in struct.scope.aliases.get(member, ()):
                found |= self.reach(alias.value, inner, depth + 1)

    def _matching(self, structs: list[Struct], parts: list[Range], env: Env, depth: int) -> list[Struct]:
        """The specialisations of a helper struct that its arguments select: those whose pattern names a policy that the
        argument reaches; the primary template where none does."""
        chosen: list[Struct] = []
        for struct in structs:
            for pattern, part in zip(struct.args or (), parts, strict=False):
                wanted = self.type_name(pattern).name
                if wanted in self.policies and wanted in self.reach(part, env, depth + 1):
                    chosen.append(struct)
                    break
        return chosen or [struct for struct in structs if struct.args is None]

    def _returns(self, body: Range, env: Env, depth: int) -> set[str]:
        """What the `return` statements of a function body reach, those in dead branches of `if constexpr` left out."""
        found: set[str] = set()
        if self.spent(depth):
            return found
        texts = body.tokens.texts
        at = body.start
        while at < body.end:
            text = texts[at]
            if text == "if" and texts[at + 1 : at + 3] == ["constexpr", "("]:
                at = self._branches(body, at, env, depth, found)
            elif text == "return":
                statement = _statement(body, at + 1)
                found |= self.reach(statement, env, depth + 1)
                at = statement.end + 1
            elif text == "{":
                block = _statement(body, at)
                found |= self._returns(block, env, depth + 1)
                at = block.end + 1
            else:
                at = _statement(body, at).end + 1
        return found

    def _branches(self, value: Range, at: int, env: Env, depth: int, found: set[str]) -> int:
        """Follow `if constexpr (condition) {...} else ...` at `at`: only the branches that can be taken."""
        texts, partner = value.tokens.texts, value.tokens.partner
        while True:
            closing = partner[at + 2]
            if closing < at or closing + 1 >= value.end:
                return at + 3
            truth = self.truth(Range(value.tokens, at + 3, closing), env, depth + 1)
            block = _statement(value, closing + 1)
            if truth is not False:
                found |= self._returns(block, env, depth + 1)
            at = block.end + 1
            if at >= value.end or texts[at] != "else":
                return at
            if truth is True:  # the rest of the chain is dead
                return _skip_chain(value, at)
            if texts[at + 1 : at + 4] == ["if", "constexpr", "("]:
                at += 1
                continue
            block = _statement(value, at + 1)
            found |= self._returns(block, env, depth + 1)
            return block.end + 1


_SPECIAL = frozenset({"conditional_t", "conditional", "CollectiveBuilder", "CollectiveMma", "CollectiveEpilogue"})


def _statement(value: Range, at: int) -> Range:
    """The statement at `at`: the inside of its braces, or the tokens up to its `;`. The token behind it is its end."""
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
