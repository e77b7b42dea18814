"""Memory: the share that weights and cache take, the cache's format, the chunk of a prefill step, and the context."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from tilewright.errors import InputError
from tilewright.libraries.engine_flags.concepts import value_for
from tilewright.serving.advice.answer import Left, Suggestion
from tilewright.serving.advice.context import Context, Found, ground
from tilewright.serving.advice.effects import effects, gain_at
from tilewright.serving.advice.state import Load, State, first_token_s, outcome, ranks_of
from tilewright.serving.readable_cache import SPARSE_BACKEND, needs_sparse_backend, reads_fp8
from tilewright.serving.scenario import kv_layout_of

__all__ = ["advise_cache_format", "advise_chunk", "advise_share"]

CHUNKS: Final = (2048, 4096, 8192, 16384)
"""Chunks that are tried: the defaults of the engines on small to large cards. SGLang's --max-prefill-tokens (16,384)
holds larger ones back."""
ALIKE: Final = 0.02
"""Times to the first token within this share count as the same: the smaller chunk stalls running requests less."""
WORTH: Final = 0.03
MOST: Final = 0.95
"""Largest share that is proposed: beyond it the driver's own bytes, fragmentation and other processes decide, which
are not modelled; published starts of both engines end there."""
_MARGIN: Final = 1 << 30
"""Bytes that stay free beside what is modelled: SGLang logs 1 GB and more free after capture in published starts."""


def _running(state: State, load: Load) -> int:
    made = outcome(state, load, load.concurrency)
    return made.running if made is not None else 0


def advise_chunk(context: Context, found: Found) -> None:
    """The chunk with the shortest prefill among those that leave room for the load; of equals the smallest."""
    name, given, load = context.name("chunk"), context.given("chunk"), context.load
    state = found.state
    if name is None:
        found.left.append(Left("chunk", None, f"{context.named} has no such flag"))
        return
    running = _running(state, load)
    least = state.limit() * (1 + state.scenario.speculative_tokens) if context.engine == "vllm" else 1
    fitting: dict[int, float] = {}
    for chunk in sorted({*CHUNKS, state.chunk}):
        other = replace(state, chunk=chunk)
        if context.engine == "sglang" and chunk * state.scenario.parallel.attention_dp > CHUNKS[-1]:
            continue  # the chunks of all ranks meet at the experts: more than that is not modelled
        if chunk < least or _running(other, load) < running or other.memory().note:
            continue
        fitting[chunk] = first_token_s(other, load)
    if not fitting or state.chunk not in fitting:
        fitting[state.chunk] = first_token_s(state, load)
    fastest = min(fitting.values())
    chosen = min(chunk for chunk, time in fitting.items() if time <= fastest * (1 + ALIKE))
    times = ", ".join(f"{time:.2f} s with {chunk:,}" for chunk, time in sorted(fitting.items()))
    if fitting[state.chunk] <= fastest * (1 + WORTH):
        why = f"time to the first token of {load.prompt:,} (modelled): {times}; {state.chunk:,} is as good as any"
        found.left.append(Left("chunk", name, why))
        return
    found.state = replace(state, chunk=chosen)
    value = chosen * state.scenario.parallel.attention_dp if context.engine == "sglang" else chosen
    conflicts: list[str] = []
    if context.engine == "vllm":
        conflicts.append(f"a value below {context.name('max_requests') or '--max-num-seqs'}: the engine refuses it")
    divided = ""
    if context.engine == "sglang" and state.scenario.parallel.attention_dp > 1:
        # sglang 0.5.9 srt/server_args.py:2117, 0.5.23 srt/arg_groups/parallel_hook.py:331
        divided = f" SGLang divides it by the {state.scenario.parallel.attention_dp} ranks of the attention."
    found.suggestions.append(
        Suggestion(
            concept="chunk", title=context.title("chunk"), flag=name, words=[name, str(value)],
            action="set" if given is None else "change", given=given,
            without=f"{state.chunk:,} tokens {'(your line)' if given else 'by itself'}",
            why=f"Each chunk reads the weights once more and waits for every all-reduce: {times}.{divided}",
            effects=effects(state, found.state, load), conflicts=conflicts, confidence=0.4,
            numerics="unchanged up to the order of sums",
        )
    )  # fmt: skip


def advise_share(context: Context, found: Found) -> None:
    """The share of memory, spelt out: the context length in the line depends on it. Raised where requests wait."""
    name, given, load = context.name("memory_share"), context.given("memory_share"), context.load
    state = found.state
    if name is None:
        return
    best = state
    if _running(state, load) < min(load.concurrency, state.limit()):
        higher = replace(state, fraction=_most(state))
        if higher.fraction > state.fraction and _running(higher, load) > _running(state, load):
            best = higher
    elif context.engine == "sglang" and state.memory().note:
        lower = replace(state, fraction=_most(state))
        if lower.fraction < state.fraction and _running(lower, load) >= _running(state, load):
            best = lower
    found.state = best
    words = [name, f"{best.fraction:g}"]
    memory = best.memory()
    tokens = f"{memory.kv_tokens:,} tokens of cache a rank"
    if memory.cache is None:
        tokens = f"{memory.kv / (1 << 30):.1f} GiB of cache a rank, which nobody knows the tokens of"
    if best is state:
        if given is not None and context.present is not None and context.present.share("memory_share") is not None:
            found.left.append(Left("memory_share", name, f"your line's {state.fraction:g} leaves {tokens}"))
            return
        why = f"The engine's own choice for this card, spelt out since the context length depends on it: {tokens}."
    elif best.fraction > state.fraction:
        why = (
            f"Requests of the load do not fit at {state.fraction:g}. {best.fraction:g} leaves room for activations and "
            f"graphs as modelled, and {tokens}."
        )
    else:
        note = state.memory().note
        why = f"{note[:1].upper()}{note[1:]}. {best.fraction:g} leaves that room, and {tokens}."
    read = context.present.share("memory_share") if context.present is not None else None
    found.suggestions.append(
        Suggestion(
            concept="memory_share", title=context.title("memory_share"), flag=name, words=words,
            action="set" if given is None else "change", given=given,
            without=f"{state.fraction:g} {'(your line)' if read is not None else 'by itself'}", why=why,
            effects=effects(state, best, load) if best is not state else [],
            conflicts=["other processes on these GPUs"], confidence=0.5,
        )
    )  # fmt: skip


def _most(state: State) -> float:
    """The largest share, in whole per cent, that leaves what is modelled beside it and a margin."""
    memory = state.memory()
    if state.scenario.engine == "vllm":
        return MOST
    usable = memory.total - memory.context
    beside = memory.activations + memory.graphs + _MARGIN
    return min(MOST, max(0.1, math.floor((1 - beside / usable) * 100) / 100))


def advise_cache_that_runs(context: Context, found: Found) -> None:
    """A cache in BF16 where the checkpoint asks for FP8 and this version has no attention that reads it here."""
    name, state = context.name("kv_dtype"), found.state
    if name is None or state.scenario.kv_layout != "fp8" or reads_fp8(context.flags, context.model, context.gpu):
        return
    value = value_for(context.flags, "kv_dtype", "bf16")
    if value is None:
        found.notes.append(
            f"{context.named} has no attention for an FP8 cache of this model on {context.gpu.arch.upper()}"
        )
        return
    plain = replace(state, scenario=replace(state.scenario, kv_layout="bf16"))
    found.state = plain
    found.suggestions.append(
        Suggestion(
            concept="kv_dtype", title=context.title("kv_dtype"), flag=name, words=[name, value],
            action="set" if context.given("kv_dtype") is None else "change", given=context.given("kv_dtype"),
            without="fp8, as the checkpoint asks", evidence=ground("sparse_mla_fp8kv"), start=True,
            why=f"The checkpoint asks for an FP8 cache. On {context.gpu.arch.upper()} SGLang reads one with the "
            f"{SPARSE_BACKEND} backend only, which {context.named} does not have.",
            effects=effects(state, plain, context.load), confidence=0.7,
            numerics="changes: KV cache FP8 -> BF16, which rounds less",
        )
    )  # fmt: skip


def advise_cache_format(context: Context, found: Found) -> None:
    """A cache in FP8 where it lets more of the load run, or reads less of a long context: to try, since it rounds."""
    name, load, state = context.name("kv_dtype"), context.load, found.state
    scenario = state.scenario
    if name is None:
        return
    value = value_for(context.flags, "kv_dtype", "fp8")
    if any(item.concept == "kv_dtype" for item in found.suggestions):
        return
    if scenario.kv_layout not in ("bf16", "f16"):
        found.left.append(Left("kv_dtype", name, f"the cache is {scenario.kv_layout} already"))
        return
    if value is None:
        found.left.append(Left("kv_dtype", name, f"{context.named} has no FP8 cache"))
        return
    if state.memory().cache is None:
        found.left.append(Left("kv_dtype", name, "how this model lays its cache out is not covered"))
        return
    try:
        layout = kv_layout_of(context.model, scenario.checkpoint, context.engine, scenario.sparse, "fp8")
    except InputError as error:
        found.left.append(Left("kv_dtype", name, error.msg))
        return
    smaller = replace(state, scenario=replace(scenario, kv_layout=layout))
    if context.now.cap is None and smaller.cap is not None:
        room = smaller.memory().requests(load.context) * ranks_of(scenario)
        smaller = replace(smaller, cap=max(smaller.cap, min(load.concurrency, room)))
    ratio = gain_at(state, smaller, load)
    changed = effects(state, smaller, load)
    if ratio < 1 + WORTH and _running(smaller, load) <= _running(state, load):
        why = f"at {context.at} of {load.context:,} tokens FP8 is predicted to bring {(ratio - 1) * 100:+.0f} %"
        found.left.append(Left("kv_dtype", name, why))
        return
    sparse_sm12x = needs_sparse_backend(context.model, context.engine, context.gpu)
    conflicts: list[str] = []
    if sparse_sm12x:
        backend = value_for(context.flags, "sparse_decode_backend", SPARSE_BACKEND)
        if backend is None:
            why = (
                f"on {context.gpu.arch.upper()} it needs the flashinfer_sparse_mla backend, which {context.named} lacks"
            )
            found.left.append(Left("kv_dtype", name, why))
            return
        conflicts.append(f"another {context.name('sparse_decode_backend')} than {backend}")
    was, will = _running(state, load), _running(smaller, load)
    more = f"{will:,} instead of {was:,} of {load.concurrency:,} requests fit. " if will > was else ""
    more += "A step reads half the cache. "
    found.suggestions.append(
        Suggestion(
            concept="kv_dtype", title=context.title("kv_dtype"), flag=name, words=[name, value], action="try",
            given=context.given("kv_dtype"), without=f"{scenario.kv_layout} by itself",
            why=more + "Compare outputs on your own prompts first.",
            effects=changed, evidence=ground("sparse_mla_fp8kv") if sparse_sm12x else [], conflicts=conflicts,
            numerics="changes: KV cache BF16 -> FP8", confidence=0.4, effort_h=1.0,
        )
    )  # fmt: skip
