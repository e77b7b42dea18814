"""Expressions of evaluated Python (`statements.py` adds statements, `modules.py` imports)."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, cast

from tilewright.libraries.python_source.calls import Caller
from tilewright.libraries.python_source.limits import CannotFollow, Meter
from tilewright.libraries.python_source.operators import binary, compare, hashable, truth
from tilewright.libraries.python_source.text import formatted
from tilewright.libraries.python_source.values import (
    Class,
    ExceptionValue,
    Function,
    HostType,
    Instance,
    Raised,
    Scope,
    Symbol,
    Unknown,
    Value,
    is_dict,
    is_line,
    is_list,
)

_PROVENANCE_LENGTH = range(2, 9)
"""Lengths of literal sequences whose line is remembered: tile shapes and records, not long tables."""


class Evaluator(Caller):
    """Evaluates expressions. `builtins` holds the names that every module sees."""

    def __init__(self, builtins: dict[str, Value], meter: Meter) -> None:
        super().__init__(builtins, meter)
        self._literals: dict[int, tuple[Value, str, int]] = {}
        self._expr: dict[type[ast.AST], Callable[[Any, Scope], Value]] = {
            ast.Constant: self._constant,
            ast.Name: self._name,
            ast.Attribute: self._attribute,
            ast.Call: self._call,
            ast.List: self._list,
            ast.Tuple: self._tuple,
            ast.Dict: self._dict,
            ast.Set: self._set,
            ast.JoinedStr: self._joined,
            ast.BinOp: self._binop,
            ast.BoolOp: self._boolop,
            ast.UnaryOp: self._unary,
            ast.Compare: self._compare,
            ast.IfExp: self._ifexp,
            ast.Subscript: self._subscript,
            ast.ListComp: self._listcomp,
            ast.GeneratorExp: self._listcomp,
            ast.SetComp: self._setcomp,
            ast.DictComp: self._dictcomp,
            ast.Lambda: self._lambda,
            ast.NamedExpr: self._named,
        }

    def literal_line(self, value: Value) -> tuple[str, int] | None:
        """Where the literal list or tuple `value` (this very object) is written, as file and line."""
        found = self._literals.get(id(value))
        return (found[1], found[2]) if found and found[0] is value else None

    def literal_like(self, values: tuple[Value, ...], file: str) -> tuple[str, int] | None:
        """Where a literal with exactly these `values` is written in `file`, the last one evaluated."""
        for value, where, line in reversed(self._literals.values()):
            if where == file and len(value) == len(values) and tuple(value) == values:
                return where, line
        return None

    def eval(self, node: ast.expr, scope: Scope) -> Value:
        self.meter.step()
        handler = self._expr.get(type(node))
        if handler is None:
            raise CannotFollow(f"{type(node).__name__} is not read", scope.module.file, node.lineno)
        try:
            return handler(node, scope)
        except CannotFollow as stop:
            raise stop.at(scope.module.file, node.lineno) from None

    def _constant(self, node: ast.Constant, scope: Scope) -> Value:
        value = cast(Any, node.value)
        if value is None or isinstance(value, bool | float):
            return value
        if isinstance(value, int):
            return self.meter.integer(value)
        if isinstance(value, str):
            return value
        raise CannotFollow(f"a constant of type {type(value).__name__}")

    def _name(self, node: ast.Name, scope: Scope) -> Value:
        return self.lookup(node.id, scope)

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Value:
        return self.attribute(self.eval(node.value, scope), node.attr)

    def _elements(self, nodes: list[ast.expr], scope: Scope) -> list[Value]:
        out: list[Value] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                value = self.eval(node.value, scope)
                out.extend([value] if isinstance(value, Unknown) else self.iterate(value))
            else:
                out.append(self.eval(node, scope))
        return out

    def _remember(self, value: Value, node: ast.expr, scope: Scope) -> Value:
        if len(value) in _PROVENANCE_LENGTH:
            self._literals[id(value)] = (value, scope.module.file, node.lineno)
        return value

    def _list(self, node: ast.List, scope: Scope) -> Value:
        return self._remember(self._elements(node.elts, scope), node, scope)

    def _tuple(self, node: ast.Tuple, scope: Scope) -> Value:
        return self._remember(tuple(self._elements(node.elts, scope)), node, scope)

    def _set(self, node: ast.Set, scope: Scope) -> Value:
        return {hashable(item, self.meter) for item in self._elements(node.elts, scope)}

    def _dict(self, node: ast.Dict, scope: Scope) -> Value:
        out: dict[Value, Value] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            if key is None:
                more = self.eval(value, scope)
                if not is_dict(more):
                    raise CannotFollow("it unpacks something that is no dict")
                self.meter.step(len(more))
                out.update(more)
            else:
                out[hashable(self.eval(key, scope), self.meter)] = self.eval(value, scope)
        return out

    def _joined(self, node: ast.JoinedStr, scope: Scope) -> Value:
        out: list[str] = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                spec = self.eval(part.format_spec, scope) if part.format_spec else ""
                conversion = chr(part.conversion) if part.conversion > 0 else ""
                value = self.eval(part.value, scope)
                shown = self.text_of(value) if isinstance(value, Instance) else value
                out.append(formatted(shown, spec, conversion, self.meter))
            elif isinstance(part, ast.Constant) and isinstance(part.value, str):
                out.append(part.value)
        return self.meter.text("".join(out))

    def _binop(self, node: ast.BinOp, scope: Scope) -> Value:
        return binary(node.op, self.eval(node.left, scope), self.eval(node.right, scope), self.meter)

    def _boolop(self, node: ast.BoolOp, scope: Scope) -> Value:
        stop_at = isinstance(node.op, ast.Or)
        value: Value = None
        for part in node.values:
            value = self.eval(part, scope)
            if part is not node.values[-1] and truth(value) is stop_at:
                return value
        return value

    def _unary(self, node: ast.UnaryOp, scope: Scope) -> Value:
        value = self.eval(node.operand, scope)
        if isinstance(node.op, ast.Not):
            return not truth(value)
        if isinstance(value, int | float):
            if isinstance(node.op, ast.USub):
                return -value
            if isinstance(node.op, ast.UAdd):
                return +value
            if isinstance(value, int):
                return ~value
        raise CannotFollow(f"operator {type(node.op).__name__} on a {type(value).__name__}")

    def _compare(self, node: ast.Compare, scope: Scope) -> Value:
        left = self.eval(node.left, scope)
        for op, right_node in zip(node.ops, node.comparators, strict=True):
            right = self.eval(right_node, scope)
            if not compare(op, left, right, self.meter):
                return False
            left = right
        return True

    def _ifexp(self, node: ast.IfExp, scope: Scope) -> Value:
        return self.eval(node.body if truth(self.eval(node.test, scope)) else node.orelse, scope)

    def _subscript(self, node: ast.Subscript, scope: Scope) -> Value:
        owner = self.eval(node.value, scope)
        if isinstance(owner, Unknown | Symbol):
            return Unknown(owner.what if isinstance(owner, Unknown) else owner.name)
        if isinstance(node.slice, ast.Slice):
            bounds = [None if part is None else self.eval(part, scope)
                      for part in (node.slice.lower, node.slice.upper, node.slice.step)]  # fmt: skip
            if is_line(owner) and all(part is None or isinstance(part, int) for part in bounds):
                if bounds[2] == 0:
                    raise CannotFollow("a slice with step 0")
                self.meter.step(1 + len(owner) // 8)
                return owner[slice(*bounds)]
            raise CannotFollow(f"a slice of a {type(owner).__name__}")
        key = self.eval(node.slice, scope)
        if is_dict(owner):
            key = hashable(key, self.meter)
            if key not in owner:
                raise Raised(ExceptionValue(self.exception("KeyError"), (key,)))
            return owner[key]
        if is_line(owner) and isinstance(key, int):
            if not -len(owner) <= key < len(owner):
                raise Raised(ExceptionValue(self.exception("IndexError"), ("index out of range",)))
            return owner[key]
        if isinstance(owner, Class) and owner.is_enum and key in owner.members:
            return owner.members[key]
        if isinstance(owner, Class | HostType):
            return owner
        raise CannotFollow(f"it indexes a {type(owner).__name__}")

    def _comprehend(self, generators: list[ast.comprehension], scope: Scope, emit: Callable[[Scope], None]) -> None:
        def level(index: int, here: Scope) -> None:
            if index == len(generators):
                emit(here)
                return
            gen = generators[index]
            if gen.is_async:
                raise CannotFollow("an async comprehension")
            for item in self.iterate(self.eval(gen.iter, here)):
                self.meter.step()
                self.assign(gen.target, item, here)
                if all(truth(self.eval(test, here)) for test in gen.ifs):
                    level(index + 1, here)

        level(0, Scope({}, scope, globals_=scope.module, file=scope.file))

    def _listcomp(self, node: ast.ListComp | ast.GeneratorExp, scope: Scope) -> Value:
        out: list[Value] = []
        self._comprehend(node.generators, scope, lambda here: out.append(self.eval(node.elt, here)))
        return out

    def _setcomp(self, node: ast.SetComp, scope: Scope) -> Value:
        out: set[Value] = set()
        self._comprehend(node.generators, scope, lambda here: out.add(hashable(self.eval(node.elt, here), self.meter)))
        return out

    def _dictcomp(self, node: ast.DictComp, scope: Scope) -> Value:
        out: dict[Value, Value] = {}

        def emit(here: Scope) -> None:
            out[hashable(self.eval(node.key, here), self.meter)] = self.eval(node.value, here)

        self._comprehend(node.generators, scope, emit)
        return out

    def _lambda(self, node: ast.Lambda, scope: Scope) -> Value:
        return self.make_function(node, scope)

    def make_function(self, node: ast.FunctionDef | ast.Lambda, scope: Scope) -> Function:
        closure = scope
        while closure.is_class and closure.parent is not None:
            closure = closure.parent
        return Function(
            node,
            closure,
            tuple(self.eval(default, scope) for default in node.args.defaults),
            tuple(None if default is None else self.eval(default, scope) for default in node.args.kw_defaults),
            scope.module.file,
        )

    def _named(self, node: ast.NamedExpr, scope: Scope) -> Value:
        value = self.eval(node.value, scope)
        self.assign(node.target, value, scope)
        return value

    def assign(self, target: ast.expr, value: Value, scope: Scope) -> None:
        """Bind `value` to `target`."""
        self.meter.step()
        if isinstance(target, ast.Name):
            here = scope.module if target.id in scope.declared_global else scope
            here.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, value, scope)
        elif isinstance(target, ast.Attribute):
            owner = self.eval(target.value, scope)
            if isinstance(owner, Instance):
                owner.attrs[target.attr] = value
            elif not isinstance(owner, Unknown | Symbol):
                raise CannotFollow("it sets an attribute of something that is no object of its own")
        elif isinstance(target, ast.Subscript):
            owner, key = self.eval(target.value, scope), self.eval(target.slice, scope)
            if is_dict(owner):
                owner[hashable(key, self.meter)] = value
            elif is_list(owner) and isinstance(key, int) and -len(owner) <= key < len(owner):
                owner[key] = value
            elif not isinstance(owner, Unknown | Symbol):
                raise CannotFollow(f"it sets an item of a {type(owner).__name__}")
        else:
            raise CannotFollow(f"it assigns to {type(target).__name__}")

    def _unpack(self, targets: list[ast.expr], value: Value, scope: Scope) -> None:
        items = self.iterate(value)
        starred = [i for i, target in enumerate(targets) if isinstance(target, ast.Starred)]
        if not starred:
            if len(items) != len(targets):
                raise CannotFollow(f"it unpacks {len(items)} values into {len(targets)} names")
            for target, item in zip(targets, items, strict=True):
                self.assign(target, item, scope)
            return
        first, after = starred[0], len(targets) - starred[0] - 1
        if len(starred) > 1 or len(items) < len(targets) - 1:
            raise CannotFollow("a starred assignment that does not fit")
        spread = cast(ast.Starred, targets[first])
        for target, item in zip(targets[:first], items[:first], strict=True):
            self.assign(target, item, scope)
        self.assign(spread.value, items[first : len(items) - after], scope)
        for target, item in zip(targets[first + 1 :], items[len(items) - after :], strict=True):
            self.assign(target, item, scope)

    def _call(self, node: ast.Call, scope: Scope) -> Value:
        function = self.eval(node.func, scope)
        args = self._elements(node.args, scope)
        kwargs: dict[str, Value] = {}
        for keyword in node.keywords:
            value = self.eval(keyword.value, scope)
            if keyword.arg is not None:
                kwargs[keyword.arg] = value
            elif is_dict(value) and all(isinstance(key, str) for key in value):
                kwargs.update(value)
            else:
                raise CannotFollow("it passes keywords that are not known")
        self.site = scope.module.file, node.lineno
        result = self.call(function, args, kwargs)
        if isinstance(result, Instance) and not result.file:
            result.file, result.line = scope.module.file, node.lineno
        return result
