"""Schedule tags of SM90: what each names, and which builder takes it.

Mirrors the tags of `gemm/dispatch_policy.hpp` and the enable_if of the builders in
`gemm/collective/builders/sm90_gmma_builder.inl` and `sm90_sparse_gmma_builder.inl`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from tilewright.cutlass.sm90_versions import Sm90Rules

Loop = Literal["basic", "cooperative", "pingpong"]
Loads = Literal["tma_unspecialised", "tma", "cp_async"]
Family = Literal["plain", "fast_accum", "blockwise"]


@dataclass(frozen=True, slots=True)
class Tag:
    """A builder tag. `array`: for ptr-array (grouped) kernels."""

    name: str
    loop: Loop
    """How warp groups share tiles: one tile a block (basic), one tile two groups, or a tile a group."""
    loads: Loads = "tma"
    array: bool = False
    family: Family = "plain"

    @property
    def cooperative(self) -> bool:
        return self.loop == "cooperative"

    @property
    def qualified(self) -> str:
        return f"cutlass::gemm::{self.name}"


_LOOPS: Final[tuple[tuple[Loop, str], ...]] = (("basic", ""), ("cooperative", "Cooperative"), ("pingpong", "Pingpong"))


def _all_tags() -> dict[str, Tag]:
    tags = [Tag("KernelTma", "basic", "tma_unspecialised")]
    for loop, name in _LOOPS:
        tags.append(Tag(f"KernelCpAsyncWarpSpecialized{name}", loop, "cp_async"))
        for array, ptr in ((False, ""), (True, "PtrArray")):
            if array and loop == "basic":
                continue
            base = f"Kernel{ptr}TmaWarpSpecialized{name}"
            tags.append(Tag(base, loop, array=array))
            tags.append(Tag(base + "FP8FastAccum", loop, array=array, family="fast_accum"))
            if loop != "basic":
                tags.append(Tag(base + "FP8Blockwise", loop, array=array, family="blockwise"))
                tags.append(Tag(base + "FP8BlockScaledAccum", loop, array=array, family="blockwise"))
    return {tag.name: tag for tag in tags}


TAGS: Final = _all_tags()

AUTO: Final = "KernelScheduleAuto"

_DENSE: Final = {
    "tma": "KernelTma",
    "basic": "KernelTmaWarpSpecialized",
    "cp_async": "KernelCpAsyncWarpSpecialized",
    "cp_async_cooperative": "KernelCpAsyncWarpSpecializedCooperative",
    "cp_async_pingpong": "KernelCpAsyncWarpSpecializedPingpong",
    "basic_fp8_fast_accum": "KernelTmaWarpSpecializedFP8FastAccum",
}
_EITHER: Final = {
    "cooperative": "Cooperative",
    "pingpong": "Pingpong",
    "cooperative_fp8_fast_accum": "CooperativeFP8FastAccum",
    "pingpong_fp8_fast_accum": "PingpongFP8FastAccum",
}
_BLOCKWISE: Final = {"cooperative": "CooperativeFP8", "pingpong": "PingpongFP8"}


def _spelled(name: str, rules: Sm90Rules) -> str:
    """The tag's name in a release: the two names of the blockwise tags are aliases from 4.2.0 on."""
    stem = name.removesuffix("FP8BlockScaledAccum").removesuffix("FP8Blockwise")
    if stem == name:
        return name
    return stem + ("FP8Blockwise" if rules.blockwise_name else "FP8BlockScaledAccum")


@lru_cache(maxsize=1024)
def resolve(schedule: str, op_class: str, grouped: bool, rules: Sm90Rules) -> Tag | None:
    """The tag that `schedule` names for kernels of this class; None when SM90 has none. "auto" is not resolved here:
    it depends on the operands (`sm90_mainloop`).

    The short names are those of `KernelConfig.schedule`; a name that starts with Kernel is the tag itself.
    """
    ptr = "PtrArray" if grouped else ""
    if schedule.startswith("Kernel"):
        # Deprecated: the builder hands it to the cp.async one.
        name = "KernelCpAsyncWarpSpecialized" if schedule == "KernelMultistage" else schedule
    elif op_class == "blockwise":
        if schedule not in _BLOCKWISE:
            return None
        name = f"Kernel{ptr}TmaWarpSpecialized{_BLOCKWISE[schedule]}Blockwise"
    elif schedule in _EITHER:
        name = f"Kernel{ptr}TmaWarpSpecialized{_EITHER[schedule]}"
    else:
        name = _DENSE.get(schedule, "")
    tag = TAGS.get(_spelled(name, rules))
    if tag is not None and tag.family == "blockwise" and not (tag.array or tag.cooperative or rules.blockwise_pingpong):
        return None
    return tag
