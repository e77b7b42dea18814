"""What evaluated Python sees of the builtins: a few pure functions, re-made with bounds."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable
from typing import Any

from tilewright.libraries.python_source.limits import CannotFollow
from tilewright.libraries.python_source.operators import binary, hashable, sortable, truth
from tilewright.libraries.python_source.remade import MAX_ARGUMENTS, Remade
from tilewright.libraries.python_source.text import to_text
from tilewright.libraries.python_source.values import (
    MISSING,
    Class,
    EnumMember,
    ExceptionType,
    Host,
    HostObject,
    HostType,
    Instance,
    Raised,
    Symbol,
    Unknown,
    Value,
    answer,
    is_dict,
    is_row,
    is_sized,
    is_tuple,
)

_EXCEPTIONS = {
    "LookupError": "Exception", "KeyError": "LookupError", "IndexError": "LookupError", "ValueError": "Exception",
    "TypeError": "Exception", "RuntimeError": "Exception", "NotImplementedError": "RuntimeError",
    "AttributeError": "Exception", "NameError": "Exception", "AssertionError": "Exception", "OSError": "Exception",
    "FileNotFoundError": "OSError", "PermissionError": "OSError", "FileExistsError": "OSError",
    "ImportError": "Exception", "ModuleNotFoundError": "ImportError", "StopIteration": "Exception",
    "ZeroDivisionError": "Exception", "KeyboardInterrupt": "BaseException",
}  # fmt: skip


def _exceptions() -> dict[str, Value]:
    base = ExceptionType("BaseException")
    out: dict[str, Value] = {"BaseException": base, "Exception": ExceptionType("Exception", (base,))}
    for name, parent in _EXCEPTIONS.items():
        out[name] = ExceptionType(name, (out[parent],))
    return out


class Builtins(Remade):
    """The names that every module sees."""

    def _type(self, name: str, types: tuple[type, ...], function: Callable[..., Value]) -> HostType:
        return HostType(name, types, self.host(name, function).call)

    def names(self) -> dict[str, Value]:
        """Each with what it stands for."""
        out = _exceptions()
        host = self.host
        out.update(
            {
                name: host(name, function)
                for name, function in {
                    "len": self._len, "range": self._range, "isinstance": self._isinstance, "print": self._none,
                    "enumerate": self._enumerate, "zip": self._zip, "map": self._map, "filter": self._filter,
                    "sorted": self._sorted, "reversed": self._reversed, "sum": self._sum, "any": self._any,
                    "all": self._all, "min": self._min, "max": self._max, "abs": self._abs, "repr": self._repr,
                    "getattr": self._getattr, "hasattr": self._hasattr, "iter": self.interp.iterate,
                    "divmod": self._divmod, "round": self._round, "callable": self._callable, "next": self._next,
                }.items()
            }
        )  # fmt: skip
        out.update(
            {
                "str": self._type("str", (str,), self._str),
                "int": self._type("int", (int,), self._int),
                "float": self._type("float", (float,), self._float),
                "bool": self._type("bool", (bool,), self._bool),
                "list": self._type("list", (list,), self._list),
                "tuple": self._type("tuple", (tuple,), self._tuple),
                "set": self._type("set", (set,), self._set),
                "frozenset": self._type("frozenset", (set,), self._set),
                "dict": self._type("dict", (dict,), self._dict),
                "object": HostType("object", (), answer("object", lambda: Unknown("object()")).call),
                "type": host("type", self._typeof),
                "staticmethod": _decorator("static"),
                "classmethod": _decorator("classmethod"),
                "property": _decorator("property"),
                "__name__": "tilewright.evaluated",
                "__file__": Symbol("__file__"),
                "super": Symbol("super"),
            }
        )
        return out

    def _none(self, *_: Value, **__: Value) -> None:
        return None

    def _len(self, value: Value) -> int:
        if is_sized(value):
            return len(value)
        if isinstance(value, Class) and value.is_enum:
            return len(value.members)
        raise CannotFollow(f"the length of a {type(value).__name__}")

    def _range(self, *args: Value) -> range:
        if not all(isinstance(arg, int) for arg in args):
            raise CannotFollow("a range of something that is no integer")
        try:
            made = range(*args)
            self.meter.step(len(made))
        except (ValueError, OverflowError) as error:
            raise CannotFollow(f"range: {error}") from error
        return made

    def _isinstance(self, value: Value, kinds: Value) -> bool:
        for kind in kinds if is_tuple(kinds) else (kinds,):
            if isinstance(kind, HostType):
                if kind.name == "object" or isinstance(value, kind.types):
                    return True
                if isinstance(value, Unknown):
                    raise value.refuse()
            elif isinstance(kind, Class):
                cls = value.cls if isinstance(value, Instance | EnumMember) else None
                if cls is not None and cls.derives_from(kind):
                    return True
                if isinstance(value, Unknown):
                    raise value.refuse()
            elif isinstance(kind, Unknown | Symbol):
                raise Unknown(f"isinstance of {kind!r}").refuse()
        return False

    def _enumerate(self, items: Value, start: int = 0) -> list[Value]:
        return [(start + i, item) for i, item in enumerate(self.interp.iterate(items))]

    def _zip(self, *items: Value, strict: bool = False) -> list[Value]:
        lists = [self.interp.iterate(item) for item in items[:MAX_ARGUMENTS]]
        return [tuple(row) for row in zip(*lists, strict=False)]

    def _map(self, function: Value, *items: Value) -> list[Value]:
        return [self.interp.call(function, list(row), {}) for row in self._zip(*items)]

    def _filter(self, function: Value, items: Value) -> list[Value]:
        if function is None:
            return [item for item in self.interp.iterate(items) if truth(item)]
        return [item for item in self.interp.iterate(items) if truth(self.interp.call(function, [item], {}))]

    def _sorted(self, items: Value, key: Value = None, reverse: bool = False) -> list[Value]:
        listed = self.interp.iterate(items)
        keys = [self.interp.call(key, [item], {}) for item in listed] if key is not None else listed
        if not sortable(keys):
            raise CannotFollow("it sorts values that have no order")
        order = sorted(range(len(listed)), key=lambda i: keys[i], reverse=truth(reverse))
        return [listed[i] for i in order]

    def _reversed(self, items: Value) -> list[Value]:
        return self.interp.iterate(items)[::-1]

    def _sum(self, items: Value, start: Value = 0) -> Value:
        total = start
        for item in self.interp.iterate(items):
            total = binary(ast.Add(), total, item, self.meter)
        return total

    def _any(self, items: Value) -> bool:
        return any(truth(item) for item in self.interp.iterate(items))

    def _all(self, items: Value) -> bool:
        return all(truth(item) for item in self.interp.iterate(items))

    def _extreme(self, pick: Callable[..., Any], args: tuple[Value, ...], key: Value, default: Value) -> Value:
        items = self.interp.iterate(args[0]) if len(args) == 1 else list(args)
        if not items:
            if default is MISSING:
                raise CannotFollow("the extreme of nothing")
            return default
        keys = [self.interp.call(key, [item], {}) for item in items] if key is not None else items
        if not sortable(keys):
            raise CannotFollow("it compares values that have no order")
        return items[pick(range(len(items)), key=keys.__getitem__)]

    def _min(self, *args: Value, key: Value = None, default: Value = MISSING) -> Value:
        return self._extreme(min, args, key, default)

    def _max(self, *args: Value, key: Value = None, default: Value = MISSING) -> Value:
        return self._extreme(max, args, key, default)

    def _abs(self, value: Value) -> Value:
        if isinstance(value, int | float):
            return abs(value)
        raise CannotFollow("the magnitude of something that is no number")

    def _divmod(self, left: Value, right: Value) -> Value:
        if isinstance(left, int) and isinstance(right, int) and right:
            return divmod(left, right)
        raise CannotFollow("divmod with these arguments")

    def _round(self, value: Value, digits: Value = None) -> Value:
        if isinstance(value, int | float) and (digits is None or isinstance(digits, int)):
            return round(value, digits)
        raise CannotFollow("round with these arguments")

    def _callable(self, value: Value) -> bool:
        return isinstance(value, Host | HostType | Class) or type(value).__name__ in ("Function", "BoundMethod")

    def _next(self, items: Value, default: Value = MISSING) -> Value:
        listed = self.interp.iterate(items)
        if listed:
            return listed[0]
        if default is MISSING:
            raise CannotFollow("next of an empty sequence")
        return default

    def _getattr(self, owner: Value, name: Value, default: Value = MISSING) -> Value:
        if not isinstance(name, str):
            raise CannotFollow("getattr with a name that is not known")
        try:
            return self.interp.attribute(owner, name)
        except Raised:
            if default is MISSING:
                raise
            return default

    def _hasattr(self, owner: Value, name: Value) -> Value:
        if isinstance(owner, Unknown | Symbol):
            return Unknown(f"whether {owner!r} has {name}")
        return self._getattr(owner, name, MISSING_SENTINEL) is not MISSING_SENTINEL

    def _typeof(self, value: Value) -> Value:
        if isinstance(value, Instance | EnumMember):
            return value.cls
        return self.interp.builtins.get(type(value).__name__, Unknown("type(...)"))

    def _str(self, value: Value = "") -> Value:
        if isinstance(value, Unknown):
            return Unknown(value.what)
        if isinstance(value, Instance):
            value = self.interp.text_of(value)
        return to_text(value, self.meter)

    def _repr(self, value: Value) -> Value:
        if isinstance(value, Instance):
            return to_text(self.interp.text_of(value), self.meter)
        return to_text(value, self.meter, quote=True)

    def _int(self, value: Value = 0, base: Value = 10) -> Value:
        if isinstance(value, str) and len(value) > 200:
            raise CannotFollow("an integer of more than 200 digits")
        if isinstance(value, str) and isinstance(base, int):
            try:
                return self.meter.integer(int(value, base))
            except ValueError as error:
                raise CannotFollow(f"int({value[:20]!r})") from error
        if isinstance(value, int | float) and math.isfinite(value):
            return self.meter.integer(int(value))
        raise CannotFollow(f"int of a {type(value).__name__}")

    def _float(self, value: Value = 0.0) -> Value:
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise CannotFollow("a float of something that is no number") from error

    def _bool(self, value: Value = False) -> bool:
        return truth(value)

    def _tuple(self, items: Value = ()) -> Value:
        return tuple(self.interp.iterate(items))

    def _list(self, items: Value = ()) -> Value:
        return [items] if isinstance(items, Unknown) else self.interp.iterate(items)

    def _set(self, items: Value = ()) -> Value:
        return {hashable(item, self.meter) for item in self.interp.iterate(items)}

    def _dict(self, items: Value = (), **more: Value) -> Value:
        if is_dict(items):
            self.meter.step(len(items))
            return {**items, **more}
        pairs = [pair for pair in self.interp.iterate(items) if is_row(pair) and len(pair) == 2]
        return {**{hashable(pair[0], self.meter): pair[1] for pair in pairs}, **more}


MISSING_SENTINEL = HostObject("missing", {})


def _decorator(kind: str) -> HostObject:
    made = Host(kind, lambda args, _: HostObject(kind, {kind: args[0] if args else None}))
    return HostObject(kind, {"decorate": made, "()": made})
