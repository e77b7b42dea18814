"""The flags of `vllm serve`: `vllm/engine/arg_utils.py` and its `config/*.py`, `entrypoints/**/cli_args.py`.

Mirrors `_compute_kwargs` of `vllm/engine/arg_utils.py` (0.33.0): a field's annotation decides the kind of its flag (a
bool has a `--no-` form, a `Literal` or an alias of one gives choices), the string after the field is its help.
"""

from __future__ import annotations

import ast
from contextlib import suppress
from typing import Final

import msgspec

from tilewright.libraries.engine_flags import arguments
from tilewright.libraries.engine_flags.fold import MAX_DEPTH, Module, NotLiteralError, Sources, text
from tilewright.libraries.engine_flags.model import Flag, Limits
from tilewright.libraries.vllm import config_class
from tilewright.libraries.vllm.config_class import ConfigField, config_fields
from tilewright.libraries.vllm.flag_types import human_integers, text_of, value_type

_BOUNDS: Final = {"ge": "at_least", "gt": "above", "le": "at_most", "lt": "below"}
"""Bounds of pydantic's `Field` as `Limits` calls them."""
_ONLY_WITH: Final = {"LoRAConfig": "--enable-lora", "MultiModalConfig": "a multimodal model"}
"""Config classes that are made for some servers only (0.34.0 engine/arg_utils.py `create_engine_config`,
config/model.py `__post_init__`); the others are made at every start."""


def vllm_flags(sources: Sources, package: str, fronts: list[str]) -> list[Flag]:
    """Flags of the package folder `package`: the engine, async serving, and the front end in the files `fronts`."""
    found: list[Flag] = []
    engine = sources.module(f"{package}/engine/arg_utils.py")
    if engine is None:
        return found
    humans = human_integers(engine)
    functions = [(node, engine) for cls in engine.classes.values() for node in cls.body if _is_adder(node)]
    for path in fronts:
        front = sources.module(path)
        if front is None:
            continue
        functions += [(node, front) for node in front.functions.values() if _adds(node)]
        for cls in front.classes.values():
            functions += [(node, front) for node in cls.body if _is_adder(node)]
        changed: dict[str, Given] = {}
        for cls in front.classes.values():
            for (_, name), given in _set_in_fields(cls).items():
                changed.setdefault(name, {}).update(given)
        for cls in front.classes.values():
            if _is_front(cls):
                for name, field in config_fields(cls.name, front, sources).items():
                    if not name.startswith("_"):
                        option = ("--" + name.replace("_", "-"),)
                        found.append(_of_field(option, name, field, changed.get(name, {}), sources, humans))
    for function, module in functions:
        if isinstance(function, ast.FunctionDef):
            found.extend(_added(function, module, sources, humans))
    unique: dict[str, Flag] = {}
    for flag in found:
        unique.setdefault(flag.names[0], flag)
    made = config_class.made_from(engine)
    return [_with_keys(flag, made, engine, sources) for flag in unique.values()]


def _with_keys(flag: Flag, made: dict[str, str], engine: Module, sources: Sources) -> Flag:
    """`flag` with the keys of the config class that its JSON becomes, where that class refuses any other key."""
    if flag.reads not in ("config", "json"):
        return flag
    if flag.reads == "config":
        name, levels = config_class.config_name(flag.type or ""), config_class.NESTED
    else:
        name, levels = made.get(flag.dest), 1  # what stands deeper is the engine's own to fill in
    keys = config_class.config_keys(name, engine, sources, levels) if name else None
    return flag if keys is None else msgspec.structs.replace(flag, keys=keys)


def _is_front(cls: ast.ClassDef) -> bool:
    """Whether each field of a class is a flag: it, or the class of that kind that it extends, loops over them."""
    bases = [base.id for base in cls.bases if isinstance(base, ast.Name)]
    own = any(isinstance(node, ast.FunctionDef) and "get_kwargs(cls)" in text_of(node) for node in cls.body)
    return own or any(base.endswith("FrontendArgs") for base in bases)


