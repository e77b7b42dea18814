"""Where CUTLASS is installed on this machine: what is asked about when no root is given."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tilewright.collectives.folder import FolderTree
from tilewright.collectives.library import KNOWN
from tilewright.errors import InputError, TreeError

__all__ = ["default_root"]

_VARIABLES: Final = ("CUTLASS_PATH", "CUTLASS_HOME", "CUTLASS_DIR")
"""Environment variables by which builds name a CUTLASS checkout: DeepGEMM and FlagGems read `CUTLASS_PATH`,
`nvidia-cutlass` `CUTLASS_PATH`, CMake projects the others."""


def _site_packages() -> Iterator[Path]:
    """Folders of installed packages: of an active environment first, then of the running Python."""
    for variable in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        prefix = os.environ.get(variable)
        if prefix:
            yield from sorted(Path(prefix).glob("lib/python3*/site-packages"))
            yield Path(prefix) / "Lib" / "site-packages"
    for entry in sys.path:
        if entry and Path(entry).name in ("site-packages", "dist-packages"):
            yield Path(entry)


def default_root() -> Path:
    """The first folder that holds CUTLASS: one that an environment variable names, or the package folder of a known
    library (FlashInfer, vLLM, ...), or all of site-packages where several libraries bring one.

    Raises:
        InputError: nothing is found; says where was looked and to pass `--root`.
    """
    looked: list[str] = []
    for variable in _VARIABLES:
        value = os.environ.get(variable)
        if value:
            looked.append(f"${variable}")
            if _holds_cutlass(Path(value)):
                return Path(value)
    for folder in dict.fromkeys(_site_packages()):
        packages = [folder / package for package in KNOWN.values() if (folder / package).is_dir()]
        if not folder.is_dir():
            continue
        looked.append(str(folder))
        having = [package for package in packages if _holds_cutlass(package)]
        if having:
            return having[0] if len(having) == 1 else folder
    where = ", ".join(looked) or "no site-packages folder exists"
    msg = (
        f"No library that brings CUTLASS is installed (looked in {where}: {', '.join(KNOWN.values())}); "
        "pass --root DIR_OR_WHEEL."
    )
    raise InputError("root", msg)


def _holds_cutlass(folder: Path) -> bool:
    try:
        return bool(FolderTree(folder).find_cutlass())
    except (TreeError, OSError):
        return False
