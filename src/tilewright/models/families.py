"""What a family of models does that its config does not spell out: module names, biases, norms, gates.

Mirrors the modelling code of Hugging Face transformers (`models/<model_type>/modeling_<model_type>.py`) and, where a
family lives outside it, the model files of vLLM and SGLang. A model type that is not listed is read as a plain decoder
with the usual keys, and the model carries a note that says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from tilewright.models.records import Naming

__all__ = ["FAMILIES", "REFUSED", "Family", "family_of"]

Biases = Literal["none", "config_all", "config_qkv", "qkv"]


@dataclass(frozen=True, slots=True)
class Family:
    """One family. `biases`: which attention projections have one: none, all when the config's attention_bias says
    so, q, k and v when it says so, q, k and v always."""

    naming: Naming = field(default_factory=Naming)
    biases: Biases = "config_all"
    qk_norm: Literal["none", "head", "full", "config"] = "none"
    gated: bool = True
    shared_gate: bool = False
    output_gate: bool = False
    sinks: bool = False
    expert_biases: bool = False
    tied_default: bool = False
    known: bool = True


_MIXTRAL = Naming(moe="block_sparse_moe", expert_parts=("w1", "w3", "w2"))
_NEMOTRON_H = Naming(
    layers="backbone.layers",
    attention="mixer",
    linear="mixer",
    mlp="mixer",
    moe="mixer",
    embedding="backbone.embeddings",
    mtp="mtp.layers",
)
_LLAMA4 = Naming(mlp="feed_forward", moe="feed_forward", shared="shared_expert", router="router")
_QWEN_SHARED = Naming(shared="shared_expert")
_QWEN35 = Naming(
    layers="model.language_model.layers",
    shared="shared_expert",
    embedding="model.language_model.embed_tokens",
    mtp="mtp.layers",
)
_DEEPSEEK_V4 = Naming(
    layers="layers",
    attention="attn",
    mlp="ffn",
    moe="ffn",
    gate="w1",
    up="w3",
    down="w2",
    embedding="embed",
    head="head",
    mtp="mtp",
)
_GPT_OSS = Naming(router="router")
_KIMI = Naming(
    layers="language_model.model.layers", embedding="language_model.model.embed_tokens", head="language_model.lm_head"
)

FAMILIES: dict[str, Family] = {
    "llama": Family(),
    "mistral": Family(),
    "ministral3": Family(),
    "qwen2": Family(biases="qkv"),
    "qwen2_moe": Family(naming=_QWEN_SHARED, biases="qkv", shared_gate=True),
    "qwen3": Family(qk_norm="head"),
    "qwen3_moe": Family(qk_norm="head"),
    "qwen3_vl_text": Family(qk_norm="head"),
    "qwen3_vl_moe_text": Family(qk_norm="head"),
    "qwen3_next": Family(
        naming=Naming(shared="shared_expert", mtp="mtp.layers"), qk_norm="head", shared_gate=True, output_gate=True
    ),
    "qwen3_5_text": Family(naming=_QWEN35, qk_norm="head", output_gate=True),
    "qwen3_5_moe_text": Family(naming=_QWEN35, qk_norm="head", shared_gate=True, output_gate=True),
    "mixtral": Family(naming=_MIXTRAL),
    "minimax_m2": Family(naming=_MIXTRAL, qk_norm="full"),
    "minimax_m3": Family(naming=_MIXTRAL, qk_norm="head"),
    "gpt_oss": Family(naming=_GPT_OSS, sinks=True, expert_biases=True),
    "glm4_moe": Family(biases="config_qkv", qk_norm="config"),
    "glm4_moe_lite": Family(),
    "glm_moe_dsa": Family(),
    "deepseek_v2": Family(),
    "deepseek_v3": Family(),
    "deepseek_v32": Family(),
    "deepseek_v4": Family(naming=_DEEPSEEK_V4),
    "kimi_k2": Family(),
    "kimi_k25_text": Family(naming=_KIMI),
    "llama4_text": Family(naming=_LLAMA4),
    "nemotron": Family(gated=False),
    "nemotron_h": Family(naming=_NEMOTRON_H, gated=False),
    "gemma": Family(tied_default=True),
    "gemma2": Family(tied_default=True),
    "gemma3_text": Family(tied_default=True, qk_norm="head"),
    "phi3": Family(),
    "olmoe": Family(qk_norm="full"),
    "dots1": Family(qk_norm="head"),
    "step3p7": Family(naming=Naming(moe="moe", shared="share_expert")),
    "mimo_v2_flash": Family(),
}

# Names that only the outer config of a multimodal model carries, and their inner language model.
ALIASES: dict[str, str] = {
    "llama4": "llama4_text",
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl": "qwen3_vl_text",
    "qwen3_vl_moe": "qwen3_vl_moe_text",
    "gemma3": "gemma3_text",
    "mistral3": "mistral",
    "kimi_k25": "kimi_k25_text",
    "minimax_m3_vl": "minimax_m3",
}

# Model types whose layers this record cannot describe: a count of them would be wrong, so none is given.
REFUSED: dict[str, str] = {
    "kimi_linear": "its Kimi delta attention layers are not covered",
    "kimi_k3": "its Kimi delta attention layers are not covered",
    "gemma4": "its layers hold a dense and an expert block at once",
    "gemma4_text": "its layers hold a dense and an expert block at once",
    "gemma3n": "its per-layer embeddings are not covered",
    "nemotron-nas": "each of its layers has a width of its own (block_configs)",
    "deci": "each of its layers has a width of its own (block_configs)",
    "jamba": "its Mamba layers are not covered",
    "mamba": "its state-space layers are not covered",
    "mamba2": "its state-space layers are not covered",
    "falcon_h1": "its parallel Mamba and attention blocks are not covered",
    "zamba2": "its shared blocks are not covered",
    "minimax_text_01": "its lightning attention layers are not covered",
    "minimax_m1": "its lightning attention layers are not covered",
    "rwkv": "it is no transformer",
    "t5": "it has an encoder",
    "bart": "it has an encoder",
    "whisper": "it has an encoder",
    "bert": "it is an encoder",
}


def family_of(model_type: str) -> Family:
    """The family of a model type; for one that is not listed, a plain decoder that says it is not known."""
    name = ALIASES.get(model_type, model_type)
    return FAMILIES.get(name) or Family(known=False)
