"""Where a flag's value is read: a flag that occurs in its declaration only does nothing."""

from __future__ import annotations

import re
from typing import Final

from tilewright.collectives.tree import SourceTree
from tilewright.libraries.engine_flags.model import Flag

_LISTS: Final = ("srt/arg_groups/field_order.py",)
"""Files that repeat the names of all fields and read none (SGLang 0.5.23)."""
MAX_READ: Final = 512 * 1024 * 1024
"""Bytes of Python that one search reads at most; SGLang 0.5.23 holds under 60 MB."""


def uses(tree: SourceTree, package: str, flag: Flag) -> tuple[list[str], bool]:
    """Places `file:line` in `package` that name the flag's variable outside its declaration, at most 20; whether all
    files were read. Text is searched, so a place may be a comment: none at all proves that nothing reads it (unless the
    name is put together at run time)."""
    pattern = re.compile(rb"(?<![A-Za-z0-9_])" + re.escape(flag.dest.encode()) + rb"(?![A-Za-z0-9_])")
    found: list[str] = []
    total = 0
    for path in tree.files((".py",), package):
        if path.endswith(_LISTS):
            continue
        data = tree.read(path)
        total += len(data)
        if total > MAX_READ:
            return found, False
        for hit in pattern.finditer(data):
            line = data.count(b"\n", 0, hit.start()) + 1
            if path == flag.file and abs(line - flag.line) <= 1:
                continue
            found.append(f"{path}:{line}")
            if len(found) >= 20:
                return found, True
    return found, True
