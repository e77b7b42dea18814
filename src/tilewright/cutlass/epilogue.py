"""The epilogue that the SM120 builder chooses: tile, stages, reuse. Its storage is SM90's (`epilogue_storage`).

Mirrors `epilogue/collective/builders/sm120_builder.inl`. All functions are pure; extents are in elements, sizes in
bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.cutlass import epilogue_storage as storage
from tilewright.cutlass.caches import LAYOUTS
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.epilogue_storage import ARRAY_HEADER, DENSE_HEADER, FP6, Epilogue, Staging, swizzle_atom
from tilewright.cutlass.fusion import fusion_storage
from tilewright.cutlass.verdict import Broken
from tilewright.cutlass.versions import Rules, rules_for
from tilewright.formats.elements import ELEMENTS

BUILDER: Final = "cutlass/epilogue/collective/builders/sm120_builder.inl"

FRAGMENT_SIZE: Final = 4
"""Accumulators a thread holds of one MMA output: `FragmentSize` in sm120_get_tma_dispatch_policy."""
WARP_GROUPS: Final = 2
"""`GetNumEpilogueWarpGroups`: 2 unless the schedule tag says otherwise; the tags that SM120 takes say 2 too."""

SCHEDULES: Final = (
    "auto",
    "tma_warp_specialized",
    "tma_warp_specialized_cooperative",
    "ptr_array_tma_warp_specialized_pingpong",
    "ptr_array_tma_warp_specialized_cooperative",
    "sparse_tma_warp_specialized_cooperative_sm120",
)
"""Epilogue tags that the SM120 builder's enable_if accepts."""


@dataclass(frozen=True, slots=True)
class EpilogueKey:
    """What an epilogue depends on, and nothing else, so that equal ones are laid out once."""

    version: str
    grouped: bool
    m: int
    n: int
    c: str
    d: str
    layout_c: str
    layout_d: str
    schedule: str
    fusion: str
    activation: str | None
    final_output: str | None
    layout_sfd: str
    swap_ab: bool
    epilogue_tile: tuple[int, int] | None
    acc: str
    """Accumulator format, which is what the fusion computes in."""


def epilogue_key(config: KernelConfig) -> EpilogueKey:
    """The part of `config` that fixes its epilogue; layouts as compiled (swap_ab transposes C, D and D's scales)."""
    layout_c, layout_d = config.layout_c, config.layout_d
    layout_sfd = config.layout_sfd or layout_d
    if config.swap_ab:
        layout_c, layout_d, layout_sfd = _TRANSPOSED[layout_c], _TRANSPOSED[layout_d], _TRANSPOSED[layout_sfd]
    return EpilogueKey(
        config.cutlass,
        config.kind == "grouped",
        config.tile[0],
        config.tile[1],
        config.c,
        config.d,
        layout_c,
        layout_d,
        config.epilogue_schedule,
        config.fusion,
        config.activation,
        config.final_output,
        layout_sfd,
        config.swap_ab,
        None if config.epilogue_tile == "auto" else config.epilogue_tile,
        config.acc,
    )


_TRANSPOSED: Final = {"row": "col", "col": "row"}


def _is_fp6(name: str) -> bool:
    """`IsFP6` of the builder: whether D is FP6, with or without generated scales."""
    return name != "void" and ELEMENTS[name].plain in FP6


def choose_tile(key: EpilogueKey, rules: Rules) -> tuple[int, int] | Broken:
    """EpilogueTileAuto or the override: `sm120_compute_tile_shape_or_override`."""
    fp6 = _is_fp6(key.d)
    row_major = key.layout_d == "row"
    if fp6 and (key.n if row_major else key.m) % 128:
        return Broken(
            "CTA tile for FP6 ElementD must have a contiguous extent that is a multiple of 128.",
            BUILDER,
            "Make the tile's contiguous extent of D a multiple of 128, or store D as FP8.",
        )
    if key.epilogue_tile is None:
        if fp6:
            return (64, 128) if row_major else (128, 32)
        if key.schedule == "sparse_tma_warp_specialized_cooperative_sm120":
            return _sparse_tile(key)
        if rules.small_n:
            return (128 if key.n < 16 else 64, min(key.n, 32))
        return (64, 32)
    m, n = key.epilogue_tile
    if fp6 and (n if row_major else m) % 128:
        return Broken(
            "EpilogueTile for narrow ElementD must have a contiguous extent that is a multiple of 128.",
            BUILDER,
            "Leave the epilogue tile at auto for an FP6 D.",
        )
    if key.m % m or key.n % n:
        return Broken(
            "EpilogueTile must evenly divide CTA tile",
            BUILDER,
            f"Choose an epilogue tile that divides {key.m}x{key.n}, or leave it at auto.",
        )
    return m, n


