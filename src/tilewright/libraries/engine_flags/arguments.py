"""`parser.add_argument(...)` calls as declarations of flags."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any, Final, cast

from tilewright.libraries.engine_flags.fold import Module, NotLiteralError, Sources, text
from tilewright.libraries.engine_flags.model import Flag

_SUCCESSOR: Final = re.compile(r"[Uu]se\s+[`'\"]?(--?[\w.-]+(?:=[\w-]+)?)")
_DEPRECATED: Final = re.compile(r"(?i)\bdeprecated\b|has no effect")
_SWITCHES: Final = ("store_true", "store_false", "store_const", "count", "help", "version")


def calls(function: ast.FunctionDef) -> Iterator[ast.Call]:
    """The `add_argument` calls of a function, in source order."""
    found = [
        n
        for n in ast.walk(function)
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "add_argument"
    ]
    yield from sorted(found, key=lambda call: (call.lineno, call.col_offset))


def local_values(function: ast.FunctionDef) -> dict[str, ast.expr]:
    """What a function's names are set to, where set once to an expression."""
    out: dict[str, ast.expr] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                out[name] = value
            case _:
                pass
    return out


def kind_of(action: str | None, nargs: Any) -> str:
    """`Flag.kind` for an action's name and `nargs`."""
    if action:
        last = action.rsplit(".", 1)[-1].strip("'\"")
        if "BooleanOptional" in last:
            return "bool"
        if last in _SWITCHES or "StoreTrue" in last or "NoOp" in last:
            return "switch"
        if last not in ("store", "append", "extend"):
            return "values" if nargs in ("+", "*") else "unread"
    if nargs in ("+", "*") or (isinstance(nargs, int) and not isinstance(nargs, bool) and nargs > 1):
        return "values"
    return "switch" if nargs == 0 else "optional" if nargs == "?" else "value"


_READERS: Final = {
    "int": "int",
    "float": "float",
    "json.loads": "json",
    "json_list_type": "json",
    "human_readable_int": "human_int",
    "human_readable_int_or_auto": "human_int_or_auto",
}


def reads_of(shape: str | None) -> str | None:
    """`Flag.reads` of a `type=` as written; None for text and for what is not known."""
    plain = shape or ""
    for wrap in ("optional_type(", "parse_type("):
        plain = plain.removeprefix(wrap).removesuffix(")") if plain.startswith(wrap) else plain
    return _READERS.get(plain)


def marks(help_text: str | None, action: str | None, new_flag: str | None) -> tuple[bool, str | None]:
    """Whether a declaration calls itself deprecated (in its action or the start of its help), and the successor."""
    start = (help_text or "")[:160]
    deprecated = bool(new_flag) or "Deprecated" in (action or "") or bool(_DEPRECATED.search(start))
    if not deprecated:
        return False, None
    hit = _SUCCESSOR.search((help_text or "")[:1000])
    return True, new_flag or (hit.group(1).rstrip(".") if hit else None)


def flag_of(call: ast.Call, sources: Sources, module: Module, local: dict[str, ast.expr]) -> Flag | None:
    """The flag of one `add_argument`, or None where its names are computed (or it is a positional argument)."""
    names: list[str] = []
    for arg in call.args:
        try:
            value = sources.fold(arg, module, local)
        except NotLiteralError:
            return None
        if isinstance(value, str) and value.startswith("-"):
            names.append(value)
    if not names:
        return None
    given = {item.arg: item.value for item in call.keywords if item.arg}

    def folded(key: str) -> Any:
        if key not in given:
            return None
        try:
            return sources.fold(given[key], module, local)
        except NotLiteralError:
            return None

    default, default_text = default_of(given.get("default"), sources, module, local)
    choices, choices_text = choices_of(given.get("choices"), sources, module, local)
    action = text(given["action"]) if "action" in given else None
    help_text = as_text(folded("help"))
    if action in ("'store_true'", "'store_false'") and "default" not in given:
        default = action == "'store_false'"
    successor = as_text(folded("new_flag"))
    deprecated, successor = marks(help_text, action, successor)
    first = next((name for name in names if name.startswith("--")), names[0])
    return Flag(
        names=tuple(names),
        dest=as_text(folded("dest")) or first.lstrip("-").replace("-", "_"),
        file=module.path,
        line=call.lineno,
        kind=kind_of(action, folded("nargs")),
        type=text(given["type"]) if "type" in given else None,
        reads=reads_of(text(given["type"])) if "type" in given and choices is None else None,
        nullable="type" in given and text(given["type"]).startswith("optional_type("),
        choices=choices,
        choices_text=choices_text,
        default=default,
        default_text=default_text,
        help=help_text,
        deprecated=deprecated,
        successor=successor,
        required=folded("required") is True,
    )


def as_text(value: object) -> str | None:
    """`value` where it is a non-empty string, its white space made single."""
    return " ".join(value.split()) or None if isinstance(value, str) else None


def default_of(
    node: ast.expr | None, sources: Sources, module: Module, local: dict[str, ast.expr] | None = None
) -> tuple[object, str | None]:
    """A default's value, or its expression where it is computed at run time."""
    if node is None:
        return None, None
    try:
        value = sources.fold(node, module, local)
    except NotLiteralError:
        return None, text(node)
    plain = isinstance(value, str | int | float | bool | list | dict) or value is None
    made = cast("object", value)
    return (made, None) if plain else (None, text(node))


def choices_of(
    node: ast.expr | None, sources: Sources, module: Module, local: dict[str, ast.expr] | None = None
) -> tuple[tuple[Any, ...] | None, str | None]:
    """Choices, or their expression where they are computed at run time."""
    if node is None or (isinstance(node, ast.Constant) and node.value is None):
        return None, None
    try:
        value = sources.fold(node, module, local)
    except NotLiteralError:
        return None, text(node)
    items: list[Any] = value if isinstance(value, list) else list(value) if isinstance(value, dict) else []  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    good = bool(items) and all(item is None or isinstance(item, str | int | float) for item in items)
    return (tuple(items), None) if good else (None, text(node))
