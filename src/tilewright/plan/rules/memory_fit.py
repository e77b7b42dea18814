"""Memory of one GPU: the weights as the checkpoint stores them, the KV cache a token, and what is left.

Where the weights do not fit, that is the first finding, with the layouts and checkpoints that would.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from tilewright.errors import InputError
from tilewright.models.checkpoint import COMPONENTS
from tilewright.models.legality import tp_verdict
from tilewright.models.memory import GIB, GpuMemory, Parallel, gpu_memory
from tilewright.plan import modelled
from tilewright.plan.engines import launch, layout_flags
from tilewright.plan.evidence import published
from tilewright.plan.finding import Draft, Evidence, Fact, Fix, Gain, Outcome
from tilewright.plan.registry import Rule
from tilewright.plan.target import Target, layout_title

MOST_GPUS = 64
"""Largest group that is proposed when the weights do not fit on the GPUs that are there."""


def gib(size: float) -> float:
    return round(size / GIB, 2)


def _table(target: Target) -> dict[str, object]:
    memory = target.memory
    share, origin = target.memory_share
    formats = target.component_formats
    rows = [
        {"part": COMPONENTS[name], "format": formats.get(name), "bytes": size, "gib": gib(size)}
        for name, size in sorted(memory.weights.components.items(), key=lambda item: -item[1])
    ]
    kv, served = memory.kv, modelled.memory(target)
    return {
        "layout": target.layout,
        "total_bytes": memory.total,
        "total_gib": gib(memory.total),
        "share": share,
        "share_source": origin,
        "usable_gib": gib(memory.usable),
        "weights_bytes": memory.weights.runtime,
        "weights_gib": gib(memory.weights.runtime),
        "parts": rows,
        "left_bytes": memory.left,
        "left_gib": gib(memory.left),
        "kv_layout": kv.layout if kv else None,
        "kv_bytes_per_token": kv.per_token if kv else None,
        "kv_fixed_bytes": kv.fixed if kv else None,
        "kv_replicated": kv.replicated if kv else None,
        "kv_tokens": memory.tokens,
        "kv_tokens_served": served.kv_tokens if served is not None and served.fits else None,
        "note": memory.note,
        "basis": "exact for weights and cache as stored; graphs and activations come out of what is left",
    }


def _fits(target: Target, parallel: Parallel) -> GpuMemory | None:
    """Memory of a layout that this checkpoint can be cut into and that leaves something, or None."""
    try:
        if not tp_verdict(target.model, parallel, target.model.checkpoint).legal:
            return None
        memory = target.memory_of(parallel)
    except InputError:  # more stages than layers, an unknown cache: no layout to propose
        return None
    return memory if memory.left > 0 else None


def _plan_command(target: Target, model: str, gpus: int) -> str:
    return f"tilewright plan --model {model} --gpu {target.gpu.key} --gpus {gpus} --engine {target.engine}"


def _alternatives(target: Target) -> list[tuple[str, str]]:
    """Ways to make the model fit, in words and as a command, cheapest first: another layout here, another checkpoint,
    more GPUs."""
    out: list[tuple[str, str]] = []
    served = modelled.best_layout(target)
    other = Parallel(tp=served.tp, pp=served.pp, ep=served.ep) if served is not None else target.parallel
    memory = _fits(target, other) if other != target.parallel else None
    if memory:
        out.append((f"{layout_title(other)} on these GPUs leaves {gib(memory.left)} GiB", target.launch_as(other)))
    for checkpoint in target.model.checkpoints:
        if checkpoint is target.model.checkpoint:
            continue
        if not tp_verdict(target.model, target.parallel, checkpoint).legal:
            continue
        memory = gpu_memory(target.model, target.gpu, checkpoint, target.parallel, fraction=target.memory_share[0])
        if memory.left > 0:
            text = f"{checkpoint.name} in the same layout leaves {gib(memory.left)} GiB"
            out.append((text, _plan_command(target, shlex.quote(checkpoint.name), target.gpus)))
    return out + _on_more_gpus(target)


def _on_more_gpus(target: Target) -> list[tuple[str, str]]:
    """The fewest GPUs that hold this checkpoint, and before them those that hold a smaller one of the same model."""
    out: list[tuple[str, str]] = []
    size = max(target.parallel.gpus, target.gpus) * 2
    while size <= MOST_GPUS:
        memory = _fits(target, Parallel(tp=size))
        if memory:
            text = f"{size} GPUs (TP{size}) leave {gib(memory.left)} GiB on each"
            return [*out, (text, _plan_command(target, target.served, size))]
        smaller = _best_elsewhere(target, Parallel(tp=size)) if not out else None
        if smaller is not None:
            checkpoint, left = smaller
            text = f"{checkpoint} on {size} GPUs (TP{size}) leaves {gib(left)} GiB on each"
            out.append((text, _plan_command(target, shlex.quote(checkpoint), size)))
        size *= 2
    return out


def _best_elsewhere(target: Target, parallel: Parallel) -> tuple[str, int] | None:
    """The model's other checkpoint that leaves most in this layout: (its name, bytes left a GPU)."""
    found: list[tuple[str, int]] = []
    for checkpoint in target.model.checkpoints:
        if checkpoint is target.model.checkpoint or not tp_verdict(target.model, parallel, checkpoint).legal:
            continue
        memory = gpu_memory(target.model, target.gpu, checkpoint, parallel, fraction=target.memory_share[0])
        if memory.left > 0:
            found.append((checkpoint.name, memory.left))
    return max(found, key=lambda item: item[1], default=None)


