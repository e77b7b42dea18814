"""What a model is made of: the shapes that fix its weights and its caches.

All sizes are in elements. A model here is the language model: a vision or audio tower is not counted, and a note on
the model says so where the config names one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tilewright.data.figures import Figure, Rejected
    from tilewright.models.checkpoint import Checkpoint
    from tilewright.models.stored import StoredWeights

__all__ = [
    "Attention",
    "DenseMlp",
    "Gqa",
    "GroupedOutput",
    "Indexer",
    "Layer",
    "LinearAttention",
    "Mamba",
    "Mixer",
    "Mla",
    "Mlp",
    "Model",
    "Moe",
    "Naming",
]

Mixer = Literal["attention", "sliding", "linear", "mamba", "none"]
"""What mixes tokens in a layer: full attention, attention over a window, gated linear attention, Mamba-2, nothing."""
Mlp = Literal["dense", "moe", "none"]


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. `index` counts from 0; multi-token-prediction layers follow the last main layer."""

    index: int
    mixer: Mixer
    mlp: Mlp
    indexer: bool = False
    """Whether the layer has a sparse-attention indexer of its own (DSA)."""
    mtp: bool = False


@dataclass(frozen=True, slots=True)
class Mla:
    """Multi-head latent attention (DeepSeek V2 and later). `q_lora_rank` 0: queries are projected directly."""

    heads: int
    q_lora_rank: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    @property
    def cached(self) -> int:
        """Values that the cache keeps for one token of one layer: the latent and the rotated key."""
        return self.kv_lora_rank + self.qk_rope_head_dim


@dataclass(frozen=True, slots=True)
class Gqa:
    """Attention with grouped queries (multi-head and multi-query included)."""

    heads: int
    kv_heads: int
    head_dim: int
    v_head_dim: int
    qkv_bias: bool = False
    o_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    output_gate: bool = False
    """The query projection also gives a gate for the output (Qwen3-Next): it is twice as wide."""
    sinks: bool = False

    @property
    def cached(self) -> int:
        """Values that the cache keeps for one token of one layer, all KV heads together."""
        return self.kv_heads * (self.head_dim + self.v_head_dim)


@dataclass(frozen=True, slots=True)
class GroupedOutput:
    """DeepSeek V4's attention: low-rank queries, one shared key-value head, and an output projected in groups."""

    heads: int
    head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int


Attention = Mla | Gqa | GroupedOutput


@dataclass(frozen=True, slots=True)
class Indexer:
    """The lightning indexer of DeepSeek sparse attention: picks `topk` tokens for the attention to read."""

    heads: int
    head_dim: int
    topk: int


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated delta net (Qwen3-Next, Qwen3.5): a state of fixed size instead of a cache that grows."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_kernel: int
    fused_names: bool = True
    """Qwen3-Next stores in_proj_qkvz and in_proj_ba, Qwen3.5 stores their parts."""


@dataclass(frozen=True, slots=True)
class Mamba:
    """Mamba-2 (Nemotron-H): a state of fixed size instead of a cache that grows."""

    heads: int
    head_dim: int
    groups: int
    state: int
    conv_kernel: int


@dataclass(frozen=True, slots=True)
class Moe:
    """A mixture-of-experts layer. `inter` is one routed expert's width, `shared_inter` all shared experts' together."""

    experts: int
    topk: int
    inter: int
    shared_inter: int = 0
    shared_gate: bool = False
    latent: int = 0
    """Width that the routed experts work in when it is not the model's (Nemotron's LatentMoE); 0: the model's."""
    biases: bool = False


@dataclass(frozen=True, slots=True)
class DenseMlp:
    inter: int


@dataclass(frozen=True, slots=True)
class Naming:
    """How a family's checkpoints call the modules: what exclude patterns are matched against."""

    layers: str = "model.layers"
    attention: str = "self_attn"
    linear: str = "linear_attn"
    mlp: str = "mlp"
    moe: str = "mlp"
    experts: str = "experts"
    shared: str = "shared_experts"
    router: str = "gate"
    gate: str = "gate_proj"
    up: str = "up_proj"
    down: str = "down_proj"
    expert_parts: tuple[str, str, str] | None = None
    """gate, up and down of routed experts where they are called otherwise than those of other MLPs."""
    embedding: str = "model.embed_tokens"
    head: str = "lm_head"
    mtp: str = ""
    """Where multi-token-prediction layers live; empty: after the main layers, in the same list."""


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """One model, as its config describes it, and the checkpoint that was asked for.

    `notes` says what was assumed or left out; `problems` what contradicts itself (a config against its weights).
    """

    key: str
    name: str
    family: str
    hidden: int
    vocab: int
    layers: tuple[Layer, ...]
    attention: Attention
    checkpoint: Checkpoint
    moe: Moe | None = None
    dense: DenseMlp | None = None
    sliding: Gqa | None = None
    """Attention of the sliding-window layers where it differs from the others'."""
    window: int = 0
    """Tokens that a sliding-window layer keeps; 0: it has none."""
    indexer: Indexer | None = None
    linear: LinearAttention | None = None
    mamba: Mamba | None = None
    gated: bool = True
    """Whether MLPs have a gate beside the up projection (three matrices, not two)."""
    tied: bool = False
    dtype: str = "bf16"
    context: int = 0
    naming: Naming = field(default_factory=Naming)
    hf_ids: tuple[str, ...] = ()
    source: str = ""
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    """What was read of the config, by its own key names."""
    config_sources: dict[str, str] = field(default_factory=dict[str, str])
    """Sources of single config values where they are not `source`."""
    published_total_b: Figure | None = None
    published_active_b: Figure | None = None
    rejected: tuple[Rejected, ...] = ()
    """Other descriptions of the model that circulate and are wrong."""
    checkpoints: tuple[Checkpoint, ...] = ()
    stored: StoredWeights | None = None
    """What the weight files hold, where they were there to be read (headers only)."""
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def main_layers(self) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if not layer.mtp)

    @property
    def mtp_layers(self) -> tuple[Layer, ...]:
        return tuple(layer for layer in self.layers if layer.mtp)

    @property
    def moe_layers(self) -> int:
        """Main layers that have routed experts."""
        return sum(layer.mlp == "moe" for layer in self.main_layers)