def _sparse_tile(key: EpilogueKey) -> tuple[int, int]:
    """Sparse kernels get a smaller epilogue tile to leave the mainloop more: same function, sparse branch. (Its case
    of 64 elements a generated scale never comes up: D's formats share a scale among 16 or 32.)"""
    if key.c == "void":
        narrow = key.d != "void" and ELEMENTS[key.d].bits == 32
        return 64, 16 if narrow else 32
    return 64, 32 if ELEMENTS[key.c].bits <= 16 else 16


def _whole(key: EpilogueKey, tile: tuple[int, int], axis: str, rules: Rules) -> str:
    """What to do about a tile that is no whole number of epilogue tiles along `axis`."""
    extent = tile["MN".index(axis)]
    newer = axis == "N" and key.n < extent and not rules.small_n
    return f"The epilogue tile is {tile[0]}x{tile[1]}: make the tile's {axis} a multiple of {extent}" + (
        ", or use CUTLASS 4.6.0 or later for N below 32." if newer else "."
    )


def _shape_div(key: EpilogueKey, tile: tuple[int, int]) -> Broken | None:
    """`shape_div` of the tile by the epilogue tile, with which the builder counts its stages before anything else:
    one of two extents has to divide the other."""
    for extent, cta, axis in ((tile[0], key.m, "M"), (tile[1], key.n, "N")):
        if cta % extent and extent % cta:
            what = f"The epilogue tile is {tile[0]}x{tile[1]}: make the tile's {axis} a multiple of {extent}."
            return Broken("Divisibility Condition", "cute/int_tuple.hpp", what)
    return None


@lru_cache(maxsize=LAYOUTS)
def epilogue(key: EpilogueKey) -> Epilogue | Broken:
    """Lay out the epilogue that `key` names, or say which rule it breaks first."""
    rules = rules_for(key.version)
    assert rules is not None, "callers check the release first"
    if key.schedule not in SCHEDULES:
        return Broken(
            "Could not build a collective epilogue for given parameters.",
            "cutlass/epilogue/collective/collective_builder.hpp",
            f"The SM120 epilogue builder takes none but {', '.join(SCHEDULES)}.",
        )
    tile = choose_tile(key, rules)
    if isinstance(tile, Broken):
        return tile
    undivided = _shape_div(key, tile)
    if undivided is not None:
        return undivided
    output = key.final_output or key.d if key.fusion == "finalize" and key.d == "void" else key.d
    if output == "void":
        return Broken(
            "SmemElementD is void",
            ARRAY_HEADER if key.grouped else DENSE_HEADER,
            "Give d a type; only the finalize fusion stores through itself and leaves d void.",
        )
    header = ARRAY_HEADER if key.grouped else DENSE_HEADER
    for extent, cta, axis in ((tile[0], key.m, "M"), (tile[1], key.n, "N")):
        if cta % extent:
            return Broken(f"EPI_TILE_{axis} must divide CTA_{axis}", header, _whole(key, tile, axis, rules))

    source = None if key.c == "void" else key.c
    atom_d = swizzle_atom(output, key.layout_d, tile)
    atom_c = swizzle_atom(source, key.layout_c, tile) if source else atom_d
    if isinstance(atom_c, Broken):
        return atom_c
    if isinstance(atom_d, Broken):
        return atom_d

    tiles = (key.m // tile[0]) * (key.n // tile[1])
    bits_d = 0 if key.d == "void" else ELEMENTS[key.d].bits
    bits_c = 0 if source is None else ELEMENTS[source].bits
    # Same width means that D may overwrite C in place; 8-bit residuals load fast and stay separate.
    reuse = bits_c == bits_d and bits_d > 8
    stages_d = 1 if _is_fp6(key.d) and key.layout_d == "row" else min(tiles, 2)
    stages_c = max(min(tiles, 2), stages_d + 1) if reuse else stages_d

    thread = fusion_storage(
        key.fusion,
        key.grouped,
        rules,
        tile_n=key.n,
        epilogue_tile=tile,
        stages_d=stages_d,
        output=output,
        scattered=key.final_output or output,
        activation=key.activation,
        swap_ab=key.swap_ab,
        layout_sfd=key.layout_sfd,
        layout_d=key.layout_d,
        acc=key.acc,
    )
    if isinstance(thread, Broken):
        return thread

    staging = Staging(
        tile=tile,
        stages_c=stages_c,
        stages_d=stages_d,
        fragment_size=FRAGMENT_SIZE,
        reuse_smem_c=reuse,
        delay_tma_store=source is None,
        warp_groups=WARP_GROUPS if key.grouped else None,
    )
    return storage.lay_out(staging, output, source, atom_d, atom_c, thread, stores_d=key.d != "void")
