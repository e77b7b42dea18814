"""Schedule tags that the SM120 builders accept, and what each asks of the operands.

A builder asks `is_base_of` of a tag, so that a tag of another architecture passes where it derives from one of SM90's
plain ones (KernelTmaWarpSpecializedPingpongFP8FastAccum builds an SM120 f8f6f4 kernel). Mirrors the inheritance in
`gemm/dispatch_policy.hpp`, the enable_if of `gemm/collective/builders/sm120_*_builder.inl`, and for block-scaled
operands `check_input_datatypes`, `find_vector_size` and `select_instr` of `builders/sm1xx_common.inl`.
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

AUTO: Final = "KernelScheduleAuto"
_COOPERATIVE: Final = "KernelTmaWarpSpecializedCooperative"
_PINGPONG: Final = "KernelTmaWarpSpecializedPingpong"
_ARRAY_COOPERATIVE: Final = "KernelPtrArrayTmaWarpSpecializedCooperative"
_ARRAY_PINGPONG: Final = "KernelPtrArrayTmaWarpSpecializedPingpong"
_PLAIN: Final = (_COOPERATIVE, _PINGPONG, _ARRAY_COOPERATIVE, _ARRAY_PINGPONG)
_BLOCK_SCALED: Final = "KernelScheduleBlockScaledGemmSm120"
_MX_NV_F4: Final = "KernelScheduleMxNvf4Sm120"
_MX_F8F6F4: Final = "KernelScheduleMxf8f6f4Sm120"
_DENSE: Final = "KernelScheduleSm120DenseGemm"
_BLOCKWISE: Final = "KernelScheduleSm120Blockwise"
_SPARSE: Final = "KernelScheduleSparseGemmSm120"
_SPARSE_BLOCK_SCALED: Final = "KernelScheduleBlockScaledSparseGemmSm120"
_SPARSE_MX_NV_F4: Final = "KernelScheduleSparseMxNvf4Sm120"
_SPARSE_MX_F8F6F4: Final = "KernelScheduleSparseMxf8f6f4Sm120"

_BASES: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys((AUTO, *_PLAIN, _BLOCK_SCALED, _DENSE, _BLOCKWISE, _SPARSE, _SPARSE_BLOCK_SCALED), ()),
    **{
        base + suffix: (base,)
        for base in _PLAIN
        for suffix in ("FP8FastAccum", "FP8Blockwise", "FP8BlockScaledAccum", "MixedInput", "Sm120")
        if not (suffix == "MixedInput" and base in (_ARRAY_COOPERATIVE, _ARRAY_PINGPONG))
        if not (suffix == "Sm120" and base in (_COOPERATIVE, _PINGPONG))
    },
    _MX_NV_F4: (_BLOCK_SCALED,),
    _MX_F8F6F4: (_BLOCK_SCALED,),
    "KernelTmaWarpSpecializedNvf4Sm120": (_MX_NV_F4, _COOPERATIVE),
    "KernelTmaWarpSpecializedPingpongNvf4Sm120": (_MX_NV_F4, _PINGPONG),
    "KernelTmaWarpSpecializedMxf4Sm120": (_MX_NV_F4, _COOPERATIVE),
    "KernelTmaWarpSpecializedPingpongMxf4Sm120": (_MX_NV_F4, _PINGPONG),
    "KernelTmaWarpSpecializedMxf8f6f4Sm120": (_MX_F8F6F4, _COOPERATIVE),
    "KernelTmaWarpSpecializedPingpongMxf8f6f4Sm120": (_MX_F8F6F4, _PINGPONG),
    "KernelScheduleF8f6f4Sm120": (_DENSE,),
    "KernelTmaWarpSpecializedBlockwiseCooperativeSm120": (_BLOCKWISE, _COOPERATIVE),
    "KernelTmaWarpSpecializedBlockwisePingpongSm120": (_BLOCKWISE, _PINGPONG),
    "KernelScheduleSparseF8f6f4Sm120": (_SPARSE,),
    _SPARSE_MX_NV_F4: (_SPARSE_BLOCK_SCALED,),
    _SPARSE_MX_F8F6F4: (_SPARSE_BLOCK_SCALED,),
    "KernelSparseTmaWarpSpecializedNvf4Sm120": (_SPARSE_MX_NV_F4,),
    "KernelSparseTmaWarpSpecializedMxf4Sm120": (_SPARSE_MX_NV_F4,),
    "KernelSparseTmaWarpSpecializedMxf8f6f4Sm120": (_SPARSE_MX_F8F6F4,),
    "KernelSparseTmaWarpSpecializedMxf8f6f4Acc2x4Sm120": (_SPARSE_MX_F8F6F4,),
}
"""Tags and their bases. `...FP8BlockScaledAccum` became an alias of `...FP8Blockwise` in 4.0; the two array tags that
end in Sm120 are templates over the scheduler's stages, for which configs mean 2."""

