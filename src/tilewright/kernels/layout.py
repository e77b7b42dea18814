"""NVFP4 weights as the CUDA kernel reads them, made once from a checkpoint's layout.

A checkpoint holds e2m1 codes two to a byte (low nibble first) and one ue4m3 scale per 16 values of K. The kernel
(`nvfp4_grouped.cu`) wants, for each expert, group of 64 rows and 128 values of K, one chunk of 4,608 bytes in the order
in which its lanes use it: no shuffle, no shared-memory transpose and one scale conversion per 16 values are left.

Three freedoms are used. The order of K inside 64 values does not matter as long as the activations follow it, so a lane
takes 16 neighbouring values: one scale. The order of rows inside 64 does not matter as long as the store undoes it, so
a lane ends up with neighbouring outputs (or, with SiLU, with a gate and its up). And the order of *bits* in a word is
ours, so that most bf16 pairs come out of a word by one shift and one mask (`BIT_SOURCE`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from tilewright.errors import InputError
from tilewright.kernels.parts import torch_module

VALUES_A_SCALE = 16
GROUP_ROWS = 64
"""Rows of a chunk: four 16-row blocks, the rows of one mma.m16n8k16 each."""
STEP_K = 128
"""Values of K of a chunk: two halves of 64, each four MMA steps of 16."""
CODE_BYTES = GROUP_ROWS * STEP_K // 2
CHUNK_BYTES = CODE_BYTES + GROUP_ROWS * STEP_K // VALUES_A_SCALE
TILE_GROUPS = 4
"""Groups are padded to a multiple of this: the largest tile is 256 rows."""
WHOLE_ROW = 8
"""Output widths and K are multiples of this: 16-byte loads of bf16."""

SIGN_BIT = 0x80
"""Of an e4m3 byte. -0 is let through as 0, and NaN as NaN whatever its sign."""
_NEGATIVE_NAN = 0xFF
NAN_SCALE = 255
_SCALE_EXPONENT = 22
"""Stored exponent of the scale 1.0. 448 = 1.75 * 2^8 then has 30, the last one below the NaN code."""

# Where the bits of a bf16 half come from: (register, bit of the half) -> bit of the word, for the low half; the high
# half's are 16 further on, modulo 32. Bits of bf16: 15 sign, 8 and 7 low exponent bits, 6 top mantissa bit. Mirrors
# decode() in nvfp4_grouped.cu: mask only; shift left 6; rotate right 6; rotate right 4 with bit 8 by shift left 4.
_SIGN, _HIGH, _LOW, _MANTISSA = 15, 8, 7, 6
BIT_SOURCE: dict[tuple[int, int], int] = {
    **{(0, bit): bit for bit in (_SIGN, _HIGH, _LOW, _MANTISSA)},
    **{(1, bit): bit - 6 for bit in (_SIGN, _HIGH, _LOW, _MANTISSA)},
    **{(2, bit): bit + 6 for bit in (_SIGN, _HIGH, _LOW, _MANTISSA)},
    **{(3, bit): bit + 4 for bit in (_SIGN, _LOW, _MANTISSA)},
    (3, _HIGH): _HIGH - 4,
}

E2M1_VALUES = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
"""Magnitudes of the codes 0 to 7 (OCP Microscaling Formats 1.0, table 5); code 8 + i is -E2M1_VALUES[i]."""


@dataclass(frozen=True, slots=True)
class PackedWeights:
    """One matrix per expert in the kernel's layout.

    `data` is uint8 [experts, groups, steps, 4608]; `global_scale` is float32 [experts, 2] (equal, or gate's and up's).
    `rows` counts what the matrix has (2 * width with `gated`), `k` its columns; both are padded in `data`.
    """

    data: Any
    global_scale: Any
    rows: int
    k: int
    gated: bool

    @property
    def experts(self) -> int:
        return int(self.data.shape[0])

    @property
    def device(self) -> Any:
        return self.data.device

    @property
    def groups(self) -> int:
        return int(self.data.shape[1])

    @property
    def steps(self) -> int:
        return int(self.data.shape[2])

    @property
    def width(self) -> int:
        """Columns of the output: half the rows where gate and up are joined."""
        return self.rows // 2 if self.gated else self.rows

    @property
    def bytes_an_expert(self) -> int:
        """Bytes of codes and scales that one expert's matrix has without padding."""
        return self.rows * self.k // 2 + self.rows * self.k // VALUES_A_SCALE


