"""Where in FlashInfer's sources a MoE tactic is decided: the lines to read, and to change."""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

from tilewright.collectives.tree import SourceTree
from tilewright.libraries.flashinfer.layout import Layout, find_layout, join
from tilewright.libraries.flashinfer.model import Place, Tactic
from tilewright.libraries.flashinfer.runtime import DISPATCH, HEURISTIC
from tilewright.libraries.flashinfer.sources import SourceReader

LAUNCHER: Final = "nv_internal/tensorrt_llm/kernels/cutlass_kernels/moe_gemm/launchers/moe_gemm_tma_ws_launcher.inl"
AUTOTUNER: Final = ("autotuner/autotuner.py", "autotuner.py")

What = Literal["tile", "stages", "epilogue", "dispatch", "candidates", "error", "autotuner"]


class DecisionPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One line that decides something about a tactic, as it reads in this tree. `tile` (elements) where it is about
    one tile; `text` is the line itself, trimmed."""

    what: What
    why: str
    place: Place
    text: str
    tile: tuple[int, int, int] | None = None


_LINES: Final[tuple[tuple[What, str, re.Pattern[str], str], ...]] = (
    (
        "stages",
        LAUNCHER,
        re.compile(r"\bStageCountAutoCarveout\s*,\s*KernelSchedule\b|StageCountAutoCarveout<\s*static_cast"),
        "the stage count is left to CUTLASS, which sets only the epilogue's storage aside",
    ),
    (
        "epilogue",
        LAUNCHER,
        re.compile(r"\busing\s+EpilogueScheduleSM120\s*="),
        "the epilogue schedule of every SM120 MoE kernel",
    ),
    (
        "candidates",
        HEURISTIC,
        re.compile(r"\bget_candidate_configs_sm120\s*\("),
        "the tiles that the autotuner is offered",
    ),
    (
        "error",
        LAUNCHER,
        re.compile(r"Failed to initialize cutlass TMA WS grouped gemm"),
        "the message that a kernel with too much shared memory ends in; it does not say how much",
    ),
)
_SKIP: Final = re.compile(r"Skipping tactic")


def decision_points(tree: SourceTree, tactics: list[Tactic] | None = None) -> list[DecisionPoint]:
    """The lines of the FlashInfer in `tree` that decide its SM120 MoE tactics.

    `tactics` (those of `read_tactics(tree)`) add the generator's line of each tile. A line that a version does not have
    is left out.

    Raises:
        TreeError: there is no FlashInfer in the tree.
    """
    layout = find_layout(tree)
    sources = SourceReader(layout)
    out: list[DecisionPoint] = []
    for what, file, pattern, why in _LINES:
        found = _find(sources, join(layout.csrc, file), pattern)
        if found is not None:
            out.append(DecisionPoint(what=what, why=why, place=found[0], text=found[1]))
    out.extend(_dispatch(layout, sources))
    out.extend(_skips(layout, sources))
    return _tiles(tactics or [], sources) + out


def _find(sources: SourceReader, path: str, pattern: re.Pattern[str]) -> tuple[Place, str] | None:
    text = sources.text(path)
    if text is None:
        return None
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.search(line):
            return Place(path, number), _trim(line)
    return None


def _trim(line: str) -> str:
    return line.rstrip(" \\\t").strip()[:200]


def _tiles(tactics: list[Tactic], sources: SourceReader) -> list[DecisionPoint]:
    seen: dict[tuple[int, int, int], DecisionPoint] = {}
    for tactic in tactics:
        tile = tuple((tactic.config or {}).get("tile", ()))
        if len(tile) != 3 or tile in seen:
            continue
        lines = (sources.text(tactic.source.file) or "").splitlines()
        text = lines[tactic.source.line - 1] if 0 < tactic.source.line <= len(lines) else ""
        seen[tile] = DecisionPoint(
            what="tile", why="the generator emits the tile because it is in this list", place=tactic.source,
            text=_trim(text), tile=tile,
        )  # fmt: skip
    return list(seen.values())


def _dispatch(layout: Layout, sources: SourceReader) -> list[DecisionPoint]:
    """`SHAPE_CASE(120, M, N, K)`: K counts bytes, so a tile of FP4 has twice as many elements of K."""
    path = join(layout.csrc, DISPATCH)
    out: list[DecisionPoint] = []
    for number, line in enumerate((sources.text(path) or "").splitlines(), 1):
        found = re.match(r"\s*SHAPE_CASE\(\s*120\s*,\s*(\d{1,4})\s*,\s*(\d{1,4})\s*,\s*(\d{1,4})\s*\)", line)
        if found:
            m, n, k = (int(part) for part in found.groups())
            out.append(
                DecisionPoint(
                    what="dispatch", why=f"an id whose tile is {m}x{n} with {k} bytes of K reaches its kernel here",
                    place=Place(path, number), text=_trim(line), tile=(m, n, k * 2),
                )
            )  # fmt: skip
    return out


def _skips(layout: Layout, sources: SourceReader) -> list[DecisionPoint]:
    for file in AUTOTUNER:
        found = _find(sources, layout.inside(file), _SKIP)
        if found is not None:
            why = "the autotuner logs the failure and goes on with the next tactic"
            return [DecisionPoint(what="autotuner", why=why, place=found[0], text=found[1])]
    return []
