"""The legal space of kernel configs, family by family: what `sampling` draws from.

A family is an op class of an architecture. Its lists hold what people run, with weights, and what lies at the edges
of what CUTLASS takes; the lists at the end of this file hold everything else that a config may say, so that any key of
any family can be drawn at any of its values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["SPACES", "Space", "Weighted"]

Weighted = Sequence[tuple[Any, int]]


@dataclass(frozen=True)
class Space:
    """What is drawn for one family of one architecture."""

    arch: str
    op_class: str
    weight: int
    m: Weighted
    n: Weighted
    k: Weighted
    pairs: Weighted
    """(A, B)."""
    schedules: Weighted
    epilogues: Weighted
    """Epilogue schedules; {P} is `ptr_array_` in grouped kernels, {S} 1sm or 2sm."""
    kinds: tuple[str, ...] = ("dense", "grouped")
    clusters: Weighted = (((1, 1, 1), 24), ((2, 1, 1), 1), ((1, 2, 1), 1))


FUSIONS: Final = (
    ("linear_combination", 8), ("finalize", 4), ("activation", 2), ("block_scale_out", 2), ("per_row_bias", 1),
    ("per_col_bias", 1), ("per_row_bias_activation_aux", 1),
)  # fmt: skip
OUTPUTS: Final = (("bf16", 8), ("f16", 2), ("f32", 3), ("e4m3", 1), ("e5m2", 1), ("e2m1", 1), ("int8", 1))
BLOCK_OUTPUTS: Final = ("nvfp4", "nvfp4", "mxfp8_e4m3", "mxfp4")
EPILOGUE_TILES: Final = (
    (64, 64), (128, 64), (32, 32), (128, 32), (64, 16), (64, 32), (128, 128), (64, 128), (64, 8), (128, 16),
    (32, 64), (128, 256), (256, 32), (96, 32), (64, 48),
)  # fmt: skip
GRANULARITIES: Final = (
    (1, 128, 128), (1, 128, 128), (128, 128, 128), (1, 1, 128), (64, 128, 128), (128, 1, 128), (1, 64, 128),
    (1, 128, 64), (32, 32, 128), (256, 128, 128), (1, 128, 256), (1, 32, 32),
)  # fmt: skip
MIXED_GRANULARITIES: Final = ((1, 1, 32), (1, 1, 64), (1, 1, 128), (128, 1, 128), (1, 1, 256), (1, 128, 128))

_MX: Final = ("mxfp8_e4m3", "mxfp4", "mxfp6_e3m2", "mxfp8_e5m2", "mxfp6_e2m3")
_F8F6F4: Final = ("e4m3", "e5m2", "e2m1", "e3m2", "e2m3")
_BLOCK_PAIRS: Final = (
    (("nvfp4", "nvfp4"), 25), (("mxfp4", "mxfp4"), 5), *(((a, b), 1) for a in _MX for b in _MX),
)  # fmt: skip
_F8F6F4_PAIRS: Final = ((("e4m3", "e4m3"), 10), *(((a, b), 1) for a in _F8F6F4 for b in _F8F6F4))
_FP8_PAIRS: Final = ((("e4m3", "e4m3"), 4), (("e4m3", "e5m2"), 1))
_DENSE_PAIRS: Final = (
    (("bf16", "bf16"), 4), (("f16", "f16"), 1), (("e4m3", "e4m3"), 3), (("e5m2", "e4m3"), 1), (("tf32", "tf32"), 1),
    (("int8", "int8"), 1),
)  # fmt: skip
_DENSE_PAIRS_100: Final = (
    *_DENSE_PAIRS, (("uint8", "uint8"), 1), *(((a, b), 1) for a, b in (("e2m1", "e4m3"), ("e3m2", "e2m3"))),
)  # fmt: skip
_MIXED_PAIRS: Final = (
    (("int4", "bf16"), 3), (("int8", "bf16"), 2), (("uint4", "f16"), 1), (("int4", "e4m3"), 2), (("e4m3", "bf16"), 1),
    (("bf16", "int4"), 1), (("bf16", "e4m3"), 1), (("uint8", "f16"), 1), (("e5m2", "f16"), 1), (("f16", "int8"), 1),
)  # fmt: skip

_M120: Final = ((128, 10), (64, 3), (256, 4), (192, 1), (96, 1))
_N120: Final = ((128, 10), (64, 4), (256, 4), (32, 4), (16, 2), (8, 2), (192, 1), (96, 1), (48, 1), (24, 1))
_K120: Final = ((128, 10), (256, 5), (64, 2), (512, 1), (96, 1))
_WS: Final = (("auto", 4), ("cooperative", 2), ("pingpong", 2))
_WS_EPILOGUES: Final = (
    ("auto", 4), ("tma_warp_specialized", 4), ("tma_warp_specialized_cooperative", 1),
    ("{P}tma_warp_specialized_cooperative", 1), ("{P}tma_warp_specialized_pingpong", 1),
    ("no_smem_warp_specialized", 1),
)  # fmt: skip
_SM90_WS: Final = (("cooperative", 4), ("pingpong", 4), ("basic", 2), ("auto", 1))
_SM90_EPILOGUES: Final = (
    ("{P}tma_warp_specialized_cooperative", 4), ("{P}tma_warp_specialized_pingpong", 1), ("tma_warp_specialized", 3),
    ("auto", 1), ("{P}no_smem_warp_specialized", 1),
)  # fmt: skip
_SM: Final = (("1sm", 5), ("2sm", 5), ("auto", 1))
_SM_EPILOGUES: Final = (("{P}tma_warp_specialized_{S}", 8), ("{P}no_smem_warp_specialized_{S}", 1), ("auto", 1))
_SM_CLUSTERS: Final = (((1, 1, 1), 4), ((2, 1, 1), 5), ((1, 2, 1), 1), ((2, 2, 1), 1), ((4, 1, 1), 1))
_M100: Final = ((128, 5), (256, 5), (64, 1))
_N100: Final = ((128, 5), (256, 4), (64, 3), (192, 2), (32, 1), (16, 1))

SPACES: Final = (
    Space("sm120", "block_scaled", 7, _M120, _N120, _K120, _BLOCK_PAIRS, _WS, _WS_EPILOGUES),
    Space("sm120", "tensor_op", 2, _M120, _N120, _K120, _F8F6F4_PAIRS, _WS, _WS_EPILOGUES),
    Space("sm120", "blockwise", 2, _M120, _N120, _K120, _FP8_PAIRS, _WS, _WS_EPILOGUES),
    Space("sm120", "sparse", 1, _M120, _N120, _K120, _F8F6F4_PAIRS, (("auto", 1),), _WS_EPILOGUES, ("dense",)),
    Space(
        "sm120", "block_scaled_sparse", 1, _M120, _N120, ((256, 6), (128, 2), (512, 1)), _BLOCK_PAIRS,
        (("cooperative", 5), ("acc2x4", 1)), _WS_EPILOGUES, ("dense",),
    ),
    Space(
        "sm90", "tensor_op", 6, ((128, 6), (64, 3), (256, 3), (192, 1)), _N120, ((64, 5), (128, 4), (32, 1)),
        _DENSE_PAIRS, _SM90_WS, _SM90_EPILOGUES, clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm90", "blockwise", 2, ((128, 5), (64, 2), (256, 1)), ((128, 5), (64, 1), (256, 1)), ((128, 1),),
        _FP8_PAIRS, (("cooperative", 1), ("pingpong", 1)), _SM90_EPILOGUES, clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm90", "mixed_input", 2, ((128, 4), (64, 2), (256, 1)), ((128, 3), (64, 1), (16, 1), (256, 1)),
        ((64, 4), (128, 2)), _MIXED_PAIRS, (("cooperative", 3), ("pingpong", 3), ("basic", 1)), _SM90_EPILOGUES,
        clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm90", "sparse", 1, ((128, 4), (64, 2), (256, 1)), ((128, 3), (64, 2), (256, 1)), ((64, 2), (128, 2)),
        _DENSE_PAIRS, _SM90_WS, _SM90_EPILOGUES, ("dense",), _SM_CLUSTERS,
    ),
    Space(
        "sm100", "tensor_op", 4, _M100, _N100, ((64, 5), (128, 3), (32, 1)), _DENSE_PAIRS_100, _SM, _SM_EPILOGUES,
        clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm100", "block_scaled", 4, _M100, _N100, ((256, 5), (128, 2), (512, 1)), _BLOCK_PAIRS, _SM, _SM_EPILOGUES,
        clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm100", "blockwise", 2, _M100, _N100, ((128, 1),), _FP8_PAIRS, _SM[:2], _SM_EPILOGUES, clusters=_SM_CLUSTERS,
    ),
    Space(
        "sm100", "mixed_input", 2, _M100, ((128, 4), (64, 3), (32, 1), (16, 1)), ((64, 4), (128, 3), (256, 1)),
        _MIXED_PAIRS, _SM[:2], _SM_EPILOGUES, ("dense", "dense", "dense", "grouped"), _SM_CLUSTERS,
    ),
    Space(
        "sm100", "sparse", 1, _M100, _N100, ((64, 1), (128, 1)), _DENSE_PAIRS_100, _SM[:2], _SM_EPILOGUES,
        ("dense",), _SM_CLUSTERS,
    ),
    Space(
        "sm100", "block_scaled_sparse", 1, _M100, _N100, ((256, 1),), _BLOCK_PAIRS, _SM[:2], _SM_EPILOGUES,
        ("dense",), _SM_CLUSTERS,
    ),
    Space(
        "sm103", "block_scaled", 3, ((128, 5), (256, 5)), ((128, 4), (192, 3), (256, 3), (64, 1)),
        ((768, 20), (256, 1)), ((("nvfp4", "nvfp4"), 3), (("mxfp4", "mxfp4"), 2)), _SM, _SM_EPILOGUES,
        clusters=_SM_CLUSTERS,
    ),
)  # fmt: skip
"""Every family that CUTLASS has builders for."""

# ---- what any family may be given beside its own lists (`sampling._VARIATIONS`)

ANY_EXTENTS: Final = (
    (16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 320, 384, 512),
    (8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 384, 512),
    (16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024),
)
"""M, N, K."""
ANY_CLUSTERS: Final = (
    (1, 1, 1), (2, 1, 1), (1, 2, 1), (2, 2, 1), (4, 1, 1), (1, 4, 1), (4, 2, 1), (2, 4, 1), (4, 4, 1), (8, 1, 1),
    (1, 8, 1), (3, 1, 1), (1, 3, 1), (6, 1, 1), (1, 1, 2), (16, 1, 1),
)  # fmt: skip
ANY_TAGS: Final[dict[str, tuple[str, ...]]] = {
    "sm90": (
        "KernelTma", "KernelTmaWarpSpecialized", "KernelTmaWarpSpecializedCooperative",
        "KernelTmaWarpSpecializedPingpong", "KernelPtrArrayTmaWarpSpecializedCooperative",
        "KernelPtrArrayTmaWarpSpecializedPingpong", "KernelTmaWarpSpecializedCooperativeMixedInput",
        "KernelTmaWarpSpecializedPingpongMixedInput", "KernelTmaWarpSpecializedCooperativeFP8Blockwise",
        "KernelTmaWarpSpecializedPingpongFP8Blockwise", "KernelPtrArrayTmaWarpSpecializedPingpongFP8FastAccum",
        "KernelCpAsyncWarpSpecializedCooperative", "KernelTmaWarpSpecialized1SmSm100",
    ),
    "sm100": (
        *(
            f"Kernel{pointer}TmaWarpSpecialized{name.format(S=sm)}Sm100"
            for pointer in ("", "PtrArray")
            for sm in ("1Sm", "2Sm")
            for name in (
                "{S}", "Blockwise{S}", "{S}Nvf4", "{S}Mxf4", "{S}Mxf8f6f4", "{S}BlockScaled", "{S}MixedInput",
                "{S}MixedInputSmem",
            )
        ),
        *(
            f"KernelSparseTmaWarpSpecialized{sm}{name}Sm100"
            for sm in ("1Sm", "2Sm")
            for name in ("", "Nvf4", "Mxf4", "Mxf8f6f4", "BlockScaled")
        ),
        "KernelScheduleSm100Blockwise", "KernelScheduleBlockScaledGemmSm100", "KernelTmaWarpSpecializedCooperative",
    ),
    "sm103": (
        *(
            f"Kernel{pointer}TmaWarpSpecialized{sm}SmBlockScaledMxNvf4UltraVs{vector}Sm103{prefetch}"
            for pointer in ("", "PtrArray")
            for sm in (1, 2)
            for vector in (16, 32)
            for prefetch in ("", "DisablePrefetch", "TmaPrefetch")
        ),
        "KernelScheduleSm103BlockScaledGemm", "KernelTmaWarpSpecialized1SmNvf4Sm100",
    ),
    "sm120": (
        *(
            f"KernelTmaWarpSpecialized{kind}{name}Sm120"
            for kind in ("", "Pingpong")
            for name in ("Nvf4", "Mxf4", "Mxf8f6f4")
        ),
        "KernelTmaWarpSpecializedCooperative", "KernelTmaWarpSpecializedPingpong",
        "KernelPtrArrayTmaWarpSpecializedCooperative", "KernelPtrArrayTmaWarpSpecializedPingpong",
        "KernelTmaWarpSpecializedBlockwiseCooperativeSm120", "KernelTmaWarpSpecializedBlockwisePingpongSm120",
        "KernelSparseTmaWarpSpecializedNvf4Sm120", "KernelSparseTmaWarpSpecializedMxf8f6f4Sm120",
        "KernelScheduleF8f6f4Sm120", "KernelScheduleSparseF8f6f4Sm120", "KernelTmaWarpSpecialized",
        "KernelScheduleMxNvf4Sm120", "KernelTmaWarpSpecializedPingpongFP8FastAccum",
    ),
}  # fmt: skip
"""Tags by name; one that a release does not have cannot be compiled and is not compared."""
ANY_SHORT: Final[dict[str, tuple[str, ...]]] = {
    "sm90": (
        "auto", "tma", "basic", "cooperative", "pingpong", "cp_async", "cp_async_cooperative", "cp_async_pingpong",
        "basic_fp8_fast_accum", "cooperative_fp8_fast_accum", "pingpong_fp8_fast_accum",
    ),
    "sm100": ("auto", "1sm", "2sm"),
    "sm103": ("auto", "1sm", "2sm"),
    "sm120": ("auto", "cooperative", "pingpong"),
}  # fmt: skip
"""Schedules by their short names."""
ANY_EPILOGUES: Final[dict[str, tuple[str, ...]]] = {
    "sm90": (
        "auto", "tma_warp_specialized", "tma_warp_specialized_cooperative", "ptr_array_tma_warp_specialized",
        "ptr_array_tma_warp_specialized_cooperative", "ptr_array_tma_warp_specialized_pingpong",
        "no_smem_warp_specialized", "ptr_array_no_smem_warp_specialized", "epilogue_simt_vectorized",
    ),
    "sm100": (
        *(
            f"{pointer}{name}warp_specialized_{sm}"
            for pointer in ("", "ptr_array_")
            for name in ("tma_", "no_smem_", "blockwise_no_smem_")
            for sm in ("1sm", "2sm")
        ),
        *(f"tma_warp_specialized_{sm}_{name}" for sm in ("1sm", "2sm") for name in ("nvf4", "mxf4", "mxf8f6f4")),
        "auto", "tma_warp_specialized",
    ),
    "sm103": (
        *(
            f"{pointer}{name}warp_specialized_{sm}"
            for pointer in ("", "ptr_array_")
            for name in ("tma_", "no_smem_")
            for sm in ("1sm", "2sm")
        ),
        "auto",
    ),
    "sm120": (
        "auto", "tma_warp_specialized", "tma_warp_specialized_cooperative", "ptr_array_tma_warp_specialized",
        "ptr_array_tma_warp_specialized_cooperative", "ptr_array_tma_warp_specialized_pingpong",
        "no_smem_warp_specialized", "ptr_array_no_smem_warp_specialized",
        "sparse_tma_warp_specialized_cooperative_sm120",
    ),
}  # fmt: skip
