"""Mangled symbols as type names, through c++filt (binutils, which a host compiler of nvcc's brings along)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterable
from typing import Final

__all__ = ["type_names"]

_TIMEOUT_S: Final = 60.0
_PREFIX: Final = "tw_name<"
_NONE: Final = "tw_none"


def type_names(symbols: Iterable[str]) -> dict[str, str]:
    """`{symbol of tw_name<T>: T}`; empty where there is no c++filt. A type that is absent (`tw_none`) is left out."""
    wanted = sorted(set(symbols))
    tool = shutil.which("c++filt")
    if tool is None or not wanted:
        return {}
    try:
        done = subprocess.run(
            [tool], input="\n".join(wanted).encode() + b"\n", capture_output=True, timeout=_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return {}
    names: dict[str, str] = {}
    for symbol, line in zip(wanted, done.stdout.decode("utf-8", "replace").splitlines(), strict=False):
        text = line.strip()
        if text.startswith(_PREFIX) and text.endswith(">"):
            inner = text[len(_PREFIX) : -1].strip()
            if inner != _NONE:
                names[symbol] = inner
    return names
