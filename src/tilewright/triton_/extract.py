"""The text of one Triton kernel and of the jit functions it calls, cut out of a library's source by parsing it.

What comes out holds `@triton.jit` functions and nothing else of the file: no import, no other statement, no decorator
with arguments, no default that is not a literal. It is text; `compile.py` hands it to a compiler, on request only.
"""

from __future__ import annotations

import ast
import copy
from dataclasses import dataclass

from tilewright.errors import TreeError

_HEAD = "import triton\nimport triton.language as tl\n"


@dataclass(frozen=True)
class Kernel:
    """A kernel's text and parameters."""

    name: str
    source: str
    """A module of its own: the two imports of Triton, then the functions."""
    parameters: tuple[str, ...]
    constants: frozenset[str]
    """Parameters annotated `tl.constexpr`."""
    defaults: dict[str, object]
    file: str
    line: int


def extract_kernel(text: str, name: str, file: str) -> Kernel | None:
    """The kernel `name` of the Python source `text`; None where it is not in it.

    Raises:
        TreeError: the source does not parse, or the kernel is more than jit functions of one file.
    """
    from tilewright.libraries.python_source.limits import CannotFollow
    from tilewright.libraries.python_source.modules import parse_source

    try:
        tree = parse_source(text.encode("utf-8", "replace"), file)
    except CannotFollow as stop:
        raise TreeError("root", f"{stop.where or file} cannot be read: {stop.why}.") from None
    jitted = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef) and _is_jit(node)}
    if name not in jitted:
        return None
    needed: list[str] = []
    pending = [name]
    while pending:
        here = pending.pop()
        if here in needed:
            continue
        needed.append(here)
        for node in ast.walk(jitted[here]):
            if isinstance(node, ast.Attribute) and node.attr.startswith("__"):
                raise TreeError("root", f"{file}:{node.lineno}: the kernel {name} reaches into Python ({node.attr}).")
            if isinstance(node, ast.Name) and node.id in jitted:
                pending.append(node.id)
    functions = [_text(jitted[wanted], file) for wanted in reversed(needed)]
    chosen = jitted[name]
    return Kernel(
        name=name,
        source=_HEAD + "\n\n" + "\n\n\n".join(functions) + "\n",
        parameters=tuple(arg.arg for arg in chosen.args.args),
        constants=frozenset(arg.arg for arg in chosen.args.args if _is_constexpr(arg.annotation)),
        defaults=_defaults(chosen),
        file=file,
        line=chosen.lineno,
    )


def _is_jit(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(item) in ("triton.jit", "jit") for item in node.decorator_list)


def _is_constexpr(node: ast.expr | None) -> bool:
    return node is not None and ast.unparse(node).endswith("constexpr")


def _defaults(node: ast.FunctionDef) -> dict[str, object]:
    out: dict[str, object] = {}
    args = node.args.args
    for arg, value in zip(args[len(args) - len(node.args.defaults) :], node.args.defaults, strict=True):
        if isinstance(value, ast.Constant):
            out[arg.arg] = value.value
    return out


def _text(node: ast.FunctionDef, file: str) -> str:
    """The function with `@triton.jit` as its only decorator and without its docstring."""
    if node.args.vararg or node.args.kwarg or any(not isinstance(item, ast.Constant) for item in node.args.defaults):
        raise TreeError("root", f"{file}:{node.lineno}: {node.name} is no plain jit function.")
    body = node.body
    if body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1:
        body = body[1:]
    plain = copy.copy(node)
    plain.body = body
    plain.decorator_list = [ast.Attribute(ast.Name("triton", ast.Load()), "jit", ast.Load())]
    plain.returns = None
    return ast.unparse(ast.fix_missing_locations(plain))
