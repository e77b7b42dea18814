"""From a config.json to a model record.

The keys are those of the families' own config classes; where two families use two names for one thing, both are read.
Anything absurd is refused with the field's name and its range; nothing is filled in silently: what had to be assumed
is a note on the model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright.errors import InputError, shown
from tilewright.models.checkpoint import Checkpoint, native_checkpoint
from tilewright.models.families import ALIASES, REFUSED, Family, family_of
from tilewright.models.layers import build_layers
from tilewright.models.reading import Fields
from tilewright.models.records import (
    Attention,
    DenseMlp,
    Gqa,
    GroupedOutput,
    Indexer,
    LinearAttention,
    Mamba,
    Mla,
    Model,
    Moe,
)

__all__ = ["MAX_EXPERTS", "MAX_HEADS", "MAX_LAYERS", "MAX_VOCAB", "MAX_WIDTH", "parse_model_config"]

# Ranges far beyond any model that exists, so that an absurd value is caught as one. The largest known: 16,384 wide
# (Llama 3.1 405B), 126 layers, 896 experts (Kimi K3), 262,144 words.
MAX_WIDTH = 1 << 20
MAX_LAYERS = 4096
MAX_HEADS = 1 << 14
MAX_EXPERTS = 1 << 16
MAX_VOCAB = 1 << 24
MAX_CONTEXT = 1 << 31

_TEXT_CONFIGS = ("text_config", "llm_config", "language_config", "language_model_config", "language_model")
_DTYPES = {"bfloat16": "bf16", "float16": "f16", "half": "f16", "float32": "f32", "float": "f32"}


@dataclass(frozen=True, slots=True)
class _Source:
    """The config that describes the language model, and the outer one it may be nested in."""

    fields: Fields
    outer: Fields
    nested: bool

    def has_tower(self) -> list[str]:
        return [key for key in ("vision_config", "audio_config") if self.nested and self.outer.raw.get(key) is not None]


def _language_model(raw: Mapping[str, Any], where: str) -> _Source:
    outer = Fields(raw, where)
    for key in _TEXT_CONFIGS:
        inner = raw.get(key)
        if isinstance(inner, dict):
            return _Source(Fields(inner, f"{where}: {key}"), outer, nested=True)  # pyright: ignore[reportUnknownArgumentType]
    thinker = raw.get("thinker_config")
    if isinstance(thinker, dict):  # Qwen omni: thinker_config.text_config
        return _language_model(thinker, f"{where}: thinker_config")  # pyright: ignore[reportUnknownArgumentType]
    return _Source(outer, outer, nested=False)


def _model_type(source: _Source) -> str:
    inner = source.fields.text("model_type")
    outer = source.outer.text("model_type")
    if outer == "kimi_k25" and inner == "kimi_k2":
        return "kimi_k25_text"  # the same layers under other names
    if source.fields.has("o_lora_rank"):
        return "deepseek_v4"  # also under other names: reference code calls it deepseek_ref
    return inner or outer


def _refuse(model_type: str, source: _Source) -> None:
    why = REFUSED.get(model_type)
    if why is None and source.fields.raw.get("block_configs") is not None:
        why = REFUSED["nemotron-nas"]
    if why is None and source.fields.raw.get("linear_attn_config") is not None:
        why = REFUSED["kimi_linear"]
    if why is None and source.fields.raw.get("is_encoder_decoder") is True:
        why = "it has an encoder"
    if why is not None:
        raise InputError(
            "model_type", f"{source.fields.where}: model_type {shown(model_type)} is not covered, because {why}."
        )


def _head_dim(fields: Fields, hidden: int, heads: int) -> int:
    if fields.has("head_dim"):
        return fields.integer("head_dim", high=MAX_WIDTH)
    if hidden % heads:
        raise fields.error(
            "num_attention_heads",
            f"must divide hidden_size ({hidden:,}) where no head_dim is given, and {heads:,} does not",
        )
    return hidden // heads


def _grouped_queries(fields: Fields, family: Family, hidden: int) -> Gqa:
    heads = fields.integer("num_attention_heads", "n_head", high=MAX_HEADS)
    kv_heads = fields.integer("num_key_value_heads", "num_kv_heads", high=MAX_HEADS, default=heads)
    if heads % kv_heads:
        raise fields.error(
            "num_key_value_heads", f"must divide num_attention_heads ({heads:,}), and {kv_heads:,} does not"
        )
    head_dim = _head_dim(fields, hidden, heads)
    stated = fields.flag("attention_bias", "qkv_bias", "add_qkv_bias")
    norm = family.qk_norm
    if norm == "config":
        norm = "head" if fields.flag("use_qk_norm") else "none"
    return Gqa(
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        v_head_dim=fields.integer("v_head_dim", high=MAX_WIDTH, default=head_dim),
        qkv_bias=family.biases == "qkv" or (stated and family.biases in ("config_all", "config_qkv")),
        o_bias=stated and family.biases == "config_all",
        qk_norm=norm,
        output_gate=fields.flag("attn_output_gate", default=family.output_gate),
        sinks=family.sinks,
    )


def _attention(fields: Fields, family: Family, model_type: str, hidden: int) -> Attention:
    if fields.has("kv_lora_rank"):
        rank = fields.raw.get("q_lora_rank")
        return Mla(
            heads=fields.integer("num_attention_heads", high=MAX_HEADS),
            q_lora_rank=0 if rank is None else fields.integer("q_lora_rank", high=MAX_WIDTH),
            kv_lora_rank=fields.integer("kv_lora_rank", high=MAX_WIDTH),
            qk_nope_head_dim=fields.integer("qk_nope_head_dim", high=MAX_WIDTH),
            qk_rope_head_dim=fields.integer("qk_rope_head_dim", low=0, high=MAX_WIDTH),
            v_head_dim=fields.integer("v_head_dim", high=MAX_WIDTH),
        )
    if model_type == "deepseek_v4":
        heads = fields.integer("num_attention_heads", high=MAX_HEADS)
        groups = fields.integer("o_groups", high=MAX_HEADS)
        if heads % groups:
            raise fields.error("o_groups", f"must divide num_attention_heads ({heads:,}), and {groups:,} does not")
        return GroupedOutput(
            heads=heads,
            head_dim=fields.integer("head_dim", high=MAX_WIDTH),
            q_lora_rank=fields.integer("q_lora_rank", high=MAX_WIDTH),
            o_groups=groups,
            o_lora_rank=fields.integer("o_lora_rank", high=MAX_WIDTH),
        )
    return _grouped_queries(fields, family, hidden)


def _sliding(fields: Fields, family: Family, base: Attention) -> Gqa | None:
    """Attention of sliding-window layers where the config gives it shapes of its own (MiMo V2)."""
    if not isinstance(base, Gqa) or not fields.has("swa_num_key_value_heads", "swa_head_dim"):
        return None
    head_dim = fields.integer("swa_head_dim", high=MAX_WIDTH, default=base.head_dim)
    return Gqa(
        heads=fields.integer("swa_num_attention_heads", high=MAX_HEADS, default=base.heads),
        kv_heads=fields.integer("swa_num_key_value_heads", high=MAX_HEADS, default=base.kv_heads),
        head_dim=head_dim,
        v_head_dim=fields.integer("swa_v_head_dim", high=MAX_WIDTH, default=head_dim),
        qkv_bias=base.qkv_bias,
        o_bias=base.o_bias,
        qk_norm=base.qk_norm,
        sinks=fields.flag("add_swa_attention_sink_bias", default=family.sinks),
    )


_EXPERTS = ("n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts")
_TOPK = ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "moe_topk", "moe_k", "top_k_experts")
_EXPERT_INTER = ("moe_intermediate_size", "expert_ffn_hidden_size", "moe_ffn_hidden_size", "intermediate_size")
_SHARED_INTER = (
    "shared_expert_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "shared_intermediate_size",
    "share_expert_dim",
)
_SHARED_COUNT = ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts")


def _moe(fields: Fields, family: Family, model_type: str) -> Moe | None:
    # Two experts are the fewest that are routed between; 0 and 1 is how some dense configs say that there are none.
    if not fields.has(*_EXPERTS) or fields.integer(*_EXPERTS, low=0, high=MAX_EXPERTS) <= 1:
        return None
    experts = fields.integer(*_EXPERTS, high=MAX_EXPERTS)
    topk = fields.integer(*_TOPK, high=MAX_EXPERTS)
    if topk > experts:
        key = fields.first(*_TOPK) or _TOPK[0]
        raise fields.error(key, f"is {topk:,}, but there are only {experts:,} experts to choose from")
    inter = fields.integer(*_EXPERT_INTER, high=MAX_WIDTH)
    count = fields.integer(*_SHARED_COUNT, low=0, high=MAX_EXPERTS, default=-1)
    shared = fields.integer(*_SHARED_INTER, low=0, high=MAX_WIDTH, default=-1)
    if shared < 0:
        # Llama 4 has one shared expert as wide as a routed one; its config does not say so, its code does.
        shared = inter if model_type == "llama4_text" else max(count, 0) * inter
    elif count == 0:
        shared = 0
    return Moe(
        experts=experts,
        topk=topk,
        inter=inter,
        shared_inter=shared,
        shared_gate=family.shared_gate and shared > 0,
        latent=fields.integer("moe_latent_size", low=0, high=MAX_WIDTH, default=0),
        biases=family.expert_biases,
    )


def _linear(fields: Fields, model_type: str) -> LinearAttention | None:
    if not fields.has("linear_num_value_heads"):
        return None
    return LinearAttention(
        key_heads=fields.integer("linear_num_key_heads", high=MAX_HEADS),
        value_heads=fields.integer("linear_num_value_heads", high=MAX_HEADS),
        key_dim=fields.integer("linear_key_head_dim", high=MAX_WIDTH),
        value_dim=fields.integer("linear_value_head_dim", high=MAX_WIDTH),
        conv_kernel=fields.integer("linear_conv_kernel_dim", high=1024, default=4),
        fused_names=model_type == "qwen3_next",
    )


def _mamba(fields: Fields) -> Mamba | None:
    if not fields.has("mamba_num_heads"):
        return None
    return Mamba(
        heads=fields.integer("mamba_num_heads", high=MAX_HEADS),
        head_dim=fields.integer("mamba_head_dim", high=MAX_WIDTH),
        groups=fields.integer("n_groups", "mamba_n_groups", high=MAX_HEADS),
        state=fields.integer("ssm_state_size", "mamba_d_state", high=MAX_WIDTH),
        conv_kernel=fields.integer("conv_kernel", "mamba_d_conv", high=1024, default=4),
    )


def _indexer(fields: Fields) -> Indexer | None:
    if not fields.has("index_n_heads"):
        return None
    return Indexer(
        heads=fields.integer("index_n_heads", high=MAX_HEADS),
        head_dim=fields.integer("index_head_dim", high=MAX_WIDTH),
        topk=fields.integer("index_topk", high=MAX_CONTEXT),
    )


def _dtype(source: _Source, notes: list[str]) -> str:
    for fields in (source.fields, source.outer):
        name = fields.text("torch_dtype", "dtype").removeprefix("torch.")
        if name in _DTYPES:
            return _DTYPES[name]
        if name:
            notes.append(f"dtype {shown(name)} is not one of {', '.join(_DTYPES)}: BF16 is assumed")
            return "bf16"
    notes.append("the config names no dtype: BF16 is assumed for what is not quantised")
    return "bf16"


def parse_model_config(raw: Mapping[str, Any], where: str, *, name: str = "") -> Model:
    """The model that a config.json describes. `where` names the file in messages, `name` is what to call the model.

    Nothing in the config is executed or looked up; `auto_map` is only mentioned. Raises InputError, one sentence that
    names the field, for anything that is missing, mistyped or absurd.
    """
    source = _language_model(raw, where)
    fields, notes = source.fields, list[str]()
    model_type = _model_type(source)
    _refuse(model_type, source)
    family = family_of(model_type)
    canonical = ALIASES.get(model_type, model_type)
    if not family.known:
        what = (
            f"model_type {shown(model_type)} is not one of the known families"
            if model_type
            else "there is no model_type"
        )
        notes.append(f"{what}: read as a plain decoder, so check the total of parameters before trusting bytes")
    if raw.get("auto_map") is not None:
        notes.append("the config names code of its own (auto_map); it was not run")
    hidden = fields.integer("hidden_size", "n_embd", "d_model", high=MAX_WIDTH)
    attention = _attention(fields, family, canonical, hidden)
    moe = _moe(fields, family, canonical)
    indexer = _indexer(fields)
    built = build_layers(fields, canonical, moe=moe is not None, indexer=indexer is not None, limit=MAX_LAYERS)
    dense = None
    if any(layer.mlp == "dense" for layer in built.layers):
        dense = DenseMlp(
            fields.integer("dense_intermediate_size", "intermediate_size_mlp", "intermediate_size", high=MAX_WIDTH)
        )
    if model_type == "deepseek_v4":
        notes.append("compressors and the indexer of DeepSeek V4 (below 1% of its parameters) are not counted")
    if canonical == "minimax_m3":
        notes.append("the block indexer of MiniMax M3 is not counted")
    notes += [f"the tower of {key} is not counted" for key in source.has_tower()]
    tied_in = fields if fields.has("tie_word_embeddings") else source.outer
    checkpoint: Checkpoint = native_checkpoint(source.fields.raw, source.outer.raw, where)
    return Model(
        key=name or model_type or "model",
        name=name or model_type or "model",
        family=model_type,
        hidden=hidden,
        vocab=fields.integer("vocab_size", high=MAX_VOCAB),
        layers=built.layers,
        attention=attention,
        checkpoint=checkpoint,
        moe=moe,
        dense=dense,
        sliding=_sliding(fields, family, attention),
        window=built.window,
        indexer=indexer,
        linear=_linear(fields, canonical),
        mamba=_mamba(fields),
        gated=family.gated,
        tied=tied_in.flag("tie_word_embeddings", default=family.tied_default),
        dtype=_dtype(source, notes),
        context=fields.integer("max_position_embeddings", low=0, high=MAX_CONTEXT, default=0),
        naming=family.naming,
        source=where,
        config={**source.outer.used, **fields.used},
        checkpoints=(checkpoint,),
        notes=(*notes, *built.notes),
    )
