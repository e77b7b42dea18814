"""Which library a source tree is: name and version, read from its metadata as text.

Sources of a version, in this order: `*.dist-info/METADATA` (core metadata 2.x: headers `Name`, `Version`), a
`_build_meta.py` or `_version.py` with `__version__ = "..."` (FlashInfer, vLLM, SGLang wheels), a `version.txt`
(FlashInfer source checkouts). None of them is imported.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from tilewright.collectives.tree import SourceTree
from tilewright.errors import TreeError

__all__ = ["KNOWN", "Library", "find_libraries"]


@dataclass(frozen=True, slots=True)
class Library:
    """A library in a tree. `version` is "unknown" where nothing says it."""

    name: str
    """Import name in lower case: flashinfer, vllm, sglang, ..."""
    version: str
    distribution: str
    """Name on the package index: flashinfer-python, ..."""
    package: str
    """Folder of the package inside the tree; "" where the tree's root is the package itself."""


KNOWN: Final[dict[str, str]] = {
    "flashinfer-python": "flashinfer",
    "vllm": "vllm",
    "sglang": "sglang",
    "sgl-kernel": "sgl_kernel",
    "tensorrt-llm": "tensorrt_llm",
    "deep-gemm": "deep_gemm",
    "nvidia-cutlass": "cutlass_library",
    "transformer-engine": "transformer_engine",
}
"""Distributions that ship or compile CUTLASS kernels, with the package each installs. Best known first."""

_BY_PACKAGE: Final = {package: distribution for distribution, package in KNOWN.items()}
_VERSION_FILES: Final = ("_build_meta.py", "_version.py", "version.py")
_ASSIGNED: Final = re.compile(
    r"""^(?:__version__|version)\s*(?::\s*str\s*)?=.{0,80}?["']([0-9][^"'\s]{0,63})["']""", re.M
)
_HEADER: Final = re.compile(r"^(Name|Version):\s*(\S{1,128})\s*$", re.M)
_MAX_HEAD: Final = 20_000
"""Characters of a metadata file that are looked at: its headers come first."""


def _head(tree: SourceTree, path: str) -> str:
    try:
        return tree.read_text(path)[:_MAX_HEAD]
    except TreeError:
        return ""


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _from_metadata(text: str) -> tuple[str, str]:
    headers: dict[str, str] = {}
    for key, value in _HEADER.findall(text.split("\n\n", 1)[0]):
        headers.setdefault(key, value)
    return headers.get("Name", ""), headers.get("Version", "unknown")


def _version_in_package(tree: SourceTree, package: str) -> str:
    prefix = f"{package}/" if package else ""
    for name in _VERSION_FILES:
        found = _ASSIGNED.search(_head(tree, prefix + name)) if tree.exists(prefix + name) else None
        if found:
            return found[1]
    return "unknown"


def _dist_infos(tree: SourceTree) -> dict[str, tuple[str, str]]:
    """`{canonical distribution: (name as written, version)}` of the dist-infos at the tree's root.

    A folder is named `<name>-<version>.dist-info`; only those of known libraries are opened, unless the tree is one
    wheel, which has a single one."""
    found: dict[str, tuple[str, str]] = {}
    for entry in tree.list_dir(""):
        if not entry.endswith(".dist-info"):
            continue
        stem = _canonical(entry.removesuffix(".dist-info").split("-", 1)[0])
        if tree.kind == "wheel" or stem in KNOWN:
            name, version = _from_metadata(_head(tree, f"{entry}/METADATA"))
            found[_canonical(name) or stem] = (name or stem, version)
    return found


def find_libraries(tree: SourceTree) -> list[Library]:
    """Every known library of the tree, in the order of `KNOWN`; a wheel of another library is answered as itself."""
    found: dict[str, Library] = {}
    for distribution, (written, version) in _dist_infos(tree).items():
        package = KNOWN.get(distribution, distribution.replace("-", "_"))
        place = package if tree.exists(package) else ""
        found[distribution] = Library(package, version, written, place)
    for distribution, package in KNOWN.items():
        if distribution in found:
            continue
        if tree.exists(f"{package}/__init__.py"):
            version = _version_in_package(tree, package)
            if version == "unknown" and tree.exists("version.txt"):  # a source checkout
                version = _plain_version(_head(tree, "version.txt"))
            found[distribution] = Library(package, version, distribution, package)
    if not found:
        own = _own_package(tree)
        if own is not None:
            found[own.distribution] = own
    order = list(KNOWN)
    return sorted(found.values(), key=lambda lib: (_rank(order, lib), lib.name))


def _rank(order: list[str], library: Library) -> int:
    name = _canonical(library.distribution)
    return order.index(name) if name in order else len(order)


def _plain_version(text: str) -> str:
    line = text.strip().splitlines()[0].strip() if text.strip() else ""
    return line if re.fullmatch(r"[0-9][\w.+-]{0,63}", line) else "unknown"


def _own_package(tree: SourceTree) -> Library | None:
    """The library whose package folder is the tree's root itself: `site-packages/flashinfer`."""
    if tree.kind != "folder" or not tree.exists("__init__.py"):
        return None
    package = tree.path.resolve().name
    distribution = _BY_PACKAGE.get(package)
    if distribution is None:
        return None
    version = _version_in_package(tree, "")
    if version == "unknown":
        version = _beside(tree, distribution)
    return Library(package, version, distribution, "")


def _beside(tree: SourceTree, distribution: str) -> str:
    """The version in the dist-info that lies beside the package folder."""
    for path in sorted(tree.path.resolve().parent.glob("*.dist-info")):
        if _canonical(path.name.split("-", 1)[0]) == distribution:
            try:
                text = (path / "METADATA").read_text("utf-8", "replace")[:_MAX_HEAD]
            except OSError:
                continue
            return _from_metadata(text)[1]
    return "unknown"
