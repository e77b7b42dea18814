"""Bytes of KV cache for a token, by the layouts that engines use.

- `bf16`, `f16`: every cached value in 2 bytes. With a sparse-attention indexer, each layer that has one keeps its key
  as well: 128 FP8 values and one FP32 scale, 132 bytes (SGLang; reproduces 100,152 B a token for GLM-5).
- `fp8`: every cached value in 1 byte, scales are per tensor; the indexer's key as above.
- `fp8_ds_mla`: vLLM's layout for sparse MLA: 512 FP8 values, 4 FP32 scales and 64 BF16 rotary values, 656 bytes a
  layer (reproduces 62,252 B a token for GLM-5.1 over 79 layers, the prediction layer included).
- `nvfp4`: grouped-query models only: half a byte a value and one byte of scale for 16.

The latent cache of MLA is the same on every tensor-parallel rank; KV heads are shared out, and repeated when there
are fewer than ranks. Decode context parallelism divides the tokens over its ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tilewright.errors import InputError, shown
from tilewright.formats.elements import NVFP4_VECTOR
from tilewright.models.records import Gqa, GroupedOutput, Layer, Mla, Model
from tilewright.models.stages import stage_bounds, stage_of

__all__ = ["KV_LAYOUTS", "KvCache", "cached_bytes", "indexer_bytes", "kv_cache", "state_bytes"]

KV_LAYOUTS: Final = ("bf16", "f16", "fp8", "fp8_ds_mla", "nvfp4")
_F32 = 4
_BF16 = 2
# vLLM's fp8_ds_mla (`v1/attention/backends/mla/flashmla_sparse.py`): FP8 latents in groups of 128 with an FP32 scale.
_DS_MLA_GROUP = 128


@dataclass(frozen=True, slots=True)
class KvCache:
    """Bytes of cache on one GPU.

    `per_token`: what one more token takes while every layer still grows. `growing_per_token`: what it takes once
    sliding windows are full. `fixed`: bytes a sequence takes whatever its length (states of linear attention and
    Mamba layers). `dcp` ranks share the tokens; the per-token figures are those of one rank, rounded up.
    """

    layout: str
    per_token: int
    growing_per_token: int
    fixed: int
    window: int
    layers: int
    replicated: bool
    """Whether every tensor-parallel rank holds the same bytes (MLA, or fewer KV heads than ranks)."""

    def bytes_for(self, tokens: int) -> int:
        """Bytes of a sequence of that many tokens."""
        windowed = min(tokens, self.window) if self.window else tokens
        return (
            self.fixed + self.growing_per_token * tokens + (self.per_token - self.growing_per_token) * windowed
        ) or 1

    def tokens_in(self, size: int) -> int:
        """Tokens of one long sequence whose cache fits in `size` bytes."""
        room = size - self.fixed
        if room <= 0 or self.per_token == 0:
            return 0
        windowed = self.per_token - self.growing_per_token
        if not self.window or room <= self.per_token * self.window:
            return room // self.per_token
        if self.growing_per_token == 0:
            return 0
        return (room - windowed * self.window) // self.growing_per_token


def indexer_bytes(model: Model, layer: Layer) -> int:
    """Bytes that a layer's sparse-attention indexer keeps of one token: its key in FP8 and one FP32 scale."""
    if not layer.indexer or model.indexer is None:
        return 0
    return model.indexer.head_dim + _F32


