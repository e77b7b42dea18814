"""Jinja templates of a source tree, rendered by walking their parse tree: no template is ever compiled or run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.libraries.python_source.limits import CannotFollow, Meter
from tilewright.libraries.python_source.operators import truth
from tilewright.libraries.python_source.text import to_text
from tilewright.libraries.python_source.values import Unknown, Value, is_row

MAX_TEMPLATE = 1 << 20
"""Largest template, in characters."""

Names = dict[str, Value]


def _filter_replace(value: str, args: list[Value]) -> str:
    if len(args) == 2 and isinstance(args[0], str) and isinstance(args[1], str) and args[0]:
        return value.replace(args[0], args[1])
    raise CannotFollow("filter replace with these arguments")


_FILTERS: dict[str, Callable[[str, list[Value]], str]] = {
    "trim": lambda value, _: value.strip(),
    "lower": lambda value, _: value.lower(),
    "upper": lambda value, _: value.upper(),
    "string": lambda value, _: value,
    "replace": _filter_replace,
}


class _Renderer:
    def __init__(self, file: str, meter: Meter) -> None:
        self.file, self.meter = file, meter
        self.out: list[str] = []

    def stop(self, why: str, node: Any) -> CannotFollow:
        return CannotFollow(why, self.file, int(getattr(node, "lineno", 1) or 1))

    def body(self, nodes: list[Any], names: Names) -> None:
        for node in nodes:
            self.meter.step()
            kind = type(node).__name__
            if kind == "Output":
                for part in node.nodes:
                    self.emit(part, names)
            elif kind == "For":
                self.loop(node, names)
            elif kind == "If":
                self.branch(node, names)
            elif kind == "Assign" and type(node.target).__name__ == "Name":
                names[node.target.name] = self.value(node.node, names)
            elif kind == "Scope":
                self.body(node.body, dict(names))
            else:
                raise self.stop(f"template statement {kind}", node)

    def emit(self, node: Any, names: Names) -> None:
        if type(node).__name__ == "TemplateData":
            self.out.append(self.meter.text(node.data))
            return
        value = self.value(node, names)
        if isinstance(value, Unknown):
            raise value.refuse()
        self.out.append(to_text(value, self.meter))

    def loop(self, node: Any, names: Names) -> None:
        items = self.value(node.iter, names)
        if not is_row(items) or node.recursive:
            raise self.stop("a template loop over something unusual", node)
        targets = [node.target] if type(node.target).__name__ == "Name" else list(node.target.items)
        for item in items:
            self.meter.step()
            inner = dict(names)
            row = (item,) if len(targets) == 1 else item
            if not is_row(row) or len(row) != len(targets):
                raise self.stop("a template loop that unpacks what does not fit", node)
            for target, value in zip(targets, row, strict=True):
                inner[target.name] = value
            if node.test is None or truth(self.value(node.test, inner)):
                self.body(node.body, inner)

    def branch(self, node: Any, names: Names) -> None:
        if truth(self.value(node.test, names)):
            self.body(node.body, names)
            return
        for other in node.elif_:
            if truth(self.value(other.test, names)):
                self.body(other.body, names)
                return
        self.body(node.else_, names)

    def value(self, node: Any, names: Names) -> Value:
        self.meter.step()
        kind = type(node).__name__
        if kind == "Const":
            return node.value
        if kind == "Name":
            if node.name in names:
                return names[node.name]
            raise self.stop(f"template name {node.name!r}", node)
        if kind in ("List", "Tuple"):
            items = [self.value(item, names) for item in node.items]
            return items if kind == "List" else tuple(items)
        if kind == "Filter" and node.name in _FILTERS and node.node is not None:
            value = self.value(node.node, names)
            args = [self.value(arg, names) for arg in node.args]
            return self.meter.text(_FILTERS[node.name](to_text(value, self.meter), args))
        if kind == "Not":
            return not truth(self.value(node.node, names))
        if kind in ("And", "Or"):
            left = self.value(node.left, names)
            return self.value(node.right, names) if truth(left) is (kind == "And") else left
        if kind == "Compare" and len(node.ops) == 1:
            return self.compare(node, names)
        if kind == "CondExpr":
            chosen = node.expr1 if truth(self.value(node.test, names)) else node.expr2
            return "" if chosen is None else self.value(chosen, names)
        if kind == "Concat":
            return self.meter.text("".join(to_text(self.value(part, names), self.meter) for part in node.nodes))
        if kind == "TemplateData":
            return node.data
        raise self.stop(f"template expression {kind}", node)

    def compare(self, node: Any, names: Names) -> bool:
        import ast

        from tilewright.libraries.python_source.operators import compare

        operators: dict[str, ast.cmpop] = {
            "eq": ast.Eq(), "ne": ast.NotEq(), "lt": ast.Lt(), "lteq": ast.LtE(), "gt": ast.Gt(), "gteq": ast.GtE(),
            "in": ast.In(), "notin": ast.NotIn(),
        }  # fmt: skip
        operand = node.ops[0]
        operator = operators.get(operand.op)
        if operator is None:
            raise self.stop(f"template operator {operand.op}", node)
        return compare(operator, self.value(node.expr, names), self.value(operand.expr, names), self.meter)


def render(source: str, names: Names, file: str, meter: Meter) -> str:
    """The template `source` with `names` filled in.

    Raises:
        CannotFollow: it does not parse, or uses something beyond loops, conditions, names and simple filters.
    """
    from jinja2 import Environment, TemplateError

    if len(source) > MAX_TEMPLATE:
        raise CannotFollow("a template of more than 1 MiB", file, 1)
    try:
        tree = Environment().parse(source)
    except TemplateError as error:
        raise CannotFollow(
            f"it does not parse as a template ({error})", file, getattr(error, "lineno", 1) or 1
        ) from None
    except (RecursionError, MemoryError, ValueError) as error:
        raise CannotFollow("it does not parse as a template", file, 1) from error
    renderer = _Renderer(file, meter)
    renderer.body(tree.body, dict(names))
    return meter.text("".join(renderer.out))
