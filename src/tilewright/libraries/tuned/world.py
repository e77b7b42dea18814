"""The machine that an engine's own lookup code sees while it is evaluated: a GPU, files, environment variables.

Which tuned file an engine reads, and what it does where there is none, is decided by its Python functions
(`get_config_file_name`, `get_moe_configs`, `get_default_config`, ...). They are followed here by the bounded evaluator
of `libraries.python_source`, never run: files come from the tree (or from a folder that the user names), the GPU is
the one asked about. What they opened, looked for and warned about is recorded.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import msgspec

from tilewright.collectives.tree import SourceTree
from tilewright.errors import TreeError
from tilewright.libraries.python_source.limits import CannotFollow, Meter
from tilewright.libraries.python_source.modules import TreeInterpreter
from tilewright.libraries.python_source.values import (
    Host,
    HostObject,
    Symbol,
    Unknown,
    Value,
    answer,
    is_dict,
    is_tuple,
)
from tilewright.libraries.tuned.files import MAX_BYTES

OUTSIDE: Final = "/outside:"
"""Prefix of paths that lie in a folder of the user's own, not in the tree."""

_SIMPLE: Final = re.compile(r"(?:\[[^\[\]{}()|*+?^$.]*\]\+?|[\w ,./-]+)")
"""Patterns that `re.sub` of an engine may use here: one class of characters, or plain text. They cost linear time."""


@dataclass(frozen=True)
class Device:
    """The GPU that the engine sees."""

    name: str
    """As torch reports it."""
    capability: tuple[int, int]
    smem_optin: int | None


@dataclass
class Trace:
    """What one evaluation did."""

    opened: list[str] = field(default_factory=list[str])
    tried: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])


