"""Results by content: what one config gave on one header tree with one compiler never changes.

The key is a hash of everything that takes part: the headers' content, the compiler's version, the target and the text
of the config's part of the translation unit. Entries are written whole (a temporary file, then renamed).
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from tilewright.errors import ToolError
from tilewright.homes import home

__all__ = ["ResultCache", "cache_root", "content_key", "read_whole", "write_atomically", "write_whole"]

FORMAT: Final = 1
"""Raised whenever what an entry holds, or how it is obtained, changes: older entries are then never read."""


def cache_root() -> Path:
    """TILEWRIGHT_CACHE_DIR, else XDG_CACHE_HOME/tilewright, else ~/.cache/tilewright; absolute.

    Raises:
        ToolError: none of them is there.
    """
    own = os.environ.get("TILEWRIGHT_CACHE_DIR")
    if own:
        return Path(own).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    if base:
        return Path(base).absolute() / "tilewright"
    folder = home()
    if folder is None:
        raise ToolError("There is no home folder to keep a cache in; set TILEWRIGHT_CACHE_DIR to a folder that can.")
    return folder.absolute() / ".cache" / "tilewright"


def content_key(*parts: str | bytes) -> str:
    """64 hex digits over `parts`, in order and with their bounds."""
    digest = hashlib.sha256()
    for part in parts:
        data = part if isinstance(part, bytes) else part.encode("utf-8", "surrogateescape")
        digest.update(b"%d:" % len(data) + data)
    return digest.hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that no reader ever sees a part of it."""
    import tempfile  # readers start faster without it

    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
        Path(name).replace(path)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


_HASH_BYTES: Final = 32
"""A file of `write_whole` is the SHA-256 of what was written, then that."""


def write_whole(path: Path, data: bytes) -> None:
    """`write_atomically`, so that `read_whole` knows a file that was cut or changed since."""
    write_atomically(path, hashlib.sha256(data).digest() + data)


def read_whole(path: Path) -> bytes | None:
    """What `write_whole` wrote; None where the file is damaged. Raises OSError where it cannot be read."""
    data = path.read_bytes()
    kept = data[_HASH_BYTES:]
    return kept if hashlib.sha256(kept).digest() == data[:_HASH_BYTES] else None


class ResultCache:
    """JSON objects by key below `cache_root()/probe`. One that cannot be read or written is no error: it is empty."""

    def __init__(self, enabled: bool = True) -> None:
        self._folder: Path | None = None
        with suppress(ToolError):
            self._folder = cache_root() / "probe" / f"results-{FORMAT}"
        self.enabled = enabled and self._folder is not None

    def _path(self, key: str) -> Path:
        assert self._folder is not None, "asked for where it is not enabled"
        return self._folder / key[:2] / f"{key[2:]}.json"

    def get(self, key: str) -> dict[str, Any] | None:
        """The entry, or None where there is none or it is damaged."""
        if not self.enabled:
            return None
        try:
            value: Any = msgspec.json.decode(self._path(key).read_bytes())
        except (OSError, ValueError):
            return None
        return cast("dict[str, Any]", value) if isinstance(value, dict) else None

    def put(self, key: str, value: dict[str, Any]) -> None:
        """Keep `value`; a folder that cannot be written is passed over."""
        if not self.enabled:
            return
        with suppress(OSError):
            write_atomically(self._path(key), msgspec.json.encode(value))
