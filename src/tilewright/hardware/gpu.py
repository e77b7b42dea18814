"""The record of one GPU. The catalogue and the live query both fill it, so they can be compared figure by figure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tilewright.data.figures import UNKNOWN, Figure
from tilewright.errors import InputError

__all__ = ["PEAK_FIELD", "Gpu"]

PEAK_FIELD: dict[str, str] = {
    "nvfp4": "tflops_fp4_dense",
    "mxfp4": "tflops_fp4_dense",
    "fp4": "tflops_fp4_dense",
    "mxfp8": "tflops_mxfp8_blockscaled_dense",
    "fp8": "tflops_fp8_fp32acc_dense",
    "bf16": "tflops_bf16_fp32acc_dense",
    "f16": "tflops_bf16_fp32acc_dense",
    "int8": "int8_tops_dense",
}
"""Operand format -> the figure that holds its dense peak with 32-bit accumulation.

FP16 with FP32 accumulation runs at BF16's rate. The figure `tflops_fp4_dense` is quoted for block-scaled FP4.
"""

GIGA = 10**9
TERA = 10**12


@dataclass(frozen=True, slots=True, eq=False)
class Gpu:
    """One GPU: a catalogue entry (figures published) or a live device (figures measured).

    `key` is the catalogue's key, `figures` maps the keys of `hardware.fields.FIELDS` to figures. A figure that nobody
    published is not an error: `get` answers `UNKNOWN`, and the typed properties answer None.
    """

    key: str
    name: str
    compute_capability: str
    figures: Mapping[str, Figure]
    aliases: tuple[str, ...] = ()
    words: frozenset[str] = field(default_factory=frozenset[str])
    needs: tuple[frozenset[str], ...] = ()

    @property
    def arch(self) -> str:
        """The architecture as CUTLASS names it: `sm120`."""
        return "sm" + self.compute_capability.replace(".", "")

    def get(self, key: str) -> Figure:
        """The figure called `key`, or UNKNOWN."""
        return self.figures.get(key, UNKNOWN)

    def value(self, key: str) -> Any:
        """The value of the figure called `key`, or None."""
        return self.get(key).value

    @property
    def smem_optin_bytes(self) -> int | None:
        """Shared memory that one block may opt in to, bytes."""
        return self.value("smem_optin_max_per_block_bytes")

    @property
    def sm_count(self) -> int | None:
        return self.value("sm_count")

    @property
    def memory_bytes(self) -> int | None:
        """Device memory in bytes: what the driver reports where that is known, else the nameplate as GiB."""
        return self.value("memory_bytes")

    @property
    def tdp_w(self) -> float | None:
        return self.value("tdp_w")

    def bandwidth(self, kind: Literal["published", "measured"] = "published") -> Figure:
        """Memory bandwidth in GB/s: the published one, or what kernels were measured to reach."""
        return self.get("memory_bandwidth_gbs" if kind == "published" else "memory_bandwidth_measured_gbs")

    def peak(self, operand: str) -> Figure:
        """Dense peak in TFLOPS for products of `operand` ("nvfp4", "mxfp8", "fp8", "bf16", "int8") in 32-bit sums.

        A value of 0 means that the tensor cores have no such type. Raises InputError for another operand.
        """
        name = PEAK_FIELD.get(operand)
        if name is None:
            raise InputError("operand", f"No tensor rate is kept for {operand!r}; known: {', '.join(PEAK_FIELD)}.")
        return self.get(name)
