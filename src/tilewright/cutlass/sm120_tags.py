"""Schedule tags that the SM120 builders know, and what each asks of the operands.

Mirrors the tags of `gemm/dispatch_policy.hpp` and, for block-scaled operands, `check_input_datatypes` and
`select_instr` of `gemm/collective/builders/sm1xx_common.inl`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from tilewright.cutlass.verdict import Broken
from tilewright.cutlass.versions import Rules
from tilewright.formats.elements import Element

COMMON: Final = "cutlass/gemm/collective/builders/sm1xx_common.inl"

Instruction = Literal["auto", "mxnvf4", "mxf8f6f4"]


@dataclass(frozen=True, slots=True)
class Tag:
    """A builder tag. `array`: ptr-array tag (True), dense tag (False), or either (None, KernelScheduleAuto)."""

    name: str
    pingpong: bool
    array: bool | None
    instruction: Instruction = "auto"
    vector: int | None = None
    """Scale vector that the tag stands for, where it stands for one (`find_vector_size`)."""
    scheduler_stages: int = 0
    """SchedulerPipelineStageCount of a tag that carries one."""


_AUTO: Final = Tag("KernelScheduleAuto", False, None)

_PLAIN: Final = (
    Tag("KernelTmaWarpSpecializedCooperative", False, False),
    Tag("KernelTmaWarpSpecializedPingpong", True, False),
    Tag("KernelPtrArrayTmaWarpSpecializedCooperative", False, True),
    Tag("KernelPtrArrayTmaWarpSpecializedPingpong", True, True),
)
_BLOCK_SCALED: Final = (
    Tag("KernelScheduleBlockScaledGemmSm120", False, False),
    Tag("KernelTmaWarpSpecializedNvf4Sm120", False, False, "mxnvf4", 16),
    Tag("KernelTmaWarpSpecializedPingpongNvf4Sm120", True, False, "mxnvf4", 16),
    Tag("KernelTmaWarpSpecializedMxf4Sm120", False, False, "mxnvf4", 32),
    Tag("KernelTmaWarpSpecializedPingpongMxf4Sm120", True, False, "mxnvf4", 32),
    Tag("KernelTmaWarpSpecializedMxf8f6f4Sm120", False, False, "mxf8f6f4", 32),
    Tag("KernelTmaWarpSpecializedPingpongMxf8f6f4Sm120", True, False, "mxf8f6f4", 32),
)
_TENSOR: Final = (
    Tag("KernelScheduleSm120DenseGemm", False, False),
    Tag("KernelScheduleF8f6f4Sm120", False, False),
)
_TENSOR_ARRAY: Final = (
    Tag("KernelPtrArrayTmaWarpSpecializedCooperativeSm120", False, True, scheduler_stages=2),
    Tag("KernelPtrArrayTmaWarpSpecializedPingpongSm120", True, True, scheduler_stages=2),
)
_BLOCKWISE: Final = (
    Tag("KernelTmaWarpSpecializedBlockwiseCooperativeSm120", False, None),
    Tag("KernelTmaWarpSpecializedBlockwisePingpongSm120", True, None),
    # The base of both: the builder takes whatever derives from it, and all but pingpong is cooperative
    # (builders/sm120_blockwise_mma_builder.inl, IsCooperative). FlashInfer passes this one.
    Tag("KernelScheduleSm120Blockwise", False, None),
)
_SPARSE: Final = (
    Tag("KernelScheduleSparseGemmSm120", False, False),
    Tag("KernelScheduleSparseF8f6f4Sm120", False, False),
)
_BLOCK_SCALED_SPARSE: Final = (
    Tag("KernelScheduleBlockScaledSparseGemmSm120", False, False),
    Tag("KernelScheduleSparseMxNvf4Sm120", False, False, "mxnvf4", 32),
    Tag("KernelScheduleSparseMxf8f6f4Sm120", False, False, "mxf8f6f4", 32),
    Tag("KernelSparseTmaWarpSpecializedNvf4Sm120", False, False, "mxnvf4", 32),
    Tag("KernelSparseTmaWarpSpecializedMxf4Sm120", False, False, "mxnvf4", 64),
    Tag("KernelSparseTmaWarpSpecializedMxf8f6f4Sm120", False, False, "mxf8f6f4", 64),
    Tag("KernelSparseTmaWarpSpecializedMxf8f6f4Acc2x4Sm120", False, False, "mxf8f6f4", 64),
)

_BY_NAME: Final[dict[str, dict[str, Tag]]] = {
    "block_scaled": {tag.name: tag for tag in (_AUTO, *_PLAIN, *_BLOCK_SCALED)},
    "tensor_op": {tag.name: tag for tag in (_AUTO, *_PLAIN, *_TENSOR, *_TENSOR_ARRAY)},
    "blockwise": {tag.name: tag for tag in (_AUTO, *_BLOCKWISE)},
    "sparse": {tag.name: tag for tag in (_AUTO, *_SPARSE)},
    "block_scaled_sparse": {tag.name: tag for tag in _BLOCK_SCALED_SPARSE},
}


@lru_cache(maxsize=1024)
def resolve(schedule: str, op_class: str, grouped: bool) -> Tag | None:
    """The tag that `schedule` means for `op_class`, or None when its builder accepts no such tag.

    The short names are those of `KernelConfig.schedule`; a name that starts with Kernel is the tag itself.
    """
    if schedule == "auto":
        return _BY_NAME[op_class].get(_AUTO.name)
    if schedule in ("cooperative", "pingpong") and not op_class.endswith("sparse"):
        ping = schedule == "pingpong"
        if op_class == "blockwise":
            return _BLOCKWISE[ping]
        if op_class == "tensor_op" and grouped:
            return _TENSOR_ARRAY[ping]
        return _PLAIN[ping + 2 * grouped]
    return _BY_NAME[op_class].get(schedule)


def check_inputs(tag: Tag, a: Element, b: Element, sparsity: int = 1) -> Broken | None:
    """`check_input_datatypes`: whether the operand formats go with each other and with the tag.

    With 2:4 sparsity a scale covers `sparsity` times as many logical elements, and the tags say so too.
    """
    if not (a.bits == 4 and b.bits == 4):
        if a.scale != "ue8m0":
            return Broken(
                "MX_F4F6F8 only supports ue8m0 SF type", COMMON, "Mixed widths exist for the OCP MX formats only."
            )
        if tag.instruction == "mxnvf4":
            return Broken(
                "Incorrect Kernel Schedule Policy for Mx_F4F6F8 type inputs.",
                COMMON,
                f"{tag.name} takes two FP4 operands; use KernelTmaWarpSpecializedMxf8f6f4Sm120 or auto.",
            )
        return None
    if tag.instruction == "mxf8f6f4" and a.scale != "ue8m0":
        return Broken("MX_F4F6F8 only supports ue8m0 SF type", COMMON, "NVFP4 has no mxf8f6f4 instruction; use auto.")
    if tag.vector is not None and tag.vector != a.scale_vector * sparsity:
        return Broken(
            "Kernel Schedule policy doesn't match the scale factor vector size.",
            COMMON,
            f"{tag.name} means {tag.vector} elements a scale, {a.name} has {a.scale_vector * sparsity}; use auto.",
        )
    return None


def check_selection(tag: Tag, a: Element, b: Element, rules: Rules) -> Broken | None:
    """`select_instr`: up to 4.4.1 two 6- or 8-bit MX operands do not go with the plain ptr-array tags."""
    plain_array = tag.array is True and tag.instruction == "auto"
    if plain_array and a.bits >= 6 and b.bits >= 6 and not rules.mx_ptr_array_tags:
        return Broken(
            "Incorrect SfVectorSize for MX_F4F6F8 is deduced.",
            COMMON,
            "Up to CUTLASS 4.4.1 grouped MX kernels build with KernelScheduleAuto only: leave the schedule at auto.",
        )
    return None