_ACCEPTED: Final[dict[str, frozenset[str]]] = {
    "block_scaled": frozenset({AUTO, _BLOCK_SCALED, *_PLAIN}),
    "tensor_op": frozenset({AUTO, _DENSE, *_PLAIN}),
    "blockwise": frozenset({AUTO, _BLOCKWISE}),
    "sparse": frozenset({AUTO, _SPARSE}),
    "block_scaled_sparse": frozenset({_SPARSE_BLOCK_SCALED}),
}
"""The bases that each builder's enable_if asks for."""

_VECTORS: Final = {
    "KernelTmaWarpSpecializedNvf4Sm120": 16,
    "KernelTmaWarpSpecializedPingpongNvf4Sm120": 16,
    "KernelSparseTmaWarpSpecializedMxf4Sm120": 64,
    "KernelSparseTmaWarpSpecializedMxf8f6f4Sm120": 64,
    "KernelSparseTmaWarpSpecializedMxf8f6f4Acc2x4Sm120": 64,
}
_OTHER_VECTOR: Final = 32
"""`find_vector_size`: what a tag says about the scale vector, 32 where it is not named."""

_SCHEDULER_STAGES: Final = 2


@dataclass(frozen=True, slots=True)
class Tag:
    """A builder tag. `array`: ptr-array tag (True), dense tag (False), or either (None, KernelScheduleAuto)."""

    name: str
    pingpong: bool
    array: bool | None
    instruction: Instruction = "auto"
    vector: int | None = None
    """Scale vector that the tag stands for, where it fixes the instruction (`find_vector_size`)."""
    scheduler_stages: int = 0
    """SchedulerPipelineStageCount of a tag that carries one."""
    known_to_block_scaled: bool = True
    """Whether `check_input_datatypes` knows the tag: it asks for the plain tags by `is_same`, not `is_base_of`."""


def _ancestors(name: str) -> frozenset[str]:
    found = {name}
    for base in _BASES[name]:
        found |= _ancestors(base)
    return frozenset(found)


@lru_cache(maxsize=256)
def _tag(name: str, op_class: str) -> Tag | None:
    if name not in _BASES:
        return None
    ancestors = _ancestors(name)
    if not ancestors & _ACCEPTED[op_class]:
        return None
    array = bool(ancestors & {_ARRAY_COOPERATIVE, _ARRAY_PINGPONG})
    instruction: Instruction = "auto"
    if ancestors & {_MX_NV_F4, _SPARSE_MX_NV_F4}:
        instruction = "mxnvf4"
    elif ancestors & {_MX_F8F6F4, _SPARSE_MX_F8F6F4}:
        instruction = "mxf8f6f4"
    return Tag(
        name,
        pingpong=bool(ancestors & {_PINGPONG, _ARRAY_PINGPONG}),
        array=None if name == AUTO else array,
        instruction=instruction,
        vector=None if instruction == "auto" else _VECTORS.get(name, _OTHER_VECTOR),
        scheduler_stages=_SCHEDULER_STAGES if array and name.endswith("Sm120") else 0,
        known_to_block_scaled=name in (AUTO, *_PLAIN) or bool(ancestors & {_BLOCK_SCALED, _SPARSE_BLOCK_SCALED}),
    )


