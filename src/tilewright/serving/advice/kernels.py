"""Kernels by flag: which family of expert kernels is fastest at the load, and what the attention's choice is."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Final

import msgspec

from tilewright.data.figures import read_packaged
from tilewright.models.memory import component_formats
from tilewright.models.records import Gqa, Mla
from tilewright.serving.advice.answer import Left, Suggestion
from tilewright.serving.advice.context import SM12X, Context, Found, ground
from tilewright.serving.advice.effects import effects, gain_at
from tilewright.serving.advice.state import State, outcome

__all__ = ["Limit", "advise_attention", "advise_experts", "advise_shared_experts", "limits"]

WORTH: Final = 0.03
"""A predicted gain of a kernel family below this is less than the kernel models are wrong by."""


class Limit(msgspec.Struct, frozen=True):
    """A flag, or values of it, that some architectures do not serve."""

    engine: str
    flag: str
    values: tuple[str, ...] | None
    serves: tuple[str, ...]
    otherwise: str
    source: str
    evidence: str = ""


class _Moe(msgspec.Struct, frozen=True):
    engine: str
    arch: tuple[str, ...]
    format: str
    value: str
    family: str
    auto: bool
    source: str
    numerics: str = "unchanged"
    evidence: tuple[str, ...] = ()


class _Attention(msgspec.Struct, frozen=True):
    engine: str
    arch: tuple[str, ...]
    kind: str
    auto: str
    source: str


class _File(msgspec.Struct, frozen=True):
    limits: tuple[Limit, ...]
    moe: tuple[_Moe, ...]
    attention: tuple[_Attention, ...]


@lru_cache(maxsize=1)
def _file() -> _File:
    return msgspec.convert(read_packaged("flag_limits.json"), _File)


def limits(engine: str) -> tuple[Limit, ...]:
    """Flags of the engine that some architectures do not serve."""
    return tuple(item for item in _file().limits if item.engine == engine)


def _main_format(context: Context, component: str) -> str:
    table = component_formats(context.model, context.now.scenario.checkpoint).get(component, {})
    return max(table, key=lambda name: table[name]) if table else ""


def advise_experts(context: Context, found: Found) -> None:
    """Families of expert kernels that the version offers here, compared at the load and at other loads."""
    name = context.name("moe_backend")
    if context.model.moe is None:
        return
    fmt = _main_format(context, "experts_w13")
    flag = context.flag("moe_backend")
    if name is None or flag is None:
        found.left.append(Left("moe_backend", None, f"{context.named} has no flag for them"))
        return
    offered = {str(item) for item in flag.choices or ()}
    rows = [
        item
        for item in _file().moe
        if item.engine == context.engine
        and context.gpu.arch in item.arch
        and item.format == fmt.removesuffix("_w4a16")
        and (item.value in offered or not offered)
    ]
    usual = next((item for item in rows if item.auto), None)
    state = found.state
    mine = state.scenario.moe_backend
    families = {item.family: item for item in reversed(rows)}
    if usual is None or len(families) < 2:
        source = f" ({usual.source})" if usual else ""
        chosen = f"auto takes {usual.value} here{source}; " if usual else ""
        arch = context.gpu.arch.upper()
        why = f"{chosen}no other family of kernels for {fmt or 'these'} experts is predicted on {arch}"
        found.left.append(Left("moe_backend", name, why))
        return
    base = replace(state, scenario=replace(state.scenario, moe_backend=""))
    others = {
        family: replace(state, scenario=replace(state.scenario, moe_backend=family))
        for family in families
        if family != usual.family
    }
    best = max(others, key=lambda family: gain_at(base, others[family], context.load))
    ratio = gain_at(base, others[best], context.load)
    item = families[best]
    turn = _turn(base, others[best], context)
    if ratio < 1 + WORTH:
        why = (
            f"auto takes {usual.value} here ({usual.source}); {item.value} is predicted to bring "
            f"{(ratio - 1) * 100:+.0f} % at {context.at}{turn}"
        )
        if mine == best:
            found.suggestions.append(
                Suggestion(
                    concept="moe_backend", title=context.title("moe_backend"), flag=name, words=[], action="remove",
                    given=context.given("moe_backend"), without=f"{usual.value} by itself", why=why,
                    effects=effects(state, base, context.load), evidence=ground(*item.evidence), confidence=0.5,
                )
            )  # fmt: skip
            found.state = base
            return
        found.left.append(Left("moe_backend", name, why))
        return
    if mine == best:
        found.left.append(Left("moe_backend", name, f"your line has {item.value}, which is what pays at this load"))
        return
    found.suggestions.append(
        Suggestion(
            concept="moe_backend", title=context.title("moe_backend"), flag=name, words=[name, item.value],
            action="try",
            given=context.given("moe_backend"), without=f"{usual.value} by itself",
            why=f"Predicted {(ratio - 1) * 100:+.0f} % at {context.at}{turn}. {context.named} never "
            "takes it by itself.",
            effects=effects(base, others[best], context.load), evidence=ground(*item.evidence), numerics=item.numerics,
            conflicts=[f"more requests than the load: {usual.value} wins there"] if turn else [], confidence=0.4,
            effort_h=1.0,
        )
    )  # fmt: skip


def _turn(base: State, other: State, context: Context) -> str:
    """Where the faster of two changes with the number of requests."""
    wins: list[int] = []
    losses: list[int] = []
    for count in context.load.sweep:
        a, b = outcome(base, context.load, count), outcome(other, context.load, count)
        if a is None or b is None:
            continue
        (wins if b.step.tok_s > a.step.tok_s else losses).append(count)
    if not wins or not losses:
        return ""
    if max(wins) < min(losses):
        return f" (it wins up to {max(wins)} and loses from {min(losses)} on)"
    return f" (it loses at {', '.join(map(str, losses))} and wins at {', '.join(map(str, wins))})"


def advise_attention(context: Context, found: Found) -> None:
    """What the attention's own choice is on SM12x; no flag there is published to be faster."""
    name = context.name("attention_backend")
    attention = context.model.attention
    kind = "mla" if isinstance(attention, Mla) else "gqa" if isinstance(attention, Gqa) else ""
    row = next(
        (
            item
            for item in _file().attention
            if item.engine == context.engine and context.gpu.arch in item.arch and item.kind == kind
        ),
        None,
    )
    if row is None:
        return
    found.left.append(
        Left("attention_backend", name, f"by itself {row.auto} ({row.source}); none is published to be faster here")
    )
    if context.model.indexer is None or context.engine != "sglang" or context.gpu.arch not in SM12X:
        return
    if found.state.scenario.kv_layout == "fp8":
        where = "it sets the flashinfer_sparse_mla backend by itself (sglang 0.5.23 srt/arg_groups/overrides.py:666)"
        found.left.append(Left("sparse_decode_backend", context.name("sparse_decode_backend"), where))


def advise_shared_experts(context: Context, found: Found) -> None:
    """SGLang's fusion of shared into routed experts, where their formats differ: GLM then fails to load."""
    name, given = context.name("no_shared_fusion"), context.given("no_shared_fusion")
    moe = context.model.moe
    if name is None or moe is None or not moe.shared_inter or not context.model.family.startswith("glm"):
        return
    shared, routed = _main_format(context, "shared_experts"), _main_format(context, "experts_w13")
    if shared == routed:
        return
    if given is not None:
        found.left.append(Left("no_shared_fusion", name, "your line has it, and this checkpoint needs it"))
        return
    found.suggestions.append(
        Suggestion(
            concept="no_shared_fusion", title=context.title("no_shared_fusion"), flag=name, words=[name], action="set",
            without="shared experts are fused into the routed ones",
            why=f"{context.now.scenario.checkpoint.name} stores shared experts as {shared} and routed ones as "
            f"{routed}: fused, their rows have different lengths and loading fails.",
            evidence=ground("shared_experts_fusion"), confidence=0.7, start=True,
        )
    )  # fmt: skip
