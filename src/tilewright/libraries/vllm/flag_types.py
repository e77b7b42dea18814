"""What vLLM's parser makes of a value, from a field's annotation: `_compute_kwargs` of `vllm/engine/arg_utils.py`.

Which integers take suffixes (8k) differs by version and stands in that function: its own comparisons are read.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, Final

from tilewright.libraries.engine_flags.fold import MAX_DEPTH, Module, NotLiteralError, Sources, text

__all__ = ["ValueType", "human_integers", "text_of", "value_type"]

MAX_WRITTEN: Final = 20_000
"""Characters of an annotation written as a string."""
_MANY: Final = frozenset({"list", "tuple", "set", "List", "Tuple", "Sequence"})
_READERS: Final = {"human_readable_int": "human_int", "human_readable_int_or_auto": "human_int_or_auto"}
_BUILDERS: Final = ("_compute_kwargs", "get_kwargs")
_ENUMS: Final = frozenset({"Enum", "StrEnum", "IntEnum"})


@dataclass(frozen=True, slots=True)
class ValueType:
    """What a flag takes: its `Flag.kind`, choices, and how a value is read (`Flag.reads`, `nullable`, `any_case`)."""

    kind: str
    choices: tuple[Any, ...] | None = None
    reads: str | None = None
    nullable: bool = False
    any_case: bool = False


def human_integers(module: Module) -> dict[str, str]:
    """Field -> `human_int` or `human_int_or_auto`, as the builder of arguments in `arg_utils.py` compares names."""
    out: dict[str, str] = {}
    for builder in _BUILDERS:
        function = module.functions.get(builder)
        if function is None:
            continue
        sets: dict[str, ast.expr] = {}
        for node in ast.walk(function):
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Set() | ast.Tuple() | ast.List() as value):
                    sets[name] = value
                case _:
                    pass
        for node in ast.walk(function):
            if not isinstance(node, ast.If):
                continue
            reader = _reader_of(node.body)
            if reader is not None:
                out.update((name, reader) for name in _compared(node.test, sets) if name not in out)
    return out


def _reader_of(body: list[ast.stmt]) -> str | None:
    for node in body:
        match node:
            case ast.Assign(value=ast.Name(id=name)) if name in _READERS:
                return _READERS[name]
            case _:
                pass
    return None


def _compared(test: ast.expr, sets: dict[str, ast.expr]) -> list[str]:
    match test:
        case ast.Compare(left=ast.Name(id="name"), ops=[ast.Eq()], comparators=[ast.Constant(value=str(value))]):
            return [value]
        case ast.Compare(left=ast.Name(id="name"), ops=[ast.In()], comparators=[items]):
            found = sets.get(items.id, items) if isinstance(items, ast.Name) else items
            listed = found.elts if isinstance(found, ast.Set | ast.Tuple | ast.List) else []
            return [item.value for item in listed if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        case _:
            return []


def value_type(field: str, annotation: ast.expr, module: Module, sources: Sources, humans: dict[str, str]) -> ValueType:
    """The type of the flag of a field, in the order in which vLLM asks for types."""
    members = _members_of(annotation)
    names = {name for name, _ in members}
    nullable = "None" in names
    others = names - _BUILTIN
    if any(_is_config(name, module, sources) for name in others):
        return ValueType("value", reads="config", nullable=nullable)
    if names == {"bool", "str", "None"}:
        return ValueType("optional")
    if "bool" in names:
        return ValueType("bool")
    literal = sources.literal(annotation, module) if not names & _MANY else None
    if literal is not None:
        # A union of a `Literal` and `str` is free text to the parser: the literals are hints (`literal_to_kwargs`).
        if "str" in names:
            return ValueType("value", nullable=nullable)
        return ValueType("value", (*literal, None) if nullable and None not in literal else tuple(literal))
    many = next((node for name, node in members if name in _MANY), None)
    if many is not None:
        return _collection(many, module, sources, nullable)
    if "int" in names:
        return ValueType("value", reads=humans.get(field, "int"), nullable=nullable)
    if "float" in names:
        return ValueType("value", reads="float", nullable=nullable)
    maps = {name for name in names if name in ("dict", "Dict") or _is_dict(name, module, sources)}
    if maps:
        return ValueType("value", reads=None if "str" in names or others - maps else "json", nullable=nullable)
    enum = next((found for name in sorted(others) if (found := _enum(name, module, sources))), None)
    if enum is not None and "str" not in names:
        # Text to argparse, looked up among the members by the config's own validator: another name stops the start.
        auto = ("auto",) if _takes_auto(field, module) else ()
        return ValueType("value", (*enum, *auto), nullable=nullable, any_case=True)
    return ValueType("value", nullable=nullable)


_BUILTIN: Final = frozenset({"None", "bool", "str", "int", "float", "dict", "Dict", *_MANY})


def _members_of(annotation: ast.expr, depth: int = 0) -> list[tuple[str, ast.expr]]:
    """The members of a union, each with the name it begins with: `dict[str, int] | None` has dict and None."""
    if depth > MAX_DEPTH:
        return []
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _members_of(left, depth + 1) + _members_of(right, depth + 1)
        case ast.Subscript(value=value, slice=inner):
            name = text(value).rsplit(".", 1)[-1]
            items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            if name == "Optional":
                return [*_members_of(inner, depth + 1), ("None", inner)]
            if name == "Union":
                return [found for item in items for found in _members_of(item, depth + 1)]
            if name in ("Annotated", "SkipValidation", "InitVar", "ClassVar"):
                return _members_of(items[0], depth + 1)
            return [(name, annotation)]
        case ast.Constant(value=None):
            return [("None", annotation)]
        case ast.Constant(value=str(written)) if len(written) < MAX_WRITTEN:
            try:
                return _members_of(ast.parse(written, mode="eval").body, depth + 1)
            except (SyntaxError, ValueError, RecursionError, MemoryError):
                return []
        case _:
            return [(text(annotation).rsplit(".", 1)[-1], annotation)]


def _collection(node: ast.expr, module: Module, sources: Sources, nullable: bool) -> ValueType:
    """`collection_to_kwargs`: several values of the element's type, which is text where it may be several."""
    literal = sources.literal(node, module)
    if literal is not None:
        return ValueType("values", (*literal, None) if nullable else tuple(literal), nullable=nullable)
    element: ast.expr | None = None
    match node:
        case ast.Subscript(slice=ast.Tuple(elts=[first, *_])) | ast.Subscript(slice=first):
            element = first
        case _:
            pass
    names = [name for name, _ in _members_of(element)] if element is not None else []
    return ValueType("values", reads=names[0] if names in (["int"], ["float"]) else None, nullable=nullable)