def _is_adder(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith(("add_cli_args", "_add_"))


def _adds(node: ast.FunctionDef) -> bool:
    return node.name.startswith(("make_arg_parser", "add_cli_args"))


class _Tables:
    """What `get_kwargs(FooConfig)` makes: the fields of a config class as tables of arguments; `changed` as in
    `_set_in_fields`."""

    def __init__(self, module: Module, sources: Sources, changed: dict[tuple[str, str], Given]) -> None:
        self._module, self._sources, self.changed = module, sources, changed
        self._known: dict[str, dict[str, ConfigField]] = {}

    def of(self, call: ast.expr | None) -> dict[str, ConfigField]:
        """Fields of the class that the call names; empty for another expression."""
        match call:
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=config)]):
                if config not in self._known:
                    self._known[config] = config_fields(config, self._module, self._sources)
                return self._known[config]
            case _:
                return {}


def _added(function: ast.FunctionDef, module: Module, sources: Sources, humans: dict[str, str]) -> list[Flag]:
    local = arguments.local_values(function)
    tables = _Tables(module, sources, _set_in_fields(function))
    set_later = _set_later(function)
    out: list[Flag] = []
    for call in arguments.calls(function):
        spread = next((item.value for item in call.keywords if item.arg is None), None)
        field, overrides = _spread(spread, tables, local)
        names = [arg.value for arg in call.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
        options = tuple(name for name in names if name.startswith("-"))
        if field is not None and options and len(names) == len(call.args):
            given = overrides | {item.arg: item.value for item in call.keywords if item.arg}
            if isinstance(spread, ast.Name):
                given = set_later.get(spread.id, {}) | given
            flag = _of_field(options, None, field, given, sources, humans)
            out.append(msgspec.structs.replace(flag, file=module.path, line=call.lineno))
            continue
        plain = arguments.flag_of(call, sources, module, local)
        if plain is None:
            if not options and names:
                continue  # a positional argument
            if "get_kwargs(cls)" in text_of(function):
                continue  # the loop over the fields of its class, which `vllm_flags` has read
            sources.problems.append(f"{module.path}:{call.lineno}: names computed at run time")
        else:
            out.append(plain if spread is None else msgspec.structs.replace(plain, kind="unread"))
    return out


Given = dict[str, ast.expr]
"""Arguments of `add_argument` by name; an `ast.Constant(None)` for what was taken out again."""


def _set_later(function: ast.AST) -> dict[str, Given]:
    """`moe_backend_kwargs["type"] = ...`: what is set in a table of arguments after it was made."""
    out: dict[str, Given] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key)))], value=value
            ):
                out.setdefault(name, {})[key] = value
            case _:
                pass
    return out


def _set_in_fields(function: ast.AST) -> dict[tuple[str, str], Given]:
    """`frontend_kwargs["middleware"]["action"] = ...` and `del ...`: (table, field) -> what is set in its arguments."""
    out: dict[tuple[str, str], Given] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=[target], value=value):
                pass
            case ast.Delete(targets=[target]):
                value = ast.Constant(None)
            case _:
                continue
        match target:
            case ast.Subscript(
                value=ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(field))),
                slice=ast.Constant(value=str(key)),
            ):
                out.setdefault((name, field), {})[key] = value
            case _:
                pass
    return out


def _spread(
    node: ast.expr | None, tables: _Tables, local: dict[str, ast.expr], depth: int = 0
) -> tuple[ConfigField | None, Given]:
    """The field that `**node` spreads, and what is put over it: in its table, or by the same dictionary."""
    if depth > MAX_DEPTH:
        return None, {}
    match node:
        case ast.Subscript(value=ast.Name(id=table), slice=ast.Constant(value=str(key))):
            return tables.of(local.get(table)).get(key), dict(tables.changed.get((table, key), {}))
        case ast.Subscript(value=ast.Call() as made, slice=ast.Constant(value=str(key))):
            return tables.of(made).get(key), {}
        case ast.Name(id=name) if name in local:
            return _spread(local[name], tables, local, depth + 1)
        case ast.Dict(keys=keys, values=values):
            field: ConfigField | None = None
            over: dict[str, ast.expr] = {}
            for key, value in zip(keys, values, strict=True):
                if key is None:
                    field, over = _spread(value, tables, local, depth + 1)
                elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                    over[key.value] = value
            return field, over
        case _:
            return None, {}