@lru_cache(maxsize=1024)
def resolve(schedule: str, op_class: str, grouped: bool) -> Tag | None:
    """The tag that `schedule` means for `op_class`, or None when its builder accepts no such tag.

    The short names are those of `KernelConfig.schedule`; a name that starts with Kernel is the tag itself.
    """
    name = AUTO if schedule == "auto" else schedule
    if schedule in ("cooperative", "pingpong") and op_class in ("block_scaled", "tensor_op", "blockwise"):
        kind = schedule.capitalize()
        if op_class == "blockwise":
            name = f"KernelTmaWarpSpecializedBlockwise{kind}Sm120"
        else:
            name = f"Kernel{'PtrArray' if grouped else ''}TmaWarpSpecialized{kind}"
            # Grouped f8f6f4 kernels have a builder from 4.6.0 on, and it takes none but these (see _tensor_op).
            name += "Sm120" if grouped and op_class == "tensor_op" else ""
    return _tag(name, op_class)


def check_inputs(tag: Tag, a: Element, b: Element, sparsity: int = 1) -> Broken | None:
    """`check_input_datatypes`: whether the operand formats go with each other and with the tag.

    With 2:4 sparsity a scale covers `sparsity` times as many logical elements, and the tags say so too.
    """
    if not (a.bits == 4 and b.bits == 4):
        if a.scale != "ue8m0":
            return Broken(
                "MX_F4F6F8 only supports ue8m0 SF type", COMMON, "Mixed widths exist for the OCP MX formats only."
            )
        if not tag.known_to_block_scaled:
            return Broken("Incorrect SfVectorSize for MX_F4F6F8 is deduced.", COMMON, _foreign(tag))
        if tag.instruction == "mxnvf4":
            return Broken(
                "Incorrect Kernel Schedule Policy for Mx_F4F6F8 type inputs.",
                COMMON,
                f"{tag.name} takes two FP4 operands; use KernelTmaWarpSpecializedMxf8f6f4Sm120 or auto.",
            )
        return None
    if not tag.known_to_block_scaled:
        return Broken("Incorrect Kernel Schedule Policy for F4 type inputs.", COMMON, _foreign(tag))
    if tag.instruction == "mxf8f6f4" and a.scale != "ue8m0":
        return Broken("MX_F4F6F8 only supports ue8m0 SF type", COMMON, "NVFP4 has no mxf8f6f4 instruction; use auto.")
    vector = a.scale_vector * sparsity
    if tag.vector is not None and tag.vector != vector:
        return Broken(
            "Kernel Schedule policy doesn't match the scale factor vector size.",
            COMMON,
            f"{tag.name} means {tag.vector} elements a scale, {a.name} has {vector}; use auto.",
        )
    return None


def _foreign(tag: Tag) -> str:
    return f"{tag.name} is not made for block-scaled operands; use auto, cooperative or pingpong."


def check_selection(tag: Tag, a: Element, b: Element, rules: Rules) -> Broken | None:
    """`select_instr`: up to 4.4.1 two 6- or 8-bit MX operands do not go with the plain ptr-array tags; up to 4.1.0 no
    pair but one of two FP4 operands does (`check_input_datatypes`)."""
    plain_array = tag.array is True and tag.instruction == "auto"
    wide = sum(fmt.bits >= 6 for fmt in (a, b))
    if plain_array and ((wide == 2 and not rules.mx_ptr_array_tags) or (wide and not rules.mx_ptr_array_inputs)):
        return Broken(
            "Incorrect SfVectorSize for MX_F4F6F8 is deduced.",
            COMMON,
            "Up to CUTLASS 4.4.1 grouped MX kernels build with KernelScheduleAuto only: leave the schedule at auto.",
        )
    return None
