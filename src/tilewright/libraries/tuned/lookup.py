"""What one layer's lookup finds: the name that the engine builds, the files it tries, the tile for each size."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tilewright.libraries.flashinfer.model import Place
from tilewright.libraries.python_source.limits import CannotFollow
from tilewright.libraries.python_source.values import Function, Raised
from tilewright.libraries.tuned.engine import Answer, Engine, Question
from tilewright.libraries.tuned.judge import Judge, unsupported
from tilewright.libraries.tuned.model import Lookup, LookupStep
from tilewright.libraries.tuned.world import Device, World, shown_path


def build_name(
    engine: Engine, world: World, device: Device, experts: int, inter: int, dtype: str | None,
    block: list[int] | None, kwargs: dict[str, Any],
) -> str | None:  # fmt: skip
    """The file name that the engine's own `get_config_file_name` builds; None where it cannot be followed."""
    before, world.device = world.device, device
    try:
        function = world.function(engine.moe_file, "get_config_file_name")
        if not isinstance(function, Function):
            return None
        args = [experts, inter, dtype, block]
        spec = function.node.args
        takes = [arg.arg for arg in (*spec.posonlyargs, *spec.args, *spec.kwonlyargs)]
        # Releases before block scales (vLLM to 0.7.1, SGLang to 0.4.2) take fewer: what is asked for must be sayable.
        args, left_out = (args[:3], [block]) if len(takes) < len(args) else (args, [])
        left_out += [value for key, value in kwargs.items() if key not in takes]
        if any(left_out):
            return None
        name = world.call(function, args, {key: value for key, value in kwargs.items() if key in takes})
    except (CannotFollow, Raised):
        return None
    finally:
        world.device = before
    return name if isinstance(name, str) else None


def _step(engine: Engine, judge: Judge, question: Question, device: Device, tokens: int, answer: Answer) -> LookupStep:
    name = f"M={tokens}"
    if answer.tile is None:
        return LookupStep(
            tokens=tokens, config=None, verdict=unsupported(name, answer.problem + ".", device.smem_optin),
            from_file=False,
        )  # fmt: skip
    kernel = engine.spec.moe_kernel
    parts = (kernel, question.dtype, question.block_shape)
    config, verdict = judge.judge(name, *parts, answer.tile, device, question.per_channel)
    down_config = down_verdict = None
    if answer.down is not None:
        down_config, down_verdict = judge.judge(name, *parts, answer.down, device, question.per_channel)
    return LookupStep(
        tokens=tokens, config=config, verdict=verdict, from_file=bool(answer.trace.opened), down_config=down_config,
        down_verdict=down_verdict,
    )  # fmt: skip


def look_up(engine: Engine, judge: Judge, world: World, question: Question, tokens: Iterable[int]) -> Lookup:
    """The lookup of the layer `question` on the world's device, one step for each number of tokens."""
    device = world.device
    steps: list[LookupStep] = []
    tried: list[str] = []
    file: str | None = None
    problem: str | None = None
    for count in tokens:
        answer = engine.moe(world, question, count)
        problem = problem or answer.problem or None
        tried.extend(shown_path(path) for path in answer.trace.tried)
        if answer.trace.opened:
            file = shown_path(answer.trace.opened[0])
        steps.append(_step(engine, judge, question, device, count, answer))
    block = list(question.block_shape) if question.block_shape else None
    wanted = build_name(
        engine, world, device, question.experts, question.inter, question.dtype, block,
        {"per_channel_quant": question.per_channel},
    )  # fmt: skip
    return Lookup(
        experts=question.experts, inter=question.inter, dtype=question.dtype or "bf16", block_shape=block,
        device=device.name, wanted=wanted, file=file, tried=list(dict.fromkeys(tried)),
        default_at=Place(*engine.default_line()), steps=steps, problem=problem,
    )  # fmt: skip