def _default(field: ConfigField) -> ast.expr | None:
    """The default inside `Field(default=...)`; the call itself where a factory makes it."""
    match field.value:
        case ast.Call(func=ast.Name(id="Field" | "field"), args=args, keywords=keywords):
            given = {item.arg: item.value for item in keywords}
            factory = given.get("default_factory")
            if isinstance(factory, ast.Name) and factory.id in ("list", "dict", "set"):
                return ast.Dict([], []) if factory.id == "dict" else ast.List([], ast.Load())
            if isinstance(factory, ast.Lambda):
                return factory.body
            return given.get("default") or (args[0] if args else field.value)
        case _:
            return field.value


def _limits(field: ConfigField, sources: Sources) -> Limits | None:
    """The bounds in `Field(ge=1, le=...)`."""
    match field.value:
        case ast.Call(func=ast.Name(id="Field"), keywords=keywords):
            pass
        case _:
            return None
    bounds: dict[str, float] = {}
    for item in keywords:
        if item.arg in _BOUNDS:
            try:
                value = sources.fold(item.value, field.module)
            except NotLiteralError:
                continue
            if isinstance(value, int | float) and not isinstance(value, bool):
                bounds[_BOUNDS[item.arg]] = value
    if not bounds:
        return None
    source = f"{field.module.path}:{field.line}"
    limits = msgspec.convert(bounds, Limits)
    return msgspec.structs.replace(limits, stops=field.config, source=source, only_with=_ONLY_WITH.get(field.config))


def _of_field(
    names: tuple[str, ...],
    dest: str | None,
    field: ConfigField,
    given: dict[str, ast.expr],
    sources: Sources,
    humans: dict[str, str],
) -> Flag:
    made = value_type(field.name, field.annotation, field.module, sources, humans)
    kind, choices, choices_text = made.kind, made.choices, None
    reads, nullable, any_case = made.reads, made.nullable, made.any_case
    default, default_text = arguments.default_of(_default(field), sources, field.module)
    default_node = given.get("default")
    if default_node is not None:
        default, default_text = arguments.default_of(default_node, sources, field.module)
    if "choices" in given:
        choices, choices_text = arguments.choices_of(given["choices"], sources, field.module)
        reads, any_case = None, False
    if "type" in given:
        reads = arguments.reads_of(text(given["type"]))
        nullable = text(given["type"]).startswith("optional_type(")
    action = text(given["action"]) if "action" in given else None
    if action:
        kind = arguments.kind_of(action, "+" if kind == "values" and "nargs" not in given else None)
    if "nargs" in given:
        try:
            kind = arguments.kind_of(action, sources.fold(given["nargs"], field.module))
        except NotLiteralError:
            kind = "unread"
    help_text = field.help
    if "help" in given:
        with suppress(NotLiteralError):
            help_text = arguments.as_text(sources.fold(given["help"], field.module)) or help_text
    deprecated, successor = arguments.marks(help_text, action, None)
    if given.get("deprecated") is not None:
        deprecated = True
    first = next((name for name in names if name.startswith("--")), names[0])
    return Flag(
        names=names,
        dest=dest or first.lstrip("-").replace("-", "_"),
        file=field.module.path,
        line=field.line,
        kind=kind,
        type=text(given["type"]) if "type" in given else text(field.annotation),
        reads=reads if kind in ("value", "values", "optional") else None,
        nullable=nullable,
        any_case=any_case,
        choices=choices,
        choices_text=choices_text,
        default=default,
        default_text=default_text,
        help=help_text,
        deprecated=deprecated,
        successor=successor,
        limits=_limits(field, sources) if kind in ("value", "optional") else None,
    )
