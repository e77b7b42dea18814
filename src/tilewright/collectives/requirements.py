"""What the static_asserts of a collective and of its builders demand, in words that can be compared."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tilewright.collectives.builders import Builder
from tilewright.collectives.declarations import Assertion
from tilewright.collectives.model import Requirement
from tilewright.collectives.specialisations import Specialisation

__all__ = ["operands_of", "requirements_of"]

_F8F6F4: Final = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
_FP8: Final = ("e4m3", "e5m2")
_BLOCK_SCALED: Final = ("nvfp4", "mxfp4", "mxfp6_e2m3", "mxfp6_e3m2", "mxfp8_e4m3", "mxfp8_e5m2")

_OPERANDS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("blockscaled::check_input_datatypes", _BLOCK_SCALED),
    ("is_sm103_block_scale_input", ("nvfp4", "mxfp4")),
    ("is_sm10x_f8f6f4_element", _F8F6F4),
    ("IsFP8Input", _FP8),
    ("is_input_fp8", _FP8),
)
"""Predicates that builders assert over their operands, with the formats that each lets through:
`builders/sm1xx_common.inl` (blockscaled::check_input_datatypes, is_sm10x_f8f6f4_element), `builders/sm90_common.inl`
(is_input_fp8), `builders/sm103_blockscaled_umma_builder.inl` (is_sm103_block_scale_input; its elements are e2m1)."""

_STAGES: Final = re.compile(r"\bStages(?:A|B)?\s*>=\s*(\d+)")
_ANY_STAGES: Final = re.compile(r"\b(?:PipelineStages\w*|\w*StageCount)\s*(>=?)\s*(\d+)")
_CLUSTER: Final = re.compile(r"size\s*\(\s*ClusterShape\w*\s*\{\s*\}\s*\)\s*==\s*(?:Int<\s*1\s*>\s*\{\s*\}|1\b|_1)")
_TILE_N: Final = re.compile(r"size<1>\s*\(\s*TileShape\w*\s*\{\s*\}\s*\)\s*>=\s*(\d+)")
_TILE_K: Final = re.compile(r"size<2>\s*\(\s*\w*Shape\w*\s*\{\s*\}\s*\)\s*==\s*_?(\d+)")
_GRANULARITY: Final = re.compile(r"Scale ?[Gg]ranularity|scaling granularity")


def _demand(assertion: Assertion) -> tuple[str, str] | None:
    """`(what, value)` that an assertion demands, None for one that is about the collective's own consistency."""
    text = str(assertion.condition)
    if _CLUSTER.search(text) or "no programmatic multicast" in assertion.message:
        return "cluster", "1x1x1"
    match = _STAGES.search(text)
    if match:
        return "stages", f">= {match[1]}"
    match = _ANY_STAGES.search(text)
    if match and match[2] != "0":
        return "stages", f"{match[1]} {match[2]}"
    if "Major::K" in text and "UmmaMajorA" in text and "UmmaMajorB" in text and "||" not in text:
        return "layout", "TN"
    if "LayoutATag" in text and "RowMajor" in text:
        return "layout_a", "row"
    if "LayoutBTag" in text and "ColumnMajor" in text:
        return "layout_b", "col"
    match = _TILE_N.search(text)
    if match:
        return "tile_n", f">= {match[1]}"
    match = _TILE_K.search(text)
    if match:
        return "tile_k", match[1]
    if _GRANULARITY.search(assertion.message):
        return "scale_granularity", assertion.message.rstrip(".")
    return None


def requirements_of(path: str, spec: Specialisation, builders: Iterable[Builder]) -> tuple[Requirement, ...]:
    """Demands of a collective and of the builders that give it; one that several of them make counts once."""
    found: dict[tuple[str, str], Requirement] = {}
    sources = [(path, spec.assertions), *((builder.path, tuple(builder.assertions)) for builder in builders)]
    for file, assertions in sources:
        for assertion in assertions:
            demand = _demand(assertion)
            if demand is not None:
                found.setdefault(demand, Requirement(*demand, assertion.message, file, assertion.line))
    return tuple(found.values())


def operands_of(builders: Iterable[Builder]) -> tuple[str, ...]:
    """Formats that the builders assert for A and B, in the order of kernel configs; empty where they assert none."""
    found: dict[str, None] = {}
    for builder in builders:
        mine: tuple[str, ...] = ()
        for assertion in builder.assertions:
            text = str(assertion.condition)
            mine = next((formats for predicate, formats in _OPERANDS if _asserts(text, predicate)), mine)
        if not mine:
            return ()
        found.update(dict.fromkeys(mine))
    return tuple(found)


def _asserts(condition: str, predicate: str) -> bool:
    """Whether `condition` demands `predicate`: it is there, not negated, and not one of several alternatives."""
    at = condition.find(predicate)
    return at >= 0 and "||" not in condition and not re.search(r"(?:!|\bnot\b)\s*[\w:]*$", condition[:at])
