"""Input schemas of the tools, taken from what the commands have: their options, and the types of their questions.

Nothing is written twice: a tool names the options that it takes; type, range, choices, default and help are those of
the command. Arguments are checked against the types made here, before anything runs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Final, Literal, cast, get_args, get_origin, get_type_hints

import click
import msgspec

from tilewright.errors import InputError, nearest, shown

__all__ = ["Inputs", "of_config", "of_options", "of_structs"]

MAX_TEXT: Final = 1 << 20
"""Longest string of an argument, in characters: a log given as text."""
MAX_LIST: Final = 256

_WORDS: Final = {
    "int": "a whole number", "float": "a number", "str": "a string", "bool": "true or false", "array": "a list",
    "object": "an object", "null": "null",
}  # fmt: skip


class Inputs(msgspec.Struct, frozen=True):
    """What a tool takes: its JSON Schema, and what checks arguments against it."""

    schema: dict[str, Any]
    check: Callable[[Mapping[str, Any]], dict[str, Any]]
    """Arguments as given -> as the tool's function gets them. Raises InputError naming the argument."""


def of_options(
    command: click.Command,
    names: Iterable[str],
    extra: Mapping[str, tuple[Any, str]] | None = None,
    required: Iterable[str] = (),
) -> Inputs:
    """The options and arguments of `command` called `names` (as its function calls them), and `extra` ones.

    `extra`: name -> (type, description), optional. `required`: names that the tool demands though the command does not.
    """
    by_name = {str(parameter.name): parameter for parameter in command.params}
    needed = set(required)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    optional: list[tuple[str, Any, Any]] = []
    for name in names:
        parameter = by_name[name]
        kind = _kind(parameter)
        key = name.split("_", 1)[1] if name.startswith(("layer_", "config_")) else name
        text = _help(parameter)
        if parameter.required or name in needed:
            fields.append((key, Annotated[kind, msgspec.Meta(description=text)]))
        else:
            default = parameter.default if isinstance(parameter.default, bool | int | float | str) else None
            annotated = Annotated[kind if default is not None else kind | None, msgspec.Meta(description=text)]
            optional.append((key, annotated, default))
    for key, (kind, text) in (extra or {}).items():
        optional.append((key, Annotated[kind | None, msgspec.Meta(description=text)], None))
    made = msgspec.defstruct("Arguments", [*fields, *optional], kw_only=True, forbid_unknown_fields=True)
    return Inputs(_flat(msgspec.json.schema(made)), lambda raw: _checked(raw, made))


def _kind(parameter: click.Parameter) -> Any:
    kind = parameter.type
    if parameter.nargs == -1 or parameter.multiple:
        return Annotated[list[Annotated[str, msgspec.Meta(max_length=4096)]], msgspec.Meta(max_length=MAX_LIST)]
    if isinstance(kind, click.Choice):
        return Literal[tuple(str(choice) for choice in cast("Iterable[Any]", kind.choices))]
    if isinstance(kind, click.types.BoolParamType):
        return bool
    if parameter.metavar == "N":  # a number that the command itself checks
        return Annotated[int, msgspec.Meta(ge=0, le=1 << 53)]
    if isinstance(kind, click.types.IntParamType):
        low, high = (getattr(kind, name, None) for name in ("min", "max"))
        return Annotated[int, msgspec.Meta(ge=int(low) if low is not None else -(1 << 53), le=int(high or 1 << 53))]
    if isinstance(kind, click.types.FloatParamType):
        return float
    return Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]


def _help(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Option):
        return parameter.help or ""
    return f"{parameter.make_metavar(click.Context(click.Command('tool')))}: as the command takes it."