class World:
    """An interpreter of one engine's package, with a machine to look at.

    `package` is the folder of the engine's package in `tree`, `folders` maps environment variables to folders on this
    machine that the user named.
    """

    def __init__(
        self, tree: SourceTree, engine: str, package: str, device: Device, triton: str, folders: Mapping[str, str]
    ) -> None:
        self.tree, self.engine, self.package, self.device = tree, engine, package, device
        self.folders = folders
        self.trace = Trace()
        root = package.rstrip("/")
        self.interp = TreeInterpreter(self._source, Meter(), lambda path: path == root or path.startswith(root + "/"))
        self.interp.packages[engine] = root
        self._install(triton)

    def fresh(self) -> Trace:
        """Start a new record, and answer it."""
        self.trace = Trace()
        return self.trace

    def module(self, path: str) -> Any:
        """The module in file `path` of the tree, with `__file__` set.

        Raises:
            CannotFollow: it cannot be read.
        """
        scope = self.interp.load(path)
        scope.names.setdefault("__file__", path)
        return scope

    def function(self, path: str, name: str) -> Value:
        """The function `name` of the file `path`, or None."""
        scope = self.module(path)
        return self.interp.resolve_lazy(scope, name) if name in scope.names else None

    def call(self, function: Value, args: list[Value], kwargs: dict[str, Value]) -> Value:
        """Call an evaluated function with the arguments that it takes; others of `kwargs` are left out."""
        node = function.node
        known = {arg.arg for arg in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)}
        return self.interp.call(function, args, {key: value for key, value in kwargs.items() if key in known})

    def _source(self, path: str) -> bytes | None:
        return self.tree.read(path) if self.tree.exists(path) else None

    # What stands for the machine.

    def _install(self, triton: str) -> None:
        interp, device = self.interp, self.device
        modules = interp.host_modules
        modules["os"] = self._os()
        modules["os.path"] = modules["os"].attrs["path"]
        modules["json"] = HostObject("json", {"load": Host("load", self._json_load)})
        modules["re"] = modules["regex"] = HostObject("re", {"sub": Host("sub", _sub)})
        modules["logging"] = HostObject("logging", {"getLogger": answer("getLogger", self._logger)})
        modules["triton"] = HostObject("triton", {"__version__": triton, "*": _symbols("triton")})
        modules["torch"] = self._torch()
        interp.builtins["open"] = Host("open", self._open)
        name = answer("get_device_name", lambda: self.device.name)
        no, yes = answer("no", lambda: False), answer("yes", lambda: True)

        def is_capability(args: list[Value], kwargs: dict[str, Value]) -> Value:
            return _as_number(args[0] if args else kwargs.get("capability")) == _number(device.capability)

        def has_capability(args: list[Value], kwargs: dict[str, Value]) -> Value:
            return _number(device.capability) >= _as_number(args[0] if args else kwargs.get("capability"))

        def is_family(args: list[Value], kwargs: dict[str, Value]) -> Value:
            return _number(device.capability) // 10 == _as_number(args[0] if args else kwargs.get("capability")) // 10

        platform = HostObject("current_platform", {
            "get_device_name": name, "is_cuda": yes, "is_cuda_alike": yes, "is_rocm": no, "is_cpu": no, "is_xpu": no,
            "is_tpu": no, "is_device_capability": Host("is_device_capability", is_capability),
            "has_device_capability": Host("has_device_capability", has_capability),
            "is_device_capability_family": Host("is_device_capability_family", is_family),
        })  # fmt: skip
        none = answer("get_config", lambda: None)
        if self.engine == "vllm":
            modules["vllm.platforms"] = HostObject("platforms", {"current_platform": platform})
            modules["vllm.logger"] = HostObject("logger", {"init_logger": answer("init_logger", self._logger)})
            modules["vllm.envs"] = HostObject("envs", {"*": Host("env", self._vllm_env)})
            modules["vllm"] = HostObject("vllm", {"envs": modules["vllm.envs"], "*": _symbols("vllm")})
            modules["vllm.triton_utils"] = HostObject("triton_utils", {"*": _symbols("vllm.triton_utils")})
            for batch in ("vllm.model_executor.layers.batch_invariant",):
                modules[batch] = HostObject(batch, {"vllm_is_batch_invariant": no, "*": _symbols(batch)})
            modules["vllm.model_executor.layers.fused_moe"] = HostObject(
                "fused_moe", {"get_config": none, "*": _symbols("fused_moe")}
            )
            return
        plain = HostObject("deterministic", {"enable_deterministic_inference": False, "*": answer("no", lambda: False)})
        args = HostObject("server_args", {
            "enable_deterministic_inference": False, "deterministic": plain, "*": answer("no", lambda: False),
        })  # fmt: skip
        get_args = answer("get_global_server_args", lambda: args)
        modules["sglang.srt.server_args"] = HostObject(
            "server_args", {"get_global_server_args": get_args, "*": _symbols("server_args")}
        )
        modules["sglang.srt.runtime_context"] = HostObject(
            "runtime_context",
            {"get_exec": get_args, "get_server_args": get_args, "*": _symbols("runtime_context")},
        )
        modules["sglang.srt.utils"] = HostObject("utils", {
            "get_device_name": name, "is_cuda": yes, "is_hip": no, "is_cpu": no, "is_npu": no, "is_xpu": no,
            "is_musa": no, "cpu_has_amx_support": no, "get_bool_env_var": no, "*": _symbols("sglang.srt.utils"),
        })  # fmt: skip
        for home in ("sglang.srt.layers.moe.fused_moe_triton", "sglang.srt.layers.moe.moe_runner.triton_utils"):
            modules[home] = HostObject(home, {"get_config": none, "*": _symbols(home)})

    def _os(self) -> HostObject:
        def joined(args: list[Value], _: dict[str, Value]) -> Value:
            return posixpath.join(*(_text(arg) for arg in args))

        paths = HostObject("os.path", {
            "join": Host("join", joined),
            "dirname": Host("dirname", lambda args, _: posixpath.dirname(_text(args[0]))),
            "basename": Host("basename", lambda args, _: posixpath.basename(_text(args[0]))),
            "realpath": Host("realpath", lambda args, _: _text(args[0])),
            "abspath": Host("abspath", lambda args, _: _text(args[0])),
            "exists": Host("exists", lambda args, _: self._exists(_text(args[0]))),
            "isfile": Host("isfile", lambda args, _: self._exists(_text(args[0]))),
        })  # fmt: skip

        def env(args: list[Value], _: dict[str, Value]) -> Value:
            known = self.folders.get(_text(args[0]))
            return OUTSIDE + known if known is not None else args[1] if len(args) > 1 else None

        get = Host("get", env)
        return HostObject("os", {
            "path": paths, "environ": HostObject("environ", {"get": get}), "getenv": get,
            "listdir": Host("listdir", lambda args, _: self._listdir(_text(args[0]))),
        })  # fmt: skip

    def _torch(self) -> HostObject:
        device = self.device
        properties = HostObject("properties", {
            "name": device.name, "major": device.capability[0], "minor": device.capability[1],
            "shared_memory_per_block_optin": device.smem_optin,
        })  # fmt: skip
        cuda = HostObject("cuda", {
            "is_available": answer("is_available", lambda: True),
            "current_device": answer("current_device", lambda: 0),
            "get_device_properties": answer("get_device_properties", lambda: properties),
            "get_device_capability": answer("get_device_capability", lambda: device.capability),
            "get_device_name": answer("get_device_name", lambda: device.name),
            "*": _symbols("torch.cuda"),
        })  # fmt: skip
        version = HostObject("version", {"hip": None, "cuda": "13.0"})
        return HostObject("torch", {"cuda": cuda, "version": version, "*": _symbols("torch")})

    def _vllm_env(self, args: list[Value], _: dict[str, Value]) -> Value:
        name = _text(args[0])
        if name in self.folders:
            return OUTSIDE + self.folders[name]
        if name == "VLLM_BATCH_INVARIANT":
            return False
        if name == "VLLM_TUNED_CONFIG_FOLDER":
            return None
        return Unknown(f"the environment variable {name}")

    def _logger(self) -> HostObject:
        def note(args: list[Value], _: dict[str, Value]) -> Value:
            if args and isinstance(args[0], str):
                text = args[0]
                for item in args[1:]:
                    text = text.replace("%s", str(item), 1) if "%s" in text else text.replace("%d", str(item), 1)
                self.trace.warnings.append(text[:2000])

        quiet = answer("info", lambda: None)
        return HostObject("logger", {
            "info": quiet, "info_once": quiet, "debug": quiet, "debug_once": quiet, "warning": Host("warning", note),
            "warning_once": Host("warning_once", note),
        })  # fmt: skip

    # Files.

    def _exists(self, path: str) -> bool:
        self.trace.tried.append(path)
        if path.startswith(OUTSIDE):
            return Path(path.removeprefix(OUTSIDE)).is_file()
        return self.tree.exists(path)

    def _listdir(self, path: str) -> list[Value]:
        if path.startswith(OUTSIDE):
            try:
                return sorted(item.name for item in Path(path.removeprefix(OUTSIDE)).iterdir())
            except OSError as error:
                raise CannotFollow(f"the folder {path.removeprefix(OUTSIDE)} cannot be listed: {error}") from None
        return list(self.tree.list_dir(path))

    def _open(self, args: list[Value], kwargs: dict[str, Value]) -> Value:
        path = _text(args[0])
        return HostObject("file", {"path": path})

    def _json_load(self, args: list[Value], _: dict[str, Value]) -> Value:
        path = args[0].attrs["path"] if isinstance(args[0], HostObject) else ""
        self.trace.opened.append(path)
        try:
            data = self.read(path)
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, RecursionError, ValueError) as error:
            raise CannotFollow(f"{shown_path(path)} is not JSON ({error})") from None
        if not is_dict(value):
            raise CannotFollow(f"{shown_path(path)} holds no JSON object")
        self.interp.meter.step(len(data) // 8)
        return value

    def read(self, path: str) -> bytes:
        """The content of a tuned file, in the tree or outside.

        Raises:
            CannotFollow: it cannot be read, or is too large.
        """
        try:
            if path.startswith(OUTSIDE):
                target = Path(path.removeprefix(OUTSIDE))
                if not target.is_file() or target.stat().st_size > MAX_BYTES:
                    raise CannotFollow(f"{target} is no file of at most {MAX_BYTES:,} bytes")
                return target.read_bytes()
            return self.tree.read(path)
        except OSError as error:
            raise CannotFollow(f"{shown_path(path)} cannot be read ({error.strerror})") from None
        except TreeError as error:
            raise CannotFollow(error.msg) from None


def shown_path(path: str) -> str:
    """`path` without the mark of folders outside the tree."""
    return path.removeprefix(OUTSIDE)


def _text(value: Value) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, Unknown):
        raise value.refuse()
    raise CannotFollow(f"a path that is a {type(value).__name__}")


def _number(capability: tuple[int, int]) -> int:
    return capability[0] * 10 + capability[1]


def _as_number(value: Value) -> int:
    if isinstance(value, int):
        return value
    if is_tuple(value) and len(value) == 2 and all(isinstance(part, int) for part in value):
        return _number((value[0], value[1]))
    raise CannotFollow("a compute capability that is no number")


def _symbols(prefix: str) -> Host:
    return Host(prefix, lambda args, _: Symbol(f"{prefix}.{args[0]}"))


def _sub(args: list[Value], _: dict[str, Value]) -> Value:
    pattern, replacement, text = (_text(arg) for arg in args[:3])
    if not _SIMPLE.fullmatch(pattern) or "\\" in replacement or len(text) > 10_000:
        raise CannotFollow(f"re.sub with the pattern {pattern[:60]!r}")
    return re.sub(pattern, lambda _match: replacement, text)
