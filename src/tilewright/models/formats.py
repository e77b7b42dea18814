"""How weights are stored: the bytes of a matrix in each format, scales included, on disk and as engines hold them.

Layouts of NVFP4 checkpoints: ModelOpt stores `weight` U8 [out, in/2], `weight_scale` F8_E4M3 [out, in/16],
`weight_scale_2` and `input_scale` F32 scalars; compressed-tensors the same sizes under other names. FP8 blocks:
`weight_scale_inv` F32 [ceil(out/128), ceil(in/128)]. MXFP4: `*_blocks` U8 and `*_scales` U8 [out, in/32].
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from tilewright.errors import InputError, shown
from tilewright.formats.elements import MX_VECTOR, NVFP4_VECTOR

__all__ = ["FORMATS", "SCALE_COLS", "SCALE_ROWS", "WeightFormat", "weight_format"]

F32_BYTES = 4
SCALE_ROWS = 128
SCALE_COLS = 4
"""Block-scaled kernels read scales in tiles of 128 rows x 4 columns: engines pad to them when they load
(vLLM `utils/nvfp4_utils.py:swizzle_blockscale`, FlashInfer `layout_128x4`)."""

Scaling = Literal["none", "tensor", "channel", "block", "vector", "group"]


def _ceil(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class WeightFormat:
    """One way to store a weight matrix.

    `bits` an element; `scaling` says what shares a scale: the tensor, an output row ("channel"), a `block` of
    (rows, columns), a `vector` of elements along the input with one byte each, a `group` along the input with
    `scale_bytes` each. `activation` is what the GEMM's other operand is quantised to.
    """

    name: str
    bits: int
    scaling: Scaling = "none"
    block: tuple[int, int] = (0, 0)
    vector: int = 0
    scale_bytes: int = F32_BYTES
    activation: str = "bf16"
    globals: int = 0
    """FP32 scalars beside each tensor: global weight scale, static input scale."""
    padded_scales: bool = False
    """Whether block-scaled kernels read the scales in padded 128x4 tiles."""
    operand: str = "bf16"
    """Name of the tensor-core rate that the GEMM runs at, as `Gpu.peak` takes it."""

    @property
    def quantised(self) -> bool:
        return self.scaling != "none"

    def element_bytes(self, out: int, inn: int) -> int:
        """Bytes of the elements of an [out, inn] matrix; rows of 4-bit elements are padded to whole bytes."""
        return out * _ceil(inn * self.bits, 8)

    def scale_count_bytes(self, out: int, inn: int, *, padded: bool = False) -> int:
        """Bytes of the scales of an [out, inn] matrix, global ones not included."""
        if self.scaling == "tensor":
            return F32_BYTES
        if self.scaling == "channel":
            return out * self.scale_bytes
        if self.scaling == "block":
            return _ceil(out, self.block[0]) * _ceil(inn, self.block[1]) * self.scale_bytes
        if self.scaling in ("vector", "group"):
            columns = _ceil(inn, self.vector)
            if padded and self.padded_scales:
                out, columns = _ceil(out, SCALE_ROWS) * SCALE_ROWS, _ceil(columns, SCALE_COLS) * SCALE_COLS
            return out * columns * self.scale_bytes
        return 0

    @property
    def scalar_bytes(self) -> int:
        """Bytes of the FP32 scalars beside each tensor, a tensor-wide scale included."""
        return (self.globals + (self.scaling == "tensor")) * F32_BYTES

    def disk_bytes(self, out: int, inn: int) -> int:
        """Bytes of an [out, inn] matrix as the checkpoint stores it."""
        return self.element_bytes(out, inn) + self.scale_count_bytes(out, inn) + self.globals * F32_BYTES

    def runtime_bytes(self, out: int, inn: int) -> int:
        """Bytes of an [out, inn] matrix as a block-scaled kernel needs it: scales padded to 128x4 tiles."""
        return self.element_bytes(out, inn) + self.scale_count_bytes(out, inn, padded=True) + self.globals * F32_BYTES

    @property
    def bytes_per_parameter(self) -> float:
        """Bytes an element with its share of the scales, for large matrices (NVFP4: 0.5625)."""
        size = 1 << 12
        return (self.element_bytes(size, size) + self.scale_count_bytes(size, size)) / size**2


_NVFP4 = WeightFormat(
    "nvfp4", 4, "vector", vector=NVFP4_VECTOR, scale_bytes=1, activation="nvfp4", globals=2, padded_scales=True,
    operand="nvfp4",
)  # fmt: skip
_FP8 = WeightFormat("fp8", 8, "tensor", activation="fp8", globals=1, operand="fp8")

FORMATS: dict[str, WeightFormat] = {
    item.name: item
    for item in (
        WeightFormat("bf16", 16),
        WeightFormat("f16", 16, activation="f16", operand="f16"),
        WeightFormat("f32", 32, activation="f32"),
        _NVFP4,
        # Weights only: the kernel decodes them and multiplies in BF16. No input scale is stored.
        replace(_NVFP4, name="nvfp4_w4a16", activation="bf16", globals=1, operand="bf16", padded_scales=False),
        WeightFormat(
            "mxfp4",
            4,
            "vector",
            vector=MX_VECTOR,
            scale_bytes=1,
            activation="mxfp8",
            padded_scales=True,
            operand="mxfp8",
        ),
        WeightFormat(
            "mxfp8",
            8,
            "vector",
            vector=MX_VECTOR,
            scale_bytes=1,
            activation="mxfp8",
            padded_scales=True,
            operand="mxfp8",
        ),
        _FP8,
        WeightFormat("fp8_block", 8, "block", block=(128, 128), activation="fp8", operand="fp8"),
        WeightFormat("fp8_channel", 8, "channel", activation="fp8", operand="fp8"),
        WeightFormat("fp8_w8a16", 8, "tensor"),
        WeightFormat("int8", 8, "channel", activation="int8", operand="int8"),
        WeightFormat("int8_w8a16", 8, "channel"),
        WeightFormat("int4", 4, "group", vector=128, scale_bytes=2),
    )
}


def weight_format(name: str, *, block: tuple[int, int] | None = None, vector: int | None = None) -> WeightFormat:
    """The format called `name`, with another scale block or group where it has one.

    Raises InputError for an unknown name.
    """
    base = FORMATS.get(name)
    if base is None:
        raise InputError("format", f"No weight format is called {shown(name)}; known: {', '.join(FORMATS)}.")
    if block is not None and base.scaling == "block":
        return replace(base, block=block)
    if vector is not None and base.scaling in ("vector", "group"):
        return replace(base, vector=vector)
    return base
