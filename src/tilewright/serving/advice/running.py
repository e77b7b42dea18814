"""How many requests run together, and for how many graphs are captured: from the cache, the load and the engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from tilewright.serving.advice.answer import Left, Suggestion
from tilewright.serving.advice.context import SM12X, Context, Found, ground
from tilewright.serving.advice.effects import effects
from tilewright.serving.advice.state import default_state, ranks_of
from tilewright.serving.launch import flag_requests, servers

__all__ = ["advise_graphs", "advise_requests"]

_STEP: Final = 8
"""Captured batches go up in steps of 8 (SGLang generate_decode_cuda_graph_batch_sizes, vLLM request_counts): a limit
on such a step is captured as it is."""


def _counted(context: Context) -> str:
    """How the flag counts, where that is not simply the server's requests."""
    scenario = context.now.scenario
    if context.engine == "sglang" and scenario.parallel.attention_dp > 1:
        return f" SGLang divides it by the {scenario.parallel.attention_dp} ranks of the attention."
    if context.engine == "sglang" and scenario.copies > 1 and servers(scenario) == 1:
        return f" Each of the {scenario.copies} copies gets this many."
    if context.engine == "vllm" and ranks_of(scenario) > 1:
        return f" vLLM counts it for each of the {ranks_of(scenario)} data-parallel ranks."
    return ""


def _round_up(value: int, most: int) -> int:
    return min(most, -(-value // _STEP) * _STEP)


def advise_requests(context: Context, found: Found) -> None:
    """Requests that run together: the load, held to what the cache has room for."""
    name, given, load = context.name("max_requests"), context.given("max_requests"), context.load
    scenario = found.state.scenario
    if name is None:
        found.left.append(Left("max_requests", None, f"{context.named} has no such flag"))
        return
    room = found.state.memory().requests(load.context) * ranks_of(scenario)
    wanted = max(1, min(room, load.concurrency))
    value = flag_requests(scenario, _round_up(max(wanted, min(room, _STEP)), max(wanted, room)))
    total = value * (scenario.copies if context.engine == "sglang" else ranks_of(scenario))
    before = found.state
    found.state = replace(found.state, cap=total)
    limit = before.limit()
    if given is not None and context.present is not None and context.present.whole("max_requests") == value:
        found.left.append(Left("max_requests", name, f"your line has {value} already"))
        return
    held = f"the cache has room for {room:,} of {load.context:,} tokens"
    if found.state.memory().cache is None:
        held = "how many of them the cache holds is not known"
    load_text = f"the load is {context.at}"
    if limit < wanted:
        why = (
            f"{_begun(held)} and {load_text}; {'your line' if given else context.named + ' by itself'} lets "
            f"{limit:,} run, so the others wait although there is room. A step reads the same weights for more of them."
        )
        confidence = 0.7
    elif room < load.concurrency:
        why = (
            f"{_begun(load_text)} and {held}: more than that would be taken back (preempted or "
            "retracted) and computed again once the cache is full."
        )
        confidence = 0.5
    else:
        why = (
            f"{_begun(load_text)} and {held}. The limit keeps buffers and captured graphs to what "
            "is used; it is not reached by the load."
        )
        confidence = 0.3
    changed = effects(before, found.state, load)
    found.suggestions.append(
        Suggestion(
            concept="max_requests", title=context.title("max_requests"), flag=name, words=[name, str(value)],
            action="set" if given is None else "change", given=given,
            without=f"{limit:,} requests {'(your line)' if given else 'by itself'}", why=why + _counted(context),
            effects=changed, evidence=ground("driving_case_flags") if limit < wanted else [],
            conflicts=_graph_conflict(context, total), confidence=confidence,
        )
    )  # fmt: skip


def _begun(text: str) -> str:
    return text[:1].upper() + text[1:]


def _graph_conflict(context: Context, total: int) -> list[str]:
    name = context.name("graph_batch")
    per_rank = -(-total // ranks_of(context.now.scenario))
    if name is None or per_rank <= context.now.graphs:
        return []
    return [f"{name} below {per_rank}: batches above the largest captured graph are launched kernel by kernel"]


def advise_graphs(context: Context, found: Found) -> None:
    """The largest captured batch: all that may run, and in SGLang no more, since graphs take memory."""
    name, given, load = context.name("graph_batch"), context.given("graph_batch"), context.load
    state = found.state
    drafts = state.scenario.speculative_tokens
    need = -(-state.limit() // ranks_of(state.scenario))
    if name is None:
        found.left.append(Left("graph_batch", None, f"{context.named} has no such flag: it captures for the limit"))
        return
    if context.given("no_graphs") is not None:
        flag = context.given("no_graphs") or ""
        before, after = replace(context.now, graphs=0), replace(context.now, graphs=max(need, 1))
        found.suggestions.append(
            Suggestion(
                concept="no_graphs", title=context.title("no_graphs"), flag=flag, words=[], action="remove",
                given=flag, without="graphs are captured", effects=effects(before, after, load),
                why="Without CUDA graphs every kernel of a step is launched by the host one by one.",
                evidence=ground("graph_list_short"), confidence=0.8,
            )
        )  # fmt: skip
        state = replace(state, graphs=default_state(state.scenario, context.flags).graphs)
        found.state = state
    glm = context.engine == "sglang" and context.gpu.arch in SM12X and context.model.key.startswith("GLM-5")
    if need > state.graphs:
        why = (
            f"Up to {need} requests of a rank run together and graphs end at {state.graphs}: batches above are "
            "launched kernel by kernel from the host."
        )
        value, evidence, confidence = need, ground("graph_list_short"), 0.8
    elif context.engine == "sglang" and need < state.graphs:
        why = (
            f"At most {need} requests of a rank run together; graphs up to {state.graphs} would take memory and "
            "start-up time for batches that never come."
        )
        value, evidence, confidence = need, ground("decode_graph_bs") if glm else [], 0.5
    else:
        found.left.append(Left("graph_batch", name, f"graphs up to {state.graphs} requests cover the {need} that run"))
        return
    tokens = value * (1 + drafts) if context.engine == "vllm" else value
    found.state = replace(state, graphs=value)
    if given is not None and context.present is not None and context.present.whole("graph_batch") == tokens:
        found.left.append(Left("graph_batch", name, f"your line has {tokens} already"))
        return
    found.suggestions.append(
        Suggestion(
            concept="graph_batch", title=context.title("graph_batch"), flag=name, words=[name, str(tokens)],
            action="set" if given is None else "change", given=given,
            without=f"graphs up to {state.graphs} {'(your line)' if given else 'by itself'}", why=why
            + (" vLLM counts tokens: a request brings 1 + its drafts." if context.engine == "vllm" and drafts else ""),
            effects=effects(state, found.state, load), evidence=evidence, confidence=confidence,
        )
    )  # fmt: skip
