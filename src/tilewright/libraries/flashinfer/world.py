"""The file system of an evaluated build function: files of the tree are read, what is written stays in memory."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field
from typing import Final

from tilewright.libraries.flashinfer.layout import Layout
from tilewright.libraries.python_source.limits import CannotFollow
from tilewright.libraries.python_source.modules import TreeInterpreter
from tilewright.libraries.python_source.values import ExceptionValue, Host, HostObject, Raised, Unknown, Value, answer

GENERATED: Final = "<generated>"
"""Root of the in-memory folder that build functions write to."""


@dataclass(frozen=True)
class Operation:
    """One object that the kernel generator made: its text for C++, its own name, and where it comes from."""

    text: str
    name: str
    made_at: tuple[str, int]
    tile_at: tuple[str, int] | None


@dataclass(frozen=True)
class Rendered:
    """A template filled in: which one, by which call, and where the tile that it was given is listed."""

    template: str
    called_at: tuple[str, int]
    tile_at: tuple[str, int] | None


@dataclass
class FilePath:
    """A path of the evaluated program; every file system call on it ends here."""

    text: str
    world: World

    def as_text(self) -> str:
        return self.text


@dataclass
class World:
    """The in-memory file system: files of the tree are read, everything written is kept here."""

    layout: Layout
    interp: TreeInterpreter
    written: dict[str, str] = field(default_factory=dict[str, str])
    origin: dict[str, str] = field(default_factory=dict[str, str])
    """Which file of the tree a text was read from, by text."""
    rendered: dict[str, Rendered] = field(default_factory=dict[str, Rendered])
    """How a rendered text came about, by text."""
    operations: list[Operation] = field(default_factory=list[Operation])
    specs: list[tuple[list[Value], dict[str, Value]]] = field(
        default_factory=list[tuple[list[Value], dict[str, Value]]]
    )

    def path(self, text: str) -> HostObject:
        """A pathlib-like object for `text`."""
        text = posixpath.normpath(text)
        here = FilePath(text, self)

        def under(args: list[Value], _: dict[str, Value]) -> Value:
            return self.path(posixpath.join(text, *(self.text_of(arg) for arg in args)))

        def glob(args: list[Value], _: dict[str, Value]) -> Value:
            pattern = self.text_of(args[0]) if args else "*"
            suffix = pattern.rpartition("*")[2]
            return [self.path(name) for name in self.written if name.startswith(text + "/") and name.endswith(suffix)]

        nothing = answer("mkdir", lambda: None)
        folder, name = posixpath.split(text)
        return HostObject("path", {
            "__truediv__": Host("/", under), "joinpath": Host("joinpath", under), "mkdir": nothing,
            "unlink": nothing, "exists": answer("exists", lambda: self.exists(text)),
            "is_file": answer("is_file", lambda: self.exists(text)), "rglob": Host("rglob", glob),
            "glob": Host("glob", glob), "read_text": answer("read_text", lambda: self.content(text)),
            "write_text": Host("write_text", lambda args, _: self.write(text, args[0])),
            "name": name, "stem": name.partition(".")[0], "suffix": posixpath.splitext(name)[1],
            "resolve": answer("resolve", lambda: self.path(text)), "_path": here,
            "as_posix": answer("as_posix", lambda: text),
            **({"parent": _Lazy(self, folder)} if folder and folder != text else {}),
        })  # fmt: skip

    def text_of(self, value: Value) -> str:
        """A path or string as text."""
        if isinstance(value, HostObject) and isinstance(value.attrs.get("_path"), FilePath):
            return value.attrs["_path"].text
        if isinstance(value, str):
            return value
        if isinstance(value, Unknown):
            raise value.refuse()
        raise CannotFollow(f"a path made of a {type(value).__name__}")

    def exists(self, text: str) -> bool:
        return text in self.written or self._in_tree(text) is not None

    def _in_tree(self, text: str) -> bytes | None:
        return None if text.startswith(GENERATED) else self.layout.read(text)

    def content(self, text: str) -> str:
        """The file `text`: written before, or of the tree."""
        if text in self.written:
            return self.written[text]
        data = self._in_tree(text)
        if data is None:
            error = self.interp.exception("FileNotFoundError")
            raise Raised(ExceptionValue(error, (text,)))
        content = self.interp.meter.text(data.decode("utf-8", "replace"))
        self.origin.setdefault(content, text)
        return content

    def write(self, text: str, content: Value) -> None:
        if isinstance(content, Unknown):
            raise content.refuse()
        if not isinstance(content, str):
            raise CannotFollow("it writes something that is no text")
        self.interp.meter.step()
        self.written[text] = content

    def open(self, args: list[Value], kwargs: dict[str, Value]) -> Value:
        text = self.text_of(args[0])
        mode = args[1] if len(args) > 1 else kwargs.get("mode", "r")
        if mode in ("w", "wt", "x"):
            return HostObject("file", {"write": Host("write", lambda inner, _: self.write(text, inner[0]))})
        content = self.content(text)
        return HostObject("file", {"read": answer("read", lambda: content), "items": content.splitlines()})


class _Lazy(HostObject):
    """`path.parent`, made when asked for (every path has one, up to the root)."""

    def __init__(self, world: World, folder: str) -> None:
        self._world, self._folder = world, folder
        super().__init__("path", {})

    def __getattribute__(self, name: str) -> Value:
        if name == "attrs":
            return self._world.path(self._folder).attrs
        return super().__getattribute__(name)
