"""The configs that a kernel may be built and launched with, and which of them can run at all.

A config is a dict of whole numbers under the kernel's own names: `BLOCK_SIZE_M` ... as vLLM and SGLang write them, the
fields of `GroupedConfig` for ours. Pruning is arithmetic and comes before anything is compiled.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from tilewright.kernels.config import GroupedConfig
from tilewright.tune.layer import Layer

Config = dict[str, int]

FUSED_MOE: Final[dict[str, tuple[int, ...]]] = {
    "BLOCK_SIZE_M": (16, 32, 64, 128, 256),
    "BLOCK_SIZE_N": (32, 64, 128, 256),
    "BLOCK_SIZE_K": (64, 128, 256),
    "GROUP_SIZE_M": (1, 16, 32, 64),
    "num_warps": (4, 8),
    "num_stages": (2, 3, 4, 5),
}
"""What vLLM's and SGLang's own tuners try (vllm benchmarks/kernels/benchmark_moe.py, get_configs_compute_bound; the
same values in SGLang's benchmark/kernels/fused_moe_triton/common_utils.py): 1,920 configs."""
OURS: Final[dict[str, tuple[int, ...]]] = {
    "columns": (1, 2, 4, 8),
    "blocks": (1, 2, 4),
    "warps": (1, 2, 4, 8, 16),
    "stages": (2, 3, 4, 5, 6),
    "units": (2, 4, 8),
    "resident": (0, 1, 2),
}
"""Values that are tried of the fields of `GroupedConfig`; a field that is not here keeps its default."""
OURS_REGISTERS: Final = 0.75
"""Share of 65,536 registers of an SM (CUDA C++ Programming Guide, technical specifications) over which the sums of a
tile alone, FP32, cannot be: the rest is for operands, addresses and what is decoded."""
_SM_REGISTERS: Final = 65536
_THREAD_REGISTERS: Final = 255
"""Most registers of one thread (same table)."""


@dataclass(frozen=True)
class Pruned:
    """`kept` can run as far as arithmetic tells; `dropped` counts the others by reason."""

    kept: list[Config]
    dropped: dict[str, int]

    @property
    def total(self) -> int:
        return len(self.kept) + sum(self.dropped.values())


def axes_of(kernel: str) -> dict[str, tuple[int, ...]]:
    """The values of each part of a config of `kernel`, ascending."""
    if kernel != "ours":
        return FUSED_MOE
    known: dict[str, tuple[int, ...]] = {}
    for field in dataclasses.fields(GroupedConfig):
        default: Any = field.default
        known[field.name] = OURS.get(field.name, (default,))
    return known


def axes_over(kernel: str, configs: Iterable[Config]) -> dict[str, tuple[int, ...]]:
    """`axes_of` with the values that only `configs` have: one that is run untuned need not be of the space."""
    axes = axes_of(kernel)
    values = {name: set(axes[name]) for name in axes}
    for config in configs:
        for name in axes:
            values[name].add(config[name])
    return {name: tuple(sorted(values[name])) for name in axes}


def every(kernel: str) -> Iterator[Config]:
    """All configs of the space, in one order."""
    axes = axes_of(kernel)
    for values in itertools.product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def prune(kernel: str, layer: Layer, sm: int, limit: int, *, clamp: bool = False) -> Pruned:
    """The configs of `kernel` that may run `layer` on architecture `sm` with `limit` bytes of shared memory a block.

    `clamp`: also leave out those that are another config over again on this layer.
    """
    kept: list[Config] = []
    dropped: dict[str, int] = {}
    seen: set[tuple[int, ...]] = set()
    for config in every(kernel):
        reason = reason_against(kernel, layer, config, sm, limit)
        if reason is None and clamp:
            same = tuple(effective(kernel, layer, config).values())
            reason = "the same as another one on this layer" if same in seen else None
            seen.add(same)
        if reason is None:
            kept.append(config)
        else:
            dropped[reason] = dropped.get(reason, 0) + 1
    return Pruned(kept, dropped)


def effective(kernel: str, layer: Layer, config: Mapping[str, int]) -> Config:
    """`config` as the launcher runs it: both engines cut BLOCK_SIZE_K to the block of scales (vllm fused_moe.py,
    invoke_fused_moe_triton_kernel: `BLOCK_SIZE_K = min(BLOCK_SIZE_K, min(block_shape[0], block_shape[1]))`)."""
    out = dict(config)
    if kernel != "ours" and layer.block_shape is not None:
        out["BLOCK_SIZE_K"] = min(out["BLOCK_SIZE_K"], *layer.block_shape)
    return out


def reason_against(kernel: str, layer: Layer, config: Mapping[str, int], sm: int, limit: int) -> str | None:
    """Why `config` cannot run, in a clause, or None."""
    if kernel == "ours":
        return _against_ours(GroupedConfig(**config), limit)
    from tilewright.triton_.fit import fit_on
    from tilewright.triton_.model import TritonConfig

    tile = TritonConfig(
        id=None, kernel=kernel, version=None, gpu="", dtype=layer.selector, block_m=config["BLOCK_SIZE_M"],
        block_n=config["BLOCK_SIZE_N"], block_k=config["BLOCK_SIZE_K"], group_m=config["GROUP_SIZE_M"],
        num_warps=config["num_warps"], num_stages=config["num_stages"], block_shape=layer.block_shape,
    )  # fmt: skip
    verdict = fit_on(tile, sm, limit)
    if verdict.status == "overflow":
        return "needs more shared memory than a block may have"
    if verdict.status == "illegal":
        return "no legal tile of Triton"
    sums = config["BLOCK_SIZE_M"] * config["BLOCK_SIZE_N"] / (config["num_warps"] * 32)
    # tcgen05 keeps the sums in tensor memory; elsewhere they are registers of the threads.
    if sm not in (100, 103) and sums > _THREAD_REGISTERS:
        return "its sums alone are more registers than a thread may have"
    return None


def _against_ours(config: GroupedConfig, limit: int) -> str | None:
    if not config.legal:
        return "no legal build of the kernel"
    if config.shared_bytes > limit:
        return "needs more shared memory than a block may have"
    sums = config.tile_rows * config.block_rows / config.threads
    if sums > _THREAD_REGISTERS * OURS_REGISTERS:
        return "its sums alone are more registers than a thread may have"
    blocks = config.resident or 1  # an SM has 1,024 bytes a block more than one block may have (same table)
    if (
        blocks * config.threads * sums > _SM_REGISTERS * OURS_REGISTERS
        or blocks * (config.shared_bytes + 1024) > limit + 1024
    ):
        return "cannot be so many blocks on one SM"
    return None
