"""A tiny Qwen3-MoE model as a folder (config and tokenizer, no weights), which vLLM serves with `--load-format dummy`.

python tools/make_tiny_model.py FOLDER        # in vLLM's environment: tokenizers and transformers are there
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import ByteLevelBPETokenizer
from transformers import PreTrainedTokenizerFast

END = "<|endoftext|>"
CONFIG = {
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 256,
    "intermediate_size": 512,
    "moe_intermediate_size": 128,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 320,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "norm_topk_prob": True,
    "tie_word_embeddings": False,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "eos_token_id": 0,
    "bos_token_id": 0,
    "torch_dtype": "bfloat16",
}


def main(folder: Path) -> None:
    """Write it."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train_from_iterator(["hello world " * 50] * 5, vocab_size=300, special_tokens=[END])
    made = PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token=END, bos_token=END, pad_token=END)
    made.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=1))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
