"""Loading modules of a source tree into an interpreter: lazily, tolerantly, by parsing.

A name that a module imports is looked up on first use only, so a generator that imports half of its package costs
what it uses. A module-level statement that cannot be followed leaves the names that it binds unknown, and says why
when somebody decides by one.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.libraries.python_source.builtins_ import Builtins
from tilewright.libraries.python_source.limits import MAX_SOURCE, CannotFollow, Meter, OutOfBudget
from tilewright.libraries.python_source.standard import Standard
from tilewright.libraries.python_source.statements import Interpreter
from tilewright.libraries.python_source.values import Broken, HostObject, Raised, Scope, Symbol, Value

ReadSource = Callable[[str], bytes | None]
"""A source file of the tree by path, or None when there is none."""


@dataclass(eq=False)
class _Deferred:
    """An import that has not been looked up yet."""

    module: str
    name: str
    level: int


def parse_source(source: bytes, file: str) -> ast.Module:
    """The syntax tree of `source`.

    Raises:
        CannotFollow: it is too large, or does not parse (with the line).
    """
    if len(source) > MAX_SOURCE:
        raise CannotFollow("a Python source of more than 8 MiB", file, 1)
    import warnings

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(source, file)
    except SyntaxError as error:
        raise CannotFollow(f"it does not parse as Python ({error.msg})", file, error.lineno or 1) from error
    except (ValueError, RecursionError, MemoryError, OverflowError) as error:
        raise CannotFollow("it does not parse as Python", file, 1) from error


class TreeInterpreter(Interpreter):
    """An interpreter whose imports come from a tree.

    `stubs` maps module paths (`flashinfer/jit/env`) to what stands for them; `inside` says which other modules of the
    tree may be read, everything else is known by name alone.
    """

    def __init__(self, read: ReadSource, meter: Meter, inside: Callable[[str], bool]) -> None:
        super().__init__({}, meter)
        self.builtins.update(Builtins(self).names())
        self.host_modules: dict[str, HostObject] = Standard(self).modules()
        self.stubs: dict[str, HostObject] = {}
        self.packages: dict[str, str] = {}
        """Top-level packages of the tree by import name, with the folder each lies in: what makes absolute imports of
        the tree's own modules resolve."""
        self._read, self._inside = read, inside
        self._modules: dict[str, Scope | None] = {}

    def load(self, path: str) -> Scope:
        """The module in file `path` of the tree, its top level evaluated.

        Raises:
            CannotFollow: there is no such file or it does not parse.
        """
        module = self._load(path)
        if module is None:
            raise CannotFollow("there is no such file", path, 1)
        return module

    def _load(self, path: str) -> Scope | None:
        if path in self._modules:
            return self._modules[path]
        source = self._read(path)
        if source is None:
            self._modules[path] = None
            return None
        tree = parse_source(source, path)
        module = Scope({}, file=path)
        self._modules[path] = module
        for node in tree.body:
            self._top_level(node, module)
        return module

    def _top_level(self, node: ast.stmt, module: Scope) -> None:
        try:
            self.exec([node], module)
        except OutOfBudget:
            raise
        except CannotFollow as stop:
            reason = f"a value of {stop.where or module.file} that cannot be followed ({stop.why})"
            self._mark(node, module, reason)
        except Raised as raised:
            self._mark(node, module, f"a statement of {module.file}:{node.lineno} that raises {raised.value.kind.name}")

    def _mark(self, node: ast.stmt, module: Scope, reason: str) -> None:
        """Leave the names that `node` would bind unknown."""
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                module.names[part.id] = Broken(reason)
            elif isinstance(part, ast.FunctionDef | ast.ClassDef):
                module.names.setdefault(part.name, Broken(reason))

    def resolve_lazy(self, scope: Scope, name: str) -> Value:
        value = scope.names[name]
        if isinstance(value, _Deferred):
            # A cycle of imports ends here: while a name is being looked up it is known by name alone.
            scope.names[name] = Symbol(f"{value.module}.{value.name}")
            value = self._resolve(value, scope.module)
            scope.names[name] = value
        return value

    def import_module(self, name: str, level: int, scope: Scope) -> Value:
        return _Deferred(name, "", level)

    def import_name(self, module: str, level: int, name: str, scope: Scope) -> Value:
        return _Deferred(module, name, level)

    def _resolve(self, wanted: _Deferred, module: Scope) -> Value:
        if wanted.level == 0:
            home = self.packages.get(wanted.module.partition(".")[0])
            if wanted.module in self.host_modules or home is None or not wanted.name:
                found: Value = self.host_modules.get(wanted.module, Symbol(wanted.module))
                return self.attribute(found, wanted.name) if wanted.name else found
            return self._name_in(posixpath.join(home, *wanted.module.split(".")[1:]), wanted.name)
        base = posixpath.dirname(module.file)
        for _ in range(wanted.level - 1):
            base = posixpath.dirname(base)
        path = posixpath.join(base, *wanted.module.split(".")) if wanted.module else base
        if not wanted.name:
            return self._module_at(path) or Symbol(path)
        return self._name_in(path, wanted.name)

    def _name_in(self, path: str, name: str) -> Value:
        """`name` of the module or package at `path`."""
        inner = posixpath.join(path, name)
        if inner in self.stubs:
            return self.stubs[inner]
        owner = self._module_at(path)
        if isinstance(owner, Broken):
            return owner
        if isinstance(owner, HostObject):
            return self.attribute(owner, name)
        if isinstance(owner, Scope) and name in owner.names:
            return self.resolve_lazy(owner, name)
        module_inside = self._module_at(inner)
        if module_inside is not None:
            return module_inside
        return Symbol(f"{path}.{name}".replace("/", "."))

    def _module_at(self, path: str) -> Scope | HostObject | Broken | None:
        if path in self.stubs:
            return self.stubs[path]
        if not self._inside(path):
            return None
        for file in (f"{path}.py", f"{path}/__init__.py"):
            try:
                module = self._load(file)
            except OutOfBudget:
                raise
            except CannotFollow as stop:
                return Broken(f"{stop.where}, and {stop.why}")
            if module is not None:
                return module
        return None