def _flat(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema whose root is the object itself: clients take no reference there."""
    body: dict[str, Any] = schema["$defs"]["Arguments"]
    return {key: value for key, value in body.items() if key != "title"}


def _checked(raw: Mapping[str, Any], kind: type[msgspec.Struct]) -> dict[str, Any]:
    legal = kind.__struct_fields__
    for name in raw:
        if name not in legal:
            near = nearest(str(name), legal) or list(legal)
            raise InputError(
                str(name), f"{shown(name)} is no argument of this tool; the nearest are: {', '.join(near)}."
            )
    try:
        made = msgspec.convert(dict(raw), kind)
    except msgspec.ValidationError as error:
        raise _refused(str(error), raw, kind) from None
    return msgspec.structs.asdict(made)


def _legal(kind: type[msgspec.Struct], field: str) -> list[str]:
    """The values of a field that has a closed set of them."""
    hint: Any = get_type_hints(kind).get(field)
    return [str(value) for item in (hint, *get_args(hint)) if get_origin(item) is Literal for value in get_args(item)]


def _refused(text: str, raw: Mapping[str, Any], kind: type[msgspec.Struct]) -> InputError:
    message, _, path = text.partition(" - at `$.")
    missing = re.search(r"required field `(\w+)`", message)
    if missing is not None:
        return InputError(missing[1], f"{missing[1]} is missing: this tool needs it.")
    field = re.split(r"[\[.`]", path)[0] or "arguments"
    wanted = re.match(r"Expected `([^`]+)`(.*), got", message)
    if wanted is not None:
        kinds = " or ".join(_WORDS.get(item, item) for item in wanted[1].split(" | ") if item != "null")
        return InputError(field, f"{field}: {shown(raw.get(field))} is not {kinds}{wanted[2]}.")
    legal = _legal(kind, field)
    if message.startswith("Invalid enum value") and legal:
        return InputError(field, f"{field}: {shown(raw.get(field))} is not taken; legal are {', '.join(legal)}.")
    return InputError(field, f"{field}: {shown(raw.get(field))} is not taken: {message[:1].lower()}{message[1:]}.")


def of_config(extra: Mapping[str, tuple[dict[str, Any], str]]) -> Inputs:
    """A kernel config (DESIGN 4.2, `docs/kernel-config.md`): its keys, legal values and flag helps. `parse_config`
    does the checking, so that a tool, a flag and a JSON line get the same message."""
    from tilewright.cli.config_options import describe
    from tilewright.cutlass.config import KEYS, LEGAL, KernelConfig

    types: dict[str, Any] = msgspec.json.schema(KernelConfig)["$defs"]["KernelConfig"]["properties"]
    properties: dict[str, Any] = {}
    for key in KEYS:
        made = {name: value for name, value in types[key].items() if name != "default"}
        if key in LEGAL:
            made = {"type": "string", "enum": list(LEGAL[key])}
        elif made.get("type") == "array":
            made = {"anyOf": [made, {"type": "string"}]}
        properties[key] = {**made, "description": describe(key)}
    for key, (kind, text) in extra.items():
        properties[key] = {**kind, "description": text}
    schema = {
        "type": "object", "properties": properties, "required": ["arch", "a", "tile"], "additionalProperties": False,
    }  # fmt: skip
    return Inputs(schema, dict)


def of_structs(kinds: Iterable[type[msgspec.Struct]], helps: Mapping[str, str], tag: str) -> Inputs:
    """One object that asks any of the questions `kinds`, told apart by the key `tag`; `helps` describes the keys.

    Clients want a plain object at the root, so the keys of all are put side by side; the question's own parser checks
    which of them belong together.
    """
    properties: dict[str, Any] = {tag: {"enum": [], "description": "What is asked; it decides which keys count."}}
    shared: set[str] | None = None
    definitions: dict[str, Any] = {}
    for kind in kinds:
        (body,) = (item for item in [msgspec.json.schema(kind)["$defs"]])
        mine: dict[str, Any] = body.pop(kind.__name__)
        definitions |= body
        required = set(mine["required"])
        shared = required if shared is None else shared & required
        for key, value in mine["properties"].items():
            if key == tag:
                properties[tag]["enum"] += value["enum"]
                continue
            properties.setdefault(key, {**value, "description": helps[key]} if key in helps else value)
            properties[key].pop("default", None)
    schema: dict[str, Any] = {
        "type": "object", "properties": properties, "required": sorted(shared or ()), "additionalProperties": False,
    }  # fmt: skip
    if definitions:
        schema["$defs"] = definitions
    return Inputs(schema, dict)
