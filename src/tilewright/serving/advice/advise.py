"""`advise(...)`: which flags matter for a model on GPUs in one version of an engine, and the line that has them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from tilewright.cost.asking import check_whole
from tilewright.errors import InputError, shown
from tilewright.libraries.engine_flags.concepts import concept
from tilewright.libraries.engine_flags.model import FlagSet
from tilewright.serving.advice.answer import Advice, Goal, Judged, Left, Rate, Suggestion
from tilewright.serving.advice.context import Context, Found
from tilewright.serving.advice.drafting import advise_drafting
from tilewright.serving.advice.judge import judge
from tilewright.serving.advice.kernels import advise_attention, advise_experts, advise_shared_experts
from tilewright.serving.advice.launch import line_of
from tilewright.serving.advice.links import advise_all_reduce
from tilewright.serving.advice.present import Present, read_present
from tilewright.serving.advice.room import (
    advise_cache_format,
    advise_cache_that_runs,
    advise_chunk,
    advise_share,
)
from tilewright.serving.advice.running import advise_graphs, advise_requests
from tilewright.serving.advice.state import Load, State, default_state, first_token, first_token_s, outcome, ranks_of
from tilewright.serving.launch import context_length, launch_notes
from tilewright.serving.layout import CONCURRENCIES, MAX_LAYOUT_GPUS, layouts_of
from tilewright.serving.memory import layout_name
from tilewright.serving.questions import MAX_CONCURRENCY, MAX_CONTEXT, DecodeQuestion
from tilewright.serving.scenario import KV_NAMES, Scenario, moe_family, scenario_of
from tilewright.versions import release_told, version_key

__all__ = ["AdviceQuestion", "advise", "advise_state", "load_of", "present_state"]

CONTEXT: Final = 8192
"""Tokens that a request holds where nothing says otherwise."""
_SHOWN: Final = (1, 8, 32)
"""Numbers of requests at which effects are shown, beside the load's own."""
_CAPS_GRAPHS: Final = (0, 5, 23)
"""The SGLang release that was read to end its default graphs at --max-running-requests (srt/arg_groups/
memory_hook.py); older ones do not."""


@dataclass(frozen=True, kw_only=True)
class AdviceQuestion:
    """Names as users write them. Sizes of the layout that are None come from `launch`, else the best layout is taken.

    `context`: tokens that a request holds at most, prompt and answer. `concurrency` None: one request for latency, the
    most that fit for throughput.
    """

    model: str
    gpu: str
    gpus: int = 1
    checkpoint: str | None = None
    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dcp: int | None = None
    attention_dp: int | None = None
    goal: Goal = "throughput"
    concurrency: int | None = None
    context: int | None = None
    prompt_tokens: int | None = None
    kv_dtype: str | None = None
    mem_fraction: float | None = None
    launch: str | None = None


_Sizes = dict[str, int]


def _given_sizes(question: AdviceQuestion, present: Present | None, engine: str) -> _Sizes:
    """Sizes of the layout that the question or the launch line says."""
    out: _Sizes = {}
    for name in ("tp", "pp", "ep", "dcp", "attention_dp"):
        value = getattr(question, name)
        if value is not None:
            out[name] = value
    if present is None:
        return out
    line: _Sizes = {}
    for name in ("tp", "pp", "dcp", "dp"):
        value = present.whole(name)
        if value is not None:
            line[name] = value
    copies = line.pop("dp", 1)
    if engine == "sglang":
        own = present.whole("attention_dp") or (copies if "attention_dp_switch" in present.text else 1)
        if own > 1:
            line["attention_dp"] = own
        if (ranks := present.whole("ep")) is not None:
            line["ep"] = ranks
    else:
        # vLLM's tensor-parallel size is one rank's of the attention; the experts spread over all of them.
        if copies > 1:
            line["attention_dp"] = copies
            line["tp"] = line.get("tp", 1) * copies
        if "ep" in present.text:
            line["ep"] = line.get("tp", 1)
    return line | out


