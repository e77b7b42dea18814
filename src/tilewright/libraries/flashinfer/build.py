"""FlashInfer's build functions, followed instead of run.

FlashInfer decides what to compile in functions such as `gen_cutlass_fused_moe_sm120_module` (`jit/fused_moe.py`):
they call the kernel generator, render templates, write translation units, and end in `gen_jit_spec(name, sources,
flags)`. This module evaluates such a function with a file system that exists in memory only, and answers the
translation units that it writes and the flags that it compiles them with.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tilewright.libraries.flashinfer.layout import Layout, join
from tilewright.libraries.flashinfer.target import SM120, Target
from tilewright.libraries.flashinfer.templates import render
from tilewright.libraries.flashinfer.world import GENERATED, Operation, Rendered, World
from tilewright.libraries.python_source.limits import CannotFollow, Meter
from tilewright.libraries.python_source.modules import TreeInterpreter, parse_source
from tilewright.libraries.python_source.values import (
    ExceptionValue,
    Function,
    Host,
    HostObject,
    Instance,
    Raised,
    Symbol,
    Unknown,
    Value,
    answer,
    is_row,
)

_OUTSIDE: Final = ("jit/core", "jit/env", "jit/cpp_ext", "jit/cubin_loader")
"""Modules of the package that talk to the machine; they are stood for, never followed."""

_TILE_NAMES: Final = ("cta_m", "cta_n", "cta_k")
"""Names under which build functions hand a tile to a template."""


@dataclass(frozen=True)
class Unit:
    """One translation unit that a build function writes, with the template or the operations that made its text."""

    path: str
    text: str
    rendered: Rendered | None
    operations: tuple[Operation, ...]


@dataclass(frozen=True)
class BuildModule:
    """One JIT module: what `gen_jit_spec` was called with, and the units written before."""

    name: str
    function: str
    file: str
    line: int
    units: tuple[Unit, ...]
    flags: tuple[str, ...]
    include_paths: tuple[str, ...]
    sources: tuple[str, ...]

    @property
    def defines(self) -> dict[str, str]:
        """Macros that the flags define."""
        pairs = (flag[2:].partition("=") for flag in self.flags if flag.startswith("-D") and len(flag) > 2)
        return {name: value or "1" for name, _, value in pairs}


class BuildReader:
    """Evaluates build functions of one FlashInfer."""

    def __init__(self, layout: Layout, meter: Meter | None = None, target: Target = SM120) -> None:
        self.layout, self.target = layout, target
        package = layout.package
        outside = {join(package, name) for name in _OUTSIDE}
        jit = join(package, "jit")
        self.interp = TreeInterpreter(
            layout.read,
            meter or Meter(target.steps),
            lambda path: (path == jit or path.startswith(jit + "/")) and path not in outside,
        )
        self.world = World(layout, self.interp)
        self.assumed: set[str] = set()
        """What decisions asked of the machine that builds, and what was taken for it."""
        self._install()

    def _install(self) -> None:
        """Stand-ins for what talks to the machine: files, paths, the environment, the compiler."""
        interp, world, package = self.interp, self.world, self.layout.package
        interp.builtins["open"] = Host("open", world.open)

        def joined(args: list[Value], _: dict[str, Value]) -> Value:
            return posixpath.join(*(world.text_of(arg) for arg in args))

        def same(args: list[Value], _: dict[str, Value]) -> Value:
            return world.text_of(args[0])

        paths = HostObject("os.path", {
            "join": Host("join", joined), "abspath": Host("abspath", same), "realpath": Host("realpath", same),
            "dirname": Host("dirname", lambda args, _: posixpath.dirname(world.text_of(args[0]))),
            "basename": Host("basename", lambda args, _: posixpath.basename(world.text_of(args[0]))),
            "exists": Host("exists", lambda args, _: world.exists(world.text_of(args[0]))),
        })  # fmt: skip
        nothing = answer("nothing", lambda: None)
        interp.host_modules["os"] = HostObject("os", {
            "path": paths, "makedirs": nothing, "remove": nothing, "sep": "/",
            "environ": HostObject("os.environ", {"get": Host("get", self._unset)}),
            "getenv": Host("getenv", self._unset),
            "walk": answer("walk", list),
        })  # fmt: skip
        interp.host_modules["os.path"] = paths
        asks = Host("torch.cuda", self._no_gpu)
        interp.host_modules["torch"] = HostObject("torch", {
            "cuda": HostObject(
                "torch.cuda",
                {"current_device": asks, "get_device_properties": asks, "*": Host("torch.cuda", _named("torch.cuda"))},
            ),
            "*": Host("torch", _named("torch")),
        })  # fmt: skip
        make_path = Host("Path", lambda args, _: world.path(posixpath.join(*(world.text_of(a) for a in args))))
        interp.host_modules["pathlib"] = HostObject("pathlib", {"Path": make_path, "PurePosixPath": make_path})
        interp.host_modules["jinja2"] = HostObject("jinja2", {"Template": Host("Template", self._template)})

        def folder(args: list[Value], _: dict[str, Value]) -> Value:
            name = str(args[0])
            known = {"FLASHINFER_CSRC_DIR": self.layout.csrc, "FLASHINFER_INCLUDE_DIR": self.layout.include}
            return world.path(known.get(name, f"{GENERATED}/{name}"))

        interp.stubs[join(package, "jit/env")] = HostObject("jit.env", {"*": Host("jit.env", folder)})
        interp.stubs[join(package, "jit/core")] = HostObject(
            "jit.core", {"gen_jit_spec": Host("gen_jit_spec", self._spec)}
        )
        # A toolkit that can build Blackwell at all is 12.8 or newer; the generator asks for nothing above that.
        interp.stubs[join(package, "jit/cpp_ext")] = HostObject(
            "jit.cpp_ext", {"is_cuda_version_at_least": answer("is_cuda_version_at_least", lambda: True)}
        )
        interp.hooks["instantiate_operation"] = self._instantiated
        interp.empty = self._is_for_other_architecture

    def _unset(self, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """An environment variable: what a machine sets is not known here, so it counts as unset, and is noted."""
        if args and isinstance(args[0], str):
            self.assumed.add(f"{args[0]} is not set")
        return args[1] if len(args) > 1 else kwargs.get("default")

    def _no_gpu(self, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """torch.cuda on a machine that builds and has no GPU: what torch raises there."""
        self.assumed.add("no GPU is visible (the library looks for a special one)")
        raise Raised(ExceptionValue(self.interp.exception("RuntimeError"), ("no GPU",)))

    def _is_for_other_architecture(self, function: str) -> bool:
        return self.target.others.fullmatch(function) is not None

    def _spec(self, args: list[Value], kwargs: dict[str, Value]) -> Value:
        self.world.specs.append((list(args), dict(kwargs)))
        return Unknown("the JIT module")

    def _template(self, args: list[Value], kwargs: dict[str, Value]) -> Value:
        if not args or not isinstance(args[0], str):
            raise CannotFollow("a template of something that is no text")
        source = args[0]
        file = self.world.origin.get(source, "<template>")

        def rendered(_: list[Value], names: dict[str, Value]) -> Value:
            called_at = self.interp.site
            text = render(source, names, file, self.interp.meter)
            tile = tuple(names[key] for key in _TILE_NAMES if key in names)
            tile_at = self.interp.literal_like(tile, called_at[0]) if len(tile) == len(_TILE_NAMES) else None
            self.world.rendered[text] = Rendered(file, called_at, tile_at)
            return text

        return HostObject("template", {"render": Host("render", rendered)})

    def _instantiated(self, args: list[Value], result: Value) -> None:
        if args and isinstance(args[0], Instance) and isinstance(result, str):
            operation = args[0]
            tile = operation.attrs.get("cta_shape")
            self.world.operations.append(
                Operation(
                    result.strip(),
                    self._name_of(operation),
                    (operation.file, operation.line),
                    self.interp.literal_line(tile) if tile is not None else None,
                )
            )

    def _name_of(self, operation: Instance) -> str:
        """The operation's own name (its `__repr__`); "" where it does not print."""
        try:
            name = self.interp.text_of(operation)
        except (CannotFollow, Raised):
            return ""
        return name if isinstance(name, str) else ""

    def builders(self, file: str) -> list[str]:
        """Names of the target's build functions in `file` (relative to the package) that build something by themselves.

        Raises:
            CannotFollow: the file is missing or does not parse.
        """
        path = self.layout.inside(file)
        source = self.layout.read(path)
        if source is None:
            raise CannotFollow("there is no such file", path, 1)
        names: list[str] = []
        for node in parse_source(source, path).body:
            if isinstance(node, ast.FunctionDef) and self.target.builder.fullmatch(node.name):
                spec = node.args
                required = len(spec.posonlyargs) + len(spec.args) - len(spec.defaults)
                if required <= 0 and all(default is not None for default in spec.kw_defaults):
                    names.append(node.name)
        return names

    def build(self, file: str, function: str) -> list[BuildModule]:
        """Follow the build function `function` of `file`; the JIT modules that it makes.

        Raises:
            CannotFollow: it does something that we cannot or must not decide; says what and where.
        """
        path = self.layout.inside(file)
        module = self.interp.load(path)
        value = self.interp.lookup(function, module) if function in module.names else None
        if isinstance(value, Unknown):
            raise value.refuse()
        if not isinstance(value, Function):
            raise CannotFollow(f"{function} is no function", path, 1)
        world = self.world
        world.written.clear()
        world.operations.clear()
        world.specs.clear()
        try:
            self.interp.call(value, [], {})
        except Raised as raised:
            shown = " ".join(str(arg) for arg in raised.value.args)[:200]
            msg = f"following {function} ends in {raised.value.kind.name} ({shown})"
            raise CannotFollow(msg, path, value.node.lineno) from None
        except (RecursionError, MemoryError) as error:
            raise CannotFollow("it nests too deeply", path, value.node.lineno) from error
        except (TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
            # Sources that no Python would accept: say so instead of failing ourselves.
            raise CannotFollow(f"following {function} fails ({error})", path, value.node.lineno) from error
        units = tuple(self._unit(name, text) for name, text in world.written.items())
        return [
            BuildModule(
                name=_text(args[0]) if args else "",
                function=function,
                file=path,
                line=value.node.lineno,
                units=units,
                flags=tuple(flag for flag in _strings(kwargs.get("extra_cuda_cflags", []))),
                include_paths=tuple(self._paths(kwargs.get("extra_include_paths", []))),
                sources=tuple(self._paths(args[1] if len(args) > 1 else kwargs.get("sources", []))),
            )
            for args, kwargs in world.specs
        ]

    def _unit(self, path: str, text: str) -> Unit:
        operations = tuple(operation for operation in self.world.operations if operation.text in text)
        return Unit(path, text, self.world.rendered.get(text), operations)

    def _paths(self, value: Value) -> list[str]:
        out: list[str] = []
        for item in value if is_row(value) else []:
            try:
                out.append(self.world.text_of(item))
            except CannotFollow:
                continue
        return out


def _named(module: str) -> Callable[[list[Value], dict[str, Value]], Value]:
    """Members of a module outside the tree: known by their names alone."""
    return lambda args, _: Symbol(f"{module}.{args[0]}")


def _text(value: Value) -> str:
    return value if isinstance(value, str) else ""


def _strings(value: Value) -> list[str]:
    return [item for item in value if isinstance(item, str)] if is_row(value) else []
