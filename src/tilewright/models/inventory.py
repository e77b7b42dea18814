"""Every weight matrix of a model: its name, its shape, how many there are, and how tensor parallelism cuts it.

This is the one place where shapes are written down. Parameters, bytes on disk, bytes a GPU holds and the formats of a
checkpoint are all sums over these rows. How engines cut each matrix follows the model files of vLLM and SGLang
(`models/deepseek_v2.py`, `models/qwen3_moe.py`, ...): projections out of the hidden state are cut along their
outputs, projections back along their inputs, low-rank parts, routers, norms and indexers are whole on every rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from tilewright.models.records import Gqa, GroupedOutput, Layer, Mla, Model, Moe

__all__ = ["Cut", "Weight", "parameters", "weights"]

Cut = Literal["whole", "out", "in", "heads_out", "heads_in", "kv_heads", "vocab", "expert_out", "expert_in", "expert"]
"""How ranks share a matrix: whole on each; cut along outputs or inputs; by attention heads (divided over the ranks
that share attention); by KV heads (repeated when there are fewer than ranks); by vocabulary; an expert's matrix, cut
along outputs or inputs within its expert-parallel group, or whole there."""


@dataclass(frozen=True, slots=True)
class Weight:
    """`count` equal matrices of `out` x `inn` elements, with `bias` more elements each that are never quantised.

    `parts` names the modules that engines fuse into this one matrix (gate and up), each with out / parts rows.
    `quantisable`: yes, never, or only when a checkpoint names the module itself.
    """

    component: str
    name: str
    layer: int | None
    out: int
    inn: int
    cut: Cut = "whole"
    count: int = 1
    heads: int = 0
    bias: int = 0
    parts: int = 1
    quantisable: Literal["yes", "named", "never"] = "yes"
    mtp: bool = False

    @property
    def elements(self) -> int:
        return self.count * (self.out * self.inn + self.bias)


class _Writer:
    """Writes the rows of one layer."""

    def __init__(self, model: Model, layer: Layer, prefix: str) -> None:
        self.model, self.layer, self.prefix = model, layer, prefix
        self.rows: list[Weight] = []

    def add(self, component: str, name: str, out: int, inn: int, cut: Cut = "whole", **more: int | str) -> None:
        self.rows.append(
            Weight(component, f"{self.prefix}.{name}", self.layer.index, out, inn, cut, mtp=self.layer.mtp, **more)  # type: ignore[arg-type]
        )

    def norm(self, name: str, size: int) -> None:
        self.add("norms", name, size, 1, quantisable="never")


def _mla(write: _Writer, mla: Mla) -> None:
    hidden, attn = write.model.hidden, write.model.naming.attention
    qk = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    if mla.q_lora_rank:
        write.add("attention", f"{attn}.q_a_proj", mla.q_lora_rank, hidden)
        write.norm(f"{attn}.q_a_layernorm", mla.q_lora_rank)
        write.add("attention", f"{attn}.q_b_proj", mla.heads * qk, mla.q_lora_rank, "heads_out", heads=mla.heads)
    else:
        write.add("attention", f"{attn}.q_proj", mla.heads * qk, hidden, "heads_out", heads=mla.heads)
    write.add("attention", f"{attn}.kv_a_proj_with_mqa", mla.cached, hidden)
    write.norm(f"{attn}.kv_a_layernorm", mla.kv_lora_rank)
    up = mla.heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    write.add("attention", f"{attn}.kv_b_proj", up, mla.kv_lora_rank, "heads_out", heads=mla.heads)
    write.add("attention", f"{attn}.o_proj", hidden, mla.heads * mla.v_head_dim, "heads_in", heads=mla.heads)


def _gqa(write: _Writer, gqa: Gqa) -> None:
    hidden, attn = write.model.hidden, write.model.naming.attention
    q, k, v = gqa.heads * gqa.head_dim, gqa.kv_heads * gqa.head_dim, gqa.kv_heads * gqa.v_head_dim
    q_out = 2 * q if gqa.output_gate else q
    bias = int(gqa.qkv_bias)
    write.add("attention", f"{attn}.q_proj", q_out, hidden, "heads_out", heads=gqa.heads, bias=bias * q_out)
    write.add("attention", f"{attn}.k_proj", k, hidden, "kv_heads", heads=gqa.kv_heads, bias=bias * k)
    write.add("attention", f"{attn}.v_proj", v, hidden, "kv_heads", heads=gqa.kv_heads, bias=bias * v)
    o_bias = hidden if gqa.o_bias else 0
    write.add(
        "attention", f"{attn}.o_proj", hidden, gqa.heads * gqa.v_head_dim, "heads_in", heads=gqa.heads, bias=o_bias
    )
    if gqa.qk_norm != "none":
        full = gqa.qk_norm == "full"
        write.norm(f"{attn}.q_norm", q if full else gqa.head_dim)
        write.norm(f"{attn}.k_norm", k if full else gqa.head_dim)
    if gqa.sinks:
        write.norm(f"{attn}.sinks", gqa.heads)


def _grouped_output(write: _Writer, attention: GroupedOutput) -> None:
    hidden, attn = write.model.hidden, write.model.naming.attention
    wide, low = attention.heads * attention.head_dim, attention.o_groups * attention.o_lora_rank
    write.add("attention", f"{attn}.wq_a", attention.q_lora_rank, hidden)
    write.norm(f"{attn}.q_norm", attention.q_lora_rank)
    write.add("attention", f"{attn}.wq_b", wide, attention.q_lora_rank, "heads_out", heads=attention.heads)
    write.add("attention", f"{attn}.wkv", attention.head_dim, hidden)
    write.norm(f"{attn}.kv_norm", attention.head_dim)
    write.add("attention", f"{attn}.wo_a", low, wide // attention.o_groups, "heads_out", heads=attention.o_groups)
    write.add("attention", f"{attn}.wo_b", hidden, low, "heads_in", heads=attention.o_groups)


def _indexer(write: _Writer) -> None:
    model, attn = write.model, write.model.naming.attention
    indexer = model.indexer
    if indexer is None:
        return
    rank = model.attention.q_lora_rank if isinstance(model.attention, Mla) else model.hidden
    write.add("indexer", f"{attn}.indexer.wq_b", indexer.heads * indexer.head_dim, rank or model.hidden)
    write.add("indexer", f"{attn}.indexer.wk", indexer.head_dim, model.hidden)
    write.add("indexer", f"{attn}.indexer.weights_proj", indexer.heads, model.hidden, quantisable="named")
    write.add("norms", f"{attn}.indexer.k_norm", indexer.head_dim, 1, bias=indexer.head_dim, quantisable="never")


def _linear_attention(write: _Writer) -> None:
    model, name = write.model, write.model.naming.linear
    linear = model.linear
    if linear is None:
        return
    keys, values = linear.key_heads * linear.key_dim, linear.value_heads * linear.value_dim
    heads = linear.value_heads
    if linear.fused_names:
        inputs = [("in_proj_qkvz", 2 * keys + 2 * values), ("in_proj_ba", 2 * heads)]
    else:
        inputs = [("in_proj_qkv", 2 * keys + values), ("in_proj_z", values), ("in_proj_b", heads), ("in_proj_a", heads)]
    for part, out in inputs:
        write.add("linear_attention", f"{name}.{part}", out, model.hidden, "heads_out", heads=linear.key_heads)
    conv = 2 * keys + values
    write.add(
        "linear_attention", f"{name}.conv1d", conv, linear.conv_kernel, "heads_out", heads=linear.key_heads,
        quantisable="never",
    )  # fmt: skip
    write.add("linear_attention", f"{name}.A_log", 2 * heads, 1, "heads_out", heads=heads, quantisable="never")
    write.norm(f"{name}.norm", linear.value_dim)
    write.add("linear_attention", f"{name}.out_proj", model.hidden, values, "heads_in", heads=heads)


def _mamba(write: _Writer) -> None:
    model, name = write.model, write.model.naming.linear
    mamba = model.mamba
    if mamba is None:
        return
    inner, states = mamba.heads * mamba.head_dim, 2 * mamba.groups * mamba.state
    write.add(
        "mamba", f"{name}.in_proj", 2 * inner + states + mamba.heads, model.hidden, "heads_out", heads=mamba.heads
    )
    write.add(
        "mamba", f"{name}.conv1d", inner + states, mamba.conv_kernel, "heads_out", heads=mamba.heads,
        bias=inner + states, quantisable="never",
    )  # fmt: skip
    write.add("mamba", f"{name}.A_log", 3 * mamba.heads, 1, "heads_out", heads=mamba.heads, quantisable="never")
    write.add("norms", f"{name}.norm", inner, 1, "heads_out", heads=mamba.heads, quantisable="never")
    write.add("mamba", f"{name}.out_proj", model.hidden, inner, "heads_in", heads=mamba.heads)


def _mlp(write: _Writer, component: str, path: str, inter: int) -> None:
    naming, hidden, gated = write.model.naming, write.model.hidden, write.model.gated
    first = naming.gate if gated else naming.up
    write.add(component, f"{path}.{first}", inter * (2 if gated else 1), hidden, "out", parts=2 if gated else 1)
    write.add(component, f"{path}.{naming.down}", hidden, inter, "in")


def _experts(write: _Writer, moe: Moe) -> None:
    model, naming = write.model, write.model.naming
    count = moe.experts
    path = f"{naming.moe}.{naming.experts}"
    width, gated = moe.latent or model.hidden, model.gated
    rows = moe.inter * (2 if gated else 1)
    # Experts are one row with the number 0: a pattern that tells experts of one layer apart does not exist in practice.
    gate, up, down = naming.expert_parts or (naming.gate, naming.up, naming.down)
    first = gate if gated else up
    write.add(
        "experts_w13", f"{path}.0.{first}", rows, width, "expert_out", count=count, parts=2 if gated else 1,
        bias=rows if moe.biases else 0,
    )  # fmt: skip
    write.add(
        "experts_w2", f"{path}.0.{down}", width, moe.inter, "expert_in", count=count,
        bias=width if moe.biases else 0,
    )  # fmt: skip
    write.add(
        "router", f"{naming.moe}.{naming.router}", count, model.hidden, quantisable="named",
        bias=count if moe.biases or model.family in _ROUTER_BIAS else 0,
    )  # fmt: skip
    if moe.latent:
        write.add("latent", f"{naming.moe}.fc1_latent_proj", moe.latent, model.hidden)
        write.add("latent", f"{naming.moe}.fc2_latent_proj", model.hidden, moe.latent)
    if moe.shared_inter:
        _mlp(write, "shared_experts", f"{naming.moe}.{naming.shared}", moe.shared_inter)
        if moe.shared_gate:
            write.add("router", f"{naming.moe}.shared_expert_gate", 1, model.hidden, quantisable="named")


# Families whose router adds a correction bias, one element an expert (e_score_correction_bias).
_ROUTER_BIAS = frozenset(
    {"deepseek_v3", "deepseek_v32", "deepseek_v4", "kimi_k2", "kimi_k25_text", "glm_moe_dsa", "glm4_moe",
     "glm4_moe_lite", "minimax_m2", "minimax_m3", "nemotron_h", "dots1", "step3p7", "mimo_v2_flash"}
)  # fmt: skip


def _layer(model: Model, layer: Layer, prefix: str) -> list[Weight]:
    write = _Writer(model, layer, prefix)
    if layer.mixer in ("attention", "sliding"):
        attention = model.attention
        if isinstance(attention, Mla):
            _mla(write, attention)
        elif isinstance(attention, GroupedOutput):
            _grouped_output(write, attention)
        else:
            _gqa(write, model.sliding if layer.mixer == "sliding" and model.sliding else attention)
        if layer.indexer:
            _indexer(write)
    elif layer.mixer == "linear":
        _linear_attention(write)
    elif layer.mixer == "mamba":
        _mamba(write)
    if layer.mlp == "dense" and model.dense is not None:
        _mlp(write, "dense_mlp", model.naming.mlp, model.dense.inter)
    elif layer.mlp == "moe" and model.moe is not None:
        _experts(write, model.moe)
    for name in ("input_layernorm", "post_attention_layernorm")[: 1 if "none" in (layer.mixer, layer.mlp) else 2]:
        write.norm(name, model.hidden)
    return write.rows


def _outside(model: Model) -> Iterator[Weight]:
    yield Weight("embedding", model.naming.embedding, None, model.vocab, model.hidden, "vocab", quantisable="never")
    if not model.tied:
        yield Weight("lm_head", model.naming.head, None, model.vocab, model.hidden, "vocab", quantisable="named")
    yield Weight("norms", "model.norm", None, model.hidden, 1, quantisable="never")


def _mtp_glue(model: Model, layer: Layer, prefix: str) -> Iterator[Weight]:
    """What joins a multi-token-prediction layer to the model. Its embedding and head are the model's own."""

    def glue(name: str, out: int, inn: int) -> Weight:
        quantisable: Literal["named", "never"] = "named" if inn > 1 else "never"
        return Weight("mtp", f"{prefix}.{name}", layer.index, out, inn, quantisable=quantisable, mtp=True)

    yield glue("eh_proj", model.hidden, 2 * model.hidden)
    for name in ("enorm", "hnorm", "shared_head.norm"):
        yield glue(name, model.hidden, 1)


