"""Schedules by the names that configs use, as the tags that the collective builders take.

The table is that of `tests/data/truth/README.md`. Every tag, from the table or from the config, is looked up in the
header tree's own index before it is used.
"""

from __future__ import annotations

from typing import Final

from tilewright.cutlass.config import KernelConfig
from tilewright.probe.tags import TagIndex

__all__ = ["Unsupported", "epilogue_schedule", "kernel_schedule"]


class Unsupported(Exception):  # noqa: N818 - an answer, not a failure: `reason` is the sentence that the user gets
    """The config is legal, and this probe has no C++ for it. `reason` is one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


# ---- schedule -> builder tag, by (arch, op_class): the table of the truth rows. {P} is PtrArray in grouped kernels.
_WS: Final = {
    "cooperative": "Kernel{P}TmaWarpSpecializedCooperative",
    "pingpong": "Kernel{P}TmaWarpSpecializedPingpong",
}
_SM90: Final = {
    **_WS,
    "tma": "KernelTma",
    "basic": "KernelTmaWarpSpecialized",
    "cp_async": "KernelCpAsyncWarpSpecialized",
    "cp_async_cooperative": "KernelCpAsyncWarpSpecializedCooperative",
    "cp_async_pingpong": "KernelCpAsyncWarpSpecializedPingpong",
    "basic_fp8_fast_accum": "KernelTmaWarpSpecializedFP8FastAccum",
    "cooperative_fp8_fast_accum": "Kernel{P}TmaWarpSpecializedCooperativeFP8FastAccum",
    "pingpong_fp8_fast_accum": "Kernel{P}TmaWarpSpecializedPingpongFP8FastAccum",
}
_SCHEDULES: Final[dict[tuple[str, str], dict[str, str]]] = {
    ("sm120", "tensor_op"): _WS,
    ("sm120", "mixed_input"): _WS,
    ("sm120", "block_scaled"): _WS,
    ("sm120", "blockwise"): {
        "cooperative": "KernelTmaWarpSpecializedBlockwiseCooperativeSm120",
        "pingpong": "KernelTmaWarpSpecializedBlockwisePingpongSm120",
    },
    ("sm120", "block_scaled_sparse"): {
        "cooperative": "KernelSparseTmaWarpSpecialized{F}Sm120",
        "acc2x4": "KernelSparseTmaWarpSpecializedMxf8f6f4Acc2x4Sm120",
    },
    ("sm90", "tensor_op"): _SM90,
    ("sm90", "sparse"): _SM90,
    ("sm90", "mixed_input"): _SM90,
    ("sm90", "blockwise"): {name: tag + "FP8Blockwise" for name, tag in _WS.items()},
    ("sm100", "tensor_op"): {n: f"Kernel{{P}}TmaWarpSpecialized{n[0]}SmSm100" for n in ("1sm", "2sm")},
    ("sm100", "block_scaled"): {n: f"Kernel{{P}}TmaWarpSpecialized{n[0]}Sm{{F}}Sm100" for n in ("1sm", "2sm")},
    ("sm100", "blockwise"): {n: f"Kernel{{P}}TmaWarpSpecializedBlockwise{n[0]}SmSm100" for n in ("1sm", "2sm")},
    ("sm100", "mixed_input"): {n: f"KernelTmaWarpSpecialized{n[0]}SmMixedInputSm100" for n in ("1sm", "2sm")},
    ("sm100", "sparse"): {n: f"KernelSparseTmaWarpSpecialized{n[0]}SmSm100" for n in ("1sm", "2sm")},
    ("sm100", "block_scaled_sparse"): {
        n: f"KernelSparseTmaWarpSpecialized{n[0]}Sm{{F}}Sm100" for n in ("1sm", "2sm")
    },
    ("sm103", "block_scaled"): {
        n: f"Kernel{{P}}TmaWarpSpecialized{n[0]}SmBlockScaledMxNvf4UltraVs{{V}}Sm103" for n in ("1sm", "2sm")
    },
}  # fmt: skip

GROUPED_F8F6F4_SINCE: Final = (4, 6, 0)
"""From this version on the grouped f8f6f4 builder of SM120 takes the tags ...Sm120<stages> only
(`builders/sm120_array_mma_builder.inl`)."""


def _format_tag(a: str, b: str) -> str:
    if a == b == "nvfp4":
        return "Nvf4"
    return "Mxf4" if a == b == "mxfp4" else "Mxf8f6f4"


def _builder_arch(arch: str) -> str:
    return "sm120" if arch == "sm121" else arch


def _version_tuple(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")) if text[:1].isdigit() else ()


def kernel_schedule(config: KernelConfig, tags: TagIndex) -> str:
    """The builder's schedule tag, fully qualified."""
    name = config.schedule
    if name == "auto":
        return "cutlass::gemm::collective::KernelScheduleAuto"
    grouped = config.kind == "grouped"
    family = (_builder_arch(config.arch), config.op_class)
    if name.startswith("Kernel"):
        tag = tags.kernel(name)
        if tag is None:
            raise Unsupported(tags.no_kernel_tag(name))
        return tag
    table = _SCHEDULES.get(family, {})
    if name not in table:
        known = ", ".join(["auto", *table])
        raise Unsupported(
            f"Schedule {name} has no builder tag for {config.arch} {config.op_class} (known there: {known}); "
            "give the tag itself (Kernel...)."
        )
    if family == ("sm120", "tensor_op") and grouped and _version_tuple(tags.version) >= GROUPED_F8F6F4_SINCE:
        template = {"cooperative": "Cooperative", "pingpong": "Pingpong"}[name]
        return f"cutlass::gemm::KernelPtrArrayTmaWarpSpecialized{template}Sm120<2>"
    text = table[name].format(
        P="PtrArray" if grouped else "",
        F=_format_tag(config.a, config.b),
        V="32" if config.a == "mxfp4" else "16",
    )
    # up to 4.1.0 the SM90 tags of software scales had another name
    tag = tags.kernel(text) or tags.kernel(text.replace("FP8Blockwise", "FP8BlockScaledAccum"))
    if tag is None:
        raise Unsupported(tags.no_kernel_tag(text))
    return tag


def epilogue_schedule(config: KernelConfig, tags: TagIndex) -> str:
    """The epilogue builder's schedule tag, fully qualified."""
    if config.epilogue_schedule == "auto":
        return "cutlass::epilogue::collective::EpilogueScheduleAuto"
    tag = tags.epilogue(config.epilogue_schedule)
    if tag is None:
        raise Unsupported(tags.no_epilogue_tag(config.epilogue_schedule))
    return tag
