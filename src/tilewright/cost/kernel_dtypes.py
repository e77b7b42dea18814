"""The number formats of measured kernels: bytes an element with its scales, and the tensor rate that they run at.

Names are those of the kernel tables; what engines and checkpoints call the same thing are aliases.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from tilewright.errors import InputError, UnknownNameError
from tilewright.hardware.gpu import GIGA, TERA, Gpu

__all__ = ["KERNEL_DTYPES", "KernelDtype", "KernelRates", "kernel_dtype", "kernel_rates"]

_F32 = 4
_BLOCK = 128 * 128


@dataclass(frozen=True, slots=True)
class KernelDtype:
    """`weight` and `activation`: bytes an element, block scales included. `operands`: tensor rates, the first that the
    GPU has is taken (weights of fewer bits are decoded where tensor cores lack the type)."""

    name: str
    weight: float
    activation: float
    operands: tuple[str, ...]
    aliases: tuple[str, ...] = ()


KERNEL_DTYPES: Final[dict[str, KernelDtype]] = {
    item.name: item
    for item in (
        KernelDtype("bfloat16", 2.0, 2.0, ("bf16",), ("bf16", "f16", "float16", "fp16", "half")),
        KernelDtype("fp8", 1.0, 1.0, ("fp8", "bf16"), ("fp8_e4m3", "e4m3", "fp8_w8a8", "fp8_tensor", "fp8_channel")),
        KernelDtype("fp8_block", 1.0 + _F32 / _BLOCK, 1.0 + _F32 / 128, ("fp8", "bf16"), ("fp8_block128",)),
        KernelDtype("mxfp8", 1.0 + 1 / 32, 1.0 + 1 / 32, ("mxfp8", "fp8", "bf16"), ("mxfp8_e4m3", "mxfp8_e5m2")),
        KernelDtype("nvfp4", 0.5 + 1 / 16, 0.5 + 1 / 16, ("nvfp4", "bf16"), ("fp4",)),
        KernelDtype("w4a16_mxfp4", 0.5 + 1 / 32, 2.0, ("bf16",), ("mxfp4",)),
        KernelDtype("w4a8_mxfp4_mxfp8", 0.5 + 1 / 32, 1.0 + 1 / 32, ("mxfp8", "fp8", "bf16"), ("mxfp4_mxfp8",)),
        KernelDtype("w4a16_nvfp4", 0.5 + 1 / 16, 2.0, ("bf16",), ("nvfp4_w4a16",)),
        KernelDtype("int4_wo", 0.5 + 2 / 128, 2.0, ("bf16",), ("int4", "int4_w4a16", "w4a16_int4")),
        KernelDtype("int8_wo", 1.0, 2.0, ("bf16",), ("int8_w8a16",)),
        KernelDtype("int8", 1.0, 1.0, ("int8", "bf16"), ("sq", "int8_w8a8")),
    )
}
_BY_NAME: Final = {name: item for item in KERNEL_DTYPES.values() for name in (item.name, *item.aliases)}


def kernel_dtype(name: str) -> KernelDtype:
    """The format called `name`. Raises UnknownNameError with the nearest names."""
    found = _BY_NAME.get(name) or _BY_NAME.get(name.lower())
    if found is None:
        raise UnknownNameError("dtype", name, sorted(_BY_NAME))
    return found


@dataclass(frozen=True, slots=True)
class KernelRates:
    """What a GPU does for one format: bytes and FLOP a second, number of SMs. `assumed` says what was not published."""

    bandwidth: float
    peak: float
    sms: int
    assumed: tuple[str, ...] = ()


_SCALED_FROM: Final = {"bf16": 1.0, "fp8": 2.0, "mxfp8": 2.0, "int8": 2.0, "nvfp4": 4.0}
"""Dense rate as a multiple of BF16's: on the parts whose rates are published, each halving of the bits doubles it."""


@lru_cache(maxsize=1024)
def kernel_rates(gpu: Gpu, dtype: str) -> KernelRates:
    """The rates of `gpu` for kernels of `dtype`.

    A tensor rate that nobody published is taken from another format of the same GPU by the ratio of their bits, and
    the number of SMs from its family; both are named in `assumed`. Raises InputError without a bandwidth or any rate.
    """
    bandwidth = gpu.bandwidth().value
    if not bandwidth:
        raise InputError("gpu", f"The memory bandwidth of a {gpu.name} is unknown, so no time can be given for it.")
    assumed: list[str] = []
    peak = 0.0
    for operand in KERNEL_DTYPES[dtype].operands:
        value = gpu.peak(operand).value
        if value is None:
            value = _scaled_peak(gpu, operand)
            if value:
                assumed.append(f"tensor rate of {operand}")
        if value:
            peak = float(value)
            break
    if not peak:
        raise InputError(
            "gpu", f"No tensor rate of a {gpu.name} is known that {dtype} could run at; see 'tilewright gpus'."
        )
    sms = gpu.sm_count
    if sms is None:
        assumed.append("148 SMs")
        sms = 148
    return KernelRates(bandwidth * GIGA, peak * TERA, sms, tuple(assumed))


_SAME_CHIP: Final = {"rtx-pro-6000-max-q": "rtx-pro-6000-workstation"}
"""GPUs whose tensor rates nobody published, and the one with the same chip at other clocks."""


def _scaled_peak(gpu: Gpu, operand: str) -> float | None:
    for other, factor in _SCALED_FROM.items():
        value = gpu.peak(other).value
        if value:
            return float(value) * _SCALED_FROM.get(operand, 1.0) / factor
    twin = _SAME_CHIP.get(gpu.key)
    if twin is not None:
        from tilewright.hardware.names import resolve_gpu

        value = resolve_gpu(twin).peak(operand).value
        return float(value) * (gpu.tdp_w or 300.0) / 600.0 if value else None
    return None
