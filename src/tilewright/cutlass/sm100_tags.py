"""Builder tags of SM100 mainloops: what each stands for, by operation class.

Mirrors the tag hierarchy of `gemm/dispatch_policy.hpp` and the `enable_if` conditions of
`builders/sm100_umma_builder.inl`, `sm100_blockscaled_umma_builder.inl`, `sm100_blockwise_umma_builder.inl`,
`sm100_sparse_umma_builder.inl`, `sm100_blockscaled_sparse_umma_builder.inl` and `sm100_mixed_input_umma_builder.inl`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

Instruction = Literal["mxnvf4", "mxf8f6f4"]


@dataclass(frozen=True, slots=True)
class Tag:
    """A builder tag. `sm`: 1 or 2, or 0 where the builder decides; `instruction` where the tag fixes it; `vector`: the
    scale vector that the tag stands for (`find_vector_size`), 0 where it stands for none."""

    name: str
    sm: int
    array: bool = False
    instruction: Instruction | None = None
    vector: int = 0


AUTO: Final = Tag("KernelScheduleAuto", 0)

_FORMATS: Final[tuple[tuple[str, Instruction | None, int], ...]] = (
    ("BlockScaled", None, 0),
    ("Nvf4", "mxnvf4", 16),
    ("Mxf4", "mxnvf4", 32),
    ("Mxf8f6f4", "mxf8f6f4", 32),
)
SPARSITY: Final = 2
"""A scale of a 2:4 sparse operand covers twice as many logical elements."""


def _pairs(template: str, array_too: bool) -> list[Tag]:
    arrays = (False, True) if array_too else (False,)
    return [
        Tag(template.format(P="PtrArray" if array else "", S=f"{sm}Sm"), sm, array) for array in arrays for sm in (1, 2)
    ]


def _scaled(sparse: bool) -> list[Tag]:
    arrays = (False,) if sparse else (False, True)
    word = "Sparse" if sparse else ""
    return [
        Tag(
            f"Kernel{'PtrArray' if array else word}TmaWarpSpecialized{sm}Sm{name}Sm100",
            sm,
            array,
            instruction,
            vector * (SPARSITY if sparse else 1),
        )
        for array in arrays
        for sm in (1, 2)
        for name, instruction, vector in _FORMATS
    ]


_BY_CLASS: Final[dict[str, tuple[Tag, ...]]] = {
    "tensor_op": (AUTO, *_pairs("Kernel{P}TmaWarpSpecialized{S}Sm100", True)),
    "blockwise": (
        Tag("KernelScheduleSm100Blockwise", 0),
        *_pairs("Kernel{P}TmaWarpSpecializedBlockwise{S}Sm100", True),
    ),
    "block_scaled": (AUTO, Tag("KernelScheduleBlockScaledGemmSm100", 0), *_scaled(sparse=False)),
    "sparse": (AUTO, *_pairs("KernelSparseTmaWarpSpecialized{S}Sm100", False)),
    "block_scaled_sparse": (Tag("KernelScheduleBlockScaledSparseGemmSm100", 0), *_scaled(sparse=True)),
    "mixed_input": tuple(
        Tag(f"KernelTmaWarpSpecialized{sm}SmMixedInput{smem}Sm100", sm) for sm in (1, 2) for smem in ("", "Smem")
    ),
}
_BY_NAME: Final = {op: {tag.name: tag for tag in tags} for op, tags in _BY_CLASS.items()}


@lru_cache(maxsize=1024)
def resolve(schedule: str, op_class: str, grouped: bool, a: str, b: str) -> Tag | None:
    """The tag that `schedule` means, or None when the builders of `op_class` take no such tag.

    Short names are those of `KernelConfig.schedule`; a name that starts with Kernel is the tag itself. Block-scaled
    short names follow the operand formats `a` and `b` (Nvf4, Mxf4, else Mxf8f6f4).
    """
    names = _BY_NAME[op_class]
    if schedule == "auto":
        return names.get(AUTO.name)
    if schedule not in ("1sm", "2sm"):
        return names.get(schedule)
    fmt = ""
    if "block_scaled" in op_class:
        fmt = "Nvf4" if a == b == "nvfp4" else "Mxf4" if a == b == "mxfp4" else "Mxf8f6f4"
    elif op_class == "blockwise":
        fmt = "Blockwise"
    if op_class == "mixed_input":  # dense kernels only: there is no PtrArray tag
        return names.get(f"KernelTmaWarpSpecialized{schedule[0]}SmMixedInputSm100")
    kind = "Sparse" if "sparse" in op_class else "PtrArray" if grouped else ""
    stem = f"Kernel{kind}TmaWarpSpecialized"
    sm = schedule[0]
    name = f"{stem}{fmt}{sm}SmSm100" if op_class == "blockwise" else f"{stem}{sm}Sm{fmt}Sm100"
    return names.get(name)
