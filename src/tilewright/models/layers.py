"""Which block stands in which layer: the many ways in which configs say it.

Each reader below mirrors one of them; the first that the config speaks is taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from tilewright.errors import shown
from tilewright.models.reading import Fields
from tilewright.models.records import Layer, Mixer, Mlp

__all__ = ["Layers", "build_layers"]

_MIXERS: dict[str, Mixer] = {
    "full_attention": "attention",
    "attention": "attention",
    "chunked_attention": "attention",
    "deepseek_sparse_attention": "attention",
    "sparse_attention": "attention",
    "sliding_attention": "sliding",
    "linear_attention": "linear",
    "mamba": "mamba",
}
# Nemotron-H writes one block a layer: M Mamba, E experts, * attention, - dense MLP.
_BLOCKS: dict[str, tuple[Mixer, Mlp]] = {
    "M": ("mamba", "none"),
    "mamba": ("mamba", "none"),
    "E": ("none", "moe"),
    "moe": ("none", "moe"),
    "*": ("attention", "none"),
    "attention": ("attention", "none"),
    "-": ("none", "dense"),
    "mlp": ("none", "dense"),
}
# Mistral's first models slide in every layer and have no layer_types; others name a window that they do not use.
_ALL_SLIDING = frozenset({"mistral", "mixtral"})
MAX_WINDOW = 1 << 31
MAX_MTP_LAYERS = 64


@dataclass(frozen=True, slots=True)
class Layers:
    layers: tuple[Layer, ...]
    window: int
    notes: tuple[str, ...] = ()


def _blocks(fields: Fields, limit: int, text_key: str, list_key: str) -> list[tuple[Mixer, Mlp]] | None:
    text, entries = fields.text(text_key), fields.items(list_key)
    key = text_key if text else list_key
    symbols: Sequence[object] = list(text) if text else (entries or ())
    if not symbols:
        return None
    if len(symbols) > limit:
        raise fields.error(key, f"names {len(symbols):,} layers; more than {limit:,} is no model")
    for symbol in symbols:
        if not isinstance(symbol, str) or symbol not in _BLOCKS:
            raise fields.error(key, f"holds {shown(symbol)}; a block is one of {', '.join(_BLOCKS)}")
    return [_BLOCKS[cast("str", symbol)] for symbol in symbols]


def _every(count: int, interval: int, otherwise: Mixer) -> list[Mixer]:
    """Full attention in every `interval`-th layer."""
    mixers: list[Mixer] = [otherwise] * count
    for i in range(interval - 1, count, interval):
        mixers[i] = "attention"
    return mixers


def _mixers(fields: Fields, model_type: str, count: int) -> list[Mixer]:
    types = fields.items("layer_types", count)
    if types is not None:
        for entry in types:
            if not isinstance(entry, str) or entry not in _MIXERS:
                raise fields.error("layer_types", f"holds {shown(entry)}; a layer is one of {', '.join(_MIXERS)}")
        return [_MIXERS[entry] for entry in types]
    if fields.has("full_attention_interval"):
        every = fields.integer("full_attention_interval", high=count)
        return _every(count, every, "linear")
    pattern = fields.items("hybrid_layer_pattern", count)
    if pattern is not None:  # MiMo V2: 1 is a sliding window
        return ["sliding" if entry == 1 else "attention" for entry in pattern]
    if fields.has("sliding_window_pattern") and fields.has("sliding_window"):
        every = fields.integer("sliding_window_pattern", high=MAX_WINDOW)
        return _every(count, every, "sliding")
    if model_type in _ALL_SLIDING and fields.has("sliding_window"):
        return ["sliding"] * count
    return ["attention"] * count


def _sparse(fields: Fields, count: int) -> list[Mlp]:
    """dense or moe for each layer of a model that has experts."""

    def pick(is_moe: Sequence[bool]) -> list[Mlp]:
        kinds: dict[bool, Mlp] = {True: "moe", False: "dense"}
        return [kinds[item] for item in is_moe]

    types = fields.items("mlp_layer_types", count)
    if types is not None:
        for entry in types:
            if entry not in ("dense", "sparse", "moe"):
                raise fields.error("mlp_layer_types", f"holds {shown(entry)}; a layer is dense or sparse")
        return pick([entry != "dense" for entry in types])
    if isinstance(fields.raw.get("moe_layer_freq"), list):
        frequency = fields.items("moe_layer_freq", count) or ()
        if any(entry not in (0, 1, True, False) for entry in frequency):
            raise fields.error("moe_layer_freq", "must hold 0 (dense) or 1 (experts) for each layer")
        return pick([bool(entry) for entry in frequency])
    if fields.has("interleave_moe_layer_step"):  # Llama 4
        step = fields.integer("interleave_moe_layer_step", high=count)
        return pick([(i + 1) % step == 0 for i in range(count)])
    if fields.has("decoder_sparse_step"):  # Qwen
        step = fields.integer("decoder_sparse_step", high=count)
        dense_only = fields.indices("mlp_only_layers", count)
        return pick([i not in dense_only and (i + 1) % step == 0 for i in range(count)])
    if fields.has("moe_layer_start_index", "moe_layer_interval"):  # ERNIE 4.5
        first = fields.integer("moe_layer_start_index", low=0, high=count, default=0)
        last = fields.integer("moe_layer_end_index", low=-1, high=count, default=-1)
        step = fields.integer("moe_layer_interval", high=count, default=1)
        last = count - 1 if last < 0 else last
        return pick([first <= i <= last and (i + 1) % step == 0 for i in range(count)])
    first = fields.integer("first_k_dense_replace", low=0, high=count, default=0)
    step = fields.integer("moe_layer_freq", high=count, default=1)
    dense_only = fields.indices("mlp_only_layers", count)
    return pick([i >= first and i % step == 0 and i not in dense_only for i in range(count)])


def _indexers(fields: Fields, count: int) -> list[bool]:
    """Which layers run an indexer of their own; the others use that of an earlier layer (GLM-5.2)."""
    types = fields.items("indexer_types", count)
    if types is not None:
        return [entry == "full" for entry in types]
    if fields.has("index_topk_freq"):
        every = fields.integer("index_topk_freq", high=count)
        offset = fields.integer("index_skip_topk_offset", low=0, high=count, default=0)
        return [i < offset or (i - offset + 1) % every == 0 for i in range(count)]
    return [True] * count


def _window(fields: Fields, mixers: Sequence[Mixer]) -> int:
    if "sliding" not in mixers:
        return 0
    return fields.integer("sliding_window", "sliding_window_size", high=MAX_WINDOW)


def build_layers(fields: Fields, model_type: str, *, moe: bool, indexer: bool, limit: int) -> Layers:
    """Every layer of the model, multi-token-prediction layers last. Raises InputError for contradictory counts."""
    mixers: list[Mixer]
    mlps: list[Mlp]
    blocks = _blocks(fields, limit, "hybrid_override_pattern", "layers_block_type")
    if blocks is not None:
        count = fields.integer("num_hidden_layers", high=limit, default=len(blocks))
        if count != len(blocks):
            raise fields.error("num_hidden_layers", f"is {count:,}, but the layer pattern has {len(blocks):,} layers")
        mixers, mlps = [mixer for mixer, _ in blocks], [mlp for _, mlp in blocks]
    else:
        count = fields.integer("num_hidden_layers", "n_layer", "num_layers", high=limit)
        mixers = _mixers(fields, model_type, count)
        mlps = _sparse(fields, count) if moe else ["dense"] * count
    if "moe" in mlps and not moe:
        raise fields.error("n_routed_experts", "is missing, although layers with experts are named")
    has_indexer = _indexers(fields, count) if indexer and model_type != "deepseek_v4" else [False] * count
    layers = [
        Layer(i, mixer, mlp, has_indexer[i] and mixer == "attention")
        for i, (mixer, mlp) in enumerate(zip(mixers, mlps, strict=True))
    ]
    notes: list[str] = []
    extra = fields.integer(
        "num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_modules", low=0, high=MAX_MTP_LAYERS, default=0
    )
    mtp_blocks = _blocks(fields, MAX_MTP_LAYERS, "mtp_hybrid_override_pattern", "mtp_layers_block_type")
    one: list[tuple[Mixer, Mlp]] = mtp_blocks or [("attention", "moe" if moe else "dense")]
    for _ in range(extra):
        layers += [
            Layer(len(layers) + i, mixer, mlp, has_indexer[-1:] != [] and any(has_indexer), mtp=True)
            for i, (mixer, mlp) in enumerate(one)
        ]
    return Layers(tuple(layers), _window(fields, mixers), tuple(notes))
