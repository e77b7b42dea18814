"""Changes that make SM100 and SM103 configs run: who shares an MMA, and what must go with it.

A 2sm kernel needs an even cluster along M, an epilogue of its own and twice the rows; a grouped one an epilogue of the
ptr-array kind. `fixes` verifies each change with the model before it is offered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from tilewright.cutlass.config import KernelConfig

ARCHS: Final = ("sm100", "sm103")
CTA_ROWS: Final = 128
"""Rows of a CTA that uses tensor memory whole."""
EPILOGUE_COLUMNS: Final = (64, 32, 16)
"""Columns of the epilogue tiles that are offered, each step with less staging than the one before."""
ULTRA_N: Final = (128, 192, 256)
ULTRA_K: Final = 768
"""N and K that the FP4 collectives of SM103 take (`gemm/collective/builders/sm103_blockscaled_umma_builder.inl`)."""
EVEN_N: Final = (64, 128, 192, 256)
DEEP_K: Final = 256
"""K that whole blocks of scales, of metadata and of unpacked elements divide."""

Candidate = tuple[str, dict[str, Any], str]


def schedules(config: KernelConfig) -> Iterator[Candidate]:
    """1sm and 2sm with all that goes with them, the one that the config suggests first.

    Mainloop and epilogue always agree: the types of a pair that does not compile too, and compute nothing of use.
    """
    current = pair(config)
    for sm in (current, 3 - current):
        cluster = config.cluster if sm == 1 or config.cluster[0] % 2 == 0 else (2, *config.cluster[1:])
        wanted: dict[str, Any] = {"epilogue_schedule": epilogue(config, sm), "cluster": cluster}
        named = {**wanted, "schedule": f"{sm}sm"}
        # a tag that names more than 1sm or 2sm stays where it can
        for keys in (wanted, named) if sm == current and config.schedule != "auto" else (named,):
            for tile in (config.tile, (CTA_ROWS * sm, *config.tile[1:])):
                change = {key: value for key, value in keys.items() if getattr(config, key) != value}
                if tile != config.tile:
                    change["tile"] = tile
                if change:
                    yield "schedule", change, _said(sm, change)
    if "auto" not in (config.schedule, config.epilogue_schedule):
        yield "schedule", {"schedule": "auto", "epilogue_schedule": "auto"}, "let the builder choose schedule, epilogue"
    if config.cluster != (1, 1, 1) and current == 1:
        yield "cluster", {"cluster": (1, 1, 1)}, "cluster 1x1x1"


def pair(config: KernelConfig) -> int:
    """CTAs that share an MMA by what the config says: its schedule, else its epilogue, else its tile and cluster."""
    for name in (config.schedule.lower(), config.epilogue_schedule.lower()):
        if "1sm" in name:
            return 1
        if "2sm" in name:
            return 2
    return 2 if config.tile[0] > CTA_ROWS or config.cluster[0] % 2 == 0 else 1


def epilogue(config: KernelConfig, sm: int) -> str:
    """The epilogue schedule that goes with a kernel's kind; direct stores stay direct where D can be stored so."""
    direct = "nosmem" in config.epilogue_schedule.lower().replace("_", "") and config.fusion != "finalize"
    array = "ptr_array_" if config.kind == "grouped" else ""
    return f"{array}{'no_smem' if direct else 'tma'}_warp_specialized_{sm}sm"


def _said(sm: int, change: dict[str, Any]) -> str:
    parts: list[str] = []
    if "schedule" in change:
        parts.append(f"a {sm}sm mainloop")
    if "epilogue_schedule" in change:
        parts.append(f"epilogue {change['epilogue_schedule']}")
    if "cluster" in change:
        parts.append("cluster " + "x".join(map(str, change["cluster"])))
    if "tile" in change:
        parts.append("tile " + "x".join(map(str, change["tile"])))
    return ", ".join(parts)


def epilogue_tiles(config: KernelConfig) -> Iterator[Candidate]:
    """Epilogue tiles of fewer columns; naming one takes a named epilogue schedule."""
    sm = pair(config)
    m, n = config.tile[0] // sm, config.tile[1]
    named = {} if config.epilogue_schedule != "auto" else {"epilogue_schedule": epilogue(config, sm)}
    for columns in EPILOGUE_COLUMNS:
        if n % columns == 0 and config.epilogue_tile != (m, columns):
            note = f"epilogue tile {m}x{columns}: less staging, more store steps"
            yield "epilogue_tile", {**named, "epilogue_tile": (m, columns)}, note


def tiles(config: KernelConfig) -> Iterator[Candidate]:
    """Tiles with an N that all collectives and epilogues of the architecture take, the nearest first."""
    m, n, k = config.tile
    ultra = config.arch == "sm103"
    for legal in sorted(ULTRA_N if ultra else EVEN_N, key=lambda legal: (abs(legal - n), legal)):
        for depth in (ULTRA_K,) if ultra else (k, DEEP_K):
            tile = (m, legal, depth)
            if tile != config.tile:
                yield "tile", {"tile": tile}, f"tile {m}x{legal}x{depth}"
