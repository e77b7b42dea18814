"""Names, attributes and calls of evaluated Python: what does not need the syntax of an expression."""

from __future__ import annotations

import ast
from collections.abc import Callable

from tilewright.libraries.python_source.limits import MAX_DEPTH, CannotFollow, Meter, OutOfBudget
from tilewright.libraries.python_source.methods import allowed, call_method
from tilewright.libraries.python_source.operators import compare
from tilewright.libraries.python_source.values import (
    MISSING,
    BoundMethod,
    Broken,
    Class,
    EnumMember,
    ExceptionType,
    ExceptionValue,
    Function,
    Host,
    HostObject,
    HostType,
    Instance,
    NativeMethod,
    Raised,
    Scope,
    Symbol,
    Unknown,
    Value,
    is_sized,
)

CallHook = Callable[[list[Value], Value], None]


def _none(name: str) -> bool:
    del name
    return False


class Caller:
    """Looks names up, reads attributes and makes calls. `hooks` maps a function's name to a callback that receives
    the arguments and result of each of its calls."""

    def __init__(self, builtins: dict[str, Value], meter: Meter) -> None:
        self.builtins, self.meter = builtins, meter
        self.hooks: dict[str, CallHook] = {}
        self.empty: Callable[[str], bool] = _none
        """Names of functions that are not followed: they answer an empty list."""
        self.depth = 0
        self.site: tuple[str, int] = ("", 0)
        """File and line of the call that is being made, for host functions to look at."""

    def run_function(self, function: Function, scope: Scope) -> Value:
        """Run a function's body; `statements.Interpreter` does."""
        raise NotImplementedError

    def lookup(self, name: str, scope: Scope) -> Value:
        here: Scope | None = scope
        if name in scope.declared_global:
            here = scope.module
        while here is not None:
            if name in here.names:
                return self.resolve_lazy(here, name)
            here = here.parent
        if name in self.builtins:
            return self.builtins[name]
        raise Raised(ExceptionValue(self.exception("NameError"), (f"name {name!r} is not defined",)))

    def resolve_lazy(self, scope: Scope, name: str) -> Value:
        """The value of `name` in `scope`; `modules.py` makes imports resolve on first use."""
        return scope.names[name]

    def exception(self, name: str) -> ExceptionType:
        found = self.builtins.get(name)
        return found if isinstance(found, ExceptionType) else ExceptionType(name)

    def iterate(self, value: Value) -> list[Value]:
        """The items of `value`."""
        if isinstance(value, Unknown | Symbol):
            raise (value if isinstance(value, Unknown) else Unknown(value.name)).refuse()
        if is_sized(value):
            self.meter.step(len(value))
            return list(value)
        if isinstance(value, Class) and value.is_enum:
            return list(value.members.values())
        if isinstance(value, HostObject) and "items" in value.attrs:
            return list(value.attrs["items"])
        raise CannotFollow(f"it iterates over a {type(value).__name__}")

    def attribute(self, owner: Value, name: str) -> Value:
        """`owner.name`."""
        if isinstance(owner, Symbol):
            return Symbol(f"{owner.name}.{name}")
        if isinstance(owner, Unknown):
            return Unknown(f"{owner.what}.{name}")
        if isinstance(owner, Scope):
            if name in owner.names:
                return self.resolve_lazy(owner, name)
            return Unknown(f"{owner.file}:{name}")
        if isinstance(owner, HostObject):
            if name in owner.attrs:
                return owner.attrs[name]
            fallback = owner.attrs.get("*")
            return fallback.call([name], {}) if isinstance(fallback, Host) else Unknown(f"{owner.name}.{name}")
        if isinstance(owner, Instance):
            if name in owner.attrs:
                return owner.attrs[name]
            found = owner.cls.find(name)
            if isinstance(found, Function):
                return BoundMethod(found, owner)
            if isinstance(found, HostObject) and "property" in found.attrs:
                return self.call(BoundMethod(found.attrs["property"], owner), [], {})
            if isinstance(found, HostObject) and "static" in found.attrs:
                return found.attrs["static"]
            if isinstance(found, HostObject) and "classmethod" in found.attrs:
                return BoundMethod(found.attrs["classmethod"], owner.cls)
            if found is not MISSING:
                return found
        if isinstance(owner, EnumMember):
            if name in ("name", "value"):
                return getattr(owner, name)
            found = owner.cls.find(name)
            if isinstance(found, Function):
                return BoundMethod(found, owner)
        if isinstance(owner, Class):
            if name in owner.members:
                return owner.members[name]
            if name == "__name__":
                return owner.name
            found = owner.find(name)
            if isinstance(found, HostObject) and "static" in found.attrs:
                return found.attrs["static"]
            if isinstance(found, HostObject) and "classmethod" in found.attrs:
                return BoundMethod(found.attrs["classmethod"], owner)
            if found is not MISSING:
                return found
        if allowed(owner, name):
            return NativeMethod(owner, name)
        kind = owner.cls.name if isinstance(owner, Instance | EnumMember) else type(owner).__name__
        raise Raised(ExceptionValue(self.exception("AttributeError"), (f"{kind[:60]} has no attribute {name[:60]!r}",)))

    def text_of(self, value: Value) -> Value:
        """`str(value)` for an object whose class defines `__str__` or `__repr__`; `value` itself otherwise."""
        for name in ("__str__", "__repr__"):
            method = value.cls.find(name)
            if isinstance(method, Function):
                return self.call(BoundMethod(method, value), [], {})
        return value

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """`function(*args, **kwargs)`."""
        self.meter.step()
        if isinstance(function, Function):
            return self._call_function(function, args, kwargs)
        if isinstance(function, BoundMethod):
            return self._call_function(function.function, [function.owner, *args], kwargs)
        if isinstance(function, NativeMethod):
            return call_method(function.owner, function.name, args, kwargs, self.meter, self.iterate)
        if isinstance(function, Host | HostType):
            return function.call(args, kwargs)
        if isinstance(function, Class):
            return self._construct(function, args, kwargs)
        if isinstance(function, ExceptionType):
            return ExceptionValue(function, tuple(args))
        if isinstance(function, Broken):
            raise function.refuse()
        if isinstance(function, Symbol):
            return Unknown(f"{function.name}(...)")
        if isinstance(function, Unknown):
            return Unknown(f"{function.what}(...)")
        if isinstance(function, HostObject) and isinstance(function.attrs.get("()"), Host):
            return function.attrs["()"].call(args, kwargs)
        raise CannotFollow(f"it calls a {type(function).__name__}")

    def _construct(self, cls: Class, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if cls.is_enum:
            for member in cls.members.values():
                if args and compare(ast.Eq(), member.value, args[0], self.meter):
                    return member
            raise Raised(ExceptionValue(self.exception("ValueError"), tuple(args)))
        if any(isinstance(base, ExceptionType) for base in cls.bases):
            base = next(base for base in cls.bases if isinstance(base, ExceptionType))
            return ExceptionValue(ExceptionType(cls.name, (base,)), tuple(args))
        instance = Instance(cls, {})
        init = cls.find("__init__")
        if isinstance(init, Function):
            self._call_function(init, [instance, *args], kwargs)
        elif cls.fields is not None:
            fill_fields(instance, cls.fields, args, kwargs)
        elif args or kwargs:
            raise CannotFollow(f"it constructs a {cls.name} whose constructor is not in the tree")
        return instance

    def _call_function(self, function: Function, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if self.depth >= MAX_DEPTH:
            raise OutOfBudget("its calls nest too deeply")
        if self.empty(function.name):
            return []
        scope = Scope({}, function.closure, globals_=function.closure.module, file=function.file)
        bind(function, scope.names, args, kwargs)
        self.depth += 1
        try:
            result = self.run_function(function, scope)
        finally:
            self.depth -= 1
        hook = self.hooks.get(function.name)
        if hook is not None:
            hook(args, result)
        return result


def fill_fields(
    instance: Instance,
    fields: tuple[tuple[str, Value, bool], ...],
    args: list[Value],
    kwargs: dict[str, Value],
) -> None:
    """Set the fields of a dataclass or named tuple from a call's arguments and the fields' defaults."""
    for index, (name, default, has_default) in enumerate(fields):
        if index < len(args):
            instance.attrs[name] = args[index]
        elif name in kwargs:
            instance.attrs[name] = kwargs[name]
        elif has_default:
            instance.attrs[name] = default
        else:
            raise CannotFollow(f"it constructs a {instance.cls.name} without {name}")


def bind(function: Function, names: dict[str, Value], args: list[Value], kwargs: dict[str, Value]) -> None:
    """Put a call's arguments into `names` under the parameters of `function`."""
    spec = function.node.args
    positional = [arg.arg for arg in (*spec.posonlyargs, *spec.args)]
    rest = dict(kwargs)
    names.update(zip(positional, args, strict=False))
    extra = args[len(positional) :]
    if spec.vararg is not None:
        names[spec.vararg.arg] = tuple(extra)
    elif extra:
        raise CannotFollow(f"{function.name} gets {len(args)} arguments and takes {len(positional)}")
    first_default = len(positional) - len(function.defaults)
    for index, name in enumerate(positional):
        if name in names:
            continue
        if name in rest:
            names[name] = rest.pop(name)
        elif index >= first_default:
            names[name] = function.defaults[index - first_default]
        else:
            raise CannotFollow(f"{function.name} is called without {name}")
    for arg, default, node in zip(spec.kwonlyargs, function.kw_defaults, spec.kw_defaults, strict=True):
        if arg.arg in rest:
            names[arg.arg] = rest.pop(arg.arg)
        elif node is not None:
            names[arg.arg] = default
        else:
            raise CannotFollow(f"{function.name} is called without {arg.arg}")
    if spec.kwarg is not None:
        names[spec.kwarg.arg] = rest
    elif rest:
        raise CannotFollow(f"{function.name} does not take {next(iter(rest))[:60]}")
