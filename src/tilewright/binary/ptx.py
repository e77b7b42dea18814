"""The head of a PTX text: its version, its target, its kernels with the launch bounds they state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tilewright.binary.model import Kernel
from tilewright.binary.source import BinaryError
from tilewright.binary.target import Target, parse_target

__all__ = ["Ptx", "looks_like_ptx", "read_ptx"]

_HEAD: Final = 1 << 16
"""Bytes in which `.version` and `.target` must stand; they are the first two statements."""
_NAME: Final = 16 << 10
_COMMENT: Final = re.compile(rb"//[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)
_VERSION: Final = re.compile(rb"^\s*\.version\s+(\d{1,3}\.\d{1,3})\s*$", re.MULTILINE)
_TARGET: Final = re.compile(rb"^\s*\.target\s+([a-z]+_\d+[af]?)\b", re.MULTILINE)
_ENTRY: Final = re.compile(
    rb"^[ \t]*(?:\.(?:visible|weak|extern)[ \t]+)?\.entry[ \t]+([^\s(;{]{1,%d})" % _NAME, re.MULTILINE
)
_BOUND: Final = re.compile(
    rb"\.(maxntid|reqntid|reqnctapercluster)[ \t]+(\d{1,10})(?:[ \t]*,[ \t]*(\d{1,10}))?(?:[ \t]*,[ \t]*(\d{1,10}))?"
)
_BOUNDS_WITHIN: Final = 1 << 17
"""Bytes after an entry's name in which its directives stand, the parameter list included."""
MAX_KERNELS: Final = 1 << 17


@dataclass(frozen=True, slots=True)
class Ptx:
    target: Target
    version: str
    kernels: tuple[Kernel, ...]


def looks_like_ptx(head: bytes) -> bool:
    """Whether a file that starts with `head` is PTX text."""
    text = _COMMENT.sub(b"", head)
    return _VERSION.search(text) is not None and b".target" in text


def read_ptx(data: bytes) -> Ptx:
    """Version, target and kernels. Raises BinaryError where `data` has no `.version` and `.target`."""
    head = _COMMENT.sub(b"", data[:_HEAD])
    version, target = _VERSION.search(head), _TARGET.search(head)
    parsed = parse_target(target[1].decode().replace("sm_", "compute_")) if target else None
    if version is None or parsed is None:
        raise BinaryError("It is no PTX: a .version and a .target must stand at its head.")
    kernels: list[Kernel] = []
    for hit in _ENTRY.finditer(data):
        if len(kernels) >= MAX_KERNELS:
            raise BinaryError(f"It declares more than {MAX_KERNELS:,} kernels; no more are read.")
        kernels.append(_kernel(data, hit))
    return Ptx(parsed, version[1].decode(), tuple(kernels))


def _kernel(data: bytes, hit: re.Match[bytes]) -> Kernel:
    """A kernel with the directives between its parameter list and its body."""
    stop = min(hit.end() + _BOUNDS_WITHIN, len(data))
    body = data.find(b"\n{", hit.end(), stop)
    bounds: dict[bytes, tuple[int, int, int]] = {}
    if body >= 0:
        for bound in _BOUND.finditer(data, hit.end(), body):
            bounds[bound[1]] = (int(bound[2]), int(bound[3] or 1), int(bound[4] or 1))
    return Kernel(
        name=hit[1].decode("utf-8", "backslashreplace"),
        max_threads=bounds.get(b"maxntid"),
        required_threads=bounds.get(b"reqntid"),
        cluster=bounds.get(b"reqnctapercluster"),
    )
