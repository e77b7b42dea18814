"""What the launchers of vLLM and SGLang hand to their Triton kernels: types, constants, alignment.

A kernel's shared memory depends on these as much as on its tile: a stride of 1 and pointers of 16-byte alignment
decide how wide a load is, and so whether it is copied asynchronously. Triton itself specialises integers that are 1
or divisible by 16. Weights and activations are taken to be contiguous along K, as both engines keep them, with N and K
divisible by 16.
"""

from __future__ import annotations

from typing import Any, Final

from tilewright.triton_.extract import Kernel
from tilewright.triton_.model import Operands, TritonConfig

_POINTERS: Final = {
    "topk_weights_ptr": "*fp32",
    "sorted_token_ids_ptr": "*i32",
    "expert_ids_ptr": "*i32",
    "num_tokens_post_padded_ptr": "*i32",
}
_UNIT_STRIDES: Final = frozenset({"stride_ak", "stride_bk", "stride_cn"})
"""Contiguous dimensions: K of A and B, N of C."""
_UNIT_BLOCK_STRIDES: Final = frozenset({"stride_ask", "stride_bsk", "stride_As_k", "stride_Bs_k"})
"""Contiguous in block scales: groups along K."""
_ALIGNED: Final = frozenset(
    {"N", "K", "EM", "num_valid_tokens", "stride_am", "stride_be", "stride_bn", "stride_cm", "group_n", "group_k"}
)

_TYPICAL_N: Final = 4096
_TYPICAL_K: Final = 7168
"""Extents where a kernel takes them as constants (the weight-only kernels): multiples of every tile."""


def job(kernel: Kernel, config: TritonConfig, operands: Operands, sm: int) -> dict[str, Any]:
    """The compilation (`worker.py`) of `kernel` that `config` makes the launcher ask for."""
    types: dict[str, str] = {}
    constants: dict[str, Any] = {}
    divisible: list[str] = []
    values = _constants(config, operands)
    block = bool(config.block_shape)
    wide = "bf16" if config.activation == "bf16" else "fp16"
    for name in kernel.parameters:
        if name in kernel.constants:
            if name in values:
                constants[name] = values[name]
            elif name in kernel.defaults:
                constants[name] = kernel.defaults[name]
            else:
                constants[name] = False
            continue
        kind: str | None = None
        if name in ("a_ptr", "A"):
            kind = f"*{operands.a}"
        elif name in ("b_ptr", "B"):
            kind = f"*{operands.b}"
        elif name in ("c_ptr", "C"):
            kind = f"*{wide}"
        elif name in ("a_scale_ptr", "As"):
            kind = "*fp32" if operands.a_scales else None
        elif name in ("b_scale_ptr", "Bs"):
            kind = None if not operands.b_scales else f"*{wide}" if operands.weight_only_groups else "*fp32"
        elif name in _POINTERS:
            kind = _POINTERS[name]
        elif name == "b_zp_ptr":
            kind = "*u8" if config.zero_points else None
        elif name == "b_desc" and operands.b_descriptor:
            constants_shape = f"1,{config.block_n},{operands.block_k}"
            kind = f"tensordesc<{operands.b}[{constants_shape}]>"
        elif name.endswith(("_ptr", "_desc")):
            kind = None
        elif name in _UNIT_STRIDES or (block and name in _UNIT_BLOCK_STRIDES):
            constants[name] = 1
            continue
        else:
            kind = "i32"
        if kind is None:
            constants[name] = None
            continue
        types[name] = kind
        if kind.startswith("*") or name in _ALIGNED:
            divisible.append(name)
    return {
        "id": config.id,
        "sm": sm,
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "signature": types,
        "constants": constants,
        "divisible": divisible,
    }


def _constants(config: TritonConfig, operands: Operands) -> dict[str, Any]:
    group = config.block_shape or (0, 0)
    compute = {"dtype": "bfloat16" if config.activation == "bf16" else "float16"}
    return {
        "N": _TYPICAL_N,
        "K": _TYPICAL_K,
        "group_n": group[0],
        "group_k": group[1],
        "group_size": group[1],
        "BLOCK_SIZE_M": config.block_m,
        "BLOCK_SIZE_N": config.block_n,
        "BLOCK_SIZE_K": operands.block_k,
        "GROUP_SIZE_M": config.group_m,
        "SPLIT_K": 1,
        "MUL_ROUTED_WEIGHT": config.routed_weight,
        "top_k": 1 if config.routed_weight else 8,
        "compute_type": compute,
        "use_fp8_w8a8": config.dtype == "fp8_w8a8",
        "use_int8_w8a8": config.dtype == "int8_w8a8",
        "use_int8_w8a16": config.dtype == "int8_w8a16",
        "use_int4_w4a16": config.dtype == "int4_w4a16",
        "per_channel_quant": config.per_channel,
        "even_Ks": True,
        "block_k_diviable": True,
        "has_zp": config.zero_points,
        "HAS_BIAS": False,
        "naive_block_assignment": False,
        "swap_ab": operands.swap_ab,
        "SWAP_AB": operands.swap_ab,
        "USE_TMA_B": operands.b_descriptor,
        "needs_masking": False,
        "ROUTER_TOPK": 1,
        "USE_GDC": False,
    }