def _base(question: AdviceQuestion, flags: FlagSet, present: Present | None) -> tuple[Scenario, str]:
    """(the scenario in its layout, where the layout comes from)."""
    text = present.text if present is not None else {}
    unread: list[str] = []
    kv = question.kv_dtype or _named(text.get("kv_dtype"), KV_NAMES.__contains__, "kv_dtype", unread)
    backend = _named(text.get("moe_backend"), _is_family, "moe_backend", unread)
    for ident in ("chunk", "graph_batch", "max_requests"):
        if present is not None and ident in text and present.whole(ident) is None:
            _named(text[ident], lambda _: False, ident, unread)  # 0, -1: another meaning in each version
    sizes = _given_sizes(question, present, flags.engine)
    version = flags.version
    if version is not None:
        try:
            version_key(version)
        except InputError:
            version = None
    common: dict[str, Any] = {
        "model": question.model, "gpu": question.gpu, "checkpoint": question.checkpoint, "engine": flags.engine,
        "engine_version": version, "kv_dtype": kv, "moe_backend": backend,
        "context": question.context or CONTEXT,
    }  # fmt: skip
    drafts = present.drafts(flags.engine) if present is not None else 0
    if sizes:
        shape: dict[str, Any] = {**common, **sizes}
        made = scenario_of(DecodeQuestion(gpus=question.gpus, **shape))
        asked = any(getattr(question, name, None) is not None for name in sizes)
        where = "as asked" if asked else "as your line has it"
    else:
        plain = scenario_of(DecodeQuestion(**common, gpus=1, tp=1))
        made, where = _best(plain, question, flags)
    return replace(made, speculative_tokens=drafts, assumed=(*made.assumed, *unread)), where


def _is_family(name: str) -> bool:
    try:
        moe_family(name)
    except InputError:
        return False
    return True


def _named(value: str | None, known: Callable[[str], bool], ident: str, unread: list[str]) -> str | None:
    """A word of the line where it is one that is predicted; else None, and what is counted with instead."""
    if value is None or known(value.strip().lower()):
        return value
    unread.append(f"{concept(ident).title} {shown(value)} of your line is not predicted: counted as the engine's own")
    return None


def _best(plain: Scenario, question: AdviceQuestion, flags: FlagSet) -> tuple[Scenario, str]:
    from tilewright.models.memory import Parallel

    answer = layouts_of(
        plain, question.gpus, concurrency=question.concurrency, prompt_tokens=question.prompt_tokens,
        goal=question.goal, mem_fraction=question.mem_fraction, flags=flags,
    )  # fmt: skip
    first = next((item for item in answer.layouts if item.status == "fits"), None)
    if first is None:
        why = answer.layouts[0].why if answer.layouts else "no layout is legal"
        msg = (
            f"{plain.model.name} does not fit on {question.gpus} of these GPUs with {plain.context:,} tokens of "
            f"context: {why}; take more GPUs, a smaller checkpoint or less context."
        )
        raise InputError("gpus", msg)
    parallel = Parallel(
        tp=first.tp, pp=first.pp, ep=first.ep, dcp=first.dcp, attention_dp=first.attention_dp
    )  # fmt: skip
    many = "request" if answer.at == 1 else "requests"
    where = f"best of {answer.counts['fits']} that fit, for {question.goal} at {answer.at} {many} ('tilewright layout')"
    return replace(plain, parallel=parallel, copies=first.copies), where


