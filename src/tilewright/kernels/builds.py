"""Compiled kernels kept from one process to the next: NVRTC takes 1 to 5 s a kernel, and a server starts several.

They lie in `kernels` of the user's cache folder ($TILEWRIGHT_CACHE_DIR, $XDG_CACHE_HOME/tilewright or
~/.cache/tilewright), by a hash of everything that takes part. A folder that cannot be read or written is done without,
and a file that is not what was written is compiled anew.
"""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from tilewright.errors import ToolError
from tilewright.kernels.nvrtc import compile_cubin, included, nvrtc_version
from tilewright.probe.cache import cache_root, content_key, read_whole, write_whole

_kept_in: list[Path] = []


def keep_in(folder: Path) -> None:
    """Keep this process's builds in `folder` (a run of `tune` has one of its own) from here on."""
    _kept_in[:] = [folder]


def _folder() -> Path | None:
    if _kept_in:
        return _kept_in[0]
    with suppress(ToolError):
        return cache_root() / "kernels"
    return None


def file_name(source: str, target: str, defines: tuple[str, ...]) -> str:
    """The name of a build: over the kernel's text, what it includes, what it is compiled with and by."""
    text = files("tilewright.kernels").joinpath(source).read_bytes()
    parts = (text, *included().values(), target, *defines, nvrtc_version())
    return f"{content_key(*parts)[:32]}.cubin"


@lru_cache(maxsize=256)
def cubin(source: str, target: str, defines: tuple[str, ...]) -> bytes:
    """`source` (a file of this package) compiled for `target`, now or before. Raises ToolError as NVRTC does."""
    folder = _folder()
    path = folder / file_name(source, target, defines) if folder is not None else None
    if path is not None:
        with suppress(OSError):
            if kept := read_whole(path):
                return kept
    made = compile_cubin(source, target, defines)
    if path is not None:
        with suppress(OSError):
            write_whole(path, made)
    return made
