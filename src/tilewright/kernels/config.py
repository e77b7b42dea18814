"""How a grouped GEMM is cut: tile, pipeline and the choice of both by problem."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tilewright.kernels.layout import CHUNK_BYTES, GROUP_ROWS

ROWS_A_BLOCK = 16
TOKENS_A_COLUMN = 8
MOST_SHARED: Final = 232_448
"""Bytes of shared memory that one block may have on the GPU that has most of it (CUDA C++ Programming Guide, compute
capabilities: SM90, SM100)."""
_X_ROW_BYTES = 128 * 2 + 64
_STATIC_BYTES = 128
"""Shared memory that the compiler adds (the flag of the last arrival, aligned), by ptxas."""


def macros(values: Mapping[str, int]) -> tuple[str, ...]:
    """Compiler options that set the compile-time parameters TW_* of a kernel."""
    return tuple(f"-DTW_{name}={value}" for name, value in values.items())


@dataclass(frozen=True, slots=True)
class GroupedConfig:
    """One build of `nvfp4_grouped.cu`; the names are those of its macros.

    `columns` (of 8 routed rows), `blocks` (16-row blocks a warp), `warps`, `stages` (of 128 values of K), `units`
    (least stages of work for a thread block), `resident` (most thread blocks on one SM; 0: as many as fit).
    """

    columns: int = 1
    blocks: int = 2
    warps: int = 4
    stages: int = 4
    units: int = 4
    resident: int = 0

    @property
    def tile_rows(self) -> int:
        """Weight rows of a tile."""
        return self.warps * self.blocks * ROWS_A_BLOCK

    @property
    def block_rows(self) -> int:
        """Routed rows of a tile."""
        return self.columns * TOKENS_A_COLUMN

    @property
    def threads(self) -> int:
        return self.warps * 32

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory."""
        return self.stages * (self.tile_rows // GROUP_ROWS * CHUNK_BYTES + self.block_rows * _X_ROW_BYTES)

    def row_tiles(self, width: int, gated: bool) -> int:
        """Tiles along the rows of a matrix whose product is `width` wide (`gated`: two stored rows a column)."""
        groups = -(-width // (GROUP_ROWS // 2 if gated else GROUP_ROWS))
        return -(-groups // (self.tile_rows // GROUP_ROWS))

    @property
    def legal(self) -> bool:
        """Whether a warp stays in one 64-row group and tiles are whole groups, padded as the layout is."""
        return (
            self.blocks in (1, 2, 4)
            and self.tile_rows % GROUP_ROWS == 0
            and 4 * GROUP_ROWS % self.tile_rows == 0
            and self.stages >= 2
        )

    def defines(self, mode: int) -> tuple[str, ...]:
        """Compiler options of this build."""
        names = {
            "NT": self.columns, "MI": self.blocks, "WARPS": self.warps, "STAGES": self.stages, "MODE": mode,
            "MIN_UNITS": self.units,
        }  # fmt: skip
        return macros(names)
