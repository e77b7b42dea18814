"""Element formats by the names that kernel configs use, with their widths and scale vectors.

Sources: OCP Microscaling Formats (MX) v1.0 for mxfp4/6/8 (32 elements share one ue8m0 scale); CUTLASS
`include/cutlass/float_subbyte.h` and `float8.h` for the nv_float4_t / mx_float*_t wrappers (nvfp4: 16 elements
share one ue4m3 scale).
"""

from __future__ import annotations

from dataclasses import dataclass

NVFP4_VECTOR = 16
"""Elements that share one scale in NVFP4 (CUTLASS `nv_float4_t`)."""
MX_VECTOR = 32
"""Elements that share one scale in the OCP MX formats (OCP MX v1.0, section 5.2)."""


@dataclass(frozen=True, slots=True)
class Element:
    """One element format. `bits` of the element alone; `scale_vector` elements share a scale of `scale_bits`."""

    name: str
    bits: int
    scale: str | None = None
    scale_vector: int = 0
    base: str | None = None
    """For a block-scaled format, the plain format of its elements."""

    @property
    def block_scaled(self) -> bool:
        return self.scale is not None

    @property
    def plain(self) -> str:
        """Name of the element format without its scales."""
        return self.base or self.name

    @property
    def bits_per_element(self) -> float:
        """Storage in bits an element, scale included (the scales are 8-bit)."""
        return self.bits + (8 / self.scale_vector if self.scale_vector else 0)


ELEMENTS: dict[str, Element] = {
    element.name: element
    for element in (
        Element("nvfp4", 4, "ue4m3", NVFP4_VECTOR, "e2m1"),
        Element("mxfp4", 4, "ue8m0", MX_VECTOR, "e2m1"),
        Element("mxfp6_e2m3", 6, "ue8m0", MX_VECTOR, "e2m3"),
        Element("mxfp6_e3m2", 6, "ue8m0", MX_VECTOR, "e3m2"),
        Element("mxfp8_e4m3", 8, "ue8m0", MX_VECTOR, "e4m3"),
        Element("mxfp8_e5m2", 8, "ue8m0", MX_VECTOR, "e5m2"),
        Element("e2m1", 4),
        Element("e2m3", 6),
        Element("e3m2", 6),
        Element("e4m3", 8),
        Element("e5m2", 8),
        Element("ue4m3", 8),
        Element("ue8m0", 8),
        Element("bf16", 16),
        Element("f16", 16),
        Element("tf32", 32),
        Element("f32", 32),
        Element("int4", 4),
        Element("uint4", 4),
        Element("int8", 8),
        Element("uint8", 8),
        Element("int32", 32),
    )
}

ALIASES: dict[str, str] = {
    "bfloat16": "bf16",
    "float16": "f16",
    "fp16": "f16",
    "half": "f16",
    "float32": "f32",
    "fp32": "f32",
    "float": "f32",
    "s8": "int8",
    "u8": "uint8",
    "s4": "int4",
    "u4": "uint4",
    "s32": "int32",
    "fp8": "e4m3",
    "fp8_e4m3": "e4m3",
    "fp8_e5m2": "e5m2",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "mxfp8": "mxfp8_e4m3",
}


def element(name: str) -> Element | None:
    """The format called `name` (or one of its aliases), or None."""
    return ELEMENTS.get(name) or ELEMENTS.get(ALIASES.get(name, ""))
