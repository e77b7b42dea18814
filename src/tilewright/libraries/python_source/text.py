"""Text of evaluated values: `str`, `repr`, `str.format` and `%`, without ever formatting through the host.

The host's own formatting would follow attributes of our objects and honour widths of a billion; here a field is a
name or an index, and a width has at most three digits.
"""

from __future__ import annotations

import re
from string import Formatter

from tilewright.libraries.python_source.limits import CannotFollow, Meter
from tilewright.libraries.python_source.values import (
    Class,
    EnumMember,
    ExceptionValue,
    Function,
    Host,
    HostType,
    Instance,
    Symbol,
    Unknown,
    Value,
    is_dict,
    is_list,
    is_row,
    is_set,
    is_tuple,
)

_SPEC = re.compile(r"(?:[^{}]?[<>^])?0?\d{0,3}(?:\.\d{1,2})?[bcdefgosxX%]?")
_PERCENT = re.compile(r"%(?:%|(?:-|0)?\d{0,3}(?:\.\d{1,2})?[sdrxf])")


def to_text(value: Value, meter: Meter, quote: bool = False, depth: int = 0) -> str:
    """`str(value)`, or `repr(value)` with `quote`, for plain data and the objects that have an obvious text."""
    if depth > 20:
        raise CannotFollow("it prints a value that is nested too deeply")
    if isinstance(value, str):
        return meter.text(repr(value) if quote else value)
    if value is None or isinstance(value, bool | int | float):
        return str(value)
    if is_row(value) or is_set(value) or is_dict(value):
        meter.step(len(value))
        if is_dict(value):
            inner = ", ".join(
                f"{to_text(key, meter, True, depth + 1)}: {to_text(item, meter, True, depth + 1)}"
                for key, item in value.items()
            )
            return meter.text("{" + inner + "}")
        items = [to_text(item, meter, True, depth + 1) for item in value]
        if is_tuple(value):
            return meter.text(f"({', '.join(items)}{',' if len(items) == 1 else ''})")
        return meter.text(("[%s]" if is_list(value) else "{%s}") % ", ".join(items))
    if isinstance(value, EnumMember):
        return f"{value.cls.name}.{value.name}"
    if isinstance(value, Symbol):
        return value.name
    if isinstance(value, Unknown):
        raise value.refuse()
    if isinstance(value, ExceptionValue):
        return ", ".join(to_text(item, meter, False, depth + 1) for item in value.args)
    if isinstance(value, Class | HostType):
        return f"<class '{value.name}'>"
    if isinstance(value, Function | Host):
        return f"<function {value.name}>"
    if isinstance(value, Instance):
        return f"<{value.cls.name} object>"
    text = getattr(value, "as_text", None)
    if callable(text):
        return str(text())
    raise CannotFollow(f"it prints a {type(value).__name__}")


def formatted(value: Value, spec: str, conversion: str, meter: Meter) -> str:
    """One replacement field: `value` under the conversion (`r`, `s` or none) and format `spec`."""
    if isinstance(value, Unknown):
        raise value.refuse()
    if not _SPEC.fullmatch(spec):
        raise CannotFollow(f"format specification {spec[:40]!r}")
    plain = isinstance(value, bool | int | float | str)
    text = to_text(value, meter, quote=conversion == "r") if conversion in ("r", "s") or not plain else value
    try:
        return meter.text(format(text, spec))
    except (ValueError, TypeError) as error:
        raise CannotFollow(f"format specification {spec[:40]!r} does not suit its value") from error


def format_text(template: str, args: list[Value], kwargs: dict[str, Value], meter: Meter) -> str:
    """`template.format(*args, **kwargs)` with fields that are plain names or indexes."""
    out: list[str] = []
    auto = 0
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise CannotFollow("a malformed format string") from error
    for literal, name, spec, conversion in parts:
        meter.step()
        out.append(literal)
        if name is None:
            continue
        if name == "":
            key: int | str = auto
            auto += 1
        else:
            key = int(name) if name.isdecimal() and len(name) < 5 else name
        if isinstance(key, int):
            if key >= len(args):
                raise CannotFollow("a format string asks for more arguments than it gets")
            value = args[key]
        elif key in kwargs:
            value = kwargs[key]
        else:
            raise CannotFollow(f"format field {key[:40]!r}")
        out.append(formatted(value, spec or "", conversion or "", meter))
    return meter.text("".join(out))


def percent_text(template: str, values: Value, meter: Meter) -> str:
    """`template % values` for %s, %d, %r, %x and %f."""
    items = list(values) if is_tuple(values) else [values]
    out: list[str] = []
    last = 0
    for match in _PERCENT.finditer(template):
        meter.step()
        out.append(template[last : match.start()])
        last = match.end()
        code = match.group()
        if code == "%%":
            out.append("%")
            continue
        if not items:
            raise CannotFollow("a % format asks for more arguments than it gets")
        value = items.pop(0)
        if isinstance(value, Unknown):
            raise value.refuse()
        if not isinstance(value, bool | int | float | str):
            value = to_text(value, meter)
        try:
            out.append(code % (value,))
        except (TypeError, ValueError) as error:
            raise CannotFollow(f"format code {code}") from error
    if "%" in template[last:]:
        raise CannotFollow("a % format that we do not read")
    out.append(template[last:])
    return meter.text("".join(out))
