"""The values of evaluated Python. Plain data (None, bool, int, float, str, tuple, list, dict, set) is itself."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeGuard

from tilewright.libraries.python_source.limits import CannotFollow

Value = Any
"""A value of the evaluated program: plain data, or one of the classes below."""


def is_list(value: Value) -> TypeGuard[list[Value]]:
    return isinstance(value, list)


def is_tuple(value: Value) -> TypeGuard[tuple[Value, ...]]:
    return isinstance(value, tuple)


def is_row(value: Value) -> TypeGuard[list[Value] | tuple[Value, ...]]:
    """Whether `value` is a list or a tuple."""
    return isinstance(value, list | tuple)


def is_dict(value: Value) -> TypeGuard[dict[Value, Value]]:
    return isinstance(value, dict)


def is_set(value: Value) -> TypeGuard[set[Value]]:
    return isinstance(value, set)


def is_sized(
    value: Value,
) -> TypeGuard[str | list[Value] | tuple[Value, ...] | dict[Value, Value] | set[Value] | range]:
    """Whether `value` is plain data that has a length and items."""
    return isinstance(value, str | list | tuple | dict | set | range)


def is_line(value: Value) -> TypeGuard[str | list[Value] | tuple[Value, ...]]:
    """Whether `value` is plain data that can be indexed by position."""
    return isinstance(value, str | list | tuple)


class Symbol:
    """Something outside the tree, known by its dotted name alone (`torch.float16`). Equal by name."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Symbol) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"<{self.name}>"


class Unknown:
    """The result of something outside the tree. Passing it around is fine; deciding by it is not."""

    __slots__ = ("what",)

    def __init__(self, what: str) -> None:
        self.what = what

    def refuse(self) -> CannotFollow:
        return CannotFollow(f"a decision depends on {self.what[:120]}, which is not known before the library runs")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<unknown {self.what[:60]}>"


class Broken(Unknown):
    """Something of the tree itself that could not be read. Calling it would lose what it does, so that is refused."""

    __slots__ = ()

    def refuse(self) -> CannotFollow:
        return CannotFollow(f"it needs {self.what[:300]}")


@dataclass(eq=False)
class Scope:
    """Names of a function call, a class body, a comprehension or a module."""

    names: dict[str, Value]
    parent: Scope | None = None
    is_class: bool = False
    globals_: Scope | None = None
    declared_global: set[str] = field(default_factory=set[str])
    file: str = ""

    @property
    def module(self) -> Scope:
        return self.globals_ or self


@dataclass(eq=False)
class Function:
    """A function or lambda of the tree."""

    node: ast.FunctionDef | ast.Lambda
    closure: Scope
    defaults: tuple[Value, ...]
    kw_defaults: tuple[Value | None, ...]
    file: str

    @property
    def name(self) -> str:
        return self.node.name if isinstance(self.node, ast.FunctionDef) else "<lambda>"


@dataclass(eq=False)
class Class:
    """A class of the tree. `enum` classes hold their members in order."""

    name: str
    bases: tuple[Value, ...]
    names: dict[str, Value]
    is_enum: bool = False
    members: dict[str, EnumMember] = field(default_factory=dict[str, "EnumMember"])
    fields: tuple[tuple[str, Value, bool], ...] | None = None
    """Fields of a dataclass: name, default, whether it has one."""

    def find(self, name: str) -> Value:
        """The attribute `name` of this class or its bases, or `MISSING`."""
        if name in self.names:
            return self.names[name]
        for base in self.bases:
            if isinstance(base, Class):
                found = base.find(name)
                if found is not MISSING:
                    return found
        return MISSING

    def derives_from(self, other: Value) -> bool:
        return self is other or any(
            base is other or (isinstance(base, Class) and base.derives_from(other)) for base in self.bases
        )


class _Missing:
    """No such name."""


MISSING = _Missing()


@dataclass(eq=False)
class EnumMember:
    """One member of an enum class of the tree; compares by identity, as enum members do."""

    name: str
    value: Value
    cls: Class


@dataclass(eq=False)
class Instance:
    """An object of a class of the tree; `file:line` is the call that made it."""

    cls: Class
    attrs: dict[str, Value]
    file: str = ""
    line: int = 0


@dataclass(eq=False)
class BoundMethod:
    function: Function
    owner: Value


@dataclass(eq=False)
class Host:
    """A function that we supply: takes the positional and keyword arguments."""

    name: str
    call: Callable[[list[Value], dict[str, Value]], Value]


def answer(name: str, make: Callable[[], Value]) -> Host:
    """A function that does not look at its arguments."""

    def call(args: list[Value], kwargs: dict[str, Value]) -> Value:
        del args, kwargs
        return make()

    return Host(name, call)


@dataclass(eq=False)
class HostType:
    """A built-in type by name (`tuple`, `str`, ...): callable, and usable in isinstance."""

    name: str
    types: tuple[type, ...]
    call: Callable[[list[Value], dict[str, Value]], Value]


@dataclass(eq=False)
class HostObject:
    """An object that we supply; its attributes are all there is to it."""

    name: str
    attrs: dict[str, Value]


@dataclass(eq=False)
class NativeMethod:
    """A method of plain data (`list.append`), allowed by name."""

    owner: Value
    name: str


@dataclass(eq=False)
class ExceptionType:
    """An exception class by name; `KeyError` derives from `LookupError`, and so on."""

    name: str
    bases: tuple[ExceptionType, ...] = ()

    def derives_from(self, other: ExceptionType) -> bool:
        return self is other or any(base.derives_from(other) for base in self.bases)


@dataclass(eq=False)
class ExceptionValue:
    kind: ExceptionType
    args: tuple[Value, ...] = ()


class Raised(Exception):  # noqa: N818 (it carries an exception of the evaluated program)
    """The evaluated program raised `value`."""

    def __init__(self, value: ExceptionValue) -> None:
        super().__init__(value.kind.name)
        self.value = value
