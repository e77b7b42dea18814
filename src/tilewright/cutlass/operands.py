"""The two operands of a GEMM as the collective builders see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.cutlass.config import KernelConfig


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands as compiled: after swap_ab has exchanged them."""

    a: str
    b: str
    align_a: int
    align_b: int
    layout_a: str
    layout_b: str


_TRANSPOSED: Final = {"row": "col", "col": "row"}


def operands(config: KernelConfig) -> Operands:
    """The operands that the builder sees. swap_ab: A and B change places, each layout transposed."""
    if config.swap_ab:
        return Operands(
            config.b,
            config.a,
            config.align_b,
            config.align_a,
            _TRANSPOSED[config.layout_b],
            _TRANSPOSED[config.layout_a],
        )
    return Operands(config.a, config.b, config.align_a, config.align_b, config.layout_a, config.layout_b)
