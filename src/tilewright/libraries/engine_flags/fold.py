"""Literal values out of a syntax tree: names, lists and strings put together, everything else left as text.

Enough for what declares a flag, where the whole evaluator of `python_source` would follow imports of torch. Depth and
the number of steps are bounded, cycles between modules end at the depth.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, Final

from tilewright.libraries.python_source.limits import CannotFollow
from tilewright.libraries.python_source.modules import parse_source

MAX_DEPTH: Final = 40
"""Nested expressions and names that lead to names; the deepest met in SGLang 0.5.23 is under 10."""
MAX_ITEMS: Final = 20_000
"""Items of one folded list."""
MAX_TEXT: Final = 400
"""Characters of an expression that is shown as written."""


class NotLiteralError(Exception):
    """The expression is computed at run time."""


def text(node: ast.AST) -> str:
    """`node` as source, cut to `MAX_TEXT` characters."""
    try:
        made = " ".join(ast.unparse(node).split())
    except (RecursionError, ValueError):
        return "an expression nested too deeply to show"
    return made if len(made) <= MAX_TEXT else made[: MAX_TEXT - 3] + "..."


class Module:
    """One parsed file: its top-level assignments, classes and from-imports (those under `if` and `try` as well)."""

    def __init__(self, path: str, tree: ast.Module) -> None:
        self.path = path
        self.assigned: dict[str, ast.expr] = {}
        self.imported: dict[str, tuple[str, int, str]] = {}
        self.classes: dict[str, ast.ClassDef] = {}
        self.functions: dict[str, ast.FunctionDef] = {}
        pending: list[ast.stmt] = list(reversed(tree.body))
        while pending:
            node = pending.pop()
            match node:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self.assigned[name] = value
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                    self.assigned[name] = value
                case ast.ImportFrom(module=module, names=names, level=level):
                    for alias in names:
                        self.imported[alias.asname or alias.name] = (module or "", level, alias.name)
                case ast.ClassDef(name=name):
                    self.classes[name] = node
                case ast.FunctionDef(name=name):
                    self.functions[name] = node
                case ast.If(body=body, orelse=orelse):
                    pending.extend(reversed([*body, *orelse]))
                case ast.Try(body=body):
                    pending.extend(reversed(body))
                case _:
                    pass


class Sources:
    """The modules of one tree, parsed when first asked for. `read` answers a file's bytes, or None."""

    def __init__(self, read: Callable[[str], bytes | None], prefix: str) -> None:
        self._read, self.prefix = read, prefix
        self._modules: dict[str, Module | None] = {}
        self.problems: list[str] = []

    def module(self, path: str) -> Module | None:
        """The file at `path`, or None where there is none or it does not parse (then a problem is noted)."""
        if path not in self._modules:
            self._modules[path] = None
            data = self._read(path)
            if data is not None:
                try:
                    self._modules[path] = Module(path, parse_source(data, path))
                except CannotFollow as error:
                    self.problems.append(f"{path}: {error}")
        return self._modules[path]

    def find(self, name: str, module: Module, depth: int = 0) -> tuple[str, Module] | None:
        """Where `name` as seen in `module` is declared: its own name there, and the module."""
        if name in module.assigned or name in module.classes:
            return name, module
        wanted = module.imported.get(name)
        if wanted is None or depth > MAX_DEPTH:
            return None
        dotted, level, original = wanted
        if level:
            folder = module.path.split("/")[:-level]
            base = "/".join([*folder, *(dotted.split(".") if dotted else [])])
        else:
            base = self.prefix + dotted.replace(".", "/")
        for path in (f"{base}.py", f"{base}/__init__.py"):
            if other := self.module(path):
                return self.find(original, other, depth + 1)
        return None

    def fold(self, node: ast.expr, module: Module, local: dict[str, ast.expr] | None = None, depth: int = 0) -> Any:
        """The value of `node`.

        Raises:
            NotLiteralError: it is computed at run time, or too deep.
        """
        if depth > MAX_DEPTH:
            raise NotLiteralError
        deeper = depth + 1
        match node:
            case ast.Constant(value=value):
                return value
            case ast.Name(id=name):
                if local and name in local:
                    rest = {key: value for key, value in local.items() if key != name}
                    return self.fold(local[name], module, rest, deeper)
                found = self.find(name, module)
                if found is None or found[0] not in found[1].assigned:
                    raise NotLiteralError
                return self.fold(found[1].assigned[found[0]], found[1], None, deeper)
            case ast.Attribute(value=ast.Name(id=name), attr=attr):
                found = self.find(name, module)
                constants = _constants(found[1].classes.get(found[0])) if found is not None else {}
                if found is None or attr not in constants:
                    raise NotLiteralError
                return self.fold(ast.Name(attr), found[1], constants, deeper)
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                out: list[Any] = []
                for item in items:
                    if isinstance(item, ast.Starred):
                        more = self.fold(item.value, module, local, deeper)
                        if not isinstance(more, list):
                            raise NotLiteralError
                        out.extend(more)  # pyright: ignore[reportUnknownArgumentType]
                    else:
                        out.append(self.fold(item, module, local, deeper))
                    if len(out) > MAX_ITEMS:
                        raise NotLiteralError
                return out
            case ast.Dict(keys=keys, values=values) if all(keys):
                pairs = zip(keys, values, strict=True)
                return {
                    str(self.fold(k, module, local, deeper)): self.fold(v, module, local, deeper)
                    for k, v in pairs
                    if k is not None
                }
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                value = self.fold(operand, module, local, deeper)
                if isinstance(value, int | float):
                    return -value
                raise NotLiteralError
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                a, b = self.fold(left, module, local, deeper), self.fold(right, module, local, deeper)
                if (isinstance(a, str) and isinstance(b, str)) or (isinstance(a, list) and isinstance(b, list)):
                    if len(a) + len(b) > MAX_ITEMS:  # pyright: ignore[reportUnknownArgumentType]
                        raise NotLiteralError
                    return a + b  # pyright: ignore[reportUnknownVariableType, reportOperatorIssue]
                raise NotLiteralError
            case ast.BinOp(left=left, op=ast.Mult(), right=right):
                a, b = self.fold(left, module, local, deeper), self.fold(right, module, local, deeper)
                # Numbers only, and no larger than a machine's word: nothing grows here.
                if all(isinstance(x, int | float) and abs(x) < 2**63 for x in (a, b)):
                    return a * b
                raise NotLiteralError
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                a, b = self.fold(left, module, local, deeper), self.fold(right, module, local, deeper)
                if all(isinstance(x, int | float) and abs(x) < 2**63 for x in (a, b)):
                    return a - b
                raise NotLiteralError
            case ast.BinOp(left=left, op=ast.Pow(), right=right):
                a, b = self.fold(left, module, local, deeper), self.fold(right, module, local, deeper)
                # `2**32`: powers of two and ten up to a machine's word
                if isinstance(a, int) and isinstance(b, int) and 0 <= a <= 10 and 0 <= b < 64:
                    return a**b
                raise NotLiteralError
            case ast.Call(func=ast.Attribute(attr="field"), args=[], keywords=[ast.keyword("default_factory", value)]):
                if isinstance(value, ast.Name) and value.id in ("list", "dict"):
                    return [] if value.id == "list" else {}
                raise NotLiteralError
            case ast.Call(func=ast.Name(id="list" | "sorted" | "tuple"), args=[only], keywords=[]):
                return self.fold(only, module, local, deeper)
            case ast.Call(func=ast.Name(id="get_args"), args=[only]):
                found = self.literal(only, module)
                if found is None:
                    raise NotLiteralError
                return found
            case ast.JoinedStr(values=parts):
                made: list[str] = []
                for part in parts:
                    inner = part.value if isinstance(part, ast.FormattedValue) else part
                    made.append(str(self.fold(inner, module, local, deeper)))
                return "".join(made)[:MAX_ITEMS]
            case _:
                raise NotLiteralError

    def literal(self, node: ast.expr, module: Module, depth: int = 0) -> list[Any] | None:
        """The values of a `Literal[...]` annotation, through aliases and unions with `None` left out; else None."""
        if depth > MAX_DEPTH:
            return None
        match node:
            case ast.Constant(value=str(written)) if len(written) < MAX_ITEMS:
                try:
                    return self.literal(ast.parse(written, mode="eval").body, module, depth + 1)
                except (SyntaxError, ValueError, RecursionError, MemoryError):
                    return None
            case ast.Name(id=name):
                found = self.find(name, module)
                if found is None or found[0] not in found[1].assigned:
                    return None
                return self.literal(found[1].assigned[found[0]], found[1], depth + 1)
            case ast.Subscript(value=value, slice=inner):
                head = _last(value)
                items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
                if head == "Literal":
                    out: list[Any] = []
                    for item in items:
                        if isinstance(item, ast.Constant):
                            out.append(item.value)
                        elif nested := self.literal(item, module, depth + 1):
                            out.extend(nested)
                    return out
                if head in ("Optional", "Union", "list", "List", "set", "tuple", "SkipValidation", "Annotated", "A"):
                    for item in items:
                        if (found := self.literal(item, module, depth + 1)) is not None:
                            return found
                return None
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                a = self.literal(left, module, depth + 1)
                b = self.literal(right, module, depth + 1)
                return None if a is None and b is None else [*(a or []), *(b or [])]
            case _:
                return None


def _constants(node: ast.ClassDef | None) -> dict[str, ast.expr]:
    """What a class of nothing but names for values (`class Backend: FULL = "full"`) sets. A class with bases answers
    nothing: what an Enum's body sets is not what its attributes are."""
    constants: dict[str, ast.expr] = {}
    for item in node.body if node is not None and not node.bases and not node.decorator_list else ():
        match item:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                constants[name] = value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                constants[name] = value
            case _:
                pass
    return constants


def _last(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
