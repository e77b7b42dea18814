"""Hypothesis strategies that several test files share."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tilewright.cutlass.config import KEYS, LEGAL, SCHEDULES
from tilewright.cutlass.versions import KNOWN

EXTENTS = st.one_of(
    st.sampled_from([8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 512, 768, 1024]),
    st.integers(1, 600),
)

EPILOGUE_SCHEDULES = (
    "auto",
    "tma_warp_specialized",
    "tma_warp_specialized_cooperative",
    "ptr_array_tma_warp_specialized_pingpong",
    "ptr_array_tma_warp_specialized_cooperative",
    "ptr_array_tma_warp_specialized",
    "no_smem_warp_specialized",
    "tma_warp_specialized_1sm",
    "sparse_tma_warp_specialized_cooperative_sm120",
)


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), strategy)


def kernel_configs(**fixed: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Raw configs whose every value is one of the legal ones, however little sense they make together."""
    keys: dict[str, st.SearchStrategy[Any]] = {key: _maybe(st.sampled_from(values)) for key, values in LEGAL.items()}
    keys |= {key: st.sampled_from(LEGAL[key]) for key in ("arch", "a", "kind")}
    keys |= {
        "cutlass": st.sampled_from([*KNOWN, "4.9.9"]),
        "tile": st.tuples(EXTENTS, EXTENTS, EXTENTS),
        "cluster": _maybe(st.tuples(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2]), st.just(1))),
        "schedule": st.sampled_from([*SCHEDULES, "KernelTmaWarpSpecializedMxf8f6f4Sm120", "KernelNoSuchTag"]),
        "epilogue_schedule": st.sampled_from(EPILOGUE_SCHEDULES),
        "swap_ab": st.booleans(),
        "epilogue_tile": st.one_of(st.just("auto"), st.tuples(EXTENTS, EXTENTS)),
        "stages": st.one_of(st.just("auto"), st.integers(1, 20)),
        "scale_granularity": _maybe(st.tuples(EXTENTS, EXTENTS, EXTENTS)),
        "align_a": _maybe(st.sampled_from([1, 8, 16, 32, 64, 128])),
        "align_b": _maybe(st.sampled_from([1, 8, 16, 32, 64, 128])),
    }
    keys |= {key: st.just(value) for key, value in fixed.items()}
    return st.fixed_dictionaries(keys)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
"""Any JSON value of a small size (and NaN and the infinities, which JSON has not)."""

GARBAGE_CONFIGS = st.dictionaries(
    st.one_of(st.sampled_from(KEYS), st.text(max_size=12)),
    st.one_of(JSON, st.sampled_from(["sm120", "nvfp4", "128x128x128", "auto", [128, 128, 128], -1, 10**30, "\x00"])),
    max_size=10,
)
"""Objects that look like configs and hold anything."""
