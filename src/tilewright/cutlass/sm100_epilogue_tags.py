"""Epilogue schedule tags of SM100: what each stands for.

Mirrors the tag hierarchy of `epilogue/dispatch_policy.hpp` and the `enable_if` of the three builders in
`epilogue/collective/builders/sm100_builder.inl` (through shared memory with TMA, direct stores, auto).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.cutlass.versions import Version, parse_version


@dataclass(frozen=True, slots=True)
class EpilogueTag:
    """An epilogue tag. `sm` is 1 or 2, `family` names the sparse tuning (sp, nvf4, mxf4, mxf8f6f4)."""

    sm: int
    tma: bool
    array: bool
    family: str = "sp"
    transform: bool = False
    """Tags of the kernels that transform accumulators: no callbacks, whole CTA tiles."""


_TMA: Final = re.compile(r"(ptr_array_)?tma_warp_specialized_([12])sm(?:_(nvf4|mxf4|mxf8f6f4))?")
_NO_SMEM: Final = re.compile(r"(ptr_array_)?(fast_f32_|blockwise_)?no_smem_warp_specialized_([12])sm")
_SINCE: Final[dict[str, Version]] = {"fast_f32_": (4, 2, 0), "blockwise_": (4, 2, 1)}
"""Releases that brought the transform tags."""

PLANAR_COMPLEX: Final = re.compile(r"(ptr_array_)?planar_complex_(tma|no_smem)_warp_specialized_[12]sm")
"""Tags that the builders take and that make no epilogue of real operands."""


@lru_cache(maxsize=1024)
def resolve(schedule: str, version: str) -> EpilogueTag | None:
    """The tag that `schedule` spells in snake case, or None when no SM100 builder takes it. Not for "auto"."""
    tma = _TMA.fullmatch(schedule)
    if tma:
        array, sm, family = tma.groups()
        if array and family:
            return None
        return EpilogueTag(int(sm), True, bool(array), family or "sp")
    direct = _NO_SMEM.fullmatch(schedule)
    if direct is None:
        return None
    array, transform, sm = direct.groups()
    if transform and parse_version(version) < _SINCE[transform]:
        return None
    return EpilogueTag(int(sm), False, bool(array), transform=bool(transform))


def automatic(op_class: str, tile_m: int, cluster_m: int) -> EpilogueTag:
    """The tag that EpilogueScheduleAuto picks; it never is a ptr-array one."""
    pairs = (256,) if op_class == "block_scaled" else (256, 128)
    return EpilogueTag(2 if cluster_m % 2 == 0 and tile_m in pairs else 1, True, False)
