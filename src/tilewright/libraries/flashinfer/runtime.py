"""The ids under which FlashInfer's autotuner tries MoE tactics, and which of them can never run.

Logs name tactics by number ("Skipping tactic ... 15"), and a blocklist takes numbers. The numbers follow from three
sources: the heuristic's list of tiles (`candidates.py`), the order in which `getTmaWarpSpecializedConfigs` doubles it
(finalize fusion, then swap_ab), and the dispatch that turns a tile's enumerator into a kernel
(`moe_gemm_template_dispatch_tma_ws.h`). An id can never run when the dispatch knows no such tile, or when the kernel
that it reaches does not fit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from tilewright.formats.elements import ELEMENTS
from tilewright.libraries.cpp_source.declare import Decl, parse
from tilewright.libraries.cpp_source.preprocess import Preprocessor
from tilewright.libraries.cpp_source.resolve import Resolver
from tilewright.libraries.cpp_source.tokens import MAX_SOURCE, NotRead, Token, tokenize
from tilewright.libraries.cpp_source.types import Env
from tilewright.libraries.cpp_source.unit import Headers
from tilewright.libraries.flashinfer.candidates import Candidate, candidates
from tilewright.libraries.flashinfer.layout import Layout, join
from tilewright.libraries.flashinfer.model import Place, RuntimeMode, RuntimeTactic, Tactic
from tilewright.libraries.flashinfer.sources import ASSUMED_DEFINES, SourceReader

Fusion = Literal["none", "finalize"]
Gemm = Literal["gemm1", "gemm2"]

KERNELS: Final = "nv_internal/tensorrt_llm/kernels/cutlass_kernels"
HEURISTIC: Final = f"{KERNELS}/cutlass_heuristic.cpp"
DISPATCH: Final = f"{KERNELS}/moe_gemm/moe_gemm_template_dispatch_tma_ws.h"
ORDER: Final = f"{KERNELS}/moe_gemm/moe_gemm_template_dispatch.h"
BINDING: Final = "fused_moe/cutlass_backend/flashinfer_cutlass_fused_moe_binding.cu"

_DEFINES: Final = {**ASSUMED_DEFINES, "ENABLE_FP4": "1", "ENABLE_FP8": "1", "ENABLE_BF16": "1"}
_FLAGS: Final = frozenset({"GROUPED_GEMM", "BLACKWELL", "FP4_ONLY"})
"""What getTmaWarpSpecializedConfigs asks for with FP4 weights on SM120; FP8 activations add FP8FP4_MIXED."""
_CUDA_TYPES: Final = {"nvfp4": "__nv_fp4_e2m1", "mxfp8_e4m3": "__nv_fp8_e4m3"}

_DOUBLED: Final = (
    "supports_finalize_fusion){", "transform(finalize_configs", "back_inserter(tma_ws_configs)",
    "EpilogueFusionType::FINALIZE", "swap_ab_configs=tma_ws_configs;", "transform(swap_ab_configs",
    "back_inserter(tma_ws_configs)", "swap_ab=true",
)  # fmt: skip
"""In this order, in the text without white space: the fused copies go behind the plain ones, then the swapped copies
behind both."""
_JOINED: Final = (
    "gemm1_tactics=", "GEMM_1)", "gemm2_tactics=", "GEMM_2)", "mAllProfiles=gemm1_tactics;",
    "mAllProfiles.insert(mAllProfiles.end(),gemm2_tactics",
)  # fmt: skip
"""In this order, in the text without white space: the ids of GEMM 2 follow those of GEMM 1."""


@dataclass(frozen=True)
class _Id:
    number: int
    gemm: Gemm
    tile: Candidate
    fusion: Fusion
    swap_ab: bool


def with_runtime_ids(
    layout: Layout, sources: SourceReader, tactics: list[Tactic]
) -> tuple[list[Tactic], list[RuntimeMode], list[str]]:
    """`tactics` with their ids, the autotuner's lists, and notes on what could not be derived."""
    try:
        reader = _RuntimeReader(layout, sources)
    except NotRead as stop:
        return tactics, [], [_note("The autotuner's tactic ids", stop)]
    notes: list[str] = []
    modes: list[RuntimeMode] = []
    by_config: dict[tuple[str, str, tuple[int, ...], str, bool], dict[str, list[int]]] = {}
    offered: set[tuple[str, str]] = set()
    for a, b in dict.fromkeys(_formats(tactic) for tactic in tactics if tactic.config is not None):
        try:
            mode, found = reader.mode(a, b, tactics)
        except NotRead as stop:
            notes.append(_note(f"The autotuner's tactic ids for {a} x {b}", stop))
            continue
        modes.append(mode)
        offered.add((a, b))
        for key, ids in found.items():
            by_config[a, b, *key] = ids
    out: list[Tactic] = []
    for tactic in tactics:
        if tactic.config is None or _formats(tactic) not in offered:
            out.append(tactic)
            continue
        ids = by_config.get((*_formats(tactic), *_identity(tactic)))
        filtered = tactic.filtered_by
        if ids is None and filtered is None:
            filtered = f"{reader.listed_at}: the heuristic never offers this tile to the autotuner"
        out.append(_changed(tactic, ids, filtered))
    return out, modes, notes


