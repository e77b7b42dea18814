"""What the name of a dispatch policy says: arch, grouped or not, way of scaling, sparse, mixed input."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tilewright.collectives.model import Scaling

__all__ = ["Kind", "describe"]

_SM: Final = re.compile(r"Sm(\d{2,3})(?!\d)")


class Kind(NamedTuple):
    """What kind of collective a dispatch policy is for."""

    arch: str
    array: bool
    """Grouped or pointer-array: one kernel, many problems."""
    scaling: Scaling
    sparse: bool
    mixed_input: bool


def describe(policy: str) -> Kind:
    """The kind of collective that `policy` (`MainloopSm120ArrayTmaWarpSpecializedBlockScaled`) is for.

    RCGroupGemm is the ragged-contiguous grouped GEMM of CUTLASS 4.3. SM90 has no MMA with scale factors: whatever its
    policies are called (`...BlockScalingFP8` in 3.9, `...Blockwise` since 4.0), they scale in software. From SM100 on
    `BlockScaled` means scale factors in the MMA, and `Blockwise` software scaling.
    """
    match = _SM.search(policy)
    arch = f"sm{match[1]}" if match else "unknown"
    scaling: Scaling = "none"
    if "Blockwise" in policy or "BlockScaling" in policy or ("BlockScaled" in policy and arch == "sm90"):
        scaling = "blockwise"
    elif "BlockScaled" in policy:
        scaling = "block_scaled"
    array = "Array" in policy or "RCGroupGemm" in policy
    return Kind(arch, array, scaling, "Sparse" in policy, "MixedInput" in policy)
