"""Operators of evaluated Python on plain data, each bounded in time and size."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from tilewright.libraries.python_source.limits import CannotFollow, Meter
from tilewright.libraries.python_source.text import percent_text
from tilewright.libraries.python_source.values import (
    Host,
    HostObject,
    Symbol,
    Unknown,
    Value,
    is_dict,
    is_line,
    is_list,
    is_row,
    is_set,
    is_sized,
    is_tuple,
)

_NUMBER = (int, float)
_SHIFT_LIMIT = 512
_POWER_LIMIT = 512

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.BitAnd: lambda a, b: a & b,
    ast.BitOr: lambda a, b: a | b,
    ast.BitXor: lambda a, b: a ^ b,
}

_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: lambda a, b: a < b,
    ast.LtE: lambda a, b: a <= b,
    ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b,
}


def truth(value: Value) -> bool:
    """`bool(value)`; refuses what is not known before the library runs."""
    if isinstance(value, Unknown):
        raise value.refuse()
    if isinstance(value, Symbol):
        raise Unknown(value.name).refuse()
    if value is None or isinstance(value, bool | int | float):
        return bool(value)
    return len(value) > 0 if is_sized(value) else True


def _numbers(op: ast.operator, left: Value, right: Value, meter: Meter) -> Value:
    kind = type(op)
    if isinstance(op, ast.Pow):
        if isinstance(left, int) and isinstance(right, int) and 0 <= right <= _POWER_LIMIT:
            if left.bit_length() * right > 4 * _POWER_LIMIT:
                raise CannotFollow("a power that is out of proportion")
            return meter.integer(left**right)
        raise CannotFollow("a power that we do not compute")
    if isinstance(op, ast.LShift | ast.RShift):
        if isinstance(left, int) and isinstance(right, int) and 0 <= right <= _SHIFT_LIMIT:
            return meter.integer(left << right if isinstance(op, ast.LShift) else left >> right)
        raise CannotFollow("a shift that we do not compute")
    function = _ARITHMETIC.get(kind)
    if function is None:
        raise CannotFollow(f"operator {kind.__name__}")
    try:
        result = function(left, right)
    except (ZeroDivisionError, TypeError, OverflowError) as error:
        raise CannotFollow(f"operator {kind.__name__} fails ({error})") from error
    return meter.integer(result) if isinstance(result, int) else result


def _repeat(sequence: Value, count: Value, meter: Meter) -> Value:
    total = len(sequence) * max(0, int(count))
    if isinstance(sequence, str):
        if total > meter.bytes:
            meter.text("")
            raise CannotFollow("a string that is out of proportion")
        return meter.text(sequence * count)
    meter.step(total)
    return sequence * count


def binary(op: ast.operator, left: Value, right: Value, meter: Meter) -> Value:
    """`left op right`. A list joined with something unknown keeps what is known, and the unknown as one element."""
    if isinstance(left, HostObject):
        hook = left.attrs.get("__truediv__")
        if isinstance(op, ast.Div) and isinstance(hook, Host):
            return hook.call([right], {})
    if isinstance(op, ast.Add):
        if is_list(left) and isinstance(right, Unknown | Symbol):
            meter.step(len(left))
            return [*left, right]
        if is_list(right) and isinstance(left, Unknown | Symbol):
            meter.step(len(right))
            return [left, *right]
    for side in (left, right):
        if isinstance(side, Unknown):
            return Unknown(side.what)
        if isinstance(side, Symbol):
            return Unknown(side.name)
    if isinstance(left, _NUMBER) and isinstance(right, _NUMBER):
        return _numbers(op, left, right, meter)
    if isinstance(op, ast.Mod) and isinstance(left, str):
        return percent_text(left, right, meter)
    if isinstance(op, ast.Add):
        if isinstance(left, str) and isinstance(right, str):
            return meter.text(left + right)
        if is_list(left) and is_list(right):
            meter.step(len(left) + len(right))
            return [*left, *right]
        if is_tuple(left) and is_tuple(right):
            meter.step(len(left) + len(right))
            return (*left, *right)
    if isinstance(op, ast.Mult):
        if is_line(left) and isinstance(right, int):
            return _repeat(left, right, meter)
        if is_line(right) and isinstance(left, int):
            return _repeat(right, left, meter)
    if is_set(left) and is_set(right) and isinstance(op, ast.BitAnd | ast.BitOr | ast.Sub):
        meter.step(len(left) + len(right))
        return _ARITHMETIC[type(op)](left, right)
    if is_dict(left) and is_dict(right) and isinstance(op, ast.BitOr):
        meter.step(len(left) + len(right))
        return {**left, **right}
    raise CannotFollow(f"operator {type(op).__name__} between a {type(left).__name__} and a {type(right).__name__}")


def _equal(left: Value, right: Value, meter: Meter, depth: int = 0) -> bool:
    if isinstance(left, Unknown):
        raise left.refuse()
    if isinstance(right, Unknown):
        raise right.refuse()
    if is_row(left) and is_row(right):
        if type(left) is not type(right) or len(left) != len(right):
            return False
        if depth > 20:
            raise CannotFollow("it compares values that are nested too deeply")
        meter.step(len(left))
        return all(_equal(a, b, meter, depth + 1) for a, b in zip(left, right, strict=True))
    if isinstance(left, str) and isinstance(right, str):
        return left == right
    if is_dict(left) and is_dict(right):
        if depth > 20:
            raise CannotFollow("it compares values that are nested too deeply")
        meter.step(1 + len(left))
        return left.keys() == right.keys() and all(_equal(left[key], right[key], meter, depth + 1) for key in left)
    if is_set(left) and is_set(right):
        meter.step(1 + len(left) + len(right))
        return left == right
    if isinstance(left, _NUMBER) and isinstance(right, _NUMBER):
        return left == right
    if isinstance(left, Symbol):
        return left == right
    return left is right


def _contains(container: Value, item: Value, meter: Meter) -> bool:
    if isinstance(container, str):
        if isinstance(item, str):
            meter.step(1 + len(container) // 64)
            return item in container
        raise CannotFollow("it looks for something that is no string in a string")
    if is_dict(container) or is_set(container):
        return hashable(item, meter) in container
    if is_sized(container):
        meter.step(len(container))
        return any(_equal(entry, item, meter) for entry in container)
    if isinstance(container, Unknown):
        raise container.refuse()
    raise CannotFollow(f"it looks for a value in a {type(container).__name__}")


def hashable(value: Value, meter: Meter) -> Value:
    """`value` when it may be a key; refuses otherwise. Metered: the host's hash walks nested tuples as this does."""
    meter.step()
    if isinstance(value, Unknown):
        raise value.refuse()
    if isinstance(value, list | dict | set):
        raise CannotFollow("it uses a list as a key")
    if is_tuple(value):
        for item in value:
            hashable(item, meter)
    return value


