"""Changes that would make a config run, each verified by the model before it is offered, best first.

The order is that of the cost to whoever applies it: a stage count is one template argument and keeps the tile; an
epilogue tile is another; a fusion or swap_ab changes which kernel is launched; a tile changes what is computed at once;
another CUTLASS is a rebuild of everything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from tilewright.cutlass import fixes_sm100
from tilewright.cutlass.budget import Fix
from tilewright.cutlass.config import NEWEST_CUTLASS, VECTOR_BITS, KernelConfig, default_alignments
from tilewright.formats.elements import ELEMENTS

MAX_FIXES: Final = 6
MAX_OF_A_KIND: Final = 2
MAX_STEPS: Final = 4
"""Rules that one fix may repair."""

EPILOGUE_TILES: Final = ((64, 16), (32, 32), (64, 8))
"""Smaller epilogue tiles than 64x32 that the SM120 builder compiles."""
EPILOGUE_TILES_SM90: Final = ((128, 16), (64, 16))
"""Smaller epilogue tiles than the automatic ones that the SM90 builder compiles: cooperative and not."""
FP6_BITS: Final = 6
FP6_ALIGNMENT: Final = 128
"""Elements: 96 bytes, get_output_alignment_bits of 6-bit elements (`detail/layout.hpp`)."""
INTEGERS: Final = ("int8", "uint8")

UNUSABLE: Final = "unusable"
"""In place of a status: the kernel is built and launched, and is of no use (`laid.Laid.unusable`)."""

Change = dict[str, Any]


TOO_FEW_STAGES: Final = "Specialization requires Stages"
"""How every collective's assert on the number of stages begins."""
FREES_BYTES: Final = frozenset(
    {"epilogue_tile", "epilogue_schedule", "stages_auto", "stages_pinned", "fusion", "output"}
)
"""Kinds of repair that can leave room for another stage; the others change no byte."""


def fixes(config: KernelConfig, status: str, stages: int | None, rule: str = "") -> list[Fix]:
    """Verified changes for a config whose verdict is `status`; empty when it fits or the model does not cover it.

    `rule` is the rule that an illegal config breaks first, as its text begins: what cannot help is not tried.
    """
    from tilewright.cutlass.fit import verdict

    if status not in ("overflow", "illegal", UNUSABLE):
        return []
    out: list[Fix] = []
    of_kind: dict[str, int] = {}
    seen: list[Change] = []
    short = status == "illegal" and rule.startswith(TOO_FEW_STAGES)
    for kind, change, note in _candidates(config, status, stages, short):
        if change in seen or of_kind.get(kind, 0) >= MAX_OF_A_KIND or (kind == "stages" and kind in of_kind):
            continue
        # Without the id, configs of one sweep share the verdicts on their neighbours.
        changed = msgspec.structs.replace(config, id="", **change)
        got = verdict(changed)
        if got is None or got.status != "fits" or got.unusable:
            continue
        of_kind[kind] = of_kind.get(kind, 0) + 1
        seen.append(change)
        pinned = changed.stages != "auto"
        staged = "" if pinned else f"; {_count(got.stages)}"
        out.append(Fix({key: _plain(value) for key, value in change.items()}, got.smem_bytes, note + staged))
        if len(out) >= MAX_FIXES:
            break
    if not out and status == "illegal":
        repaired = _repair(config)
        return [] if repaired is None else [repaired]
    return out


def _repair(config: KernelConfig) -> Fix | None:
    """One change of several keys for a config that breaks several rules.

    Each step gets past the rule that is broken first, as somebody would who compiles again and again; what leads to a
    rule that was met before is not followed, which bounds the search.
    """
    from tilewright.cutlass.fit import LIMITS, lay_out, unsupported

    laid = lay_out(config)
    if not isinstance(laid, list):
        return None
    met = {laid[0].text}
    paths: deque[tuple[KernelConfig, Change, tuple[str, ...]]] = deque([(config, {}, ())])
    while paths:
        current, before, notes = paths.popleft()
        for _, step, note in _candidates(current, "illegal", None):
            changed = msgspec.structs.replace(current, **step)
            if unsupported(changed) is not None:
                continue
            change, said = {**before, **step}, (*notes, note)
            laid = lay_out(changed)
            if isinstance(laid, list):
                if laid[0].text not in met and len(said) < MAX_STEPS:
                    met.add(laid[0].text)
                    paths.append((changed, change, said))
            elif not laid.kernel_broken and laid.unusable is None and laid.smem_bytes <= LIMITS[config.arch]:
                plain = {key: _plain(value) for key, value in change.items() if value != getattr(config, key)}
                return Fix(plain, laid.smem_bytes, "; ".join([*said, _count(laid.count.stages)]))
    return None


