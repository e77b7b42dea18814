"""Statements of evaluated Python."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any, cast

from tilewright.libraries.python_source.evaluate import Evaluator
from tilewright.libraries.python_source.limits import CannotFollow, Meter, OutOfBudget
from tilewright.libraries.python_source.operators import binary, truth
from tilewright.libraries.python_source.values import (
    Class,
    EnumMember,
    ExceptionType,
    ExceptionValue,
    Function,
    Host,
    HostObject,
    Raised,
    Scope,
    Symbol,
    Unknown,
    Value,
    is_list,
    is_tuple,
)

AUTO = HostObject("enum.auto()", {})
"""What `enum.auto()` answers: the next integer, once it is a member."""

ENUM_BASE = HostObject("enum.Enum", {})
"""Base class that makes a class of the tree an enum."""

_IDENTITY_DECORATORS = ("functools.", "typing.", "contextlib.", "abc.")


class _Signal:
    """How a block ended early: by return (with a value), break or continue."""

    def __init__(self, kind: str, value: Value = None) -> None:
        self.kind, self.value = kind, value


_BREAK, _CONTINUE = _Signal("break"), _Signal("continue")


class Interpreter(Evaluator):
    """Evaluates statements and, through `Evaluator`, expressions."""

    def __init__(self, builtins: dict[str, Value], meter: Meter) -> None:
        super().__init__(builtins, meter)
        self._generators: dict[ast.AST, bool] = {}
        self._yielded: list[list[Value]] = []
        self._expr[ast.Yield] = self._yield
        self._stmt: dict[type[ast.AST], Callable[[Any, Scope], _Signal | None]] = {
            ast.Expr: self._expression,
            ast.Assign: self._assign,
            ast.AnnAssign: self._annassign,
            ast.AugAssign: self._augassign,
            ast.If: self._if,
            ast.For: self._for,
            ast.While: self._while,
            ast.Return: self._return,
            ast.Pass: self._nothing,
            ast.Break: self._break,
            ast.Continue: self._continue,
            ast.FunctionDef: self._def,
            ast.ClassDef: self._class,
            ast.Import: self._import,
            ast.ImportFrom: self._importfrom,
            ast.Assert: self._assert,
            ast.Raise: self._raise,
            ast.Try: self._try,
            ast.With: self._with,
            ast.Global: self._global,
            ast.Nonlocal: self._nothing,
            ast.Delete: self._delete,
        }

    def import_module(self, name: str, level: int, scope: Scope) -> Value:
        """The module that `import` names from `scope`; `modules.py` supplies it."""
        return Symbol(name or ".")

    def import_name(self, module: str, level: int, name: str, scope: Scope) -> Value:
        """What `from module import name` binds."""
        return Symbol(f"{module}.{name}")

    def exec(self, body: Iterable[ast.stmt], scope: Scope) -> _Signal | None:
        """Run statements until one of them leaves the block."""
        for node in body:
            self.meter.step()
            handler = self._stmt.get(type(node))
            if handler is None:
                raise CannotFollow(f"{type(node).__name__} is not read", scope.module.file, node.lineno)
            try:
                signal = handler(node, scope)
            except CannotFollow as stop:
                raise stop.at(scope.module.file, node.lineno) from None
            if signal is not None:
                return signal
        return None

    def run_function(self, function: Function, scope: Scope) -> Value:
        node = function.node
        if isinstance(node, ast.Lambda):
            return self.eval(node.body, scope)
        if not self._is_generator(node):
            signal = self.exec(node.body, scope)
            return signal.value if signal is not None and signal.kind == "return" else None
        self._yielded.append([])
        try:
            self.exec(node.body, scope)
        finally:
            items = self._yielded.pop()
        return items

    def _is_generator(self, node: ast.FunctionDef) -> bool:
        found = self._generators.get(node)
        if found is None:
            found = any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node))
            self._generators[node] = found
        return found

    def _yield(self, node: ast.Yield, scope: Scope) -> Value:
        if not self._yielded:
            raise CannotFollow("a yield outside a generator")
        self._yielded[-1].append(self.eval(node.value, scope) if node.value else None)
        return None

    def _nothing(self, node: ast.stmt, scope: Scope) -> None:
        del node, scope

    def _break(self, node: ast.stmt, scope: Scope) -> _Signal:
        del node, scope
        return _BREAK

    def _continue(self, node: ast.stmt, scope: Scope) -> _Signal:
        del node, scope
        return _CONTINUE

    def _expression(self, node: ast.Expr, scope: Scope) -> None:
        if not isinstance(node.value, ast.Constant):
            self.eval(node.value, scope)

    def _assign(self, node: ast.Assign, scope: Scope) -> None:
        value = self.eval(node.value, scope)
        for target in node.targets:
            self.assign(target, value, scope)

    def _annassign(self, node: ast.AnnAssign, scope: Scope) -> None:
        if scope.is_class and isinstance(node.target, ast.Name):
            cast("list[str]", scope.names.setdefault("__annotated__", [])).append(node.target.id)
        if node.value is not None:
            self.assign(node.target, self.eval(node.value, scope), scope)

    def _augassign(self, node: ast.AugAssign, scope: Scope) -> None:
        target: ast.expr = node.target
        load = ast.copy_location(_as_load(target), target)
        current, more = self.eval(load, scope), self.eval(node.value, scope)
        if isinstance(node.op, ast.Add) and is_list(current):
            # In place, as Python does it: other names of the list see it too.
            if isinstance(more, Unknown | Symbol):
                current.append(more)
            else:
                items = self.iterate(more)
                self.meter.step(len(items))
                current.extend(items)
            self.assign(target, current, scope)
            return
        self.assign(target, binary(node.op, current, more, self.meter), scope)

    def _if(self, node: ast.If, scope: Scope) -> _Signal | None:
        return self.exec(node.body if truth(self.eval(node.test, scope)) else node.orelse, scope)

    def _for(self, node: ast.For, scope: Scope) -> _Signal | None:
        for item in self.iterate(self.eval(node.iter, scope)):
            self.meter.step()
            self.assign(node.target, item, scope)
            signal = self.exec(node.body, scope)
            if signal is _BREAK:
                return None
            if signal is not None and signal is not _CONTINUE:
                return signal
        return self.exec(node.orelse, scope)

    def _while(self, node: ast.While, scope: Scope) -> _Signal | None:
        while truth(self.eval(node.test, scope)):
            signal = self.exec(node.body, scope)
            if signal is _BREAK:
                return None
            if signal is not None and signal is not _CONTINUE:
                return signal
        return self.exec(node.orelse, scope)

    def _return(self, node: ast.Return, scope: Scope) -> _Signal:
        return _Signal("return", self.eval(node.value, scope) if node.value else None)

    def _def(self, node: ast.FunctionDef, scope: Scope) -> None:
        value: Value = self.make_function(node, scope)
        for decorator in reversed(node.decorator_list):
            value = self._decorated(self._quiet(decorator, scope), value)
        self.assign(ast.Name(node.name, ast.Store()), value, scope)

    def _quiet(self, node: ast.expr, scope: Scope) -> Value:
        try:
            return self.eval(node, scope)
        except OutOfBudget:
            raise
        except (CannotFollow, Raised):
            return Unknown("a decorator")

    def _decorated(self, decorator: Value, value: Value) -> Value:
        if isinstance(decorator, HostObject) and "decorate" in decorator.attrs:
            return decorator.attrs["decorate"].call([value], {})
        if isinstance(decorator, Symbol | Unknown):
            name = decorator.name if isinstance(decorator, Symbol) else decorator.what
            if name.startswith(_IDENTITY_DECORATORS):
                return value
            return Unknown(f"a function decorated by {name}")
        if isinstance(decorator, Host | Function | Class):
            return self.call(decorator, [value], {})
        return Unknown("a decorated function")

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        bases = tuple(self.eval(base, scope) for base in node.bases)
        names: dict[str, Value] = {}
        self.exec(node.body, Scope(names, scope, is_class=True, globals_=scope.module, file=scope.file))
        annotated = cast("list[str]", names.pop("__annotated__", []))
        is_enum = any(base is ENUM_BASE or (isinstance(base, Class) and base.is_enum) for base in bases)
        cls = Class(node.name, bases, names, is_enum)
        if is_enum:
            self._enum_members(cls)
        for decorator in reversed(node.decorator_list):
            value = self._quiet(decorator, scope)
            if isinstance(value, HostObject) and "dataclass" in value.attrs:
                inherited = [f for base in bases if isinstance(base, Class) and base.fields for f in base.fields]
                own = [(name, names.get(name), name in names) for name in annotated]
                cls.fields = tuple(inherited + own)
        self.assign(ast.Name(node.name, ast.Store()), cls, scope)

    def _enum_members(self, cls: Class) -> None:
        last = 0
        for name, value in list(cls.names.items()):
            if name.startswith("_") or (isinstance(value, Function | HostObject) and value is not AUTO):
                continue
            actual = last + 1 if value is AUTO else value
            last = actual if isinstance(actual, int) else last
            twin = next((member for member in cls.members.values() if member.value == actual), None)
            cls.members[name] = twin or EnumMember(name, actual, cls)
            del cls.names[name]

    def _import(self, node: ast.Import, scope: Scope) -> None:
        for alias in node.names:
            bound = alias.asname or alias.name.split(".")[0]
            module = alias.name if alias.asname else bound
            self.assign(ast.Name(bound, ast.Store()), self.import_module(module, 0, scope), scope)

    def _importfrom(self, node: ast.ImportFrom, scope: Scope) -> None:
        for alias in node.names:
            if alias.name == "*":
                raise CannotFollow("an import of every name of a module")
            value = self.import_name(node.module or "", node.level, alias.name, scope)
            self.assign(ast.Name(alias.asname or alias.name, ast.Store()), value, scope)

    def _assert(self, node: ast.Assert, scope: Scope) -> None:
        if not truth(self.eval(node.test, scope)):
            message = self.eval(node.msg, scope) if node.msg else "an assertion of the generator"
            raise Raised(ExceptionValue(self.exception("AssertionError"), (message,)))

    def _raise(self, node: ast.Raise, scope: Scope) -> None:
        value = self.eval(node.exc, scope) if node.exc else None
        if isinstance(value, ExceptionType):
            value = ExceptionValue(value)
        if not isinstance(value, ExceptionValue):
            value = ExceptionValue(self.exception("Exception"), (value,))
        raise Raised(value)

    def _try(self, node: ast.Try, scope: Scope) -> _Signal | None:
        try:
            signal = self._try_body(node, scope)
        finally:
            final = self.exec(node.finalbody, scope) if node.finalbody else None
        return final or signal

    def _try_body(self, node: ast.Try, scope: Scope) -> _Signal | None:
        try:
            signal = self.exec(node.body, scope)
        except Raised as raised:
            for handler in node.handlers:
                if self._catches(handler, raised.value, scope):
                    if handler.name:
                        self.assign(ast.Name(handler.name, ast.Store()), raised.value, scope)
                    return self.exec(handler.body, scope)
            raise
        return signal or self.exec(node.orelse, scope)

    def _catches(self, handler: ast.ExceptHandler, value: ExceptionValue, scope: Scope) -> bool:
        if handler.type is None:
            return True
        kinds = self.eval(handler.type, scope)
        for kind in kinds if is_tuple(kinds) else (kinds,):
            wanted = kind
            if isinstance(kind, Class):
                wanted = next((base for base in kind.bases if isinstance(base, ExceptionType)), None)
            if isinstance(wanted, ExceptionType) and (
                value.kind.derives_from(wanted) or value.kind.name == wanted.name
            ):
                return True
        return False

    def _with(self, node: ast.With, scope: Scope) -> _Signal | None:
        for item in node.items:
            value = self.eval(item.context_expr, scope)
            if item.optional_vars is not None:
                self.assign(item.optional_vars, value, scope)
        return self.exec(node.body, scope)

    def _global(self, node: ast.Global, scope: Scope) -> None:
        scope.declared_global.update(node.names)

    def _delete(self, node: ast.Delete, scope: Scope) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name):
                scope.names.pop(target.id, None)
            elif not isinstance(target, ast.Attribute):
                raise CannotFollow("it deletes an item")


def _as_load(target: ast.expr) -> ast.expr:
    """The expression that reads what `target` names."""
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    if isinstance(target, ast.Attribute):
        return ast.Attribute(target.value, target.attr, ast.Load())
    if isinstance(target, ast.Subscript):
        return ast.Subscript(target.value, target.slice, ast.Load())
    raise CannotFollow("an augmented assignment to something unusual")
