"""A model as its checkpoint stores it, folded into kinds of layers: what a step runs, and how often.

A model of 78 layers has two or three kinds. Everything that costs time or memory is a sum over kinds, so the kinds
are found once for a model and its checkpoint and kept.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from tilewright.models.checkpoint import Checkpoint
from tilewright.models.formats import FORMATS, WeightFormat
from tilewright.models.inventory import Weight, weights
from tilewright.models.memory import Parallel, shard
from tilewright.models.records import Layer, Mixer, Mlp, Model
from tilewright.models.stages import stage_bounds, stage_of

__all__ = ["Gemm", "LayerKind", "Profile", "Row", "profile", "stage_layers"]


@dataclass(frozen=True, slots=True)
class Row:
    """One weight of a layer with the format that it is stored in."""

    weight: Weight
    format: WeightFormat


@dataclass(frozen=True, slots=True)
class Gemm:
    """One GEMM of a layer on one GPU: `m` comes from the batch, `n` x `k` is the shard, `groups` experts hold one each
    (1: every token passes it). `whole`: every rank computes all of it."""

    component: str
    name: str
    n: int
    k: int
    format: WeightFormat
    groups: int = 1
    whole: bool = False
    batched_heads: int = 0
    """Heads over which a matrix is applied one by one (the absorbed projections of MLA); 0: none."""


@dataclass(frozen=True, eq=False, slots=True)
class LayerKind:
    """Layers that are made of the same matrices in the same formats. `indices` are their numbers. Compared by
    identity: a profile makes each of its kinds once, and they are keys of caches."""

    mixer: Mixer
    mlp: Mlp
    indexer: bool
    mtp: bool
    rows: tuple[Row, ...]
    indices: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.indices)

    def component(self, name: str) -> tuple[Row, ...]:
        return tuple(row for row in self.rows if row.weight.component == name)

    def gemms(self, parallel: Parallel) -> tuple[Gemm, ...]:
        """The GEMMs that one GPU runs in such a layer, projections of one input fused as engines fuse them."""
        return _gemms(self, parallel)


@dataclass(frozen=True, eq=False, slots=True)
class Profile:
    """The kinds of a model's layers, prediction layers apart, and what stands outside them."""

    model: Model
    checkpoint: Checkpoint
    kinds: tuple[LayerKind, ...]
    mtp: tuple[LayerKind, ...]
    outside: tuple[Row, ...]

    @property
    def layers(self) -> int:
        return sum(kind.count for kind in self.kinds)


_NOT_GEMMS = frozenset({"norms", "embedding"})


def _layer_of(model: Model, index: int) -> Layer:
    return model.layers[index]


@lru_cache(maxsize=64)
def profile(model: Model, checkpoint: Checkpoint) -> Profile:
    """The profile of a model with that checkpoint; the same object for the same pair."""
    held = model
    if checkpoint.experts and model.moe is not None and checkpoint.experts != model.moe.experts:
        held = replace(model, moe=replace(model.moe, experts=checkpoint.experts))
    by_layer: dict[int, list[Row]] = {}
    outside: list[Row] = []
    for weight in weights(held):
        if weight.mtp and not checkpoint.has_mtp:
            continue
        row = Row(weight, checkpoint.format_of(weight, model.dtype))
        if weight.layer is None:
            outside.append(row)
        else:
            by_layer.setdefault(weight.layer, []).append(row)
    groups: dict[object, tuple[list[Row], list[int]]] = {}
    for index, rows in by_layer.items():
        layer = _layer_of(model, index)
        key = (
            layer.mixer, layer.mlp, layer.indexer, layer.mtp,
            tuple((row.weight.component, row.weight.out, row.weight.inn, row.weight.cut, row.weight.count,
                   row.weight.heads, row.format) for row in rows),
        )  # fmt: skip
        groups.setdefault(key, (rows, []))[1].append(index)
    kinds: list[LayerKind] = []
    for rows, indices in groups.values():
        layer = _layer_of(model, indices[0])
        kinds.append(LayerKind(layer.mixer, layer.mlp, layer.indexer, layer.mtp, tuple(rows), tuple(indices)))
    return Profile(
        held,
        checkpoint,
        tuple(kind for kind in kinds if not kind.mtp),
        tuple(kind for kind in kinds if kind.mtp),
        tuple(outside),
    )