def _count(stages: int) -> str:
    return f"{stages} stage{'' if stages == 1 else 's'}"


def _plain(value: Any) -> Any:
    return list(cast("tuple[Any, ...]", value)) if isinstance(value, tuple) else value


def _candidates(
    config: KernelConfig, status: str, stages: int | None, short: bool = False
) -> Iterator[tuple[str, Change, str]]:
    if status == "illegal":
        yield from (
            item
            for item in _legalise(config)
            if (not short or item[0] in FREES_BYTES)
            # where a count is known (the types compile), the largest that works is tried below
            and (stages is None or item[0] != "stages_pinned")
        )
    if status == UNUSABLE and config.arch in fixes_sm100.ARCHS:
        yield from fixes_sm100.schedules(config)
    if stages is not None:
        for fewer in range(stages - 1, 1, -1):
            yield "stages", {"stages": fewer}, f"pin StageCount<{fewer}>; the tile and the fusion stay"
    if status in ("overflow", UNUSABLE):
        yield from _epilogue(config)
    yield from _fusion(config)
    yield (
        "swap_ab",
        {"swap_ab": not config.swap_ab},
        "exchange A and B: tokens on N" if not config.swap_ab else "do not exchange A and B: tokens on M",
    )
    if config.d in ("f32",) and config.fusion != "finalize":
        yield "output", {"d": "bf16", "align_d": 8}, "store D as bf16: half the epilogue"
    yield from _tiles(config)
    if config.c != "void":
        yield "c", {"c": "void"}, "no source operand C: nothing to stage for it"
    if config.cutlass != NEWEST_CUTLASS:
        yield "cutlass", {"cutlass": NEWEST_CUTLASS}, f"CUTLASS {NEWEST_CUTLASS} accepts it; rebuild against it"


def _epilogue(config: KernelConfig) -> Iterator[tuple[str, Change, str]]:
    if config.arch in fixes_sm100.ARCHS:
        yield from fixes_sm100.epilogue_tiles(config)
        return
    m, n, _ = config.tile
    for tile in EPILOGUE_TILES_SM90 if config.arch == "sm90" else EPILOGUE_TILES:
        if m % tile[0] == 0 and n % tile[1] == 0 and config.epilogue_tile != tile:
            note = f"epilogue tile {tile[0]}x{tile[1]}: less staging, more store steps"
            yield "epilogue_tile", {"epilogue_tile": tile}, note


def _fusion(config: KernelConfig) -> Iterator[tuple[str, Change, str]]:
    if config.fusion == "finalize":
        output = config.final_output or "bf16"
        change = {"fusion": "linear_combination", "c": config.c, "d": output, "final_output": None}
        yield "fusion", change, "no fused finalize: scatter in a kernel of its own"


