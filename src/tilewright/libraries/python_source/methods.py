"""Methods of plain data that evaluated code may call: by name, bounded, nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.libraries.python_source.limits import CannotFollow, Meter
from tilewright.libraries.python_source.operators import compare, hashable, sortable
from tilewright.libraries.python_source.text import format_text
from tilewright.libraries.python_source.values import (
    ExceptionType,
    ExceptionValue,
    Raised,
    Unknown,
    Value,
    is_dict,
    is_list,
    is_row,
    is_set,
    is_tuple,
)

Iterate = Callable[[Value], list[Value]]
Keywords = dict[str, Value]

_STR = frozenset({
    "capitalize", "count", "endswith", "find", "format", "index", "isalnum", "isalpha", "isdigit", "isidentifier",
    "islower", "isupper", "join", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace", "rfind",
    "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "swapcase", "title", "upper",
    "zfill",
})  # fmt: skip
_LIST = frozenset({
    "append", "extend", "insert", "pop", "index", "count", "remove", "reverse", "copy", "clear", "sort",
})  # fmt: skip
_DICT = frozenset({"get", "items", "keys", "values", "setdefault", "update", "pop", "copy", "clear"})
_SET = frozenset({
    "add", "update", "discard", "remove", "union", "intersection", "difference", "issubset", "issuperset", "copy",
})  # fmt: skip
_TUPLE = frozenset({"index", "count"})
_INT = frozenset({"bit_length"})

ALLOWED: tuple[tuple[type, frozenset[str]], ...] = (
    (str, _STR),
    (list, _LIST),
    (dict, _DICT),
    (set, _SET),
    (tuple, _TUPLE),
    (int, _INT),
)


def allowed(owner: Value, name: str) -> bool:
    """Whether `owner.name` is a method of plain data that evaluated code may call."""
    return any(type(owner) is kind and name in names for kind, names in ALLOWED)


def _plain(args: list[Value]) -> None:
    for arg in args:
        if isinstance(arg, Unknown):
            raise arg.refuse()
        if not isinstance(arg, str | int | tuple | None):
            raise CannotFollow("a string method with an unusual argument")


def _string(
    owner: str, name: str, args: list[Value], kwargs: dict[str, Value], meter: Meter, iterate: Iterate
) -> Value:
    if name == "format":
        return format_text(owner, args, kwargs, meter)
    if kwargs:
        raise CannotFollow(f"str.{name} with keyword arguments")
    meter.step(1 + len(owner) // 64)
    if name == "join":
        items = iterate(args[0]) if len(args) == 1 else []
        meter.step(len(items))
        for item in items:
            if isinstance(item, Unknown):
                raise item.refuse()
            if not isinstance(item, str):
                raise CannotFollow("it joins something that is no string")
        if sum(map(len, items)) + len(owner) * len(items) > meter.bytes:
            raise CannotFollow("it joins more text than any generator we know of")
        return meter.text(owner.join(items))
    _plain(args)
    if name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        hits = owner.count(args[0])
        if len(owner) + hits * len(args[1]) > meter.bytes:
            raise CannotFollow("a replacement that is out of proportion")
    if name == "zfill" and args and isinstance(args[0], int) and args[0] > 4096:
        raise CannotFollow("a padding that is out of proportion")
    try:
        result: Any = getattr(owner, name)(*args)
    except (TypeError, ValueError, AttributeError) as error:
        raise CannotFollow(f"str.{name}: {error}") from error
    if isinstance(result, str):
        return meter.text(result)
    if is_row(result):
        meter.step(len(result))
    return result


def _key_error(key: Value) -> Raised:
    return Raised(ExceptionValue(ExceptionType("KeyError", (ExceptionType("LookupError"),)), (key,)))


def _list(
    owner: list[Value], name: str, args: list[Value], kwargs: dict[str, Value], meter: Meter, iterate: Iterate
) -> Value:
    if name == "append" and len(args) == 1:
        meter.step()
        owner.append(args[0])
        return None
    if name == "extend" and len(args) == 1:
        if isinstance(args[0], Unknown):
            owner.append(args[0])
            return None
        items = iterate(args[0])
        meter.step(len(items))
        owner.extend(items)
        return None
    meter.step(len(owner))
    if name == "sort":
        if args or set(kwargs) - {"reverse"}:
            raise CannotFollow("list.sort with a key")
        if not sortable(owner):
            raise CannotFollow("it sorts values that have no order")
        owner.sort(reverse=bool(kwargs.get("reverse", False)))
        return None
    if name in ("index", "count", "remove") and args:
        import ast

        hits = [i for i, item in enumerate(owner) if compare(ast.Eq(), item, args[0], meter)]
        if name == "count":
            return len(hits)
        if not hits:
            raise CannotFollow(f"list.{name} of a value that is not there")
        if name == "index":
            return hits[0]
        del owner[hits[0]]
        return None
    try:
        return getattr(owner, name)(*args)
    except (TypeError, IndexError, ValueError) as error:
        raise CannotFollow(f"list.{name}: {error}") from error


def _dict(
    owner: dict[Value, Value], name: str, args: list[Value], kwargs: dict[str, Value], meter: Meter, iterate: Iterate
) -> Value:
    meter.step()
    if name in ("items", "keys", "values"):
        meter.step(len(owner))
        return list(getattr(owner, name)())
    if name == "get" and 1 <= len(args) <= 2:
        return owner.get(hashable(args[0], meter), args[1] if len(args) == 2 else None)
    if name == "setdefault" and 1 <= len(args) <= 2:
        return owner.setdefault(hashable(args[0], meter), args[1] if len(args) == 2 else None)
    if name == "pop" and 1 <= len(args) <= 2:
        key = hashable(args[0], meter)
        if key not in owner and len(args) == 1:
            raise _key_error(key)
        return owner.pop(key, args[1] if len(args) == 2 else None)
    if name == "update" and len(args) <= 1:
        given: Value = args[0] if args else {}
        if is_dict(given):
            owner.update(given)
        else:
            for pair in iterate(given):
                if not is_row(pair) or len(pair) != 2:
                    raise CannotFollow("dict.update of something that is no list of pairs")
                owner[hashable(pair[0], meter)] = pair[1]
        meter.step(len(owner))
        owner.update(kwargs)
        return None
    if name in ("copy", "clear") and not args:
        meter.step(len(owner))
        return getattr(owner, name)()
    raise CannotFollow(f"dict.{name} with these arguments")


def _set(owner: set[Value], name: str, args: list[Value], meter: Meter, iterate: Iterate) -> Value:
    if name in ("add", "discard", "remove") and len(args) == 1:
        meter.step()
        item = hashable(args[0], meter)
        if name == "add":
            owner.add(item)
        elif name == "discard":
            owner.discard(item)
        elif item in owner:
            owner.remove(item)
        else:
            raise _key_error(item)
        return None
    others = [{hashable(item, meter) for item in iterate(arg)} for arg in args]
    meter.step(len(owner) + sum(map(len, others)))
    return getattr(owner, name)(*others)


def call_method(
    owner: Value, name: str, args: list[Value], kwargs: dict[str, Value], meter: Meter, iterate: Iterate
) -> Value:
    """`owner.name(*args, **kwargs)` for a method that `allowed` lets through."""
    if isinstance(owner, str):
        return _string(owner, name, args, kwargs, meter, iterate)
    if is_list(owner):
        return _list(owner, name, args, kwargs, meter, iterate)
    if is_dict(owner):
        return _dict(owner, name, args, kwargs, meter, iterate)
    if is_set(owner):
        return _set(owner, name, args, meter, iterate)
    if is_tuple(owner):
        return _list(list(owner), name, args, kwargs, meter, iterate)
    if type(owner) is int and name == "bit_length" and not args and not kwargs:
        return owner.bit_length()
    raise CannotFollow(f"method {name}")
