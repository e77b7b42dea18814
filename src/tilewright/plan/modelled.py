"""The target as the serving model sees it: predicted steps of its layout and of others, for rules that compare.

Every figure from here is modelled. A comparison of two predictions for one model on one GPU is surer than either of
them, since what the model gets wrong it gets wrong in both; how sure is stated as `RATIO_ERROR`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from tilewright.errors import InputError
from tilewright.models.legality import tp_verdict
from tilewright.models.memory import Parallel
from tilewright.plan.finding import Gain
from tilewright.plan.seen import flag

if TYPE_CHECKING:
    from tilewright.plan.target import Target
    from tilewright.serving.decode import Step
    from tilewright.serving.layout import LayoutAnswer
    from tilewright.serving.memory import ServerMemory
    from tilewright.serving.scenario import Scenario

CONTEXT: Final = 4096
"""Tokens that a request holds in the middle of its life, where nothing says otherwise: a prompt of 3K, 1K answered."""
SWEEP: Final = (1, 2, 4, 8, 16, 32, 64, 128)
RATIO_ERROR: Final = 0.15
"""Relative error of a ratio of two predictions: the mean error of the serving model on published tables that took no
part in its fit (`tilewright validate`, held out)."""
_KEPT: Final = 64
"""Predictions that are kept: one plan asks for the same ones from several rules."""
_DRAFT_FLAGS: Final = ("--speculative-num-draft-tokens", "--speculative-num-steps")


def _drafts(target: Target) -> int:
    value = flag(target.snapshot, *_DRAFT_FLAGS)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 64 else 0


@lru_cache(maxsize=_KEPT)
def scenario(target: Target) -> Scenario | None:
    """The target's server as far as it is known; None where its GPU's rates or its layout leave nothing to predict."""
    from tilewright.serving.scenario import Scenario, kv_layout_of, moe_family

    model = target.model
    if not target.gpu.bandwidth().value or target.parallel.pp > len(model.main_layers):
        return None
    if tp_verdict(model, target.parallel, model.checkpoint).problems:
        return None  # the layout cannot be cut: the rule tp_shape says so
    # Sparse (DSA) kernels of SGLang serve SM90 and SM100; on SM12x it runs dense MLA (serving.scenario).
    sparse = model.indexer is not None and not (target.engine == "sglang" and target.sm12x)
    dtype = flag(target.snapshot, "--kv-cache-dtype")
    backend = flag(target.snapshot, "--moe-runner-backend", "--moe-backend")
    try:
        return Scenario(
            model=model,
            checkpoint=model.checkpoint,
            gpu=target.gpu,
            parallel=target.parallel,
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
    from tilewright.serving.layout import layouts_of

    base = scenario(target)
    if base is None:
        return None
    plain = replace(base, parallel=Parallel(), copies=1, concurrency=1)
    try:
        return layouts_of(plain, target.gpus, concurrency=requests(target), mem_fraction=target.memory_share[0])
    except InputError:
        return None


@lru_cache(maxsize=_KEPT)
def memory(target: Target) -> ServerMemory | None:
    """The fullest GPU's memory as the engine divides it: weights exact, what it holds beside them modelled."""
    from tilewright.serving.memory import server_memory

    base = scenario(target)
    if base is None:
        return None
    try:
        return server_memory(base.at(1, 0), target.memory_share[0])
    except InputError:
        return None


def requests(target: Target) -> int | None:
    """Requests that run on the server now and wait for it, from the snapshot; None where it does not say."""
    if target.snapshot is None or not target.snapshot.metrics.running:
        return None
    return max(1, round(target.snapshot.metrics.running + (target.snapshot.metrics.waiting or 0)))


def ratio_gain(metric: str, ratio: float) -> Gain:
    """The gain of a predicted ratio of speeds (new over old), with the error of such ratios."""
    low, high = (ratio * factor for factor in (1 - RATIO_ERROR, 1 + RATIO_ERROR))
    return Gain(metric, round((low - 1) * 100, 1), round((ratio - 1) * 100, 1), round((high - 1) * 100, 1), "modelled")
