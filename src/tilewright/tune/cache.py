"""The folder of builds that the processes of a run share, kept from one run to the next."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

from tilewright.homes import home
from tilewright.tune.build import CACHE_VARIABLE
from tilewright.tune.moe_call import kernel_text, own_kernel

if TYPE_CHECKING:
    from tilewright.triton_.extract import Kernel


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@contextlib.contextmanager
def build_cache() -> Generator[Path]:
    """The folder: $TILEWRIGHT_TUNE_CACHE, else the user's cache; one of this run where that cannot be written."""
    named = os.environ.get(CACHE_VARIABLE)
    base = os.environ.get("XDG_CACHE_HOME")
    own = home()
    caches = Path(base) if base else own / ".cache" if own else None
    folder = Path(named) if named else caches / "tilewright" / "tune" if caches else None
    with contextlib.ExitStack() as stack:
        if folder is None or not _writable(folder):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tilewright-tune-")))
        folder = folder.absolute()  # workers elsewhere have other current folders
        os.environ[CACHE_VARIABLE] = str(folder)
        try:
            yield folder
        finally:
            if named is None:
                del os.environ[CACHE_VARIABLE]
            else:
                os.environ[CACHE_VARIABLE] = named


def kernel_file(folder: Path, source: Kernel | None) -> str:
    """The engine's kernel where measuring processes read it; "" where the kernel is ours."""
    if source is None or source is own_kernel():
        return ""
    data = kernel_text(source)
    path = folder / "kernels" / f"{hashlib.sha256(data).hexdigest()[:24]}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        temp = path.with_name(f".{path.name}.{os.getpid()}")
        temp.write_bytes(data)
        temp.replace(path)
    return str(path)
