"""What another CUTLASS release makes of the same config: an upgrade (or a downgrade) judged before it is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from tilewright.cutlass.budget import Budget, Status
from tilewright.cutlass.config import KernelConfig
from tilewright.cutlass.fit import fit

SHOWN: Final = (
    "status", "type_status", "stages", "smem_bytes", "slack_bytes", "mainloop_bytes", "epilogue_bytes",
    "epilogue_tile", "stages_c", "stages_d", "threads", "load_registers", "mma_registers", "sf_short", "stages_a",
    "stages_b", "stages_e", "load_ab_stages", "load_sf_stages", "accumulator_stages",
)  # fmt: skip
"""Figures that a comparison looks at, in the order in which it names them."""


class Change(msgspec.Struct, frozen=True):
    """One figure that differs."""

    key: str
    old: Any
    new: Any


class Comparison(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/fit-compare/1"):
    """One config under two releases. `verdict` sums it up: same, changed (figures only), gained (runs only on the
    new one), lost (ran only on the old one)."""

    id: str
    old_cutlass: str
    new_cutlass: str
    old_status: Status
    new_status: Status
    verdict: str
    changes: list[Change]
    cause: str | None = None
    """Why it does not run on the new release, when it does not."""


class LibraryComparison(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/fit-upgrade/1"):
    """Every kernel that a library compiles, under two CUTLASS releases: what building it with the other one changes."""

    library: str
    library_version: str
    arch: str
    old_cutlass: str
    new_cutlass: str
    kernels: int
    """Kernels that were compared."""
    unread: int
    """Kernels whose config the library's sources do not tell."""
    same: int
    changed: int
    gained: int
    lost: int
    new_failures: list[str]
    """Names of the kernels that run on the old release only."""
    changes: list[Comparison]
    """The kernels that differ; `id` is the kernel's name in the library."""


def compare_all(
    library: str,
    library_version: str,
    arch: str,
    kernels: Iterable[tuple[str, KernelConfig | None]],
    old: str,
    new: str,
) -> LibraryComparison:
    """`kernels` (name in the library, its config where it is known) on CUTLASS `old` and on CUTLASS `new`."""
    compared: list[Comparison] = []
    unread = 0
    for name, config in kernels:
        if config is None:
            unread += 1
        else:
            compared.append(compare(msgspec.structs.replace(config, id=name), old, new))
    counts = Counter(item.verdict for item in compared)
    return LibraryComparison(
        library=library,
        library_version=library_version,
        arch=arch,
        old_cutlass=old,
        new_cutlass=new,
        kernels=len(compared),
        unread=unread,
        same=counts["same"],
        changed=counts["changed"],
        gained=counts["gained"],
        lost=counts["lost"],
        new_failures=[item.id for item in compared if item.verdict == "lost"],
        changes=[item for item in compared if item.verdict != "same"],
    )


def compare(config: KernelConfig, old: str, new: str) -> Comparison:
    """`config` on CUTLASS `old` and on CUTLASS `new`; its own `cutlass` key is ignored."""
    before, after = (fit(msgspec.structs.replace(config, cutlass=version)) for version in (old, new))
    changes = [
        Change(key, getattr(before, key), getattr(after, key))
        for key in SHOWN
        if getattr(before, key) != getattr(after, key)
    ]
    return Comparison(
        id=config.id,
        old_cutlass=old,
        new_cutlass=new,
        old_status=before.status,
        new_status=after.status,
        verdict=_verdict(before, after, bool(changes)),
        changes=changes,
        cause=None if after.status == "fits" else after.cause,
    )


def _verdict(before: Budget, after: Budget, differs: bool) -> str:
    if before.status != "fits" and after.status == "fits":
        return "gained"
    if before.status == "fits" and after.status != "fits":
        return "lost"
    return "changed" if differs else "same"
