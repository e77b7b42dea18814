"""Which files a call may touch: the roots given at start, and nothing else.

Paths among the arguments are resolved, links included, and refused with a sentence where they lead out of the roots.
Behind that stands an audit hook (`guard`) in the worker: every file that the process opens or lists, by whatever
route (a link inside a folder, a model's cache, a file named in another one), is held to the same roots; writing is
held to the folder given for it; sockets and other programs are refused.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from tilewright.errors import InputError, shown

__all__ = ["MAX_PATH", "Access", "guard"]

MAX_PATH: Final = 4096
"""Longest path that is looked at, in characters (PATH_MAX of Linux)."""

_CODE: Final = (".py", ".pyc", ".so", ".pyd", ".pth", ".zip")
"""What the interpreter itself reads from its own folders while a module is imported."""

_WRITE_MODES: Final = frozenset("wax+")
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PATHS_OF: Final[dict[str, int]] = {
    "os.remove": 1, "os.rename": 2, "os.mkdir": 1, "os.rmdir": 1, "os.chmod": 1, "os.chown": 1, "os.link": 2,
    "os.symlink": 2, "os.truncate": 1, "os.utime": 1, "os.setxattr": 1, "os.removexattr": 1,
}  # fmt: skip
"""Events of the interpreter that change a file system, with how many of their first arguments are paths."""
_REFUSED: Final = (
    "subprocess.", "socket.connect", "socket.bind", "socket.sendto", "socket.getaddrinfo", "socket.gethostby",
    "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "os.startfile", "pty.spawn", "urllib.Request",
)  # fmt: skip


@dataclass(frozen=True)
class Access:
    """What may be read (`roots`) and written (`write`); both are resolved, existing folders."""

    roots: tuple[Path, ...] = ()
    write: Path | None = None

    @classmethod
    def of(cls, roots: tuple[str, ...], write: str | None) -> Access:
        """The folders named at start. Raises InputError where one is no folder."""
        return cls(tuple(_folder(item, "--root") for item in roots), _folder(write, "--allow-write") if write else None)

    @property
    def said(self) -> str:
        """The roots, for a message."""
        return ", ".join(map(str, self.roots)) or "none: the server was started without --root"

    def may_read(self, path: Path) -> bool:
        """Whether the resolved `path` lies under a root (or where this server writes)."""
        return any(path.is_relative_to(root) for root in self.roots) or self.may_write(path)

    def may_write(self, path: Path) -> bool:
        """Whether the resolved `path` lies in the folder that may be written."""
        return self.write is not None and path.is_relative_to(self.write)

    def reading(self, text: str, field: str) -> str:
        """`text` as an absolute path without links, under a root; a relative one is looked for under each root.

        Raises:
            InputError: it lies outside of the roots, or nothing is there. Outside, it is not said whether it exists.
        """
        if not text or "\0" in text or len(text) > MAX_PATH:
            raise InputError(field, f"{field}: {shown(text)} is no path; give one under a root of this server.")
        for base in self.roots or (Path("/"),):
            path = _resolved(base, text)
            if path is not None and self.may_read(path) and path.exists():
                if not (path.is_file() or path.is_dir()):
                    raise InputError(field, f"{field}: {shown(text)} is neither a file nor a folder.")
                return str(path)
        first = _resolved(self.roots[0], text) if self.roots else None
        if first is not None and self.may_read(first):
            raise InputError(field, f"{field}: there is nothing at {shown(text)}; the roots are: {self.said}.")
        msg = f"{field}: {shown(text)} is outside of what this server may read; its roots are: {self.said}."
        raise InputError(field, msg)

    def writing(self, text: str, field: str) -> str:
        """`text` as an absolute path in the folder that may be written; a relative one is taken from there.

        Raises:
            InputError: nothing may be written, or it lies outside.
        """
        if self.write is None:
            raise InputError(field, f"{field}: this server writes nothing; start it with --allow-write DIR to let it.")
        if not text or "\0" in text or len(text) > MAX_PATH:
            raise InputError(field, f"{field}: {shown(text)} is no path; give one under {self.write}.")
        path = _resolved(self.write, text)
        if path is None or not self.may_write(path):
            raise InputError(field, f"{field}: {shown(text)} is outside of {self.write}, where this server may write.")
        return str(path)


def _folder(text: str, flag: str) -> Path:
    try:
        path = Path(text).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        raise InputError(flag, f"{flag} {shown(text)} does not exist; give a folder.") from None
    if not path.is_dir():
        raise InputError(flag, f"{flag} {shown(text)} is no folder; give one.")
    return path


def _resolved(base: Path, text: str) -> Path | None:
    """`text`, seen from `base`, without links; None where it is no path."""
    try:
        return Path(os.path.realpath(base / Path(text).expanduser()))
    except (OSError, ValueError, RuntimeError):  # RuntimeError: the home of an unknown user
        return None


class _Guard:
    """The audit hook of one `Access`."""

    def __init__(self, access: Access) -> None:
        self.access = access
        self.package = Path(__file__).resolve().parent.parent
        self.code = tuple(Path(os.path.realpath(item)) for item in (*sys.path, sys.prefix, sys.base_prefix) if item)

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            self._open(*args[:3])
        elif event in ("os.listdir", "os.scandir"):
            self._read(args[0] if args and args[0] is not None else ".", listing=True)
        elif event == "sqlite3.connect":
            self._sqlite(str(args[0]))
        elif event in _PATHS_OF:
            for path in args[: _PATHS_OF[event]]:
                self._write(path)
        elif event.startswith(_REFUSED):
            msg = f"This server starts no programs and opens no connections ({event})."
            raise PermissionError(msg)

    def _open(self, path: Any, mode: Any, flags: Any) -> None:
        writes = _WRITE_MODES & set(mode) if isinstance(mode, str) else isinstance(flags, int) and flags & _WRITE_FLAGS
        if writes:
            self._write(path)
        else:
            self._read(path)

    def _read(self, given: Any, *, listing: bool = False) -> None:
        path = _path(given)
        if path is None or path.is_relative_to(self.package) or self.access.may_read(path):
            return
        own = listing or path.suffix in _CODE
        if own and any(path.is_relative_to(folder) for folder in self.code):
            return
        raise PermissionError(13, "outside of the roots that this server may read", str(given))

    def _write(self, given: Any) -> None:
        path = _path(given)
        if path is not None and not self.access.may_write(path):
            raise PermissionError(13, "outside of what this server may write", str(given))

    def _sqlite(self, name: str) -> None:
        text, _, query = name.partition("?")
        path = unquote(text.removeprefix("file:")) if text.startswith("file:") else text
        if path == ":memory:":
            return
        if "mode=ro" in query or "immutable=1" in query:
            self._read(path)
        else:
            self._write(path)


def _path(given: Any) -> Path | None:
    """The path an event names, resolved; None where it is an open descriptor."""
    if isinstance(given, int):
        return None
    return Path(os.path.realpath(os.fsdecode(given)))


def guard(access: Access) -> None:
    """Hold this process to `access` from now on; there is no way back."""
    sys.addaudithook(_Guard(access))
