"""What `build_data.py` decides about models and measurements, each decision with its reason.

The numbers in comments ("notes 11") are those of the facts folder's notes.md ("Model facts", "Measurements").
"""

from __future__ import annotations

from typing import Any

HF = "https://huggingface.co/"

# Names that mean a model beside its key and its Hugging Face ids. `checkpoint_of` maps a sibling's id to its shapes.
ALIASES: dict[str, list[str]] = {
    "GLM-4.6/4.7": ["GLM-4.6", "GLM-4.7"],
    "MiniMax-M2/M2.5/M2.7": ["MiniMax-M2", "MiniMax-M2.5", "MiniMax-M2.7"],
    "Kimi-K2": ["Kimi-K2-Instruct", "Kimi-K2.5", "Kimi-K2.6", "Kimi-K2.7-Code"],
    "Qwen3-Next-80B-A3B": ["Qwen3-Next-80B-A3B-Instruct", "Qwen3-Next-80B-A3B-Thinking"],
    "Qwen3-Coder-480B-A35B": ["Qwen3-Coder-480B-A35B-Instruct"],
    "Llama-4-Maverick": ["Llama-4-Maverick-17B-128E", "Llama-4-Maverick-17B-128E-Instruct"],
    "Mixtral-8x7B": ["Mixtral-8x7B-v0.1", "Mixtral-8x7B-Instruct-v0.1"],
}
HF_IDS: dict[str, list[str]] = {
    "GLM-4.6/4.7": ["zai-org/GLM-4.6", "zai-org/GLM-4.7"],
    "MiniMax-M2/M2.5/M2.7": ["MiniMaxAI/MiniMax-M2", "MiniMaxAI/MiniMax-M2.5", "MiniMaxAI/MiniMax-M2.7"],
    "Kimi-K2": ["moonshotai/Kimi-K2-Instruct", "moonshotai/Kimi-K2.5", "moonshotai/Kimi-K2.6"],
}

# Facts keys -> the families' own config keys.
RENAMED = {"native_quantization": "quantization_config"}
# Facts keys that are derived from others, or say nothing about size.
DROPPED = {
    "architectures", "moe_layers", "dense_layers", "n_group", "topk_group", "scoring_func", "routed_scaling_factor",
    "gated_mlp", "layer_pattern", "hidden_act",
}  # fmt: skip

_LINEAR_KEYS = {
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16, "linear_value_head_dim": 128,
}  # fmt: skip


def _mamba(heads: int) -> dict[str, Any]:
    return {
        "mamba_num_heads": heads, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "conv_kernel": 4,
    }  # fmt: skip


# Values of the same config.json that the facts' table has no column for, and what follows from its layer_pattern.
# key -> (values, source; None: the model's own config source)
SUPPLEMENTS: dict[str, tuple[dict[str, Any], str | None]] = {
    # Indexers of their own: layers 0 to 2, then every fourth (also the list of zai-org/GLM-5.2-FP8's config).
    "GLM-5.2": ({"index_topk_freq": 4, "index_skip_topk_offset": 3}, None),
    "GLM-4.5": ({"attention_bias": True, "use_qk_norm": True}, None),
    "GLM-4.6/4.7": ({"attention_bias": True, "use_qk_norm": True}, None),
    "GLM-4.5-Air": ({"attention_bias": True}, None),
    "Qwen3-Next-80B-A3B": (
        {**_LINEAR_KEYS, "linear_num_value_heads": 32, "full_attention_interval": 4},
        HF + "Qwen/Qwen3-Next-80B-A3B-Instruct/blob/main/config.json",
    ),
    "Qwen3.5-397B-A17B": (
        {**_LINEAR_KEYS, "linear_num_value_heads": 64, "full_attention_interval": 4, "tie_word_embeddings": False},
        None,
    ),
    "Qwen3.5-122B-A10B": (
        {**_LINEAR_KEYS, "linear_num_value_heads": 64, "full_attention_interval": 4, "tie_word_embeddings": False},
        None,
    ),
    "gpt-oss-120b": (
        {"attention_bias": True, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 18},
        None,
    ),
    "gpt-oss-20b": (
        {"attention_bias": True, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12},
        None,
    ),
    "Llama-4-Maverick": ({"interleave_moe_layer_step": 2}, None),
    "Nemotron-3-Nano-30B-A3B": (_mamba(64), None),
    "Nemotron-3-Super-120B-A12B": ({**_mamba(128), "mtp_hybrid_override_pattern": "*E"}, None),
    "Nemotron-3-Ultra-550B-A55B": ({**_mamba(256), "mtp_layers_block_type": ["attention", "moe"]}, None),
    "DeepSeek-V4-Flash": ({"o_groups": 8, "o_lora_rank": 1024, "sliding_window": 128, "expert_dtype": "fp4"}, None),
    "DeepSeek-V4-Pro": ({"o_groups": 16, "o_lora_rank": 1024, "sliding_window": 128, "expert_dtype": "fp4"}, None),
}
# Keys of the facts whose meaning differs from that of the family's own key.
OVERRIDES: dict[str, dict[str, Any]] = {
    "Llama-4-Maverick": {"moe_layer_freq": None, "model_type": "llama4_text"},
    "Qwen3.5-397B-A17B": {"model_type": "qwen3_5_moe_text"},
    "Qwen3.5-122B-A10B": {"model_type": "qwen3_5_moe_text"},
}

# The layer patterns that the facts hold as counts, so that a supplement is checked against them.
MIXER_COUNTS = {"linear_attention": "linear", "full_attention": "attention", "sliding_attention": "sliding"}