def run(target: Target) -> Iterator[Outcome]:
    memory = target.memory
    yield Fact("memory", _table(target))
    if memory.left > 0:
        served = modelled.memory(target)
        tokens = ""
        if memory.kv and served is not None and served.fits:
            tokens = (
                f". The cache holds about {served.kv_tokens:,} tokens (modelled: what the engine keeps beside weights "
                f"and cache is taken off; without that {memory.tokens:,})"
            )
        elif memory.kv and served is not None:
            tokens = (
                f", but what the engine keeps beside them takes {gib(served.short)} GiB more than that (modelled): "
                "lower the chunk and the captured batch, or raise the memory share"
            )
        elif memory.kv:
            tokens = f": at most {memory.tokens:,} KV tokens"
        text = (
            f"It fits: {gib(memory.weights.runtime)} GiB of weights a GPU in {target.layout}, {gib(memory.left)} GiB "
            f"left for cache and graphs{tokens}."
        )
        yield Fact("summary", [(50, text)])
        return
    yield Fact("summary", [(0, "It does not fit as asked; nothing else matters until it does.")])
    share, origin = target.memory_share
    ways = _alternatives(target)
    parallel = target.parallel
    former = launch(target.engine, target.served, layout_flags(target.engine, parallel.tp, parallel.pp, parallel.ep))
    yield Draft(
        id="does_not_fit",
        title=f"{target.model_title} does not fit: {gib(memory.weights.runtime)} GiB of weights a GPU, "
        f"{gib(memory.usable)} GiB usable",
        layer="model",
        evidence=[
            Evidence(
                "exact",
                f"{target.layout}: {memory.weights.runtime:,} bytes of weights on the fullest GPU as "
                f"{target.model.checkpoint.name} stores them; {memory.total:,} bytes of memory x {share:.3f} = "
                f"{memory.usable:,}.",
                f"shapes of {target.model_source}; {origin}",
            ),
            *published("kv_budget"),
        ],
        cause="The weights alone are larger than what the engine may use, before any KV cache.",
        fix=Fix(
            ("One of: " if len(ways) > 1 else "") + "; ".join(text for text, _ in ways) + "."
            if ways
            else "No layout up to "
            f"{MOST_GPUS} of these GPUs and no known checkpoint of this model fits; take a smaller model or GPUs with "
            "more memory.",
            [command for _, command in ways[:1]],
        ),
        gain=Gain("the server starts", None, None, None, "exact"),
        metric="runs",
        confidence=1.0,
        effort_h=1.0,
        confirm="The engine's log reports weights of this size and a KV cache above zero tokens.",
        undo=f"Start with the former layout: `{former}`",
    )


RULE = Rule(id="memory_fit", looks_at="memory of one GPU", run=run)
