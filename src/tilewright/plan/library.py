"""The library tree that a plan looks at: its tactics, its CUTLASS and what that can do, and lines of its sources.

Reading FlashInfer's tactics takes seconds, so the report is kept by content like the collectives index: the key covers
the tree's signature and our own code, and a tree that cannot vouch for itself is read anew.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tilewright.collectives import cache
from tilewright.collectives.library import Library
from tilewright.collectives.roots import CutlassRoot
from tilewright.collectives.tree import SourceTree, open_tree
from tilewright.errors import TreeError
from tilewright.libraries.flashinfer.model import Report

if TYPE_CHECKING:
    from tilewright.collectives.survey import Survey

_CODE = ("cutlass", "libraries", "formats")
"""Packages of ours whose code decides what a report says."""


@lru_cache(maxsize=1)
def _code_stamp() -> str:
    base = Path(__file__).resolve().parents[1]
    digest = hashlib.sha256()
    for package in _CODE:
        for path in sorted((base / package).rglob("*.py")):
            info = path.stat()
            digest.update(f"{path.relative_to(base)}\0{info.st_size}\0{info.st_mtime_ns}\n".encode())
    return digest.hexdigest()


@dataclass(frozen=True)
class Line:
    """One line of a source file of the library; `file` is relative to the tree."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class LibraryView:
    """A folder or wheel, read when something is asked. Nothing in it is imported or run."""

    def __init__(self, tree: SourceTree) -> None:
        self.tree = tree
        self._library: Library | None = tree.library()
        self._reports: dict[tuple[str, str], Report] = {}

    @property
    def name(self) -> str | None:
        """Import name of the library (flashinfer, vllm, cutlass_library, ...); None for a bare header tree."""
        return self._library.name if self._library else None

    @property
    def version(self) -> str | None:
        return self._library.version if self._library else None

    @property
    def package(self) -> str:
        return self._library.package if self._library else ""

    @property
    def title(self) -> str:
        titles = {"flashinfer": "FlashInfer", "vllm": "vLLM", "sglang": "SGLang", "cutlass_library": "nvidia-cutlass"}
        if self.name is None:
            return f"the header tree {self.tree.name}"
        return f"{titles.get(self.name, self.name)} {self.version}"

    @cached_property
    def roots(self) -> list[CutlassRoot]:
        """Every CUTLASS in the tree; empty where there is none."""
        try:
            return self.tree.cutlass_roots()
        except TreeError:
            if self.name is None:
                raise  # neither a library that we know nor CUTLASS: the wrong folder
            return []

    @property
    def cutlass(self) -> str | None:
        """Release of its main CUTLASS, as its headers report it."""
        return self.roots[0].version if self.roots else None

    @cached_property
    def moe(self) -> Report | None:
        """FlashInfer's MoE tactics for SM120 (SM121 runs the same); None for another library."""
        return self.tactics("moe", "sm120")

    def tactics(self, op: Literal["moe", "gemm"], arch: str) -> Report | None:
        """FlashInfer's CUTLASS kernels for `arch` (sm90, sm100, sm103, sm120, sm121); None for another library.

        SM100's are 1,476 and take some seconds to read for the first time, SM103's twice as long.
        """
        if self.name != "flashinfer":
            return None
        known = self._reports.get((op, arch))
        if known is None:
            known = self._reports[op, arch] = self._report(op, arch)
        return known

    def _report(self, op: Literal["moe", "gemm"], arch: str) -> Report:
        signature = self.tree.signature((self.package,))
        which = "" if (op, arch) == ("moe", "sm120") else f"\0{op}\0{arch}"
        key = f"{_code_stamp()}\0{self.tree.name}\0{self.version}\0{signature}{which}"
        known = cache.load("tactics", key, Report) if signature else None
        if known is not None:
            return known
        from tilewright.libraries.flashinfer.tactics import read_report

        report = read_report(self.tree, op, arch)
        if signature:
            cache.store("tactics", key, report)
        return report

    @cached_property
    def survey(self) -> Survey | None:
        """What every CUTLASS of the tree can do; None where there is none."""
        if not self.roots:
            return None
        from tilewright.collectives.survey import survey

        return survey(self.tree)

    def find(self, file: str, pattern: str) -> Line | None:
        """The first line of `file` (relative to the tree) that `pattern` matches, or None."""
        try:
            text = self.tree.read_text(file)
        except TreeError:
            return None
        regex = re.compile(pattern)
        for number, line in enumerate(text.splitlines(), start=1):
            if regex.search(line):
                return Line(file, number, line.rstrip(" \\"))
        return None

    def inside(self, path: str) -> str:
        """A path of the library's package as a path of the tree."""
        return f"{self.package}/{path}" if self.package else path


def open_library(path: str | Path) -> LibraryView:
    """Open the folder or wheel at `path`. Raises TreeError where it holds neither a known library nor CUTLASS."""
    view = LibraryView(open_tree(path))
    _ = view.roots
    return view
