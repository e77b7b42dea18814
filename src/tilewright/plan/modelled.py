"""The target as the serving model sees it: predicted steps of its layout and of others, for rules that compare.

Every figure from here is modelled. A comparison of two predictions for one model on one GPU is surer than either of
them, since what the model gets wrong it gets wrong in both; how sure is stated as `RATIO_ERROR`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Literal

from tilewright.errors import InputError
from tilewright.models.legality import tp_verdict
from tilewright.models.memory import Parallel
from tilewright.plan.finding import Gain
from tilewright.plan.seen import flag
from tilewright.serving.ratio import RATIO_ERROR

if TYPE_CHECKING:
    from tilewright.plan.target import Target
    from tilewright.serving.decode import Step
    from tilewright.serving.layout import Layout, LayoutAnswer
    from tilewright.serving.memory import ServerMemory
    from tilewright.serving.scenario import Scenario

CONTEXT: Final = 4096
"""Tokens that a request holds in the middle of its life, where nothing says otherwise: a prompt of 3K, 1K answered."""
SWEEP: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_KEPT: Final = 64
"""Predictions that are kept: one plan asks for the same ones from several rules."""
_DRAFT_FLAGS: Final = ("--speculative-num-draft-tokens", "--speculative-num-steps")


def _drafts(target: Target) -> int:
    value = flag(target.snapshot, *_DRAFT_FLAGS)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 64 else 0


@lru_cache(maxsize=_KEPT)
def scenario(target: Target) -> Scenario | None:
    """The target's server as far as it is known; None where its GPU's rates or its layout leave nothing to predict."""
    return _server(target, target.parallel)


@lru_cache(maxsize=_KEPT)
def _server(target: Target, parallel: Parallel) -> Scenario | None:
    """`scenario` in another layout; None where the checkpoint cannot be cut into it."""
    from tilewright.serving.scenario import Scenario, kv_layout_of, moe_family, runs_sparse

    model = target.model
    if not target.gpu.bandwidth().value or parallel.pp > len(model.main_layers):
        return None
    if tp_verdict(model, parallel, model.checkpoint).problems:
        return None  # the layout cannot be cut: the rule tp_shape says so
    # Sparse (DSA) kernels of SGLang serve SM90 and SM100; on SM12x it runs dense MLA (serving.scenario).
    sparse = runs_sparse(model, target.engine, target.gpu)
    dtype = flag(target.snapshot, "--kv-cache-dtype") or ("bf16" if target.cache_words else None)
    backend = flag(target.snapshot, "--moe-runner-backend", "--moe-backend")
    try:
        return Scenario(
            model=model,
            checkpoint=model.checkpoint,
            gpu=target.gpu,
            parallel=parallel,
            engine=target.engine,
            engine_version=target.engine_version,
            sparse=sparse,
            kv_layout=kv_layout_of(model, model.checkpoint, target.engine, sparse, str(dtype) if dtype else None),
            moe_backend=moe_family(str(backend)) if backend else "",
            context=CONTEXT,
            speculative_tokens=_drafts(target),
        )
    except InputError:
        return None


@lru_cache(maxsize=_KEPT)
def step(target: Target, requests: int, parallel: Parallel | None = None, drafts: int | None = None) -> Step | None:
    """The predicted decode step at that many requests, in the target's layout and way of drafting or in another."""
    from tilewright.serving.decode import decode_step

    base = scenario(target)
    if base is None:
        return None
    changed: dict[str, Any] = {"concurrency": requests}
    if parallel is not None:
        changed["parallel"] = parallel
    if drafts is not None:
        changed |= {"speculative_tokens": drafts, "acceptance_length": None}
    try:
        return decode_step(replace(base, **changed))
    except InputError:
        return None


@lru_cache(maxsize=_KEPT)
def layouts(target: Target) -> LayoutAnswer | None:
    """Every layout of the model over the target's GPUs, at the number of requests that it serves or could."""
    from tilewright.plan.engine_version import known_flags
    from tilewright.serving.layout import layouts_of

    plain = _server(target, Parallel())
    if plain is None:
        return None
    try:
        return layouts_of(
            plain,
            target.gpus,
            concurrency=requests(target),
            mem_fraction=target.memory_share[0],
            flags=known_flags(target),
        )
    except InputError:
        return None


@lru_cache(maxsize=_KEPT)
def memory(target: Target) -> ServerMemory | None:
    """The fullest GPU's memory as the engine divides it: weights exact, what it holds beside them modelled."""
    return _memory(target, target.parallel)


DRAFTS: Final = 3
"""Tokens that the flags proposed by the rule `speculative` draft a step."""


def _memory(target: Target, parallel: Parallel, drafts: int = 0) -> ServerMemory | None:
    from tilewright.serving.memory import server_memory

    base = _server(target, parallel)
    if base is None:
        return None
    base = replace(base, speculative_tokens=drafts) if drafts else base
    try:
        return server_memory(base.at(1, 0), target.memory_share[0])
    except InputError:
        return None


def drafting_memory(target: Target) -> ServerMemory | None:
    """`memory` of a server that drafts."""
    return _memory(target, target.parallel, DRAFTS)


@lru_cache(maxsize=_KEPT)
def context_length(target: Target, parallel: Parallel, *, drafting: bool = False) -> int:
    """Tokens of context that a launch line may ask for in this layout: what the cache holds and the model was made
    for. 0 where that cannot be told."""
    from tilewright.serving.launch import context_length as fitting

    held = _memory(target, parallel, DRAFTS if drafting else 0)
    return fitting(target.model, held) if held is not None and held.fits and held.cache is not None else 0


def drafting_lacks(target: Target) -> int:
    """Bytes of a GPU that are missing for the prediction layers in the target's layout; 0 where they fit beside
    everything else, or nobody knows."""
    without, held = _memory(target, target.parallel), _memory(target, target.parallel, DRAFTS)
    return held.short if held is not None and without is not None and without.fits else 0


@lru_cache(maxsize=_KEPT)
def best_layout(target: Target) -> Layout | None:
    """The best layout that the checkpoint can be cut into and that fits, of those a plan can be made for."""
    answer = layouts(target)
    fitting = [item for item in answer.layouts if item.status == "fits"] if answer is not None else []
    return next((item for item in fitting if (item.dcp, item.attention_dp, item.copies) == (1, 1, 1)), None)


def pays_from(target: Target, kind: Literal["ep", "dcp", "pp"]) -> int | None:
    """The number of requests from which on a layout with this kind of parallelism is predicted to be the fastest."""
    answer = layouts(target)
    if answer is None:
        return None
    spread = {item.name for item in answer.layouts if getattr(item, kind) > 1}
    first = None
    for count, name in reversed(list(answer.best.items())):
        if name not in spread:
            break
        first = int(count)
    return first


def requests(target: Target) -> int | None:
    """Requests that run on the server now and wait for it, from the snapshot; None where it does not say."""
    if target.snapshot is None or not target.snapshot.metrics.running:
        return None
    return max(1, round(target.snapshot.metrics.running + (target.snapshot.metrics.waiting or 0)))


def ratio_gain(metric: str, ratio: float) -> Gain:
    """The gain of a predicted ratio of speeds (new over old), with the error of such ratios."""
    low, high = (ratio * factor for factor in (1 - RATIO_ERROR, 1 + RATIO_ERROR))
    return Gain(metric, round((low - 1) * 100, 1), round((ratio - 1) * 100, 1), round((high - 1) * 100, 1), "modelled")