@lru_cache(maxsize=1)
def scale_codes() -> tuple[int, ...]:
    """The stored byte of each e4m3 byte 0..127: 5 exponent and 3 mantissa bits, so that subnormals are normal too."""
    codes: list[int] = []
    for byte in range(0x7F):
        exponent, mantissa = byte >> 3, byte & 7
        if exponent == 0:
            if mantissa == 0:
                codes.append(0)  # the values are set to zero instead
                continue
            shift = 4 - mantissa.bit_length()
            exponent, mantissa = 1 - shift, (mantissa << shift) & 7
        codes.append((exponent - 7 + _SCALE_EXPONENT) << 3 | mantissa)
    return (*codes, NAN_SCALE)


def source_rows(rows: int, gated: bool) -> list[int]:
    """The matrix row of each stored row, -1 for padding; stored order: group, 16-row block, half of it, lane group."""
    width = rows // 2 if gated else rows
    group_width = GROUP_ROWS // 2 if gated else GROUP_ROWS
    groups = -(-width // group_width)
    groups = -(-groups // TILE_GROUPS) * TILE_GROUPS
    order: list[int] = []
    for group in range(groups):
        for block in range(4):
            for half in range(2):
                for lane in range(8):
                    if gated:
                        at = group * group_width + lane * 4 + block
                        order.append(at + half * width if at < width else -1)
                    else:
                        at = group * group_width + lane * 8 + block * 2 + half
                        order.append(at if at < width else -1)
    return order


def check_weights(codes: Any, scales: Any, global_scale: Any, gated: bool) -> tuple[int, int, int]:
    """(experts, rows, K) of a checkpoint's tensors. Raises InputError that names the tensor and what is legal."""
    torch = torch_module()
    if codes.ndim != 3 or codes.dtype != torch.uint8:
        raise InputError(
            "weight", f"Packed NVFP4 weights are uint8 [experts, rows, K / 2], not {codes.dtype} {list(codes.shape)}."
        )
    experts, rows, half_k = (int(extent) for extent in codes.shape)
    k = half_k * 2
    if k == 0 or k % VALUES_A_SCALE or rows == 0 or rows % (2 * WHOLE_ROW if gated else WHOLE_ROW):
        raise InputError(
            "weight",
            f"Weights of {rows} rows and K = {k} are not supported: K must be a multiple of {VALUES_A_SCALE}, the rows "
            f"of {2 * WHOLE_ROW if gated else WHOLE_ROW}.",
        )
    if list(scales.shape) != [experts, rows, k // VALUES_A_SCALE]:
        raise InputError(
            "weight_scale",
            f"Block scales of {experts} x {rows} x {k} weights are [{experts}, {rows}, {k // VALUES_A_SCALE}] in the "
            f"checkpoint's order (not swizzled), not {list(scales.shape)}.",
        )
    if scales.dtype not in (torch.float8_e4m3fn, torch.uint8):
        raise InputError("weight_scale", f"Block scales are float8_e4m3fn (or its bytes as uint8), not {scales.dtype}.")
    if list(global_scale.shape) not in ([experts], [experts, 2]):
        raise InputError(
            "global_scale", f"Global scales are [{experts}] or [{experts}, 2], not {list(global_scale.shape)}."
        )
    for name, tensor in (("weight_scale", scales), ("global_scale", global_scale)):
        if tensor.device != codes.device:
            raise InputError(name, f"{name} is on {tensor.device} and the weights on {codes.device}; move one of them.")
    stored = scales.view(torch.uint8)
    if bool(((stored > SIGN_BIT) & (stored != _NEGATIVE_NAN)).any()):
        raise InputError("weight_scale", "A block scale is negative; NVFP4 scales are ue4m3, from 0 to 448.")
    return experts, rows, k


def pack(codes: Any, scales: Any, global_scale: Any, *, gated: bool = False) -> PackedWeights:
    """Checkpoint tensors in the kernel's layout, on the device that `codes` is on.

    Args:
        codes: uint8 [experts, rows, K / 2], low nibble = even column. With `gated`, rows are gate's, then up's.
        scales: float8_e4m3fn [experts, rows, K / 16], as on disk (not swizzled). NaN makes its 16 values NaN.
        global_scale: float32 [experts] or [experts, 2] (gate's and up's), a factor (not its reciprocal).

    Raises:
        InputError: a shape or type is another, or a scale is negative.
    """
    torch = torch_module()
    experts, rows, k = check_weights(codes, scales, global_scale, gated)
    device = codes.device
    order = torch.tensor(source_rows(rows, gated), device=device)
    groups, steps = len(order) // GROUP_ROWS, -(-k // STEP_K)
    table = torch.tensor(scale_codes(), dtype=torch.uint8, device=device)
    data = torch.empty((experts, groups, steps, CHUNK_BYTES), dtype=torch.uint8, device=device)
    scale_bytes = scales.view(torch.uint8)
    for expert in range(experts):
        stored_codes, stored_scales = _one(codes[expert], scale_bytes[expert], order, table, k, steps)
        data[expert, :, :, :CODE_BYTES] = stored_codes
        data[expert, :, :, CODE_BYTES:] = stored_scales
    factors = global_scale.to(device=device, dtype=torch.float32)
    if factors.ndim == 1:
        factors = factors[:, None].expand(-1, 2)
    return PackedWeights(data, factors.contiguous(), rows, k, gated)


def _one(codes: Any, scales: Any, order: Any, table: Any, k: int, steps: int) -> tuple[Any, Any]:
    torch = torch_module()
    nibbles = torch.stack([codes & 15, codes >> 4], dim=-1).reshape(codes.shape[0], k)
    magnitude = scales & 0x7F
    # 0 has no stored scale: its values become zeros.
    nibbles = nibbles * (magnitude != 0).repeat_interleave(VALUES_A_SCALE, dim=1)
    stored = table[magnitude.long()]
    padding = (0, steps * STEP_K - k, 0, 1)  # a row of zeros, which -1 names
    nibbles = torch.nn.functional.pad(nibbles, padding)[order]
    stored = torch.nn.functional.pad(stored, (0, (steps * STEP_K - k) // VALUES_A_SCALE, 0, 1))[order]
    # group, 16-row block, half, lane g | step, half of it, lane t, MMA step, pair, value of the pair
    nibbles = nibbles.reshape(-1, 4, 2, 8, steps, 2, 4, 4, 2, 2).to(torch.int32)
    words = torch.zeros_like(nibbles[:, :, 0, :, :, :, :, :, 0, 0])
    for (register, bit), source in BIT_SOURCE.items():
        code_bit = {_SIGN: 3, _HIGH: 2, _LOW: 1, _MANTISSA: 0}[bit]
        for value in range(2):
            part = nibbles[:, :, register % 2, :, :, :, :, :, register // 2, value]
            words |= ((part >> code_bit) & 1) << ((source + 16 * value) % 32)
    # -> group, step, half of it, 16-row block, lane g, lane t, MMA step
    words = words.permute(0, 3, 4, 1, 2, 5, 6).contiguous()
    stored = stored.reshape(-1, 2, 2, 2, 8, steps, 2, 4)  # group, pair, block of it, half, g, step, half of it, t
    stored = stored.permute(0, 5, 1, 4, 7, 2, 6, 3).contiguous()  # group, step, pair, g, t, block, half of K, half
    groups = words.shape[0]
    return words.view(torch.uint8).reshape(groups, steps, -1), stored.reshape(groups, steps, -1)


def unpack(packed: PackedWeights) -> Any:
    """The weights of `packed` as float32 [experts, rows, K], global scale included: what the kernel multiplies with."""
    torch = torch_module()
    device, steps = packed.data.device, packed.steps
    order = torch.tensor(source_rows(packed.rows, packed.gated), device=device)
    values = torch.tensor([*E2M1_VALUES, *(-value for value in E2M1_VALUES)], device=device)
    out = torch.empty((packed.experts, packed.rows, packed.k), device=device)
    for expert in range(packed.experts):
        chunks = packed.data[expert]
        words = chunks[..., :CODE_BYTES].contiguous().view(torch.int32).reshape(-1, steps, 2, 4, 8, 4, 4)
        nibbles = torch.zeros((packed.groups, steps, 2, 4, 8, 4, 4, 2, 2, 2), dtype=torch.int64, device=device)
        for (register, bit), source in BIT_SOURCE.items():
            code_bit = {_SIGN: 3, _HIGH: 2, _LOW: 1, _MANTISSA: 0}[bit]
            for value in range(2):
                found = (words >> ((source + 16 * value) % 32)) & 1
                nibbles[..., register % 2, register // 2, value] |= (found << code_bit).long()
        # group, step, kh, block, g, t, j, half, pair, value -> group, block, half, g | step, kh, t, j, pair, value
        magnitudes = values[nibbles].permute(0, 3, 7, 4, 1, 2, 5, 6, 8, 9).reshape(len(order), steps * STEP_K)
        stored = chunks[..., CODE_BYTES:].reshape(-1, steps, 2, 8, 4, 2, 2, 2).permute(0, 2, 5, 7, 3, 1, 6, 4)
        stored = stored.reshape(len(order), -1).int()
        exponent = ((stored >> 3) - _SCALE_EXPONENT).float()
        scale = torch.exp2(exponent) * (1 + (stored & 7) / 8)
        scale = torch.where(stored == NAN_SCALE, torch.nan, scale)
        matrix = (magnitudes * scale.repeat_interleave(VALUES_A_SCALE, dim=1))[:, : packed.k]
        real = order >= 0
        out[expert, order[real]] = matrix[real]
    factor = packed.global_scale
    if packed.gated:
        return out * factor.repeat_interleave(packed.rows // 2, dim=1)[..., None]
    return out * factor[:, :1, None]
