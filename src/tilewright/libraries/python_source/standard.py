"""What evaluated Python sees of the standard library: a few modules and their pure functions, re-made with bounds."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Callable

from tilewright.libraries.python_source.limits import CannotFollow
from tilewright.libraries.python_source.operators import binary
from tilewright.libraries.python_source.remade import MAX_ARGUMENTS, Remade
from tilewright.libraries.python_source.statements import AUTO, ENUM_BASE
from tilewright.libraries.python_source.values import MISSING, Host, HostObject, Symbol, Unknown, Value, answer

_OPERATORS: dict[str, ast.operator] = {
    "add": ast.Add(), "sub": ast.Sub(), "mul": ast.Mult(), "floordiv": ast.FloorDiv(), "truediv": ast.Div(),
    "mod": ast.Mod(), "or_": ast.BitOr(), "and_": ast.BitAnd(),
}  # fmt: skip


class Standard(Remade):
    """The standard modules of one interpreter."""

    def modules(self) -> dict[str, HostObject]:
        """The standard modules that we re-make."""
        host = self.host
        product = host("product", self._product)
        return {
            "enum": HostObject("enum", {
                "Enum": ENUM_BASE, "IntEnum": ENUM_BASE, "Flag": ENUM_BASE, "unique": _identity(),
                "auto": host("auto", lambda: AUTO),
            }),
            "itertools": HostObject("itertools", {
                "product": product,
                "chain": HostObject("chain", {
                    "()": host("chain", self._chain),
                    "from_iterable": host("chain", self._chain_of),
                }),
            }),
            "functools": HostObject("functools", {
                "cache": _identity(), "lru_cache": _identity_or_factory(), "wraps": _identity_or_factory(),
                "reduce": host("reduce", self._reduce), "partial": Symbol("functools.partial"),
            }),
            "dataclasses": HostObject("dataclasses", {
                "dataclass": HostObject("dataclass", {
                    "dataclass": True,
                    "()": answer("dataclass", lambda: HostObject("dataclass", {"dataclass": True})),
                }),
                "field": host("field", self._field),
            }),
            "operator": HostObject("operator", {
                name: host(name, self._operator(op)) for name, op in _OPERATORS.items()
            }),
            "math": HostObject("math", {
                "ceil": host("ceil", self._ceil),
                "floor": host("floor", self._floor),
                "gcd": host("gcd", self._gcd),
                "prod": host("prod", self._prod),
            }),
        }  # fmt: skip

    def _product(self, *items: Value, repeat: int = 1) -> list[Value]:
        lists = [self.interp.iterate(item) for item in items] * max(1, min(int(repeat), MAX_ARGUMENTS))
        if len(lists) > MAX_ARGUMENTS:
            raise CannotFollow(f"a product of more than {MAX_ARGUMENTS} sequences")
        self.meter.step(math.prod(map(len, lists)))
        return list(itertools.product(*lists))

    def _chain(self, *items: Value) -> list[Value]:
        return [entry for item in items for entry in self.interp.iterate(item)]

    def _chain_of(self, items: Value) -> list[Value]:
        return self._chain(*self.interp.iterate(items))

    def _number(self, value: Value) -> int | float:
        if isinstance(value, int | float) and math.isfinite(value):
            return value
        raise CannotFollow("a rounding of something that is no number")

    def _reduce(self, function: Value, items: Value, start: Value = MISSING) -> Value:
        listed = self.interp.iterate(items)
        if start is MISSING and not listed:
            raise CannotFollow("a reduction of nothing")
        total = listed.pop(0) if start is MISSING else start
        for item in listed:
            total = self.interp.call(function, [total, item], {})
        return total

    def _operator(self, op: ast.operator) -> Callable[[Value, Value], Value]:
        def apply(left: Value, right: Value) -> Value:
            return binary(op, left, right, self.meter)

        return apply

    def _ceil(self, value: Value) -> int:
        return math.ceil(self._number(value))

    def _floor(self, value: Value) -> int:
        return math.floor(self._number(value))

    def _gcd(self, left: Value, right: Value) -> int:
        if isinstance(left, int) and isinstance(right, int):
            return math.gcd(left, right)
        raise CannotFollow("the divisor of something that is no integer")

    def _prod(self, items: Value) -> Value:
        total = 1
        for item in self.interp.iterate(items):
            if not isinstance(item, int):
                raise CannotFollow("a product of something that is no integer")
            total = self.meter.integer(total * item)
        return total

    def _field(self, default: Value = MISSING, default_factory: Value = MISSING, **_: Value) -> Value:
        if default is not MISSING:
            return default
        if default_factory is not MISSING:
            return self.interp.call(default_factory, [], {})
        return Unknown("a dataclass field")


def _identity() -> HostObject:
    return HostObject("identity", {"decorate": Host("identity", lambda args, _: args[0] if args else None)})


def _identity_or_factory() -> HostObject:
    plain = _identity()
    return HostObject("identity", {"decorate": plain.attrs["decorate"], "()": answer("factory", lambda: plain)})