def sortable(items: list[Value]) -> bool:
    """Whether the host may order `items`: all numbers, all strings, or flat tuples of those."""
    flat = [part for item in items for part in (item if is_tuple(item) else (item,))]
    return all(isinstance(part, _NUMBER) for part in flat) or all(isinstance(part, str) for part in flat)


def compare(op: ast.cmpop, left: Value, right: Value, meter: Meter) -> bool:
    """`left op right` for one comparison operator."""
    if isinstance(op, ast.Is | ast.IsNot):
        if isinstance(left, Unknown):
            raise left.refuse()
        if isinstance(right, Unknown):
            raise right.refuse()
        plain = isinstance(left, bool | int | str | Symbol) and type(left) is type(right)
        same = left is right or (plain and left == right)
        return same if isinstance(op, ast.Is) else not same
    if isinstance(op, ast.Eq):
        return _equal(left, right, meter)
    if isinstance(op, ast.NotEq):
        return not _equal(left, right, meter)
    if isinstance(op, ast.In):
        return _contains(right, left, meter)
    if isinstance(op, ast.NotIn):
        return not _contains(right, left, meter)
    for side in (left, right):
        if isinstance(side, Unknown):
            raise side.refuse()
    order = _ORDER.get(type(op))
    comparable = (
        (isinstance(left, _NUMBER) and isinstance(right, _NUMBER))
        or (isinstance(left, str) and isinstance(right, str))
        or (is_row(left) and is_row(right) and is_list(left) == is_list(right) and sortable([*left, *right]))
    )
    if order is None or not comparable:
        raise CannotFollow(f"it orders a {type(left).__name__} and a {type(right).__name__}")
    if is_row(left):
        meter.step(len(left))
    try:
        return bool(order(left, right))
    except TypeError as error:
        raise CannotFollow("it orders values of different kinds") from error
