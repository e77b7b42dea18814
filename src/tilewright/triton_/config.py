"""From JSON to a Triton tile config, checked key by key (DESIGN 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from tilewright.errors import ConfigError, shown
from tilewright.triton_.kernels import KERNELS
from tilewright.triton_.model import TritonConfig

KEYS: Final = (
    "id", "kernel", "version", "gpu", "dtype", "block_m", "block_n", "block_k", "group_m", "num_warps", "num_stages",
    "block_shape", "per_channel", "zero_points",
)  # fmt: skip
DTYPES: Final = ("bf16", "fp16", "fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16")
DEFAULT_WARPS: Final = 4
DEFAULT_STAGES: Final = 3
"""What Triton's CUDA backend takes where a tile does not say (triton/backends/nvidia/compiler.py, CUDAOptions)."""
MAX_BLOCK: Final = 1024
MAX_STAGES: Final = 64
_WARPS: Final = (1, 2, 4, 8, 16, 32)
MIN_DOT: Final = 16
"""Least extent of a `tl.dot` along K with 16-bit operands (triton/backends/nvidia/compiler.py, min_dot_size)."""


def is_triton(raw: Mapping[str, Any]) -> bool:
    """Whether the object of a line is a Triton tile and not a CUTLASS config: only tiles have a `kernel`."""
    return "kernel" in raw


def parse_triton(raw: Mapping[str, Any]) -> TritonConfig:
    """The config that `raw` describes.

    Raises:
        ConfigError: a key is unknown, missing, or has no legal value; names it.
    """
    for key in raw:
        if key not in KEYS:
            raise ConfigError(str(key)[:80], f"{shown(key)} is no key of a Triton tile; legal are: {', '.join(KEYS)}.")
    kernel = raw.get("kernel")
    if not isinstance(kernel, str) or kernel not in KERNELS:
        msg = f"kernel: {shown(kernel)} is not known; legal are: {', '.join(KERNELS)}."
        raise ConfigError("kernel", msg)
    ident, version, gpu = (_text(raw, key) for key in ("id", "version", "gpu"))
    if gpu is None:
        raise ConfigError("gpu", "gpu: a Triton tile needs the GPU it runs on, such as rtx-pro-6000-server or sm_120.")
    dtype = _text(raw, "dtype") or ("fp8_w8a8" if kernel.endswith("fp8-linear") else "bf16")
    dtype = {"bfloat16": "bf16", "float16": "fp16", "half": "fp16"}.get(dtype, dtype)
    if dtype not in DTYPES:
        raise ConfigError("dtype", f"dtype: {shown(dtype)} is not known; legal are: {', '.join(DTYPES)}.")
    selector = None if dtype in ("bf16", "fp16") else dtype
    if selector not in KERNELS[kernel].dtypes:
        legal = ", ".join(str(item) for item in KERNELS[kernel].dtypes)
        raise ConfigError("dtype", f"dtype: {kernel} takes {legal}, not {dtype}.")
    per_channel, zero_points = (_switch(raw, key) for key in ("per_channel", "zero_points"))
    if zero_points and selector not in ("int4_w4a16", "int8_w8a16"):
        raise ConfigError("zero_points", f"zero_points: {dtype} has none; leave it out.")
    block_shape = _block_shape(raw.get("block_shape"))
    if kernel.endswith("fp8-linear") and block_shape is None:
        block_shape = (128, 128)
    if block_shape is not None and selector is None:
        raise ConfigError("block_shape", f"block_shape: {dtype} has no scales; leave it out.")
    if selector == "int4_w4a16" and block_shape is None:
        raise ConfigError("block_shape", "block_shape: int4_w4a16 needs its groups, such as [0, 128].")
    if block_shape is not None and (block_shape[0] == 0) != (selector in ("int4_w4a16", "int8_w8a16")):
        msg = (
            f"block_shape: {dtype} takes [n, k] with n above 0."
            if block_shape[0] == 0
            else f"block_shape: {dtype} takes groups along K, as [0, {block_shape[1]}]."
        )
        raise ConfigError("block_shape", msg)
    return TritonConfig(
        id=ident,
        kernel=kernel,
        version=version,
        gpu=gpu,
        dtype=selector,
        block_m=_integer(raw, "block_m", None, MAX_BLOCK),
        block_n=_integer(raw, "block_n", None, MAX_BLOCK),
        block_k=_integer(raw, "block_k", None, MAX_BLOCK),
        group_m=_integer(raw, "group_m", 1, 1 << 20),
        num_warps=_integer(raw, "num_warps", DEFAULT_WARPS, 1 << 10),
        num_stages=_integer(raw, "num_stages", DEFAULT_STAGES, MAX_STAGES),
        block_shape=block_shape,
        activation="fp16" if dtype == "fp16" else "bf16",
        per_channel=per_channel,
        zero_points=zero_points,
    )


def illegal(config: TritonConfig) -> str | None:
    """The rule of Triton that the tile breaks, or None."""
    for name in ("block_m", "block_n", "block_k"):
        value: int = getattr(config, name)
        if value & (value - 1):
            return f"{name} {value} is no power of two: tl.arange takes only powers of two."
    if config.block_k < MIN_DOT:
        return f"block_k {config.block_k} is below {MIN_DOT}, the least that a tl.dot takes along K."
    if config.dtype in ("fp8_w8a8", "int8_w8a8") and config.block_k < 2 * MIN_DOT:
        return f"block_k {config.block_k} is below 32, the least that a tl.dot of 8-bit operands takes along K."
    if config.num_warps not in _WARPS:
        return f"num_warps {config.num_warps} is no power of two of at most 32."
    return None


def _text(raw: Mapping[str, Any], key: str) -> str | None:
    value = raw.get(key)
    if value is None or isinstance(value, str):
        return value
    raise ConfigError(key, f"{key}: {shown(value)} is no text.")


def _switch(raw: Mapping[str, Any], key: str) -> bool:
    value = raw.get(key)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise ConfigError(key, f"{key}: {shown(value)} is neither true nor false.")


def _integer(raw: Mapping[str, Any], key: str, default: int | None, most: int) -> int:
    value = raw.get(key)
    if value is None and default is not None:
        return default
    if value is None:
        raise ConfigError(key, f"{key} is missing; a Triton tile needs block_m, block_n and block_k.")
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        raise ConfigError(key, f"{key}: {shown(value)} is no integer from 1 to {most:,}.")
    return value


def _block_shape(value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    parts = list(cast("list[Any]", value)) if isinstance(value, list | tuple) else []
    if len(parts) == 2 and all(_is_extent(part) for part in parts) and parts[1]:
        return int(parts[0]), int(parts[1])
    raise ConfigError(
        "block_shape", f"block_shape: {shown(cast(object, value))} is no pair [n, k]; 0 for n means groups."
    )


def _is_extent(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_BLOCK
