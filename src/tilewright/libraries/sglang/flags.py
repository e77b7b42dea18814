"""The flags of SGLang's server: `sglang/srt/server_args.py` and, from about 0.5.2x, `srt/arg_groups/fields/*.py`.

Mirrors `add_cli_args_from_dataclass` of `srt/arg_groups/arg_utils.py` (0.5.23): a field `name: A[type, Arg(...)]` is
the flag `--name`, a bare string is its help, `no_cli` fields have none; older versions call `add_argument` themselves.
"""

from __future__ import annotations

import ast
from typing import Any

from tilewright.libraries.engine_flags import arguments
from tilewright.libraries.engine_flags.fold import Module, NotLiteralError, Sources, text
from tilewright.libraries.engine_flags.model import Flag


def sglang_flags(sources: Sources, package: str, fields: list[str]) -> list[Flag]:
    """Flags of the package folder `package`; `fields` are the files of `srt/arg_groups/fields`."""
    found: list[Flag] = []
    server = sources.module(f"{package}/srt/server_args.py")
    if server is None:
        return found
    defaults: dict[str, tuple[ast.expr, Module]] = {}
    for path in [*fields, f"{package}/srt/server_args.py"]:
        module = sources.module(path)
        for cls in module.classes.values() if module else ():
            if path not in fields and cls.name != "ServerArgs":
                continue
            for node in cls.body:
                match node:
                    case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=value) if module:
                        if value is not None:
                            defaults[name] = (value, module)
                        if flag := _field(name, annotation, value, node.lineno, sources, module):
                            found.append(flag)
                    case _:
                        pass
    seen = {name for flag in found for name in flag.names}
    for cls in server.classes.values():
        for node in cls.body:
            if isinstance(node, ast.FunctionDef) and node.name == "add_cli_args":
                added = _added(node, sources, server, defaults)
                found.extend(flag for flag in added if not seen.intersection(flag.names))
    return found


def _added(
    function: ast.FunctionDef, sources: Sources, module: Module, defaults: dict[str, tuple[ast.expr, Module]]
) -> list[Flag]:
    local = arguments.local_values(function)
    out: list[Flag] = []
    for call in arguments.calls(function):
        call = _with_defaults(call, defaults)
        flag = arguments.flag_of(call, sources, module, local)
        if flag is None:
            sources.problems.append(f"{module.path}:{call.lineno}: names computed at run time")
        else:
            out.append(flag)
    return out


def _with_defaults(call: ast.Call, defaults: dict[str, tuple[ast.expr, Module]]) -> ast.Call:
    """`default=ServerArgs.x` and `default=_declared_default("x")` replaced by what the field is set to."""
    keywords: list[ast.keyword] = []
    for item in call.keywords:
        name = None
        match item.value:
            case ast.Attribute(value=ast.Name(id="ServerArgs"), attr=attr) if item.arg == "default":
                name = attr
            case ast.Call(func=ast.Name(id="_declared_default"), args=[ast.Constant(value=str(attr))]):
                name = attr
            case _:
                pass
        keywords.append(ast.keyword(item.arg, defaults[name][0]) if name in defaults else item)
    made = ast.Call(call.func, call.args, keywords)
    return ast.copy_location(made, call)


def _field(
    name: str, annotation: ast.expr, value: ast.expr | None, line: int, sources: Sources, module: Module
) -> Flag | None:
    match annotation:
        case ast.Subscript(value=ast.Name(id="A" | "Annotated"), slice=ast.Tuple(elts=[kind, *marks])):
            pass
        case _:
            return None
    given: dict[str, ast.expr] = {}
    help_node: ast.expr | None = None
    for mark in marks:
        match mark:
            case ast.Call(func=ast.Name(id="Arg"), args=args, keywords=keywords):
                given = {item.arg: item.value for item in keywords if item.arg}
                help_node = given.get("help", args[0] if args else None)
                break
            case ast.Call():
                continue
            case _:
                help_node = mark
                break
    else:
        return None

    def folded(key: str) -> Any:
        try:
            return sources.fold(given[key], module) if key in given else None
        except NotLiteralError:
            return None

    if folded("no_cli") is True:
        return None
    aliases: list[object] = folded("aliases") or []
    names: list[object] = [folded("cli_name") or "--" + name.replace("_", "-"), *aliases]
    try:
        help_text = arguments.as_text(sources.fold(help_node, module)) if help_node is not None else None
    except NotLiteralError:
        help_text = text(help_node) if help_node is not None else None
    default, default_text = arguments.default_of(value, sources, module)
    choices, choices_text = arguments.choices_of(given.get("choices"), sources, module)
    shape = text(kind)
    plain = shape.removeprefix("Optional[").removesuffix("]") if shape.startswith("Optional[") else shape
    plain = plain.replace(" | None", "").replace("None | ", "")
    if choices is None and choices_text is None and (literal := sources.literal(kind, module)) is not None:
        choices = tuple(literal)
    action = text(given["action"]) if "action" in given else None
    more = given.get("action_kwargs")
    extra: dict[str, Any] = {}
    if isinstance(more, ast.Dict):
        for key, item in zip(more.keys, more.values, strict=True):
            try:
                extra[str(sources.fold(key, module)) if key else ""] = sources.fold(item, module)
            except NotLiteralError:
                continue
    if action:
        how = arguments.kind_of(action, extra.get("nargs"))
    elif plain == "bool":
        how = "switch"
    elif plain.startswith(("List[", "list[")) and "type_parser" not in given:
        how = arguments.kind_of(None, folded("nargs") or "+")
    else:
        how = arguments.kind_of(None, folded("nargs"))
    if "type_parser" in given:
        reads = arguments.reads_of(text(given["type_parser"]))
    else:
        element = plain[5:].removesuffix("]") if plain.startswith(("List[", "list[")) else plain
        reads = arguments.reads_of(element)
    deprecated, successor = arguments.marks(help_text, action, arguments.as_text(extra.get("new_flag")))
    return Flag(
        names=tuple(str(item) for item in names),
        dest=name,
        file=module.path,
        line=line,
        kind=how,
        type=shape,
        reads=reads if choices is None and how in ("value", "values", "optional") else None,
        choices=choices,
        choices_text=choices_text,
        default=default,
        default_text=default_text,
        help=help_text,
        deprecated=deprecated,
        successor=successor,
        required=folded("required") is True or (value is None and "required" not in given),
    )
