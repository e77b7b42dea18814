"""What is tuned for: one GPU's shard of a MoE layer, at numbers of tokens. Sizes are elements."""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec

from tilewright.errors import InputError, UnknownNameError, shown

KERNELS: Final = ("ours", "vllm-fused-moe", "sglang-fused-moe")
DTYPES: Final[dict[str, tuple[str, ...]]] = {
    "ours": ("nvfp4",),
    "vllm-fused-moe": ("bf16", "fp8_w8a8", "fp8_block"),
    "sglang-fused-moe": ("bf16", "fp8_w8a8", "fp8_block"),
}
"""Formats that can be tuned, by kernel, its usual one first. `fp8_block` is fp8_w8a8 with 128x128 blocks of scales."""
ALIASES: Final = {"bfloat16": "bf16", "fp8": "fp8_w8a8", "fp8-block": "fp8_block", "fp8_block128": "fp8_block"}
BLOCK: Final = (128, 128)
"""Block of FP8 scales (DeepSeek-V3's, and that of nearly every block-scaled checkpoint)."""
MAX_TOKENS: Final = 1 << 18
"""Largest number of tokens of one call that is tuned for: engines run chunks of 2,048 to 16,384."""
MAX_COUNTS: Final = 64
"""Most numbers of tokens in one run: vLLM's own tuner takes 18."""


class Layer(msgspec.Struct, frozen=True, kw_only=True):
    """Gate and up [experts, 2 inter, hidden], SiLU(gate) * up, down [experts, hidden, inter]; `inter` is the shard's,
    `experts` those that this GPU holds."""

    hidden: int
    inter: int
    experts: int
    topk: int
    dtype: str = "bf16"

    @property
    def block_shape(self) -> tuple[int, int] | None:
        """Block of the weight scales [n, k], None where a scale is an expert's or there is none."""
        return BLOCK if self.dtype == "fp8_block" else None

    @property
    def weight_bits(self) -> float:
        """Bits a weight takes (nvfp4: 4 + 8 / 16 of its block scale)."""
        return {"bf16": 16.0, "nvfp4": 4.5}.get(self.dtype, 8.0)

    @property
    def selector(self) -> str | None:
        """The `dtype=` part of the engines' file names; None for BF16."""
        return None if self.dtype == "bf16" else "fp8_w8a8" if self.dtype.startswith("fp8") else self.dtype


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One layer at one number of tokens under one kernel: what a trial belongs to."""

    kernel: str
    layer: Layer
    tokens: int


def fields_of(problem: Problem) -> dict[str, Any]:
    """The problem as the store keeps it."""
    return {"kernel": problem.kernel, "tokens": problem.tokens, **msgspec.structs.asdict(problem.layer)}


def problem_of(fields: dict[str, Any]) -> Problem:
    """The problem that `fields_of` described. Raises msgspec.ValidationError."""
    rest = {name: value for name, value in fields.items() if name not in ("kernel", "tokens")}
    return Problem(kernel=fields["kernel"], layer=msgspec.convert(rest, Layer), tokens=fields["tokens"])


def no_nvfp4_file(field: str, engine: str, instead: str) -> InputError:
    """The refusal of a tuned file for NVFP4 experts, of an engine or its kernel; `instead`: what to do."""
    label = "vLLM" if engine.startswith("vllm") else "SGLang"
    msg = (
        f"{label} reads no tuned file for NVFP4 experts: its selector has no such format, and it is not its Triton "
        f"kernel that runs them, so that a file would change nothing; {instead}."
    )
    return InputError(field, msg)


def check_kernel(kernel: str, dtype: str | None) -> str:
    """The format to tune `kernel` for.

    Raises:
        UnknownNameError: no such kernel.
        InputError: the kernel has no such format.
    """
    if kernel not in KERNELS:
        raise UnknownNameError("kernel", kernel, KERNELS)
    legal = DTYPES[kernel]
    wanted = legal[0] if dtype is None else ALIASES.get(dtype, dtype)
    if wanted == "nvfp4" and kernel != "ours":
        raise no_nvfp4_file("dtype", kernel, "tune --kernel ours, or --dtype bf16 or fp8")
    if wanted not in legal:
        raise InputError("dtype", f"--dtype {shown(dtype)} is none of {kernel}; it takes {', '.join(legal)}.")
    return wanted


def check_layer(layer: Layer, kernel: str) -> Layer:
    """`layer`, if `kernel` can run it.

    Raises:
        InputError: an extent is not positive or not one the kernel takes.
    """
    for name in ("hidden", "inter", "experts", "topk"):
        value: int = getattr(layer, name)
        if not 1 <= value <= 1 << 20:
            raise InputError(name, f"--{name} must be a whole number from 1 to {1 << 20:,}, not {shown(value)}.")
    if layer.topk > layer.experts:
        msg = f"--topk {layer.topk} is more than the {layer.experts} experts; a token goes to each at most once."
        raise InputError("topk", msg)
    # NVFP4 scales are by 16 values of K; the engines' kernels load 16 bytes at a time.
    for name in ("hidden", "inter"):
        if getattr(layer, name) % 16:
            msg = f"{name} {getattr(layer, name):,} is no multiple of 16, which {kernel} needs: choose another --tp."
            raise InputError(name, msg)
    return layer


def routing(layer: Layer, tokens: int, turn: int) -> list[list[int]]:
    """The experts of each token: `topk` distinct ones at random, the same on every run, other ones each `turn`."""
    draw = random.Random(f"{tokens} {layer.experts} {layer.topk} {turn}")
    everyone = range(layer.experts)
    return [draw.sample(everyone, layer.topk) for _ in range(tokens)]


def hit_experts(layer: Layer, tokens: int) -> float:
    """Experts that at least one of `tokens` goes to, expected under uniform routing."""
    return layer.experts * (1 - (1 - layer.topk / layer.experts) ** tokens)
