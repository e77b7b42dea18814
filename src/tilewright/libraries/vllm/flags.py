"""The flags of `vllm serve`: `vllm/engine/arg_utils.py` and its `config/*.py`, `entrypoints/**/cli_args.py`.

Mirrors `_compute_kwargs` of `vllm/engine/arg_utils.py` (0.33.0): a field's annotation decides the kind of its flag (a
bool has a `--no-` form, a `Literal` or an alias of one gives choices), the string after the field is its help.
"""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from typing import NamedTuple

import msgspec

from tilewright.libraries.engine_flags import arguments
from tilewright.libraries.engine_flags.fold import MAX_DEPTH, Module, NotLiteralError, Sources, text
from tilewright.libraries.engine_flags.model import Flag


class _Field(NamedTuple):
    annotation: ast.expr
    value: ast.expr | None
    help: str | None
    module: Module
    line: int


def vllm_flags(sources: Sources, package: str, fronts: list[str]) -> list[Flag]:
    """Flags of the package folder `package`: the engine, async serving, and the front end in the files `fronts`."""
    found: list[Flag] = []
    engine = sources.module(f"{package}/engine/arg_utils.py")
    if engine is None:
        return found
    functions = [(node, engine) for cls in engine.classes.values() for node in cls.body if _is_adder(node)]
    for path in fronts:
        front = sources.module(path)
        if front is None:
            continue
        functions += [(node, front) for node in front.functions.values() if _adds(node)]
        for cls in front.classes.values():
            functions += [(node, front) for node in cls.body if _is_adder(node)]
            if _is_front(cls):
                for name, field in _fields(cls.name, front, sources).items():
                    if not name.startswith("_"):
                        found.append(_of_field(("--" + name.replace("_", "-"),), name, field, {}, sources))
    for function, module in functions:
        if isinstance(function, ast.FunctionDef):
            found.extend(_added(function, module, sources))
    unique: dict[str, Flag] = {}
    for flag in found:
        unique.setdefault(flag.names[0], flag)
    return list(unique.values())


def _is_front(cls: ast.ClassDef) -> bool:
    """Whether each field of a class is a flag: it, or the class of that kind that it extends, loops over them."""
    bases = [base.id for base in cls.bases if isinstance(base, ast.Name)]
    own = any(isinstance(node, ast.FunctionDef) and "get_kwargs(cls)" in text_of(node) for node in cls.body)
    return own or any(base.endswith("FrontendArgs") for base in bases)