def _mla_bytes(mla: Mla, layout: str) -> int:
    if layout == "fp8":
        return mla.cached
    if layout == "fp8_ds_mla":
        groups = -(-mla.kv_lora_rank // _DS_MLA_GROUP)
        return mla.kv_lora_rank + groups * _F32 + mla.qk_rope_head_dim * _BF16
    if layout == "nvfp4":
        raise InputError("kv_layout", "No NVFP4 layout of a latent (MLA) cache is known; use fp8 or bf16.")
    return mla.cached * _BF16


def _gqa_bytes(gqa: Gqa, layout: str, ranks: int) -> int:
    heads = max(1, -(-gqa.kv_heads // ranks))
    values = heads * (gqa.head_dim + gqa.v_head_dim)
    if layout == "fp8":
        return values
    if layout == "nvfp4":
        return values // 2 + -(-values // NVFP4_VECTOR)
    if layout == "fp8_ds_mla":
        raise InputError("kv_layout", "fp8_ds_mla is a layout of latent (MLA) caches; this model has KV heads.")
    return values * _BF16


def cached_bytes(model: Model, layer: Layer, layout: str, ranks: int) -> int:
    """Bytes that one layer keeps of one token on one of `ranks` GPUs that share its attention, the indexer's key not
    included; 0 for a layer without a growing cache and for one whose cache is not known (DeepSeek V4)."""
    if layer.mixer not in ("attention", "sliding"):
        return 0
    own = model.sliding if layer.mixer == "sliding" and model.sliding else model.attention
    if isinstance(own, GroupedOutput):
        return 0
    return _mla_bytes(own, layout) if isinstance(own, Mla) else _gqa_bytes(own, layout, ranks)


def state_bytes(model: Model, layer: Layer, ranks: int) -> int:
    """Bytes of the state of one linear-attention or Mamba layer: convolution inputs in BF16, the state in FP32."""
    if layer.mixer == "linear" and model.linear is not None:
        linear = model.linear
        channels = 2 * linear.key_heads * linear.key_dim + linear.value_heads * linear.value_dim
        state = linear.value_heads * linear.key_dim * linear.value_dim
        kernel = linear.conv_kernel
    elif layer.mixer == "mamba" and model.mamba is not None:
        mamba = model.mamba
        channels = mamba.heads * mamba.head_dim + 2 * mamba.groups * mamba.state
        state = mamba.heads * mamba.head_dim * mamba.state
        kernel = mamba.conv_kernel
    else:
        return 0
    return -(-(channels * (kernel - 1) * _BF16 + state * _F32) // ranks)


def kv_cache(
    model: Model, layout: str = "bf16", *, parallel_ranks: int = 1, dcp: int = 1, pp: int = 1, mtp: bool = False
) -> KvCache:
    """The cache of one GPU. `parallel_ranks` share the attention; with `mtp` the prediction layers cache as well.

    With pipeline stages, the layers of the largest stage count. Raises InputError for an unknown layout, one that
    the model's attention does not have, or an attention whose cache is not known (DeepSeek V4 compresses its own).
    """
    if layout not in KV_LAYOUTS:
        raise InputError("kv_layout", f"No cache layout is called {shown(layout)}; known: {', '.join(KV_LAYOUTS)}.")
    attention = model.attention
    if isinstance(attention, GroupedOutput):
        raise InputError(
            "kv_layout", "DeepSeek V4 compresses its cache in a way that is not covered: its bytes are unknown."
        )
    bounds = stage_bounds(len(model.main_layers), pp)
    full, sliding, fixed = [0] * pp, [0] * pp, [0] * pp
    counted = 0
    for layer in model.layers:
        if layer.mtp and not mtp:
            continue
        stage = stage_of(layer.index, bounds)
        if layer.mixer not in ("attention", "sliding"):
            fixed[stage] += state_bytes(model, layer, parallel_ranks)
            continue
        counted += 1
        size = cached_bytes(model, layer, layout, parallel_ranks)
        size += indexer_bytes(model, layer) if isinstance(attention, Mla) else 0
        (sliding if layer.mixer == "sliding" else full)[stage] += size
    # The stage with the largest cache decides how many tokens fit.
    fullest = max(range(pp), key=lambda stage: full[stage] + sliding[stage])
    growing, windowed = -(-full[fullest] // dcp), -(-sliding[fullest] // dcp)
    replicated = isinstance(attention, Mla) or attention.kv_heads < parallel_ranks
    return KvCache(
        layout, growing + windowed, growing, fixed[fullest], model.window, counted, replicated and parallel_ranks > 1
    )
