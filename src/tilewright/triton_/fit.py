"""Whether a Triton tile runs on a GPU: bytes against the limit of a block, why, and what to change."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

from tilewright.errors import AmbiguousNameError, ConfigError, InputError
from tilewright.triton_.config import illegal
from tilewright.triton_.kernels import KERNELS, Features, features_of, operands_of
from tilewright.triton_.model import TritonConfig, TritonFix, TritonVerdict
from tilewright.triton_.shared import SharedMemory, shared_memory

CHECKED: Final = {80: 80, 86: 80, 87: 80, 89: 80, 90: 90, 100: 100, 103: 100, 120: 120, 121: 120}
"""Architecture -> the one whose compiled kernels its formula was held against (same code path of Triton)."""
FP8_FROM: Final = 89
"""First architecture with FP8 products."""
MAX_FIXES: Final = 4
_HALVES: Final = (("block_n", "BLOCK_SIZE_N"), ("block_m", "BLOCK_SIZE_M"), ("block_k", "BLOCK_SIZE_K"))


@lru_cache(maxsize=256)
def _gpu(name: str) -> tuple[int, int | None]:
    """Architecture number and opt-in limit in bytes of the GPU called `name`.

    Raises:
        InputError: no such GPU.
    """
    from tilewright.hardware.catalogue import catalogue
    from tilewright.hardware.names import resolve_gpu

    try:
        found = resolve_gpu(name)
    except AmbiguousNameError as error:
        # An architecture's name fits several products; their limit is the architecture's.
        choices = [gpu for gpu in catalogue() if gpu.key in error.choices]
        limits = {(gpu.arch, gpu.smem_optin_bytes) for gpu in choices}
        if len(limits) != 1 or not choices:
            raise
        found = choices[0]
    return int(found.arch.removeprefix("sm")), found.smem_optin_bytes


def fit_triton(config: TritonConfig, features: tuple[Features, ...] | None = None) -> TritonVerdict:
    """The verdict on `config`; `features` are those of an engine that was read, else those of its version.

    Raises:
        ConfigError: the GPU is not known.
    """
    sm, limit = gpu_limits(config)
    return fit_on(config, sm, limit, features)


def gpu_limits(config: TritonConfig) -> tuple[int, int | None]:
    """Architecture number of the config's GPU, and its limit of shared memory for one block in bytes.

    Raises:
        ConfigError: the GPU is not known.
    """
    try:
        return _gpu(config.gpu)
    except InputError as error:
        raise ConfigError("gpu", f"gpu: {error.msg}") from None


def fit_on(
    config: TritonConfig, sm: int, limit: int | None, features: tuple[Features, ...] | None = None
) -> TritonVerdict:
    """The verdict on architecture `sm` (120, ...) with `limit` bytes of shared memory for one block."""
    broken = illegal(config)
    if broken is not None:
        return TritonVerdict(id=config.id, status="illegal", limit_bytes=limit, cause=broken, rules=[broken])
    if sm not in CHECKED or limit is None:
        cause = f"No compiled kernel for sm_{sm} was held against the formula; `--compile` asks Triton itself."
        return TritonVerdict(id=config.id, status="unsupported", limit_bytes=limit, cause=cause)
    if config.dtype == "fp8_w8a8" and sm < FP8_FROM:
        rule = f"sm_{sm} has no FP8 products; Triton refuses fp8e4nv below sm_{FP8_FROM}."
        return TritonVerdict(id=config.id, status="illegal", limit_bytes=limit, cause=rule, rules=[rule])
    several = features or features_of(config.kernel, config.version)
    memory = _memory(config, sm, several)
    return _verdict(config, sm, limit, several, memory)


def _memory(config: TritonConfig, sm: int, several: tuple[Features, ...]) -> SharedMemory:
    """Shared memory over the readings of a version, and over both ways of loading B where K or N may not divide."""
    found: list[SharedMemory] = []
    for features in several:
        operands = operands_of(config, features, sm)
        found.append(shared_memory(config, operands, CHECKED[sm]))
        if operands.b_descriptor:
            found.append(shared_memory(config, replace(operands, b_descriptor=False), CHECKED[sm]))
    first = found[0]
    return replace(first, least=min(item.least for item in found), most=max(item.most for item in found))


def _verdict(
    config: TritonConfig, sm: int, limit: int, several: tuple[Features, ...], memory: SharedMemory
) -> TritonVerdict:
    exact = memory.least == memory.most
    rules = [f"{memory.instruction}: {_sum(memory)} bytes."]
    if not exact:
        rules.append(
            f"Between {memory.least:,} and {memory.most:,} bytes: where buffers are small, the output tile's exchange "
            "or what the version and shape decide is not known exactly."
        )
    if memory.least <= limit < memory.most:
        cause = (
            f"It takes from {memory.least:,} to {memory.most:,} bytes, and the limit of {limit:,} lies between; "
            "`--compile` asks Triton itself."
        )
        return TritonVerdict(
            id=config.id, status="unsupported", smem_bytes=memory.most, least_bytes=memory.least, limit_bytes=limit,
            basis="bound", cause=cause, rules=rules,
        )  # fmt: skip
    over = memory.least > limit
    size = memory.most if not over or exact else memory.least
    cause, fixes = None, list[TritonFix]()
    if over:
        cause = (
            f"{KERNELS[config.kernel].label}: {config.block_m}x{config.block_n}x{config.block_k} with "
            f"{config.num_stages} stages keeps {_sum(memory)} bytes of shared memory, and a block of sm_{sm} may have "
            f"{limit:,}."
        )
        fixes = _fixes(config, sm, limit, several)
    return TritonVerdict(
        id=config.id, status="overflow" if over else "fits", smem_bytes=size,
        least_bytes=None if exact else memory.least, limit_bytes=limit, excess_bytes=max(0, size - limit),
        basis="exact" if exact else "bound", cause=cause, fixes=fixes, rules=rules,
    )  # fmt: skip


def _sum(memory: SharedMemory) -> str:
    """`147,456 (A 49,152 + B 98,304)`."""
    parts = " + ".join(f"{name} {size:,}" for name, size in memory.parts if size)
    return f"{sum(size for _, size in memory.parts):,} ({parts})"


def _fixes(config: TritonConfig, sm: int, limit: int, several: tuple[Features, ...]) -> list[TritonFix]:
    """Changes that fit, the one that costs least first: fewer stages, then half an extent (with as many stages)."""
    out: list[TritonFix] = []
    for stages in range(config.num_stages - 1, 1, -1):
        size = _memory(replace(config, num_stages=stages), sm, several).most
        if size <= limit:
            note = (
                "the tile stays; one buffer less hides a little less latency" if stages == config.num_stages - 1 else ""
            )
            out.append(TritonFix({"num_stages": stages}, size, note))
            break
    for field, _ in _HALVES:
        value: int = getattr(config, field)
        half = replace(config, **{field: value // 2})
        if illegal(half) is None:
            size = _memory(half, sm, several).most
            if size <= limit:
                out.append(TritonFix({field: value // 2}, size, "the stages stay"))
    return out[:MAX_FIXES]
