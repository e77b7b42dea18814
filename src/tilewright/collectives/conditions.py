"""Whether a CUTLASS builder takes a schedule tag, worked out from its source in three-valued logic.

A builder is chosen by an `enable_if` condition over types. `Evaluator.truth` evaluates such conditions with some
template parameters bound (the schedule tag, the arch): True, False, or None where it depends on something not bound
(operand types, tile, alignment). `reach.py` goes on from there to the collective.

Everything here is bounded in depth and never raises; what is not understood is None.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tilewright.collectives.declarations import Param, Range, Scope, Struct
from tilewright.collectives.expressions import Condition, TypeName, condition, type_name

__all__ = ["Bound", "Env", "Evaluator"]

MAX_DEPTH: Final = 40
"""Aliases and helper templates that are followed in a row; CUTLASS 4.7.0 needs 12."""

MAX_STEPS: Final = 1_000_000
"""Expressions evaluated for one tree before the evaluator gives up on it (None, reaches nothing): CUTLASS 4.7.0 takes
40,000. A tree that was made to explode ends here."""

Span = tuple[int, int, int]


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
    constants: dict[str, bool | None] = field(default_factory=dict[str, "bool | None"])
    """Constants worked out in this environment."""
    reached: dict[Span, frozenset[str]] = field(default_factory=dict[Span, "frozenset[str]"])
    """Policies reached in this environment (`reach.py`), by the span of the expression."""

    def inner(self, params: Sequence[Param], args: Sequence[Range], scopes: tuple[Scope, ...]) -> Env:
        """The environment inside a template whose `params` get `args` (written in this environment)."""
        bindings: dict[str, str | Bound | None] = {}
        for index, param in enumerate(params):
            value = args[index] if index < len(args) else param.default
            bindings[param.name] = None if value is None else Bound(value, self)
        return Env(bindings, scopes, self.assumed, self.undecided)


class Evaluator:
    """Evaluates expressions against the declarations of one tree.

    `scope` holds what is declared at namespace level; `distinct` the type names that can be told apart (schedule tags,
    archs): any other type can be anything.
    """

    def __init__(self, scope: Scope, distinct: frozenset[str]) -> None:
        self.scope = scope
        self.distinct = distinct
        self.steps = 0
        self._ancestors: dict[str, frozenset[str]] = {}
        self._conditions: dict[Span, Condition] = {}
        self._names: dict[Span, TypeName] = {}

    def spent(self, depth: int) -> bool:
        """Whether this step is one too many."""
        self.steps += 1
        return depth > MAX_DEPTH or self.steps > MAX_STEPS

    def type_name(self, value: Range) -> TypeName:
        """`value` as a (template) name, parsed once."""
        key = (id(value.tokens), value.start, value.end)
        found = self._names.get(key)
        if found is None:
            found = self._names[key] = type_name(value)
        return found

    # Types -----------------------------------------------------------------------------------------------------

    def ancestors(self, name: str) -> frozenset[str]:
        """`name` and every struct that it derives from."""
        known = self._ancestors.get(name)
        if known is not None:
            return known
        found: set[str] = set()
        pending = [name]
        while pending and len(found) < 256:
            current = pending.pop()
            if current not in found:
                found.add(current)
                pending += self.bases(current)
        answer = self._ancestors[name] = frozenset(found)
        return answer

    def bases(self, name: str) -> list[str]:
        """Names of the structs that the primary definition of `name` derives from."""
        answer: list[str] = []
        for struct in self.scope.structs.get(name, ()):
            for base in struct.bases if struct.args is None else ():
                words = [text for text in base.texts if text not in ("public", "private", "protected", "virtual")]
                head = words[: words.index("<")] if "<" in words else words
                answer += head[-1:]
        return answer

    def canonical(self, name: str) -> str:
        """`name` with namespace-level aliases without parameters resolved."""
        for _ in range(8):
            aliases = self.scope.aliases.get(name)
            if not aliases or aliases[0].params or name in self.scope.structs:
                return name
            target = self.type_name(aliases[0].value)
            if not target.name or target.rest or target.name == name:
                return name
            name = target.name
        return name

    def types(self, value: Range, env: Env, depth: int = 0) -> frozenset[str] | None:
        """Names of the types that `value` can be, or None where it could be any."""
        if self.spent(depth):
            return None
        expression = self.type_name(value)
        name, args = expression.name, expression.args
        if name in ("conditional_t", "conditional") and args is not None:
            return self._conditional_types(args, env, depth)
        if not name or expression.rest not in ((), ("{", "}")):
            return None
        if args is None:
            if name in env.bindings:
                bound = env.bindings[name]
                if isinstance(bound, str):
                    return frozenset({bound})
                return None if bound is None else self.types(bound.value, bound.env, depth + 1)
            for scope in env.scopes:
                if name in scope.aliases:
                    some = [self.types(alias.value, env, depth + 1) for alias in scope.aliases[name]]
                    known = [names for names in some if names is not None]
                    return frozenset[str]().union(*known) if len(known) == len(some) else None
        name = self.canonical(name)
        return frozenset({name}) if name in self.distinct else None

    def _conditional_types(self, args: tuple[Range, ...], env: Env, depth: int) -> frozenset[str] | None:
        if len(args) != 3:
            return None
        truth = self.truth(args[0], env, depth + 1)
        if truth is not None:
            return self.types(args[1] if truth else args[2], env, depth + 1)
        left, right = self.types(args[1], env, depth + 1), self.types(args[2], env, depth + 1)
        return None if left is None or right is None else left | right

    # Truth -----------------------------------------------------------------------------------------------------

    def truth(self, value: Range, env: Env, depth: int = 0) -> bool | None:
        """Truth of the constant expression `value`; None where it is not decided."""
        key = (id(value.tokens), value.start, value.end)
        parsed = self._conditions.get(key)
        if parsed is None:
            parsed = self._conditions[key] = condition(value)
        return self._evaluate(parsed, env, depth)

    def _evaluate(self, node: Condition, env: Env, depth: int) -> bool | None:
        if node.kind in ("or", "and"):
            decisive = node.kind == "or"
            unknown = False
            for part in node.parts:
                truth = self._evaluate(part, env, depth)
                if truth is decisive:
                    return decisive
                unknown = unknown or truth is None
            return None if unknown else not decisive
        if node.kind == "not":
            truth = self._evaluate(node.parts[0], env, depth)
            return None if truth is None else not truth
        if node.kind in ("true", "false"):
            return node.kind == "true"
        return None if node.name is None else self._predicate(node.name, env, depth)

    def _predicate(self, expression: TypeName, env: Env, depth: int) -> bool | None:
        if self.spent(depth):
            return None
        name, args = expression.name, expression.args
        if args is None:
            return self._constant(name, env, depth)
        plain = name.removesuffix("_v")
        if plain in ("is_same", "is_base_of") and len(args) == 2:
            return self._relation(plain, args[0], args[1], env, depth)
        if plain == "is_any_of" and len(args) > 1:
            answers = [self._relation("is_same", args[0], arg, env, depth) for arg in args[1:]]
            return True if True in answers else None if None in answers else False
        if plain in ("is_kernel_tag_of", "is_asymmetric_dma_kernel_tag_of") and len(args) == 2:
            return self._relation("is_same", args[0], args[1], env, depth)
        for constant in self.scope.constants.get(name, ())[:1]:
            if constant.params:
                return self.truth(constant.value, env.inner(constant.params, args, ()), depth + 1)
        if name in self.scope.structs:
            return self._trait(self.scope.structs[name], args, env, depth)
        return None

    def _constant(self, name: str, env: Env, depth: int) -> bool | None:
        if name in env.constants:
            return env.constants[name]
        bound = env.bindings.get(name)
        if isinstance(bound, Bound):
            return self.truth(bound.value, bound.env, depth + 1)
        for scope in env.scopes:
            if name in scope.constants:
                env.constants[name] = None  # one that leads back to itself decides nothing
                truths = {self.truth(constant.value, env, depth + 1) for constant in scope.constants[name]}
                truth = truths.pop() if len(truths) == 1 else None
                if truth is None:
                    truth = env.assumed.get(name)
                if truth is None:
                    env.undecided.add(name)
                env.constants[name] = truth
                return truth
        return None

    def _relation(self, kind: str, left: Range, right: Range, env: Env, depth: int) -> bool | None:
        first = self.types(left, env, depth + 1)
        second = self.types(right, env, depth + 1) if first else None
        if not first or not second:
            return None
        if kind == "is_same":
            if first.isdisjoint(second):
                return False
            return True if len(first) == len(second) == 1 else None
        answers = {base in self.ancestors(derived) for base in first for derived in second}
        return answers.pop() if len(answers) == 1 else None

    def _trait(self, structs: list[Struct], args: tuple[Range, ...], env: Env, depth: int) -> bool | None:
        """A trait struct that derives from true_type or false_type: the specialisation that matches the argument."""
        types = self.types(args[0], env, depth + 1) if len(args) == 1 else None
        if types is None or len(types) != 1:
            return None
        (name,) = types
        primary = next((struct for struct in structs if struct.args is None), None)
        chosen = next(
            (s for s in structs if s.args is not None and len(s.args) == 1 and self.type_name(s.args[0]).name == name),
            primary,
        )
        bases = [text for base in chosen.bases for text in base.texts] if chosen is not None else []
        return True if "true_type" in bases else False if "false_type" in bases else None
