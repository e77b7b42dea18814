"""What an architecture's module answers for a config whose types compile: the common form that `fit` works on.

Every architecture is one module with the same verbs (`sm120`, ...):

    covers(config) -> str | None            why the model has no answer, or None
    lay_out(config) -> Laid | list[Broken]  the types laid out, or the rules that they break, in the compiler's order
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from tilewright.cutlass.budget import Field
from tilewright.cutlass.verdict import Broken, Entry

SF_SHORT_TEXT: Final = "TMA requires CTA_Tile and SLayout top-level size equivalence."
SF_SHORT_AT: Final = "cute/atom/copy_traits_sm90_tma.hpp"
"""What the compiler says of a kernel whose scale factors in shared memory do not cover the tile."""


@dataclass(frozen=True, slots=True)
class StageCount:
    """How the number of stages came about: floor((capacity - carveout) / stage_bytes), or pinned."""

    stages: int
    pinned: bool
    capacity: int
    carveout: int
    stage_bytes: int
    terms: tuple[tuple[str, int], ...]
    """What a stage counts: name and bytes."""
    reserved: tuple[tuple[str, int], ...] = ()
    """What was taken off the block's limit before: name and bytes."""


@dataclass(frozen=True, slots=True)
class Laid:
    """The three types of a config, laid out.

    `figures` holds the Budget's keys that depend on the types (not the statuses, the limit or what follows from
    them); `entries` the budget lines, computed when asked for; `kernel_broken` the rules that only instantiating the
    whole kernel shows; `asserted` the capacity assert that fires at compile time when the storage is too large.
    """

    smem_bytes: int
    figures: dict[str, Any]
    entries: Callable[[], list[Entry]]
    count: StageCount
    mainloop_tensor_bytes: int
    epilogue_bytes: int
    besides: str
    """What the kernel keeps beside mainloop tensors and epilogue, for the cause of an overflow."""
    kernel_broken: tuple[Broken, ...] = ()
    asserted: Broken | None = None
    unusable: str | None = None
    """Why a kernel that is built and launched is of no use all the same; None for all but odd ones."""
    epilogue_in_mainloop: bool = False
    """The epilogue takes the place of the mainloop's tensors (kernels that compute one tile a block)."""


class Anchor(Entry):
    """A place that other lines count from and that is no line itself, such as the first of several equal structs."""

    __slots__ = ()


PARENTS: Final = (
    ("mainloop.tensors.", "kernel.tensors.mainloop"),
    ("mainloop.tensormaps.", "kernel.tensormaps.mainloop"),
    ("epilogue.tensors.collective.", "epilogue.tensors.collective"),
    ("epilogue.tensors.", "kernel.tensors.epilogue"),
)
"""Which line's absolute offset the offsets of a group of lines count from."""


def to_fields(entries: list[Entry]) -> list[Field]:
    """Budget lines with absolute offsets; parents must come before their children."""
    absolute: dict[str, int] = {}
    out: list[Field] = []
    for entry in entries:
        path, offset, size, align, why = entry
        if path.startswith("kernel."):
            base = absolute.get(path.rpartition(".")[0], 0)
        else:
            base = next(absolute[parent] for prefix, parent in PARENTS if path.startswith(prefix))
        absolute[path] = base + offset
        if isinstance(entry, Anchor):
            continue
        out.append(Field(path, offset, base + offset, size, align, why))
    return out
