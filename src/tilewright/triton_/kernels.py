"""The kernels that tiles are for: what each version of an engine does with one, and where its function is.

Each feature is what the engine's own source of that version says (the file is named); a version between two that were
read gets both readings, and so a bound where they differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.errors import InputError
from tilewright.triton_.model import Operands, TritonConfig
from tilewright.versions import version_key


@dataclass(frozen=True)
class Features:
    """What a version's launcher and kernel do beyond the tile."""

    swap_ab: bool
    """On SM90, FP8 tiles of fewer than 64 rows and at least 64 columns are multiplied transposed."""
    scalar_columns: bool
    """A tile no wider than a block of scales loads one scale for its columns."""
    tma_b: bool = False
    """On SM90 and SM100, block-scaled FP8 weights are loaded through a tensor descriptor."""


@dataclass(frozen=True)
class KernelInfo:
    """One kernel family."""

    engine: str
    label: str
    names: tuple[str, ...]
    """Its functions, in the order of `functions.choose`."""
    dtypes: tuple[str | None, ...]
    clamps_k: bool
    """Whether the launcher cuts BLOCK_SIZE_K to the block of scales."""
    read: tuple[tuple[str, Features], ...]
    """Versions read, oldest first, with what they do."""


_PLAIN: Final = Features(swap_ab=False, scalar_columns=False)
_LINEAR: Final = Features(swap_ab=False, scalar_columns=False)
_MOE: Final = (None, "fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16")

KERNELS: Final[dict[str, KernelInfo]] = {
    # vllm/model_executor/layers/fused_moe/fused_moe.py
    "vllm-fused-moe": KernelInfo(
        "vllm", "vLLM fused MoE", ("fused_moe_kernel", "fused_moe_kernel_gptq_awq"), _MOE, True,
        (
            ("0.11.2", _PLAIN),
            ("0.17.0", _PLAIN),
            ("0.27.1", Features(swap_ab=True, scalar_columns=False)),
            ("0.33.0", Features(swap_ab=True, scalar_columns=False)),
            ("0.34.0", Features(swap_ab=True, scalar_columns=True, tma_b=True)),
        ),
    ),
    # sglang/srt/layers/moe/.../fused_moe_triton_kernels.py, sglang/kernels/ops/moe/ from 0.5.23
    "sglang-fused-moe": KernelInfo(
        "sglang", "SGLang fused MoE", ("fused_moe_kernel", "fused_moe_kernel_gptq_awq"), _MOE, False,
        (
            ("0.4.9.post6", _PLAIN),
            ("0.5.5", Features(swap_ab=False, scalar_columns=True)),
            ("0.5.12", Features(swap_ab=True, scalar_columns=True)),
            ("0.5.23", Features(swap_ab=True, scalar_columns=True)),
        ),
    ),
    # vllm/model_executor/layers/quantization/utils/fp8_utils.py
    "vllm-fp8-linear": KernelInfo(
        "vllm", "vLLM FP8 block-scaled linear", ("_w8a8_triton_block_scaled_mm", "_w8a8_block_fp8_matmul"),
        ("fp8_w8a8",), False, (("0.11.2", _LINEAR), ("0.34.0", _LINEAR)),
    ),
    # sglang/kernels/ops/gemm/{fp8,int8}_kernel.py (srt/layers/quantization/ before)
    "sglang-fp8-linear": KernelInfo(
        "sglang", "SGLang block-scaled linear", ("_w8a8_block_fp8_matmul",),
        ("fp8_w8a8", "int8_w8a8"), False, (("0.4.9.post6", _LINEAR), ("0.5.23", _LINEAR)),
    ),
}  # fmt: skip


def features_of(kernel: str, version: str | None) -> tuple[Features, ...]:
    """What `version` (None: the newest read) of a kernel may do: one reading, or two around a version not read."""
    read = KERNELS[kernel].read
    if version is None:
        return (read[-1][1],)
    try:
        key = version_key(version)
    except InputError:
        return (read[0][1],)  # a tree that does not say which release it is counts as the oldest that was read
    older = [features for known, features in read if version_key(known) <= key]
    newer = [features for known, features in read if version_key(known) >= key]
    around = [*older[-1:], *newer[:1]]
    return tuple(dict.fromkeys(around))


def operands_of(config: TritonConfig, features: Features, sm: int) -> Operands:
    """What the kernel of an engine with these `features` sees of `config` on architecture `sm`."""
    k = config.block_k
    if KERNELS[config.kernel].clamps_k and config.block_shape and config.block_shape[0]:
        k = min(k, *config.block_shape)
    wide = config.activation
    dtype = config.dtype
    if dtype == "fp8_w8a8":
        linear = config.kernel.endswith("fp8-linear")
        swap = features.swap_ab and not linear and sm == 90 and config.block_m < 64 and config.block_n >= 64
        block = bool(config.block_shape)
        tma = features.tma_b and block and sm in (90, 100, 103) and not linear
        return Operands("fp8e4nv", "fp8e4nv", True, True, False, k, swap, tma, features.scalar_columns)
    if dtype == "int8_w8a8":
        return Operands("i8", "i8", True, True, False, k, scalar_columns=features.scalar_columns)
    if dtype == "int8_w8a16":
        groups = bool(config.block_shape)
        return Operands(wide, "u8" if groups else "i8", False, True, groups, k)
    if dtype == "int4_w4a16":
        return Operands(wide, "u8", False, True, True, k)
    return Operands(wide, wide, False, False, False, k)
