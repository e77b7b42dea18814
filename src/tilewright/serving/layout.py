"""Layouts of a model over GPUs: what each holds, what fits, how fast it is, and why the others lose.

Ranks cross: the layout that is fastest for one request is seldom the one that is for a hundred. So layouts are ranked
for every number of requests, and once more for the goal that was asked.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypedDict

import msgspec

from tilewright.cost.asking import check_whole
from tilewright.errors import InputError, shown
from tilewright.libraries.engine_flags.model import FlagSet
from tilewright.models.memory import Parallel
from tilewright.serving.decode import Step, decode_step
from tilewright.serving.defaults import Declared, declared
from tilewright.serving.launch import context_length, lacking, launch_notes, line_or_note, packaged_flags
from tilewright.serving.layout_answer import Goal, Layout, LayoutAnswer, Parts, Room, Speed, Term
from tilewright.serving.memory import ServerMemory, declared_memory, layout_name, replicated
from tilewright.serving.prefill import prefill_step
from tilewright.serving.questions import MAX_CONCURRENCY, MAX_CONTEXT, DecodeQuestion
from tilewright.serving.readable_cache import readable
from tilewright.serving.scenario import Scenario, scenario_of
from tilewright.serving.splits import Split, splits
from tilewright.serving.step import TERMS

__all__ = ["CONCURRENCIES", "Goal", "Layout", "LayoutAnswer", "Parts", "Speed", "layout", "layouts_of"]

CONCURRENCIES: Final = (1, 2, 4, 8, 16, 32, 64, 128)
_CONTEXTS: Final = (4096, 16384, 32768, 65536, 131072)
MAX_LAYOUT_GPUS: Final = 1024
GIB: Final = 1 << 30


@dataclass(frozen=True, slots=True)
class _Made:
    split: Split
    scenario: Scenario
    memory: ServerMemory
    steps: dict[int, tuple[int, Step]]
    prefill: Step

    @property
    def name(self) -> str:
        return layout_name(self.split.parallel, self.split.copies)


def _capacity(scenario: Scenario, memory: ServerMemory, tokens: int) -> int:
    """Requests of that many tokens that run at once, over all copies."""
    return memory.requests(tokens) * scenario.parallel.attention_dp * scenario.copies


def _parts(memory: ServerMemory) -> Parts:
    return Parts(
        memory.total, memory.weights.runtime, memory.reported, memory.loading, memory.activations, memory.graphs,
        memory.context, memory.communication, memory.kv, memory.free, memory.short,
    )  # fmt: skip


def _check(context: int, prompt: int, concurrency: int | None, slo_ttft: float | None, slo_tpot: float | None) -> None:
    for name, value, low, high in (
        ("context", context, 1, MAX_CONTEXT), ("prompt_tokens", prompt, 1, MAX_CONTEXT),
        ("concurrency", concurrency, 1, MAX_CONCURRENCY),
    ):  # fmt: skip
        if value is not None and (type(value) is not int or not low <= value <= high):
            raise InputError(name, f"{name} must be a whole number from {low:,} to {high:,}, not {shown(value)}.")
    for name, value in (("slo_ttft", slo_ttft), ("slo_tpot", slo_tpot)):
        if value is not None and not 0 < value < float("inf"):
            raise InputError(name, f"{name} must be a time above 0, not {shown(value)}.")


def layout(
    question: DecodeQuestion,
    *,
    context: int = 4096,
    concurrency: int | None = None,
    prompt_tokens: int | None = None,
    goal: Goal = "throughput",
    slo_ttft_s: float | None = None,
    slo_tpot_s: float | None = None,
    mem_fraction: float | None = None,
) -> LayoutAnswer:
    """Every layout of the question's model over its `gpus`; its own tp, pp, ep and dcp are not looked at.

    `context` is what a request holds in the middle of its life (prompt and output so far), `concurrency` the number of
    requests to rank at (None: one for latency, the most that all fit for throughput). Raises InputError.
    """
    gpus = question.gpus
    check_whole("gpus", gpus, MAX_LAYOUT_GPUS)
    _check(context, prompt_tokens or context, concurrency, slo_ttft_s, slo_tpot_s)
    asked = msgspec.structs.replace(
        question, gpus=1, tp=1, pp=1, ep=1, dcp=1, attention_dp=1, concurrency=1, context=context
    )
    return layouts_of(
        scenario_of(asked),
        gpus,
        concurrency=concurrency,
        prompt_tokens=prompt_tokens,
        goal=goal,
        slo_ttft_s=slo_ttft_s,
        slo_tpot_s=slo_tpot_s,
        mem_fraction=mem_fraction,
    )


def layouts_of(
    base: Scenario,
    gpus: int,
    *,
    concurrency: int | None = None,
    prompt_tokens: int | None = None,
    goal: Goal = "throughput",
    slo_ttft_s: float | None = None,
    slo_tpot_s: float | None = None,
    mem_fraction: float | None = None,
    flags: FlagSet | None = None,
) -> LayoutAnswer:
    """`layout` for a scenario that is resolved already; its own layout and requests are not looked at, its `context`
    is what a request holds. `flags`: of the version to start (None: of the packaged release nearest to the scenario's);
    what it has no flag for is no layout of it, and its defaults count where it declares them."""
    context = base.context
    flags = flags if flags is not None else packaged_flags(base.engine, base.engine_version)
    own = declared(flags)
    base = readable(flags, base) if flags is not None else base
    prompt = prompt_tokens or context
    _check(context, prompt, concurrency, slo_ttft_s, slo_tpot_s)
    counts: set[int] = set(CONCURRENCIES)
    if concurrency:
        counts.add(concurrency)
    sweep = sorted(counts)
    good: list[_Made] = []
    bad: list[Layout] = []
    for split in splits(base, gpus):
        scenario = replace(base, parallel=split.parallel, copies=split.copies)
        if split.problem:
            bad.append(_refused(split, split.problem))
            continue
        missing = lacking(flags, scenario)
        if missing:
            bad.append(_refused(split, missing))
            continue
        memory = declared_memory(scenario, mem_fraction, own)
        if not memory.fits:
            bad.append(_too_big(split, memory))
            continue
        room = _capacity(scenario, memory, context)
        if room < 1:
            bad.append(_too_big(split, memory, context))
            continue
        steps: dict[int, tuple[int, Step]] = {}
        for count in sweep:
            running = min(count, room)
            steps[count] = (running, decode_step(scenario.at(running)))
        good.append(_Made(split, scenario, memory, steps, prefill_step(scenario.at(1, 0), prompt, own.chunk)))
    at = concurrency or (1 if goal == "latency" else _full(good, sweep))
    ranks = {count: _ranks(good, count) for count in sweep}
    ordered = sorted(good, key=lambda item: _order(item, at, goal, slo_ttft_s, slo_tpot_s))
    ordered = _simplest_first(ordered, _alike(ordered, at, slo_ttft_s, slo_tpot_s))
    first = ordered[0] if ordered else None
    made = [_fitting(item, first, at, ranks, context, slo_ttft_s, slo_tpot_s, flags) for item in ordered if first]
    bad.sort(key=lambda item: (item.status != "too_big", -(item.memory.free if item.memory else 0)))
    some = first.memory if first else _closest(base, gpus, bad, mem_fraction, own)
    notes = [*base.assumed]
    if gpus > 8:
        notes.append(
            "more than 8 GPUs span several hosts: collectives between hosts are not measured, so times of such layouts "
            "rest on those inside one host"
        )
    return LayoutAnswer(
        model=base.model.name,
        checkpoint=base.checkpoint.name,
        gpu=base.gpu.key,
        gpu_memory_source=base.gpu.get("memory_bytes").note,
        gpus=gpus,
        engine=base.engine,
        kv_layout=base.kv_layout,
        mem_fraction=some.fraction,
        mem_fraction_source=own.share_source if mem_fraction is None and own.share_source else some.fraction_source,
        context=context,
        prompt_tokens=prompt,
        goal=goal,
        at=at,
        slo_ttft_s=slo_ttft_s,
        slo_tpot_s=slo_tpot_s,
        basis="weights and bytes a token of cache: exact; what engines hold beside them and all times: modelled",
        counts={
            "fits": len(made), "too_big": sum(item.status == "too_big" for item in bad),
            "illegal": sum(item.status == "illegal" for item in bad),
        },
        best={str(count): order[0].name for count, order in ((c, _by_speed(good, c)) for c in sweep) if order},
        layouts=[*made, *bad],
        notes=notes,
    )  # fmt: skip


def _closest(base: Scenario, gpus: int, bad: list[Layout], mem_fraction: float | None, own: Declared) -> ServerMemory:
    """Memory of the layout that lacks least, where none fits."""
    split = next(
        (Parallel(item.tp, item.ep, item.pp, item.dcp, item.attention_dp) for item in bad if item.memory is not None),
        Parallel(tp=gpus),
    )
    try:
        return declared_memory(replace(base, parallel=split), mem_fraction, own)
    except InputError:
        return declared_memory(base, mem_fraction, own)


def _full(good: list[_Made], sweep: list[int]) -> int:
    """The most requests of the sweep that some layout runs all at once."""
    return max((count for count in sweep for item in good if item.steps[count][0] == count), default=1)


TIE: Final = 0.02
"""Layouts within this share of the fastest count as equally fast: the simplest of them is first. Kernel models are off
by 4 % on average, so less than half of that says nothing."""


def _kinds(split: Split) -> int:
    """Kinds of parallelism beside tensor parallelism that a layout uses."""
    parallel = split.parallel
    sizes = (parallel.pp, parallel.ep, parallel.dcp, parallel.attention_dp, split.copies)
    return sum(size > 1 for size in sizes)


def _simplest_first(ordered: list[_Made], alike: int) -> list[_Made]:
    """`ordered` with the simplest of its first `alike` layouts at the front."""
    if alike < 2:
        return ordered
    first = min(ordered[:alike], key=lambda item: (_kinds(item.split), ordered.index(item)))
    return [first, *(item for item in ordered if item is not first)]


def _by_speed(good: list[_Made], count: int) -> list[_Made]:
    ordered = sorted(good, key=lambda item: (-item.steps[count][1].tok_s, item.split.parallel.pp, item.name))
    alike = sum(item.steps[count][1].tok_s >= (1 - TIE) * ordered[0].steps[count][1].tok_s for item in ordered)
    return _simplest_first(ordered, alike)


def _ranks(good: list[_Made], count: int) -> dict[str, int]:
    return {item.name: i + 1 for i, item in enumerate(_by_speed(good, count))}


def _tpot(step: Step) -> float:
    return step.time_s / step.tokens_each


def _meets(item: _Made, count: int, ttft: float | None, tpot: float | None) -> bool | None:
    if ttft is None and tpot is None:
        return None
    fast = ttft is None or item.prefill.time_s <= ttft
    return fast and (tpot is None or _tpot(item.steps[count][1]) <= tpot)


def _order(
    item: _Made, at: int, goal: Goal, ttft: float | None, tpot: float | None
) -> tuple[bool, bool, float, float, str]:
    """Those that keep the limits first; then by the goal, ties by the time to the first token."""
    running, step = item.steps[at]
    missed = _meets(item, at, ttft, tpot) is False
    if goal == "latency":
        return (missed, running < at, _tpot(step), item.prefill.time_s, item.name)
    return (missed, False, -step.tok_s, item.prefill.time_s, item.name)


class _Shape(TypedDict):
    tp: int
    pp: int
    ep: int
    dcp: int
    attention_dp: int
    copies: int


def _alike(ordered: list[_Made], at: int, ttft: float | None, tpot: float | None) -> int:
    """How many of the first layouts are as good as the first, within TIE."""
    if not ordered:
        return 0
    best = ordered[0]
    running, step = best.steps[at]
    met = _meets(best, at, ttft, tpot)
    count = 0
    for item in ordered:
        same = _meets(item, at, ttft, tpot) == met and item.steps[at][0] == running
        if not same or item.steps[at][1].tok_s < (1 - TIE) * step.tok_s:
            break
        count += 1
    return count


def _shape(split: Split) -> _Shape:
    parallel = split.parallel
    return {
        "tp": parallel.tp, "pp": parallel.pp, "ep": parallel.ep, "dcp": parallel.dcp,
        "attention_dp": parallel.attention_dp, "copies": split.copies,
    }  # fmt: skip


def _refused(split: Split, why: str) -> Layout:
    return Layout(name=layout_name(split.parallel, split.copies), **_shape(split), status="illegal", why=why)


def _too_big(split: Split, memory: ServerMemory, context: int = 0) -> Layout:
    if memory.fits:
        held = memory.kv_tokens
        why = f"the cache holds {held:,} tokens: not one request of {context:,}"
    else:
        why = (
            f"weights of {memory.reported / GIB:,.1f} GiB a GPU: {memory.short / GIB:,.1f} GiB more than the memory "
            f"fraction {memory.fraction:g} of {memory.total / GIB:,.1f} GiB leaves"
        )
    return Layout(
        name=layout_name(split.parallel, split.copies), **_shape(split), status="too_big", why=why,
        memory=_parts(memory), kv_tokens=memory.kv_tokens,
    )  # fmt: skip


def _against(item: _Made, first: _Made, at: int) -> str:
    """Why a layout loses to the first one, from the terms of its step."""
    if item is first:
        return "best for the goal"
    running, step = item.steps[at]
    other_running, other = first.steps[at]
    ratio = other.tok_s / step.tok_s
    if running < other_running:
        return (
            f"{ratio:.2f}x fewer tokens a second: its cache holds {running:,} of {at:,} requests at once, the best "
            f"layout's {other_running:,}"
        )
    # Of one request's step, or of the requests of one copy: compare what a token waits for.
    scale = 1e3
    more = {
        key: (step.sums.times.get(key, 0.0) - other.sums.times.get(key, 0.0)) * scale
        for key in {*step.sums.times, *other.sums.times}
    }
    worst = sorted(((ms, key) for key, ms in more.items() if ms > 0.05 * step.time_s * scale * 0.2), reverse=True)[:3]
    text = ", ".join(f"{TERMS[key]} +{ms:.1f} ms" for ms, key in worst)
    if 1 - TIE <= ratio <= 1 + TIE:
        return "as fast within 2 %, which is less than the model can tell, and no simpler"
    if ratio < 1:
        head = f"{1 / ratio:.2f}x more tokens a second, but it misses the goal or its limits"
        return head + (f": {text}" if text else "")
    head = f"{ratio:.2f}x slower at {at:,} request{'s' if at > 1 else ''}"
    copies = item.scenario.copies * item.split.parallel.attention_dp
    if not text and copies > 1:
        text = "its copies share the requests out, and a batch of fewer requests uses the weights less"
    return head + (f": {text}" if text else "")


def _fitting(
    item: _Made, first: _Made | None, at: int, ranks: dict[int, dict[str, int]], context: int,
    ttft: float | None, tpot: float | None, flags: FlagSet | None,
) -> Layout:  # fmt: skip
    assert first is not None
    scenario, memory = item.scenario, item.memory
    speeds: list[Speed] = []
    for count, (running, step) in item.steps.items():
        gained = scenario_tokens(step)
        speeds.append(
            Speed(
                count, running, step.tok_s, gained / step.high_s, gained / step.low_s, _tpot(step),
                ranks[count][item.name],
            )
        )  # fmt: skip
    longest = context_length(scenario.model, memory, context)
    known = memory.cache is not None
    step = item.steps[at][1]
    limit = step.limit_s
    notes = [*item.split.notes, *launch_notes(scenario)]
    if memory.note:
        notes.append(memory.note)
    requests = max(1, min(_capacity(scenario, memory, context), max(item.steps)))
    return Layout(
        name=item.name,
        **_shape(item.split),
        status="fits",
        why=_against(item, first, at),
        memory=_parts(memory),
        kv_bytes_per_token=memory.cache.per_token if memory.cache else None,
        kv_tokens=memory.kv_tokens * scenario.parallel.attention_dp * scenario.copies if known else None,
        kv_replicated=replicated(scenario) and scenario.parallel.dcp == 1,
        max_context=longest,
        room=[Room(size, _capacity(scenario, memory, size)) for size in _CONTEXTS] if known else [],
        speeds=speeds,
        ttft_s=item.prefill.time_s,
        ttft_low_s=item.prefill.low_s,
        ttft_high_s=item.prefill.high_s,
        meets=_meets(item, at, ttft, tpot),
        terms=[Term(TERMS[key], step.sums.times[key]) for key in TERMS if step.sums.times.get(key)],
        limit_tok_s=scenario_tokens(step) / limit if limit else None,
        launch=line_or_note(scenario, memory, requests, flags, notes),
        notes=notes,
    )


def scenario_tokens(step: Step) -> float:
    """Tokens that all running requests gain in the step."""
    return step.scenario.concurrency * step.tokens_each
