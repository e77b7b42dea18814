"""FlashInfer's kernels in the CuTe DSL (Python): which there are, and what their sources say of them.

They are compiled when they are called, from a tile, a cluster and element types that the caller passes, so there is no
fixed config to judge. What is literal in the source is listed: where the kernel is, which architecture it asks the
shared memory of, what its constructor takes, tiles that are written out, and the functions that count stages or bytes.
Read as text; nothing is imported or run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from tilewright.collectives.tree import SourceTree
from tilewright.libraries.flashinfer.layout import Layout, find_layout
from tilewright.libraries.flashinfer.model import DslKernel, Place, Report, summarize

__all__ = ["read_dsl_kernels", "read_dsl_report"]

MAX_SOURCE: Final = 4 << 20
"""Longest Python file that is read, bytes; the longest of FlashInfer 0.7.4 has 0.5 MB."""
MAX_SHOWN: Final = 8
"""Most literals that are listed of one kind."""

_KERNEL: Final = re.compile(
    r"^(?P<indent>[ \t]*)@(?:cute|cutlass\.cute)\.kernel\b.*\n(?:[ \t]*(?:@|#).*\n)*[ \t]*def[ \t]+(?P<name>\w+)", re.M
)
_CLASS: Final = re.compile(r"^class[ \t]+(\w+)", re.M)
_CAPACITY: Final = re.compile(r"get_smem_capacity_in_bytes\(\s*[\"'](sm_?\d{2,3}[af]?)[\"']")
_ARCH_IN_PATH: Final = re.compile(r"(?<![a-z0-9])sm_?(12x|10x|\d{2,3})(?![0-9x])")
_ARCH_LITERAL: Final = re.compile(r"[\"']sm_(\d{2,3})[af]?[\"']")
_COUNTERS: Final = re.compile(
    r"^[ \t]+def[ \t]+(_?(?:compute|probe|infer|count|configure|estimate)\w*(?:stages?|smem)\w*|"
    r"_?(?:estimate_|get_)?smem(?:_\w+)?_(?:bytes|requirements|budget_bytes)|_smem_bytes|get_smem_requirements)\(",
    re.M,
)
_INIT: Final = re.compile(r"^[ \t]+def[ \t]+__init__\(", re.M)
MAX_PARAMETERS: Final = 8_000
"""Longest list of constructor parameters that is read, characters."""
_PARAMETER: Final = re.compile(r"\s*(\w+)\s*(?::[^=]*)?(?:=\s*(.+))?$", re.S)
_TELLING: Final = re.compile(r"tile|tiler|cluster|stage|sf_vec|dtype|block_|threads|warps")
_TILE: Final = re.compile(r"\b(\w*(?:tile|tiler)\w*)\s*(?::[^=\n]{0,60})?=\s*(\(\s*\d+(?:\s*,\s*\d+){1,2}\s*,?\s*\))")
_FAMILIES: Final = {"12x": ("sm120", "sm121"), "10x": ("sm100", "sm103")}


def read_dsl_kernels(tree: SourceTree, arch: str | None = None) -> list[DslKernel]:
    """Every CuTe DSL kernel of the FlashInfer in `tree`, in the order of files and lines; with `arch`, those that name
    it or name none.

    Raises:
        TreeError: there is no FlashInfer in the tree.
    """
    layout = find_layout(tree)
    found = [kernel for path in _files(layout) for kernel in _kernels(layout, path)]
    return [kernel for kernel in found if arch is None or not kernel.archs or arch in kernel.archs]


def read_dsl_report(tree: SourceTree, arch: str) -> Report:
    """`read_dsl_kernels` as a report; its `tactics` and `summary` are empty, for none of these kernels has a config.

    Raises:
        TreeError: as `read_dsl_kernels`.
    """
    layout = find_layout(tree)
    return Report(
        library="flashinfer", library_version=layout.version, cutlass=layout.cutlass().version, arch=arch, op="dsl",
        root=tree.name, tactics=[], summary=summarize([]), dsl=read_dsl_kernels(tree, arch),
    )  # fmt: skip


def _files(layout: Layout) -> list[str]:
    """Python files of the package; what lies under `data` is CUTLASS's own (examples, the DSL)."""
    data = layout.inside("data") + "/"
    return sorted(path for path in layout.tree.files((".py",), layout.package) if not path.startswith(data))


def _kernels(layout: Layout, path: str) -> Iterator[DslKernel]:
    raw = layout.read(path)
    if raw is None or len(raw) > MAX_SOURCE or b".kernel" not in raw:
        return
    text = raw.decode("utf-8", "replace")
    classes = [(match.start(), match[1]) for match in _CLASS.finditer(text)]
    for match in _KERNEL.finditer(text):
        owner = ""
        first, last = match.start(), match.end()  # of a function by itself only the path says anything
        if match["indent"]:
            for index, (start, name) in enumerate(classes):
                if start < match.start():
                    owner, first = name, start
                    last = classes[index + 1][0] if index + 1 < len(classes) else len(text)
        body = text[first:last]
        capacities = sorted({_name(item) for item in _CAPACITY.findall(body)})
        yield DslKernel(
            name=f"{owner}.{match['name']}" if owner else match["name"],
            source=Place(path, _line(text, match.end("name"))),
            experimental="experimental" in path.split("/"),
            archs=sorted({*capacities, *_archs(path), *(f"sm{item}" for item in _ARCH_LITERAL.findall(body))}),
            smem_of=capacities,
            parameters=_parameters(body) if owner else [],
            tiles=list(dict.fromkeys(f"{name} = {value}" for name, value in _TILE.findall(body)))[:MAX_SHOWN],
            counted_by=[Place(path, _line(text, first + item.start(1))) for item in _COUNTERS.finditer(body)][
                :MAX_SHOWN
            ],
        )


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _name(text: str) -> str:
    return "sm" + text.removeprefix("sm").removeprefix("_").rstrip("af")


def _archs(path: str) -> set[str]:
    """Architectures that a path names: a folder or file called sm120, sm12x, ..."""
    out: set[str] = set()
    for number in _ARCH_IN_PATH.findall(path.replace("_", " ")):
        out |= set(_FAMILIES.get(number, (f"sm{number}",)))
    return out


def _parameters(body: str) -> list[str]:
    init = _INIT.search(body)
    if init is None:
        return []
    out: list[str] = []
    for part in _split(re.sub(r"#.*", "", body[init.end() : init.end() + MAX_PARAMETERS])):
        match = _PARAMETER.match(part)
        if match and _TELLING.search(match[1]):
            default = " ".join((match[2] or "").split())
            out.append(f"{match[1]} = {default}" if default else match[1])
    return out[: 2 * MAX_SHOWN]


def _split(text: str) -> Iterator[str]:
    """Parameters up to the bracket that closes their list."""
    depth, start = 0, 0
    for index, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth < 0:
                yield text[start:index]
                return
        elif character == "," and depth == 0:
            yield text[start:index]
            start = index + 1