def _is_adder(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name.startswith(("add_cli_args", "_add_"))


def _adds(node: ast.FunctionDef) -> bool:
    return node.name.startswith(("make_arg_parser", "add_cli_args"))


def text_of(node: ast.AST) -> str:
    """The source of `node`, or nothing where it cannot be written out."""
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return ""


def _added(function: ast.FunctionDef, module: Module, sources: Sources) -> list[Flag]:
    local = arguments.local_values(function)
    tables: dict[str, dict[str, _Field]] = {}
    for name, value in local.items():
        match value:
            case ast.Call(func=ast.Name(id="get_kwargs"), args=[ast.Name(id=config)]):
                tables[name] = _fields(config, module, sources)
            case _:
                pass
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
            flag = _of_field(options, None, field, given, sources)
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


def _set_later(function: ast.FunctionDef) -> dict[str, dict[str, ast.expr]]:
    """`moe_backend_kwargs["type"] = ...`: what is set in a table of arguments after it was made."""
    out: dict[str, dict[str, ast.expr]] = {}
    for node in ast.walk(function):
        match node:
            case ast.Assign(
                targets=[ast.Subscript(value=ast.Name(id=name), slice=ast.Constant(value=str(key)))], value=value
            ):
                out.setdefault(name, {})[key] = value
            case _:
                pass
    return out


def _spread(
    node: ast.expr | None, tables: dict[str, dict[str, _Field]], local: dict[str, ast.expr], depth: int = 0
) -> tuple[_Field | None, dict[str, ast.expr]]:
    """The field that `**node` spreads, and what the same dictionary puts over it."""
    if depth > MAX_DEPTH:
        return None, {}
    match node:
        case ast.Subscript(value=ast.Name(id=table), slice=ast.Constant(value=str(key))) if table in tables:
            return tables[table].get(key), {}
        case ast.Name(id=name) if name in local:
            return _spread(local[name], tables, local, depth + 1)
        case ast.Dict(keys=keys, values=values):
            field: _Field | None = None
            over: dict[str, ast.expr] = {}
            for key, value in zip(keys, values, strict=True):
                if key is None:
                    field, over = _spread(value, tables, local, depth + 1)
                elif isinstance(key, ast.Constant) and isinstance(key.value, str):
                    over[key.value] = value
            return field, over
        case _:
            return None, {}


def _fields(config: str, module: Module, sources: Sources, depth: int = 0) -> dict[str, _Field]:
    """Fields of a config class, those of its bases in the tree first."""
    found = sources.find(config, module)
    if found is None or found[0] not in found[1].classes or depth > MAX_DEPTH:
        return {}
    cls, home = found[1].classes[found[0]], found[1]
    out: dict[str, _Field] = {}
    for base in reversed(cls.bases):
        if isinstance(base, ast.Name) and base.id != config:
            out.update(_fields(base.id, home, sources, depth + 1))
    for index, node in enumerate(cls.body):
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value):
                after = cls.body[index + 1] if index + 1 < len(cls.body) else None
                doc = None
                match after:
                    case ast.Expr(value=ast.Constant(value=str(written))):
                        doc = " ".join(written.split())
                    case _:
                        pass
                out[name] = _Field(annotation, value, doc, home, node.lineno)
            case _:
                pass
    return out


def _default(field: _Field) -> ast.expr | None:
    """The default inside `Field(default=...)`; the call itself where a factory makes it."""
    match field.value:
        case ast.Call(func=ast.Name(id="Field" | "field"), args=args, keywords=keywords):
            given = {item.arg: item.value for item in keywords}
            factory = given.get("default_factory")
            if isinstance(factory, ast.Name) and factory.id in ("list", "dict", "set"):
                return ast.Dict([], []) if factory.id == "dict" else ast.List([], ast.Load())
            return given.get("default") or (args[0] if args else field.value)
        case _:
            return field.value


def _of_field(
    names: tuple[str, ...], dest: str | None, field: _Field, given: dict[str, ast.expr], sources: Sources
) -> Flag:
    shape = text(field.annotation)
    words = set(re.findall(r"[A-Za-z_]\w*", re.sub(r"(['\"]).*?\1", "", shape)))
    literal = sources.literal(field.annotation, field.module)
    many = bool(words & {"list", "tuple", "set", "List", "Tuple", "Sequence"}) and "dict" not in words
    if words == {"bool", "str", "None"}:
        kind = "optional"
    elif "bool" in words:
        kind = "bool"
    else:
        kind = "values" if many else "value"
    optional = "None" in words or "Optional" in words
    choices, choices_text = None, None
    # A union of a `Literal` and `str` is free text to the parser: the literals are hints (`literal_to_kwargs`).
    if literal is not None and kind != "bool" and "str" not in words:
        choices = (*literal, None) if optional and None not in literal else tuple(literal)
    default, default_text = arguments.default_of(_default(field), sources, field.module)
    default_node = given.get("default")
    if default_node is not None:
        default, default_text = arguments.default_of(default_node, sources, field.module)
    if "choices" in given:
        choices, choices_text = arguments.choices_of(given["choices"], sources, field.module)
    action = text(given["action"]) if "action" in given else None
    if action:
        kind = arguments.kind_of(action, None)
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
        type=text(given["type"]) if "type" in given else shape,
        choices=choices,
        choices_text=choices_text,
        default=default,
        default_text=default_text,
        help=help_text,
        deprecated=deprecated,
        successor=successor,
    )