@lru_cache(maxsize=512)
def stage_layers(made: Profile, pp: int) -> tuple[tuple[tuple[LayerKind, int], ...], ...]:
    """For each pipeline stage, the kinds of its layers and how many of each; prediction layers are left out."""
    bounds = stage_bounds(len(made.model.main_layers), pp)
    counts: list[Counter[int]] = [Counter() for _ in range(pp)]
    for i, kind in enumerate(made.kinds):
        for index in kind.indices:
            counts[stage_of(index, bounds)][i] += 1
    return tuple(tuple((made.kinds[i], count) for i, count in sorted(stage.items())) for stage in counts)


def _leaf(weight: Weight) -> str:
    return weight.name.rpartition(".")[2]


# What engines fuse into one matrix because it reads the same input (vLLM and SGLang `QKVParallelLinear`,
# `fused_qkv_a_proj_with_mqa`, `in_proj_qkvz`/`in_proj_ba`, the indexer's `wk_weights_proj`).
_FUSED: tuple[tuple[str, frozenset[str]], ...] = (
    ("qkv_proj", frozenset({"q_proj", "k_proj", "v_proj"})),
    ("fused_qkv_a_proj", frozenset({"q_a_proj", "kv_a_proj_with_mqa"})),
    ("in_proj_qkvz", frozenset({"in_proj_qkv", "in_proj_z"})),
    ("in_proj_ba", frozenset({"in_proj_b", "in_proj_a"})),
    ("wq_a_wkv", frozenset({"wq_a", "wkv"})),
    ("indexer.wk_weights_proj", frozenset({"wk", "weights_proj"})),
)


def _fused_name(weight: Weight) -> str | None:
    leaf = _leaf(weight)
    for name, parts in _FUSED:
        if leaf in parts and (leaf not in ("wk", "weights_proj") or weight.component == "indexer"):
            return name
    return None


@lru_cache(maxsize=4096)
def _gemms(kind: LayerKind, parallel: Parallel) -> tuple[Gemm, ...]:
    made: dict[tuple[str, str, int], Gemm] = {}
    mla = any(_leaf(row.weight) == "kv_b_proj" for row in kind.rows)
    for row in kind.rows:
        weight = row.weight
        if weight.component in _NOT_GEMMS or weight.inn <= 1 or _leaf(weight) == "conv1d":
            continue
        count, n, k = shard(weight, parallel)
        whole = weight.cut == "whole"
        leaf = _leaf(weight)
        if mla and leaf == "kv_b_proj":
            # Decode applies the two halves of kv_b_proj head by head to queries and outputs (weight absorption).
            made["attention", leaf, 0] = Gemm(
                "attention", leaf, n, k, row.format, batched_heads=max(1, weight.heads // parallel.attention_tp)
            )
            continue
        fused = _fused_name(weight)
        key = (weight.component, fused or weight.name, k) if fused else (weight.component, weight.name, k)
        before = made.get(key)
        if before is not None and before.format == row.format:
            made[key] = replace(before, n=before.n + n)
            continue
        if before is not None:
            key = (weight.component, weight.name, k)
        name = "w13" if weight.component == "experts_w13" else "w2" if weight.component == "experts_w2" else (
            fused or leaf
        )  # fmt: skip
        if weight.parts > 1 and not weight.component.startswith("experts"):
            name = "gate_up_proj"
        made[key] = Gemm(weight.component, name, n, k, row.format, count, whole)
    return tuple(made.values())


def base_format(model: Model) -> WeightFormat:
    """The format of what a checkpoint leaves alone."""
    return FORMATS[model.dtype]
