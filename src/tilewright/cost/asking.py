"""From a JSON object to a question: which kind its `op` names, and a sentence where it does not fit that kind."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar, cast

import msgspec

from tilewright.errors import InputError, nearest, shown

__all__ = ["check_whole", "question_of"]

Q = TypeVar("Q")
_WORDS: Final[dict[str, str]] = {
    "int": "a whole number", "float": "a number", "str": "a string", "bool": "true or false",
    "array": "a list", "object": "an object",
}  # fmt: skip


def question_of(raw: dict[str, Any], kinds: Mapping[str, type[Q]]) -> Q:
    """The question that a JSON object asks, one of `kinds` by its `op`. Null means absent.

    Raises InputError naming the field.
    """
    op = raw.get("op")
    kind = kinds.get(op) if isinstance(op, str) else None
    if kind is None:
        raise InputError("op", f"op must be one of {', '.join(kinds)}, not {shown(op)}.")
    if None in raw.values():
        raw = {key: value for key, value in raw.items() if value is not None}
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error), raw, kind) from None


def check_whole(name: str, value: object, high: int, low: int = 1) -> None:
    """Raises InputError where `value` is no whole number in range. A bool is an int to Python; here it is none."""
    if type(value) is not int or not low <= value <= high:
        raise InputError(name, f"{name} must be a whole number from {low:,} to {high:,}, not {shown(value)}.")


def _plain(message: str) -> str:
    """msgspec's message without its type names: Expected `int | null`, got `str` -> expected a whole number."""
    wanted = message.partition(", got ")[0]
    found = re.fullmatch(r"Expected `(.+)`", wanted)
    if found is None:
        return wanted
    kinds = [_WORDS.get(kind, kind) for kind in str(found[1]).split(" | ") if kind != "null"]
    return f"expected {' or '.join(kinds)}"


def _at(raw: dict[str, Any], path: str) -> Any:
    """What stands at a path such as checkpoint.format; the deepest part that is there."""
    value: Any = raw
    for key in path.split("."):
        if not isinstance(value, dict):
            break
        value = cast("dict[str, Any]", value).get(key)
    return value


def _explain(text: str, raw: dict[str, Any], kind: type[Any]) -> InputError:
    fields = kind.__struct_fields__
    for key in raw:
        if key != "op" and key not in fields:
            near = nearest(str(key), fields)
            hint = f" ({near[0]}?)" if near else ""
            legal = ", ".join(name for name in fields if name != "op")
            msg = f"{shown(key)} is no field of a {raw.get('op')} question{hint}; its fields are {legal}."
            return InputError(str(key), msg)
    message, _, path = text.partition(" - at `$.")
    if path:
        field = path.rstrip("`")
        return InputError(field, f"{field}: {_plain(message)}, not {shown(_at(raw, field))}.")
    missing = message.partition("required field `")[2].rstrip("`")
    if missing:
        needed = [field.name for field in msgspec.structs.fields(kind) if field.required]
        return InputError(missing, f"{missing} is missing; this question needs {', '.join(needed)}.")
    return InputError("question", f"{message}.")
