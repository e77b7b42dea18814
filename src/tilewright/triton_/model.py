"""Triton tile configs (DESIGN 4.2), the operands their kernels see, and the verdict on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import msgspec

Instruction = Literal["mma", "wgmma", "tcgen05"]
"""What multiplies: warp-wide `mma.sync`, Hopper's warp-group `wgmma`, Blackwell datacenter's `tcgen05.mma`."""


@dataclass(frozen=True)
class TritonConfig:
    """One tile of one kernel on one GPU; extents in elements. `config.parse_triton` makes it from JSON."""

    id: str | None
    kernel: str
    version: str | None
    gpu: str
    dtype: str | None
    """The engine's selector; None for BF16 and FP16."""
    block_m: int
    block_n: int
    block_k: int
    group_m: int
    num_warps: int
    num_stages: int
    block_shape: tuple[int, int] | None = None
    """(n, k) of block scales; (0, k) are groups of k along K, of the weight-only kernels."""
    activation: str = "bf16"
    per_channel: bool = False
    zero_points: bool = False
    routed_weight: bool = False
    tma: bool = False
    """Whether B is loaded through a tensor descriptor."""


@dataclass(frozen=True)
class Operands:
    """What the kernel's pointers hold, as Triton names types; `launch.operands` derives it."""

    a: str
    b: str
    a_scales: bool
    b_scales: bool
    weight_only_groups: bool
    block_k: int
    """K extent that the launcher really uses: no more than a block of scales."""
    swap_ab: bool = False
    b_descriptor: bool = False
    scalar_columns: bool = True
    """Whether a tile no wider than a block of scales loads one scale for all its columns."""


class TritonFix(msgspec.Struct, frozen=True, omit_defaults=True):
    """A change that makes the tile fit."""

    change: dict[str, int]
    smem_bytes: int
    note: str = ""


class TritonVerdict(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/fit/1"):
    """What `fit` answers for a Triton tile (DESIGN 4.3, as far as a tile has it)."""

    id: str | None = None
    status: Literal["fits", "overflow", "illegal", "unsupported"]
    smem_bytes: int | None = None
    """Shared memory of one block in bytes: exact, or the most it can take where `basis` is `bound`."""
    limit_bytes: int | None = None
    excess_bytes: int | None = None
    basis: Literal["exact", "bound", "compiled"] | None = None
    """`exact`: the formula, held against compiled kernels; `bound`: an upper bound; `compiled`: Triton said so."""
    least_bytes: int | None = None
    """With `bound`, what it takes at least."""
    cause: str | None = None
    fixes: list[TritonFix] = []
    rules: list[str] = []


def brief(verdict: TritonVerdict) -> TritonVerdict:
    """The verdict without its cause and fixes."""
    return msgspec.structs.replace(verdict, cause=None, fixes=[])


def as_dict(config: TritonConfig) -> dict[str, Any]:
    """The config as JSON has it (DESIGN 4.2), every key explicit."""
    return {
        "id": config.id,
        "kernel": config.kernel,
        "version": config.version,
        "gpu": config.gpu,
        "dtype": config.dtype or config.activation,
        "block_m": config.block_m,
        "block_n": config.block_n,
        "block_k": config.block_k,
        "group_m": config.group_m,
        "num_warps": config.num_warps,
        "num_stages": config.num_stages,
        "block_shape": list(config.block_shape) if config.block_shape else None,
        "per_channel": config.per_channel,
        "zero_points": config.zero_points,
    }
