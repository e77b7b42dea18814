"""The schedule tags of a header tree: the only names from outside that may reach the compiler.

A tag is a plain struct (no template), or another name of one, of `cutlass/gemm/dispatch_policy.hpp` (namespace
cutlass::gemm) or of `cutlass/epilogue/dispatch_policy.hpp` (namespace cutlass::epilogue). A config names the former by
its C++ name, the latter in snake case; both are looked up here, and what is not found is not compiled.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from tilewright.errors import nearest, shown

__all__ = ["EPILOGUE_POLICIES", "KERNEL_POLICIES", "TagIndex", "snake_case", "tag_index"]

KERNEL_POLICIES: Final = "cutlass/gemm/dispatch_policy.hpp"
EPILOGUE_POLICIES: Final = "cutlass/epilogue/dispatch_policy.hpp"

_COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_STRUCT: Final = re.compile(r"\b(?:struct|class)\s+([A-Za-z_]\w*)\s*(?:final\s*)?[:{]")
_ALIAS: Final = re.compile(r"\busing\s+([A-Za-z_]\w*)\s*(?:\[\[[^\]]*\]\]\s*)?=\s*([A-Za-z_]\w*)\s*;")
_SM_COUNT: Final = re.compile(r"(\d)Sm(?!\d)")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def snake_case(tag: str) -> str:
    """`NoSmemWarpSpecialized1Sm` -> `no_smem_warp_specialized_1sm`: how configs spell an epilogue tag."""
    return _CAMEL.sub("_", _SM_COUNT.sub(r"_\1sm", tag)).lower()


def _plain_types(text: str) -> frozenset[str]:
    """Names of the structs in `text` that are no templates, and their other names (`using A = B;`)."""
    text = _COMMENT.sub(" ", text)
    names: set[str] = set()
    for match in _STRUCT.finditer(text):
        start = max(text.rfind(mark, 0, match.start()) for mark in ";{}")
        if "template" not in text[start + 1 : match.start()]:
            names.add(match[1])
    for match in _ALIAS.finditer(text):
        if match[2] in names:
            names.add(match[1])
    return frozenset(names)


@dataclass(frozen=True)
class TagIndex:
    """The tags of one header tree."""

    version: str
    """CUTLASS version of the tree, as its `version.h` reports it."""
    kernel_tags: frozenset[str]
    epilogue_tags: frozenset[str]

    @cached_property
    def _by_snake(self) -> dict[str, str]:
        return {snake_case(tag): tag for tag in self.epilogue_tags}

    def kernel(self, name: str) -> str | None:
        """The kernel schedule tag called `name`, qualified, or None."""
        return f"cutlass::gemm::{name}" if name in self.kernel_tags else None

    def epilogue(self, snake: str) -> str | None:
        """The epilogue schedule tag whose snake case is `snake`, qualified, or None."""
        tag = self._by_snake.get(snake)
        return None if tag is None else f"cutlass::epilogue::{tag}"

    def no_kernel_tag(self, name: str) -> str:
        """The sentence for a tag that the tree does not have."""
        near = ", ".join(nearest(name, sorted(self.kernel_tags)))
        return f"CUTLASS {self.version} has no schedule tag {shown(name)}; the nearest are {near}."

    def no_epilogue_tag(self, snake: str) -> str:
        """The same for an epilogue tag."""
        near = ", ".join(nearest(snake, sorted(self._by_snake)))
        return f"CUTLASS {self.version} has no epilogue schedule {shown(snake)}; the nearest are auto, {near}."


def tag_index(version: str, kernel_policies: str, epilogue_policies: str) -> TagIndex:
    """Index the tags in the text of the two `dispatch_policy.hpp`."""
    return TagIndex(
        version,
        frozenset(name for name in _plain_types(kernel_policies) if name.startswith("Kernel")),
        _plain_types(epilogue_policies),
    )