@lru_cache(maxsize=32)
def weights(model: Model) -> tuple[Weight, ...]:
    """Every weight of the model, layer by layer, multi-token-prediction layers last."""
    rows = list(_outside(model))
    first_mtp = True
    for layer in model.layers:
        base = model.naming.mtp if layer.mtp and model.naming.mtp else model.naming.layers
        number = layer.index - len(model.main_layers) if layer.mtp and model.naming.mtp else layer.index
        prefix = f"{base}.{number}"
        rows += _layer(model, layer, prefix)
        # A family that writes one block a layer spreads a prediction layer over several: it is joined once.
        if layer.mtp and (first_mtp or "none" not in (layer.mixer, layer.mlp)):
            rows += _mtp_glue(model, layer, prefix)
            first_mtp = False
    return tuple(rows)


def parameters(model: Model, *, active: bool = False, mtp: bool = False) -> int:
    """Parameters of the model; with `active`, those that one token touches. Multi-token prediction is left out
    unless `mtp`: published totals leave it out as well."""
    total = 0
    for row in weights(model):
        if row.mtp and not mtp:
            continue
        count = row.count
        if active and row.component.startswith("experts_") and model.moe is not None:
            count = model.moe.topk
        total += count * (row.out * row.inn + row.bias)
    return total
