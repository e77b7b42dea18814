"""A rule that CUTLASS (or the launch) enforces, and the small values that the model passes around."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Broken(NamedTuple):
    """A rule that a config breaks. `text` is the assert as the compiler prints it, `where` the header that holds it,
    `advice` one sentence that says what would satisfy it. `basis` tells rules of whole kernels apart: those that
    compiled kernels show, and those that the headers say and no kernel of that kind was compiled for."""

    text: str
    where: str
    advice: str
    basis: Literal["compiled", "inferred"] = "inferred"

    def __str__(self) -> str:
        return f"{self.text} ({self.where}). {self.advice}"


def no_collective(advice: str) -> Broken:
    """What the builder's declaration says where none of its specialisations takes a config."""
    text = "Could not build a collective for given parameters."
    return Broken(text, "cutlass/gemm/collective/collective_builder_decl.hpp", advice)


class Entry(NamedTuple):
    """One line of a budget before absolute offsets are known: path, offset in its parent, bytes, alignof, reason."""

    path: str
    offset: int
    bytes: int
    type_align: int
    why: str