def _class(word: str, module: Module, sources: Sources) -> ast.ClassDef | None:
    found = sources.find(word, module)
    return found[1].classes.get(found[0]) if found is not None else None


def _is_config(word: str, module: Module, sources: Sources) -> bool:
    """Whether a name is a class of settings (`@config`, `@dataclass`), which the parser reads as JSON."""
    if not word.endswith(("Config", "ConfigArgs", "Args")):
        return False  # spares following every name
    cls = _class(word, module, sources)
    marks = [text(item).split("(")[0].rsplit(".", 1)[-1] for item in cls.decorator_list] if cls is not None else []
    return bool({"config", "dataclass"} & set(marks))


def _is_dict(word: str, module: Module, sources: Sources) -> bool:
    """Whether a name is a class made from dict (`is_dict_subclass`)."""
    if word in _BUILTIN:
        return False
    cls = _class(word, module, sources)
    return cls is not None and any(text(base).split("[")[0] in ("dict", "UserDict") for base in cls.bases)


def _takes_auto(field: str, module: Module) -> bool:
    """Whether the validator of an enum's field takes `auto` for no choice (0.17.0 looks it up and fails)."""
    names = (f"validate_{field}_before", f"_validate_{field}")
    functions = [node for cls in module.classes.values() for node in cls.body if isinstance(node, ast.FunctionDef)]
    return any(node.name in names and "'auto'" in text_of(node) for node in functions)


def text_of(node: ast.AST) -> str:
    """The source of `node`, or nothing where it cannot be written out."""
    try:
        return ast.unparse(node)
    except (RecursionError, ValueError):
        return ""


def _enum(word: str, module: Module, sources: Sources) -> list[str] | None:
    """Names of an enum's members; None where the word is no enum of the tree."""
    if not word.endswith("Enum"):
        return None
    cls = _class(word, module, sources)
    if cls is None or not any(text(base).rsplit(".", 1)[-1] in _ENUMS for base in cls.bases):
        return None
    names: list[str] = []
    for node in cls.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if not name.startswith("_"):
                try:
                    folded = sources.fold(value, module)
                except NotLiteralError:
                    folded = name
                if folded != "":  # without a backend of its own (TORCH_SDPA, CUSTOM)
                    names.append(name)
            case _:
                pass
    return names or None