def _no_header(path: str) -> str | None:
    """The dispatch is read by itself."""
    del path


def _changed(tactic: Tactic, ids: dict[str, list[int]] | None, filtered: str | None) -> Tactic:
    import msgspec

    return msgspec.structs.replace(tactic, runtime_ids=ids, filtered_by=filtered)


def _note(what: str, stop: NotRead) -> str:
    return f"{what} are not derived: {stop.why}{f' ({stop.where})' if stop.where else ''}."


def _formats(tactic: Tactic) -> tuple[str, str]:
    config = tactic.config or {}
    return str(config.get("a")), str(config.get("b"))


def _identity(tactic: Tactic) -> tuple[tuple[int, ...], str, bool]:
    config = tactic.config or {}
    fusion = "finalize" if config.get("fusion") == "finalize" else "none"
    return tuple(config.get("tile", ())), fusion, bool(config.get("swap_ab"))


class _RuntimeReader:
    """Reads the lists of one FlashInfer."""

    def __init__(self, layout: Layout, sources: SourceReader) -> None:
        self.layout, self.sources = layout, sources
        heuristic = self._function(HEURISTIC, "get_candidate_configs_sm120")
        self.body, self.listed_at = heuristic.tokens, heuristic.where
        self._require(ORDER, _DOUBLED, "getTmaWarpSpecializedConfigs does not double its list as we know it")
        self._require(BINDING, _JOINED, "the binding does not join the lists of both GEMMs as we know it")
        self.cases = self._cases()
        self.resolver = self._resolver()

    def _text(self, path: str) -> tuple[str, str]:
        full = join(self.layout.csrc, path)
        text = self.sources.text(full)
        if text is None:
            raise NotRead("there is no such file", full, 1)
        return text, full

    def _function(self, path: str, name: str) -> Decl:
        text, full = self._text(path)
        tokens = Preprocessor(_DEFINES).process(text, full)
        found = [decl for decl in parse(tokens) if decl.kind == "function" and decl.name == name and decl.tokens]
        if not found:
            raise NotRead(f"it defines no {name}", full, 1)
        return found[0]

    def _require(self, path: str, pieces: tuple[str, ...], why: str) -> None:
        """Refuse when the file does not hold `pieces` in their order."""
        text, full = self._text(path)
        dense = "".join(text.split()) if len(text) <= MAX_SOURCE else ""
        at = 0
        for piece in pieces:
            at = dense.find(piece, at)
            if at < 0:
                raise NotRead(why, full, 1)
            at += len(piece)

    def _cases(self) -> dict[tuple[int, int, int], Token]:
        """The tiles that the dispatch knows for SM120: `SHAPE_CASE(120, M, N, K bytes)`."""
        text, full = self._text(DISPATCH)
        tokens = Preprocessor(_DEFINES).process(text, full)
        out: dict[tuple[int, int, int], Token] = {}
        for index, token in enumerate(tokens):
            if token.text != "SHAPE_CASE":
                continue
            numbers = [piece.text for piece in tokens[index + 2 : index + 9 : 2]]
            if len(numbers) == 4 and numbers[0] == "120" and all(part.isdigit() for part in numbers):
                out[int(numbers[1]), int(numbers[2]), int(numbers[3])] = token
        if not out:
            raise NotRead("it dispatches no tile for SM120", full, 1)
        return out

    def _resolver(self) -> Resolver:
        text, full = self._text(DISPATCH)
        headers = Headers(_no_header, (), _DEFINES)
        headers.add(text, full)
        return Resolver(headers)

    def _supported(self, tile: tuple[int, int, int], a: str) -> bool:
        """Whether the dispatch instantiates `tile` (elements): its own constexpr predicate, followed."""
        m, n, k = tile
        shape = f"cute::Shape<cute::Int<{m}>, cute::Int<{n}>, cute::Int<{k}>>"
        call = f"are_tile_shapes_supported_sm120<{shape}, cute::Shape<_1, _1, _1>, {_CUDA_TYPES[a]}>()"
        self.resolver.refill()
        return bool(self.resolver.truth(tokenize(call, self.listed_at), Env()))

    def mode(
        self, a: str, b: str, tactics: list[Tactic]
    ) -> tuple[RuntimeMode, dict[tuple[tuple[int, ...], str, bool], dict[str, list[int]]]]:
        """The list for operands `a` and `b`, and the ids by tile (elements), fusion and swap_ab."""
        if a not in _CUDA_TYPES:
            raise NotRead(f"operands {a} are not known to the autotuner")
        flags = _FLAGS if a == b else _FLAGS | {"FP8FP4_MIXED"}
        tiles = candidates(self.body, flags)
        ids = _numbered(tiles)
        verdicts: dict[tuple[tuple[int, ...], str, bool], Tactic] = {}
        for tactic in tactics:
            if tactic.config is not None and _formats(tactic) == (a, b):
                known = verdicts.setdefault(_identity(tactic), tactic)
                if known.verdict.status == "fits":
                    verdicts[_identity(tactic)] = tactic
        never: list[RuntimeTactic] = []
        found: dict[tuple[tuple[int, ...], str, bool], dict[str, list[int]]] = {}
        for entry in ids:
            reason, place, tile = self._fate(entry, a, verdicts)
            if tile is not None:
                found.setdefault((tile, entry.fusion, entry.swap_ab), {}).setdefault(entry.gemm, []).append(
                    entry.number
                )
            if reason:
                never.append(
                    RuntimeTactic(
                        id=entry.number, gemm=entry.gemm, tile=entry.tile.name, fusion=entry.fusion,
                        swap_ab=entry.swap_ab, reason=reason, source=place,
                    )
                )  # fmt: skip
        gemm1 = sum(entry.gemm == "gemm1" for entry in ids)
        return RuntimeMode(a=a, b=b, total=len(ids), gemm1=gemm1, gemm2=len(ids) - gemm1, never=never), found

    def _fate(
        self, entry: _Id, a: str, verdicts: dict[tuple[tuple[int, ...], str, bool], Tactic]
    ) -> tuple[str, Place, tuple[int, int, int] | None]:
        """Why `entry` can never run ("" when it can), the line to look at, and its tile in elements."""
        tile = entry.tile
        case = self.cases.get((tile.m, tile.n, tile.k_bytes))
        if case is None:
            place = Place(tile.file, tile.line)
            return "the dispatch has no case for this tile (Unsupported tile shape config)", place, None
        elements = (tile.m, tile.n, tile.k_bytes * 8 // ELEMENTS[a].bits)
        place = Place(case.file, case.line)
        shape = "x".join(map(str, elements))
        if not self._supported(elements, a):
            return f"the dispatch refuses {shape} elements (Unsupported tile and cluster shape)", place, None
        tactic = verdicts.get((elements, entry.fusion, entry.swap_ab))
        if tactic is None:
            return f"no kernel of {shape} elements is generated for it", place, None
        verdict = tactic.verdict
        if verdict.status == "overflow":
            why = (
                f"its kernel needs {verdict.smem_bytes:,} bytes of shared memory, {verdict.excess_bytes:,} more than "
                f"a block may have ({verdict.limit_bytes:,})"
            )
            return why, tactic.source, elements
        if verdict.status == "illegal":
            return verdict.cause or "its kernel is illegal", tactic.source, elements
        return "", place, elements


def _numbered(tiles: list[Candidate]) -> list[_Id]:
    """The autotuner's list: GEMM 1 without finalize fusion, then GEMM 2 with it; each doubled by swap_ab."""
    out: list[_Id] = []
    fusions: dict[Gemm, tuple[Fusion, ...]] = {"gemm1": ("none",), "gemm2": ("none", "finalize")}
    for gemm, kinds in fusions.items():
        for swap_ab in (False, True):
            for fusion in kinds:
                start = len(out)
                out.extend(_Id(start + i, gemm, tile, fusion, swap_ab) for i, tile in enumerate(tiles))
    return out
