"""Finding the kernels that a translation unit instantiates, as the types that CUTLASS's builders receive."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tilewright.libraries.cpp_source.declare import Decl, parse
from tilewright.libraries.cpp_source.preprocess import Macro, MacroBody, arguments, bind_arguments, macro_body
from tilewright.libraries.cpp_source.resolve import Resolver
from tilewright.libraries.cpp_source.tokens import NotRead, Token, match_angle, match_bracket, shown, split_commas
from tilewright.libraries.cpp_source.types import Env, Pending, Type

KERNEL: Final = re.compile(r"GemmUniversal(?!Adapter)\w*")
"""Class templates that are kernels: CUTLASS's `gemm::kernel::GemmUniversal`, and a library's own relatives."""

_MAX_NESTING: Final = 12


@dataclass(frozen=True)
class Root:
    """One instantiation that a unit asks for: a macro invocation or an explicit template instantiation.

    `names` maps the macro's or template's parameters to what is given for them, as text. `label` is the symbol that
    the instantiation makes.
    """

    name: str
    label: str
    names: dict[str, str]
    decls: tuple[Decl, ...]
    env: Env
    file: str
    line: int
    defined_file: str
    defined_line: int
    is_macro: bool
    problem: NotRead | None = None
    """Why the invocation itself cannot be read."""


@dataclass(frozen=True)
class Kernel:
    """One kernel type of a root. `alias` is the name under which the library knows it."""

    root: Root
    type: Type
    alias: str
    file: str
    line: int


@dataclass(frozen=True)
class Finding:
    """Something about a root that is no kernel: what cannot be read, or what the library leaves out. With its place."""

    root: Root
    why: str
    file: str
    line: int


@dataclass
class Found:
    """What one root instantiates."""

    kernels: list[Kernel] = field(default_factory=list[Kernel])
    failures: list[Finding] = field(default_factory=list[Finding])
    filtered: list[Finding] = field(default_factory=list[Finding])


class KernelFinder:
    """Finds roots and kernels in units that share `resolver`'s headers."""

    def __init__(self, resolver: Resolver) -> None:
        self.resolver = resolver
        self._bodies: dict[str, tuple[Macro, MacroBody, tuple[Decl, ...]]] = {}
        self._names: dict[Decl, bool] = {}
        self._makers: dict[int, tuple[Macro, bool]] = {}

    def roots(self, tokens: list[Token]) -> list[Root]:
        """The instantiations of kernels that the unit's own tokens ask for, in order."""
        out: list[Root] = []
        macros = self.resolver.headers.macros
        index = 0
        while index < len(tokens):
            token = tokens[index]
            after = tokens[index + 1].text if index + 1 < len(tokens) else ""
            macro = macros.get(token.text) if token.kind == "name" else None
            if macro is not None and macro.params is not None and after == "(" and self._makes_kernels(macro):
                args, index = arguments(tokens, index + 1)
                out.append(self._macro_root(macro, args, token))
                continue
            if token.text == "template" and after not in ("<", ""):
                end = _statement_end(tokens, index)
                root = self._template_root(tokens[index + 1 : end], token)
                if root is not None:
                    out.append(root)
                index = end
                continue
            index += 1
        return out

    def _makes_kernels(self, macro: Macro) -> bool:
        """Whether expanding `macro` can make a kernel: it names one, or a template instantiation."""
        known = self._makers.get(id(macro))
        if known is None:
            makes = _has_kernel(macro.body) or any(token.text == "template" for token in macro.body)
            known = self._makers[id(macro)] = macro, makes
        return known[1]

    def _macro_root(self, macro: Macro, args: list[list[Token]], at: Token) -> Root:
        try:
            known = self._bodies.get(macro.name)
            if known is None or known[0] is not macro:
                body = macro_body(macro)
                known = macro, body, tuple(parse(body.tokens))
                self._bodies[macro.name] = known
            given = bind_arguments(macro, args)
        except NotRead as stop:
            label = f"{macro.name}({', '.join(shown(arg) for arg in args)})"
            return Root(
                macro.name, label, {}, (), Env(), at.file, at.line, macro.file, macro.line, is_macro=True, problem=stop
            )
        _, body, decls = known
        names = {name: shown(arg) for name, arg in given.items()}
        label = next((decl.name for decl in decls if decl.kind in ("struct", "function") and decl.params is None), "")
        text = body.text(label, given) if label in body.pasted else f"{macro.name}({', '.join(names.values())})"
        env = Env(macro=given)
        env.add(list(decls))
        return Root(macro.name, text, names, decls, env, at.file, at.line, macro.file, macro.line, is_macro=True)

    def _template_root(self, tokens: list[Token], at: Token) -> Root | None:
        """`template R name<args>(...)`: the function template `name` with its arguments bound."""
        resolver = self.resolver
        opening = next(
            (i for i, token in enumerate(tokens) if i and token.text == "<" and tokens[i - 1].kind == "name"), None
        )
        if opening is None:
            return None
        name = tokens[opening - 1]
        close = match_angle(tokens, opening, len(tokens))
        functions = [decl for decl in resolver.globals((name.text,), ()) if decl.kind == "function" and decl.tokens]
        if close is None or not functions or not self.names_kernel(functions[0]):
            return None
        function = functions[0]
        args = [tokens[start:end] for start, end in split_commas(tokens, opening + 1, close)]
        home = Env(function.path)
        env = Env(function.path, home)
        params = function.params or ()
        resolver.bind_params(params, [Pending(arg, home) for arg in args], env, name)
        names = {param.name: shown(arg) for param, arg in zip(params, args, strict=False)}
        decls = tuple(function.body())
        env.add(list(decls))
        label = f"{name.text}<{', '.join(shown(arg) for arg in args)}>"
        return Root(name.text, label, names, decls, env, at.file, at.line, function.file, function.line, is_macro=False)

    def names_kernel(self, decl: Decl) -> bool:
        """Whether a kernel is named somewhere in `decl`."""
        known = self._names.get(decl)
        if known is None:
            known = _has_kernel(decl.tokens) or _has_kernel(decl.then) or _has_kernel(decl.other)
            self._names[decl] = known
        return known

    def kernels(self, root: Root) -> Found:
        """The kernels of `root`; branches that are not compiled are left out."""
        found = Found()
        if root.problem is not None:
            stop = root.problem
            found.failures.append(Finding(root, stop.why, stop.file or root.file, stop.line or root.line))
            return found
        self._walk(list(root.decls), root.env, root, found, 0)
        if not (found.kernels or found.failures or found.filtered):
            found.failures.append(self._own_kernel(root))
        return found

    def _own_kernel(self, root: Root) -> Finding:
        """What `root` makes instead of a CUTLASS kernel: its arguments may name a struct that spells one."""
        for text in root.names.values():
            for decl in self.resolver.globals((text,), ()) if text.isidentifier() else ():
                struct = next(
                    (
                        target
                        for token in decl.tokens
                        if token.kind == "name"
                        for target in self.resolver.globals((token.text,), decl.path)
                        if target.kind == "struct" and self.names_kernel(target)
                    ),
                    decl if decl.kind == "struct" and self.names_kernel(decl) else None,
                )
                named = (
                    next((token for token in struct.tokens if KERNEL.fullmatch(token.text)), None) if struct else None
                )
                if named is not None:
                    why = f"its kernel is {named.text}, which is the library's own and not CUTLASS's"
                    return Finding(root, why, named.file, named.line)
        why = "it expands to nothing that names a CUTLASS kernel (GemmUniversal)"
        return Finding(root, why, root.defined_file, root.defined_line)

    def _walk(self, decls: list[Decl], env: Env, root: Root, found: Found, depth: int) -> None:
        if depth > _MAX_NESTING:
            return
        for decl in decls:
            if not self.names_kernel(decl):
                continue
            if decl.kind == "alias" and not decl.params:
                self._take(decl, env, root, found)
            elif (decl.kind in ("struct", "function") and not decl.params) or decl.kind == "block":
                inner = Env((*env.path, decl.name) if decl.name else env.path, env, owner=decl)
                inner.add(decl.body())
                self._walk(decl.body(), inner, root, found, depth + 1)
            elif decl.kind == "branch":
                self._walk_branch(decl, env, root, found, depth)

    def _walk_branch(self, decl: Decl, env: Env, root: Root, found: Found, depth: int) -> None:
        then, other = decl.branch_bodies()
        taken = [then, other]
        if decl.name == "constexpr":
            condition = env.substituted(decl.tokens)
            try:
                true = self.resolver.truth(condition, env)
            except NotRead as stop:
                found.failures.append(Finding(root, stop.why, stop.file or decl.file, stop.line or decl.line))
                return
            taken = [then if true else other]
            if any(map(self.names_kernel, other if true else then)) and not any(map(self.names_kernel, taken[0])):
                why = f"it is not compiled: {shown(condition)} is {'true' if true else 'false'}"
                found.filtered.append(Finding(root, why, decl.file, decl.line))
        for body in taken:
            inner = Env(env.path, env)
            inner.add(body)
            self._walk(body, inner, root, found, depth + 1)

    def _take(self, decl: Decl, env: Env, root: Root, found: Found) -> None:
        try:
            value = self.resolver.plain(decl, env)
        except NotRead as stop:
            found.failures.append(Finding(root, stop.why, stop.file or decl.file, stop.line or decl.line))
            return
        kernel = _kernel_in(value, 0)
        if kernel is not None and all(kernel != other.type for other in found.kernels):
            found.kernels.append(Kernel(root, kernel, decl.name, decl.file, decl.line))


def _has_kernel(tokens: Iterable[Token]) -> bool:
    return any(
        token.kind == "name" and token.text.startswith("GemmUniversal") and KERNEL.fullmatch(token.text)
        for token in tokens
    )


def _statement_end(tokens: list[Token], start: int) -> int:
    """Index of the `;` that ends the statement at `start`."""
    index = start
    while index < len(tokens) and tokens[index].text != ";":
        if tokens[index].kind == "symbol" and tokens[index].text in "([{":
            index = match_bracket(tokens, index)
        index += 1
    return index


def _kernel_in(value: Type | int, depth: int) -> Type | None:
    """The kernel type inside `value`: a kernel may be wrapped in a guard or an adapter."""
    if not isinstance(value, Type) or depth > _MAX_NESTING:
        return None
    if KERNEL.fullmatch(value.name):
        return value
    return next((kernel for arg in value.args if (kernel := _kernel_in(arg, depth + 1)) is not None), None)
