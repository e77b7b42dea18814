"""What an SM100 epilogue depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.cutlass.config import KernelConfig
from tilewright.formats.elements import ELEMENTS

FP6_BITS: Final = 6

_TRANSPOSED: Final = {"row": "col", "col": "row"}


@dataclass(frozen=True, slots=True)
class EpilogueKey:
    """What an epilogue depends on, and nothing else, so that equal ones are laid out once."""

    version: str
    op_class: str
    grouped: bool
    tile: tuple[int, int, int]
    cluster_m: int
    acc: str
    c: str
    d: str
    layout_c: str
    layout_d: str
    align_c: int
    align_d: int
    schedule: str
    fusion: str
    activation: str | None
    final_output: str | None
    layout_sfd: str
    swap_ab: bool
    epilogue_tile: tuple[int, int] | None


def epilogue_key(config: KernelConfig) -> EpilogueKey:
    """The part of `config` that fixes its epilogue; layouts as compiled (swap_ab transposes C and D)."""
    layout_c, layout_d = config.layout_c, config.layout_d
    if config.swap_ab:
        layout_c, layout_d = _TRANSPOSED[layout_c], _TRANSPOSED[layout_d]
    layout_sfd = config.layout_sfd
    if layout_sfd is not None and config.swap_ab:
        layout_sfd = _TRANSPOSED[layout_sfd]
    return EpilogueKey(
        config.cutlass,
        config.op_class,
        config.kind == "grouped",
        config.tile,
        config.cluster[0],
        config.acc,
        config.c,
        config.d,
        layout_c,
        layout_d,
        config.align_c,
        config.align_d,
        config.epilogue_schedule,
        config.fusion,
        config.activation,
        config.final_output,
        layout_sfd or layout_d,
        config.swap_ab,
        None if config.epilogue_tile == "auto" else config.epilogue_tile,
    )


def bits_of(name: str) -> int:
    return 0 if name == "void" else ELEMENTS[name].bits


def smem_bits(name: str) -> int:
    """Bits an element takes in the epilogue's shared memory (`get_unpacked_element_type`: FP6 sits in bytes)."""
    bits = ELEMENTS[name].bits
    return 8 if bits == FP6_BITS else bits