def _tiles(config: KernelConfig) -> Iterator[tuple[str, Change, str]]:
    """Tiles next to the one asked for, largest area first: one or two extents halved, or M and N rounded to 128."""
    if config.arch in fixes_sm100.ARCHS:
        yield from fixes_sm100.tiles(config)
    m, n, k = config.tile
    seen = {config.tile}
    found = [(m // 2, n, k), (m, n // 2, k), (m, n, k // 2), (m // 2, n // 2, k), (m, n // 2, k // 2)]
    up_m, up_n = max(128, m // 128 * 128), max(32, n // 32 * 32)
    found += [(up_m, n, k), (m, up_n, k), (up_m, up_n, k), (128, 128, k), (128, 128, 128), (m, n, 128)]
    for tile in sorted(found, key=lambda tile: (-tile[0] * tile[1] * tile[2], tile)):
        if tile in seen or min(tile) < 8:
            continue
        seen.add(tile)
        yield "tile", {"tile": tile}, f"tile {tile[0]}x{tile[1]}x{tile[2]}"


def _legalise(config: KernelConfig) -> Iterator[tuple[str, Change, str]]:
    """What the rules that a config can break ask for, one key at a time."""
    if config.arch in fixes_sm100.ARCHS:
        yield from fixes_sm100.schedules(config)
    else:
        yield from _schedules(config)
    if (config.layout_a, config.layout_b) != ("row", "col"):
        change: Change = {"layout_a": "row", "layout_b": "col"}
        yield "layout", change, "TN: A row-major, B column-major"
    if config.arch == "sm90":
        yield from _epilogue_schedule_sm90(config)
    yield from _output_alignments(config)
    if config.epilogue_schedule != "auto":
        yield "epilogue_schedule", {"epilogue_schedule": "auto"}, "let the builder choose the epilogue"
    if config.epilogue_tile != "auto":
        yield "epilogue_tile", {"epilogue_tile": "auto"}, "let the builder choose the epilogue tile"
    if config.tile_scheduler is not None:
        yield "tile_scheduler", {"tile_scheduler": None}, "the default tile scheduler"
    if config.d == "void" and config.fusion != "finalize":
        yield "output", {"d": "bf16", "align_d": VECTOR_BITS // ELEMENTS["bf16"].bits}, "a D to store"
    accumulator = "int32" if config.a in INTEGERS and config.b in INTEGERS else "f32"
    if config.acc != accumulator:
        yield "acc", {"acc": accumulator}, f"accumulate in {accumulator}"
    align_a, align_b = default_alignments(
        config.a, config.b, config.op_class, config.layout_a, config.layout_b, config.swap_ab
    )
    aligned = {"align_a": align_a, "align_b": align_b}
    short = {key: value for key, value in aligned.items() if getattr(config, key) != value}
    if short:
        yield "alignment", short, "alignments that the TMA loads need"
    if config.op_class == "blockwise":
        m, n, k = config.tile
        _, gn, gk = config.scale_granularity or (1, 128, 128)
        yield "scale_granularity", {"scale_granularity": (1, min(n, gn), k)}, "scales that divide the tile"
        if k != gk:
            yield "tile", {"tile": (m, n, gk)}, f"K of {gk}, the scale granularity along K"
    if config.stages != "auto":
        yield "stages_auto", {"stages": "auto"}, "let the builder count the stages"
    else:
        yield "stages_pinned", {"stages": 2}, "pin StageCount<2>, which the count misses by little"
    if config.layout_sfd == "col":
        yield "layout_sfd", {"layout_sfd": "row"}, "row-major scale factors"
    if config.activation is not None and config.fusion == "block_scale_out":
        yield "activation", {"activation": None}, "no activation beside the generated scales"
    if config.fusion not in ("linear_combination", "finalize"):
        plain = {"fusion": "linear_combination", "activation": None}
        yield "fusion", plain, "no fusion: do that step in a kernel of its own"


def _schedules(config: KernelConfig) -> Iterator[tuple[str, Change, str]]:
    if config.cluster != (1, 1, 1):
        demanded = ", which this collective demands" if config.arch in ("sm120", "sm121") else ""
        yield "cluster", {"cluster": (1, 1, 1)}, f"cluster 1x1x1{demanded}"
    if config.schedule != "auto":
        yield "schedule", {"schedule": "auto"}, "let the builder choose the schedule"
    for name in ("cooperative", "pingpong"):
        if config.schedule != name:
            yield "schedule", {"schedule": name}, f"ask for the {name} schedule"


def _epilogue_schedule_sm90(config: KernelConfig) -> Iterator[tuple[str, Change, str]]:
    """SM90 has an epilogue for each kind of schedule: the one that goes with the schedule asked for."""
    grouped = config.kind == "grouped"
    if "cooperative" in config.schedule:
        name = "tma_warp_specialized_cooperative"
    else:
        name = "tma_warp_specialized_pingpong" if grouped else "tma_warp_specialized"
    name = f"ptr_array_{name}" if grouped else name
    if config.epilogue_schedule != name:
        yield "epilogue_schedule", {"epilogue_schedule": name}, "the epilogue that goes with the schedule"


def _output_alignments(config: KernelConfig) -> Iterator[tuple[str, Change, str]]:
    aligned = {key: _output_alignment(config, key) for key in ("c", "d")}
    short = {f"align_{key}": want for key, want in aligned.items() if want and getattr(config, f"align_{key}") != want}
    if short:
        yield "alignment", short, "alignments of C and D that the TMA epilogue needs"


def _output_alignment(config: KernelConfig, key: str) -> int:
    name: str = getattr(config, key)
    if name == "void":
        return 0
    bits = ELEMENTS[name].bits
    return FP6_ALIGNMENT if bits == FP6_BITS else VECTOR_BITS // bits