# What the notes say about a model: readings that were not taken.
MODEL_REJECTED: dict[str, list[dict[str, Any]]] = {
    "GLM-5": [
        {
            "value": "620B, 160 experts, hidden 7168",
            "source": "(community wiki)",
            "why": "config.json says hidden 6144, 78 layers, 256 experts, 2048 wide (notes 10)",
        }
    ],
    "MiniMax-M2/M2.5/M2.7": [
        {
            "value": "32 layers, 8 experts",
            "source": "apxml",
            "why": "config.json says 62 layers, 256 experts (notes 12)",
        },
        {
            "value": "456B / 45.9B",
            "source": "https://docs.nvidia.com/nemo/megatron-bridge/nightly/models/minimax/minimax-m2.html",
            "why": "MiniMax-M1's figures; M2 is 230B / 10B (notes 12)",
        },
    ],
    "gpt-oss-120b": [
        {"value": "12B active", "source": "(community gist)", "why": "published and derived: 5.1B (notes 13)"}
    ],
    "GLM-4.6/4.7": [{"value": "700B", "source": "(community gist)", "why": "published: 355B (notes 13)"}],
}

# Bytes a parameter of NVFP4 (notes 14): 0.5 + one byte of scale for 16. The 0.53 of one community table is 6% low.

# (model key, position in the facts' list) -> how to take a checkpoint that the facts describe in words.
#   name      what to call it where the facts have no repository name
#   format, quantised   the components it stores in that format
#   ignore    module patterns it leaves alone
#   skip      why it cannot be used for bytes
CHECKPOINTS: dict[tuple[str, int], dict[str, Any]] = {
    ("GLM-5", 2): {
        "name": "community/GLM-5-NVFP4-experts-only",
        "format": "nvfp4",
        "quantised": ["experts"],
        "has_mtp": False,
    },
    ("GLM-5", 3): {
        "name": "community/GLM-5-NVFP4-experts-only-MTP",
        "format": "nvfp4",
        "quantised": ["experts"],
    },
    ("GLM-5.1", 2): {
        "name": "community/GLM-5.1-NVFP4-experts-only",
        "format": "nvfp4",
        "quantised": ["experts"],
        "note": "its 434 GB are GiB: the sum of its parts is 433.7 GiB",
    },
    ("GLM-5.1", 3): {
        "format": "nvfp4",
        "quantised": ["linear"],
        "note": "the multi-token-prediction layer is taken as BF16: its 441 GB come out only so",
    },
    ("GLM-5.1", 4): {
        "name": "community/GLM-5.1-NVFP4-REAP-160",
        "format": "nvfp4",
        "quantised": ["experts"],
        "experts": 160,
        "note": "what it leaves unquantised is not stated; with routed experts only its size comes out (in GiB)",
    },
    ("GLM-5.2", 2): {
        "name": "community/GLM-5.2-NVFP4-REAP-168",
        "format": "nvfp4",
        "quantised": ["experts"],
        "experts": 168,
        "note": "what it leaves unquantised is not stated; with routed experts only its size comes out",
    },
    ("GLM-4.6/4.7", 0): {"format": "nvfp4", "quantised": ["experts", "shared_experts", "dense_mlp"]},
    ("GLM-4.6/4.7", 1): {"skip": "GLM-4.7-NVFP4 (Salyut1 and others): what it leaves unquantised is not stated"},
    ("DeepSeek-R1", 1): {
        "algorithm": "NVFP4",
        "ignore": [
            ["lm_head", None],
            ["model.layers.N.self_attn.q_a_proj", "0-60"],
            ["model.layers.N.self_attn.q_b_proj", "0-60"],
            ["model.layers.N.self_attn.kv_a_proj_with_mqa", "0-60"],
            ["model.layers.N.self_attn.kv_b_proj", "0-60"],
            ["model.layers.N*", "61"],
        ],
        "note": "the multi-token-prediction layer is taken as left alone, as in nvidia/DeepSeek-V3.1-NVFP4",
    },
    # The same config.json holds kv_cache_scheme {num_bits 8, type float}, which the facts' table has no column for.
    ("Kimi-K2", 1): {"kv_cache_quant_algo": "FP8"},
    # The stored copy's quantized_layers (read in the source named) list layers.N.ffn.experts as NVFP4 and no others.
    ("DeepSeek-V4-Flash", 0): {
        "format": "nvfp4",
        "quantised": ["experts"],
        "note": "what the excluded modules are stored in is not stated: counted as trained (BF16)",
    },
    ("DeepSeek-V4-Pro", 0): {
        "format": "nvfp4",
        "quantised": ["experts"],
        "note": "what the excluded modules are stored in is not stated: counted as trained (BF16)",
    },
}

# Models whose config names prediction layers that no list of their checkpoints mentions: not counted in the files.
MTP_NOT_STORED: dict[str, str] = {
    "MiniMax-M2/M2.5/M2.7": "the config names 3 multi-token-prediction modules; nothing says that the files hold them, "
    "so they are not counted",
}

# What the notes say about measurements, by id.
MEASUREMENT_WARNINGS: dict[str, str] = {
    "glm51_8xpro6000_vllm_v2_dcp1_mtp_on": "dips from c4 to c8: real in that stack, not physics; the same hardware did "
    "684-855 tok/s at c32 two weeks earlier with another MoE backend (notes 21)",
    "glm51_8xpro6000_cc32_sglang_vs_vllm": "server-side and client-side rates differ by up to 2.2x: say which one is "
    "meant (notes 26)",
    "glm51_8xpro6000_dense_vs_nsa": "30 runs a variant cannot separate them: open, not proof of a loss (notes 16)",
    "flashinfer_pr5179_glm5": "its GPU is not named in what could be read: not to be used for SM120 (notes 27)",
    "glm5_8xpro6000_sglang_oneshot_ar": "+7% without MTP, -4% to -16% with it: depends on the message size (notes 17)",
}
