"""Where FlashInfer's parts lie in a source tree.

Layouts read: an installed package or wheel (`flashinfer/data/{csrc,include,cutlass}`), the package folder itself, and
a checkout of the repository (`csrc/`, `include/` and `3rdparty/cutlass` beside `flashinfer/`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tilewright.errors import TreeError, shown

if TYPE_CHECKING:
    from tilewright.collectives.roots import CutlassRoot
    from tilewright.collectives.tree import SourceTree

GENERATOR: Final = "jit/gemm/cutlass/generate_kernels.py"
"""The generator of the MoE kernels, relative to the package."""


@dataclass(frozen=True)
class Layout:
    """FlashInfer in `tree`; folders are relative to the tree, without a slash at the end ("" is its root)."""

    tree: SourceTree
    package: str
    csrc: str
    include: str
    version: str

    def inside(self, path: str) -> str:
        """`path` (relative to the package) as a path of the tree."""
        return join(self.package, path)

    def read(self, path: str) -> bytes | None:
        """The file `path` of the tree, or None where there is none.

        Raises:
            TreeError: it is there and cannot be read.
        """
        return self.tree.read(path) if self.tree.exists(path) else None

    def cutlass(self) -> CutlassRoot:
        """The CUTLASS that this FlashInfer compiles against.

        Raises:
            TreeError: it has none.
        """
        roots = self.tree.cutlass_roots()
        places = [join(self.package, "data/cutlass/include"), "3rdparty/cutlass/include", "cutlass/include"]
        for place in places:
            for root in roots:
                if root.include == place or place in root.copies:
                    return root
        return roots[0]


def join(folder: str, path: str) -> str:
    """`folder/path`; an empty folder is the tree's root."""
    return f"{folder}/{path}" if folder else path


def find_layout(tree: SourceTree) -> Layout:
    """FlashInfer's parts in `tree`.

    Raises:
        TreeError: there is no FlashInfer, or it lacks its kernel generator or its C++ sources.
    """
    library = next((lib for lib in tree.libraries() if lib.name == "flashinfer"), None)
    package = next((place for place in ("flashinfer", "") if tree.exists(join(place, GENERATOR))), None)
    if package is None and library is None:
        msg = (
            f"There is no FlashInfer in {shown(tree.name)}: pass a FlashInfer wheel, the folder that holds "
            "flashinfer/, or the flashinfer package itself."
        )
        raise TreeError("root", msg)
    if package is None:
        msg = (
            f"The FlashInfer {library.version if library else ''} in {shown(tree.name)} has no {GENERATOR}: it is not "
            "whole (or older than 0.5); reinstall it, or pass its wheel."
        )
        raise TreeError("root", msg)
    for csrc, include in (
        (join(package, "data/csrc"), join(package, "data/include")),
        ("csrc", "include"),
        (join(package, "csrc"), join(package, "include")),
    ):
        if tree.exists(csrc):
            return Layout(tree, package, csrc, include, library.version if library else "unknown")
    msg = (
        f"The FlashInfer in {shown(tree.name)} has no C++ sources (data/csrc, or csrc in a checkout): pass the "
        "flashinfer-python wheel, which has them; a kernels-only package does not."
    )
    raise TreeError("root", msg)