def present_state(scenario: Scenario, flags: FlagSet, present: Present | None, fraction: float | None) -> State:
    """The server without the advice: the engine's choices, and over them what the launch line says."""
    state = default_state(scenario, flags)
    if flags.engine == "sglang":
        state = replace(state, chunk=max(1, state.chunk // scenario.parallel.attention_dp))
    if fraction is not None:
        if not 0 < fraction <= 1:
            msg = f"The memory fraction must be above 0 and at most 1, not {shown(fraction)}."
            raise InputError("mem_fraction", msg)
        state = replace(state, fraction=fraction)
    if present is None:
        return state
    share, chunk, graphs, cap = (
        present.share("memory_share"), present.whole("chunk"), present.whole("graph_batch"),
        present.whole("max_requests"),
    )  # fmt: skip
    if share is not None and fraction is None:
        state = replace(state, fraction=share)
    if chunk is not None:
        ranks = scenario.parallel.attention_dp if flags.engine == "sglang" else 1
        state = replace(state, chunk=max(1, chunk // ranks))
    if cap is not None:
        state = replace(state, cap=cap * (scenario.copies if flags.engine == "sglang" else ranks_of(scenario)))
    if graphs is not None:
        drafts = scenario.speculative_tokens
        state = replace(state, graphs=graphs // (1 + drafts) if flags.engine == "vllm" else graphs)
    elif cap is not None:
        state = with_capped_graphs(state, flags)
    off = present.text.get("no_graphs")
    return replace(state, graphs=0) if off is not None else state


def with_capped_graphs(state: State, flags: FlagSet) -> State:
    """SGLang's default graphs end at the limit of requests, from the release on that was read to do so."""
    release = release_told(flags.version)
    new = release is None or release >= _CAPS_GRAPHS
    if flags.engine != "sglang" or not new or state.cap is None:
        return state
    return replace(
        state, graphs=min(default_state(state.scenario, flags).graphs, -(-state.cap // ranks_of(state.scenario)))
    )


def load_of(state: State, context: int, prompt: int, concurrency: int | None, goal: Goal) -> Load:
    """A load that `state` can serve; `concurrency` None: one request for latency, else the most that fit.

    Raises InputError for sizes out of range, and where not one request fits.
    """
    for name, value, most in (
        ("context", context, MAX_CONTEXT), ("prompt_tokens", prompt, MAX_CONTEXT),
        ("concurrency", 1 if concurrency is None else concurrency, MAX_CONCURRENCY),
    ):  # fmt: skip
        if type(value) is not int or not 1 <= value <= most:
            raise InputError(name, f"{name} must be a whole number from 1 to {most:,}, not {shown(value)}.")
    model = state.scenario.model
    if model.context and context > model.context:
        msg = f"{model.name} was made for {model.context:,} tokens, and {context:,} are asked; lower --context."
        raise InputError("context", msg)
    memory = state.memory()
    room = memory.requests(context) * ranks_of(state.scenario) if memory.fits else 0
    if room < 1:
        held = "the weights do not fit" if not memory.fits else f"the cache holds {memory.kv_tokens:,} tokens of a rank"
        name = layout_name(state.scenario.parallel, state.scenario.copies)
        msg = (
            f"Not one request of {context:,} tokens fits in {name} at a memory fraction of {state.fraction:g}: {held}; "
            "lower --context, or take another layout."
        )
        raise InputError("context", msg)
    count = concurrency
    if count is None:
        count = 1 if goal == "latency" else max(item for item in CONCURRENCIES if item <= max(1, room))
    return Load(count, context, prompt, tuple(sorted({*_SHOWN, count})))


def advise(question: AdviceQuestion, flags: FlagSet) -> Advice:
    """The advice for one version's flags. Pure: nothing is read but `flags` and the packaged facts.

    Raises InputError (UnknownNameError) for names that are not known, sizes that do not fit together, a launch line
    that cannot be split, and a load of which not one request fits.
    """
    check_whole("gpus", question.gpus, MAX_LAYOUT_GPUS)
    present = read_present(flags, question.launch) if question.launch is not None else None
    scenario, where = _base(question, flags, present)
    now = present_state(scenario, flags, present, question.mem_fraction)
    longest = present.whole("context") if present is not None else None
    context = min(CONTEXT, longest or CONTEXT) if question.context is None else question.context
    prompt = context if question.prompt_tokens is None else question.prompt_tokens
    load = load_of(now, context, prompt, question.concurrency, question.goal)
    return advise_state(Context(flags, now, load, question.goal, present), where, kv=question.kv_dtype)


def advise_state(context: Context, where: str, *, kv: str | None = None) -> Advice:
    """`advise` for a server that is resolved already; `where` says what its layout comes from."""
    flags, now, load = context.flags, context.now, context.load
    found = Found(now)
    advise_shared_experts(context, found)
    advise_cache_that_runs(context, found)
    advise_drafting(context, found)
    advise_experts(context, found)
    advise_share(context, found)
    advise_requests(context, found)
    if context.given("graph_batch") is None and context.given("no_graphs") is None:
        found.state = with_capped_graphs(found.state, flags)
    advise_graphs(context, found)
    advise_chunk(context, found)
    advise_cache_format(context, found)
    advise_attention(context, found)
    advise_all_reduce(context, found)
    judged = judge(context)
    scenario, memory = found.state.scenario, found.state.memory()
    length = context_length(scenario.model, memory, load.context)
    own = context.present.whole("context") if context.present is not None else None
    if own is not None and load.context <= own <= length:
        length = own
    elif own is not None and own > length:
        judged.insert(0, _too_long(context, own, length, memory.kv_tokens))
    share = context.given("memory_share")
    if share is not None and context.present is not None and context.present.share("memory_share") is None:
        words = tuple(next((item.words for item in found.suggestions if item.concept == "memory_share"), ()))
        judged.insert(0, Judged(share, "refused", "A share of memory is above 0 and at most 1.", words))
    line, checked, dropped = line_of(context, found.state, length, found.suggestions, judged, kv)
    for name in dropped:
        found.left.append(Left("parser", name, f"the parser of {context.named} would refuse it as advised"))
    first = first_token(found.state, load)
    notes = [*scenario.assumed, *launch_notes(scenario), *found.notes]
    if memory.note:
        notes.append(memory.note)
    if context.present is not None:
        notes += [f"your line: {item.message}" for item in context.present.check.remarks if item.level == "note"]
    if flags.snapshot:
        notes.append(f"flags of {context.named} as packaged; give the installed one where yours is another version")
    return Advice(
        engine=flags.engine, version=flags.version, root=flags.root, packaged=flags.snapshot,
        model=scenario.model.name, checkpoint=scenario.checkpoint.name, gpu=scenario.gpu.key, gpus=scenario.gpus,
        layout=layout_name(scenario.parallel, scenario.copies), layout_why=where, goal=context.goal,
        concurrency=load.concurrency, context=load.context, prompt_tokens=load.prompt,
        compared_with="your launch line" if context.present is not None else f"{context.named} by itself",
        mem_fraction=found.state.fraction,
        kv_tokens=memory.kv_tokens * ranks_of(scenario) if memory.cache is not None else None,
        max_context=length,
        ttft_now_s=first_token_s(now, load), ttft_s=first.time_s, ttft_low_s=first.low_s, ttft_high_s=first.high_s,
        rates=_rates(now, found.state, load), suggestions=_ranked(found.suggestions, dropped, load), left=found.left,
        judged=judged, environment=found.environment, launch=line, launch_checked=checked, notes=notes,
    )  # fmt: skip


def _too_long(context: Context, own: int, length: int, tokens: int) -> Judged:
    name = context.given("context") or concept("context").title
    if own > tokens:
        text = f"The cache holds {tokens:,} tokens (modelled): a request of {own:,} cannot run; {length:,} can."
    else:
        text = f"{context.model.name} was made for {context.model.context:,} tokens."
    flag = context.name("context")
    return Judged(name, "refused", text, (flag, str(length)) if flag else ())


def _rates(now: State, then: State, load: Load) -> list[Rate]:
    out: list[Rate] = []
    for count in load.sweep:
        old, new = outcome(now, load, count), outcome(then, load, count)
        if new is None:
            continue
        step = new.step
        gained = new.running * step.tokens_each
        out.append(
            Rate(
                count, old.running if old else 0, old.step.tok_s if old else 0.0, new.running, step.tok_s,
                gained / step.high_s, gained / step.low_s, step.time_s / step.tokens_each,
            )
        )  # fmt: skip
    return out


def worth(item: Suggestion, load: Load) -> float:
    """Expected gain in per cent x confidence / effort: decode at the load's own requests, else prefill at half."""
    here = (load.concurrency, None)
    decode = [e.gain_percent or 0.0 for e in item.effects if e.phase == "decode" and e.concurrency in here]
    prefill = [e.gain_percent or 0.0 for e in item.effects if e.phase == "prefill"]
    gain = sum(decode[:1]) + sum(prefill[:1]) / 2
    return gain * item.confidence / max(item.effort_h, 0.25)


def _ranked(items: list[Suggestion], dropped: list[str], load: Load) -> list[Suggestion]:
    """What the server needs to start first, then by what it is worth; what only is to be tried after what is set."""
    kept = [item for item in items if not item.words or item.words[0] not in dropped]
    return sorted(kept, key=lambda item: (not item.start, item.action == "try", -worth(item, load)))
