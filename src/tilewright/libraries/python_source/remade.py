"""A function of ours in the place of one that the evaluated program would call."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.libraries.python_source.limits import CannotFollow
from tilewright.libraries.python_source.statements import Interpreter
from tilewright.libraries.python_source.values import Host, Unknown, Value

MAX_ARGUMENTS = 16
"""Most sequences that `product`, `zip` or `map` may take."""


class Remade:
    """Functions re-made with the bounds of one interpreter."""

    def __init__(self, interp: Interpreter) -> None:
        self.interp = interp
        self.meter = interp.meter

    def host(self, name: str, function: Callable[..., Value]) -> Host:
        def call(args: list[Value], kwargs: dict[str, Value]) -> Value:
            for value in (*args, *kwargs.values()):
                if isinstance(value, Unknown) and name not in ("print", "str", "isinstance", "list", "tuple"):
                    return Unknown(value.what)
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                raise CannotFollow(f"{name}() with these arguments ({error})") from error

        return Host(name, call)
