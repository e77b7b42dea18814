"""The tiles that an engine takes where no file has one, as its own code computes them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from tilewright.libraries.flashinfer.model import Place
from tilewright.libraries.tuned.engine import Engine, Question
from tilewright.libraries.tuned.judge import Judge, unsupported
from tilewright.libraries.tuned.model import Op, TunedTactic
from tilewright.libraries.tuned.request import DEFAULT_TOKENS, Request
from tilewright.libraries.tuned.world import World
from tilewright.triton_.model import TritonVerdict

_TYPICAL: Final = Question(experts=128, inter=1024, hidden=4096, topk=8, dtype=None, block_shape=None)
"""Layer for which built-in defaults are asked where none is given."""
_DEFAULTS: Final[tuple[tuple[str | None, tuple[int, int] | None], ...]] = (
    (None, None), ("fp8_w8a8", None), ("fp8_w8a8", (128, 128)), ("int8_w8a8", None), ("int8_w8a16", None),
    ("int4_w4a16", (0, 128)),
)  # fmt: skip


def built_in(engine: Engine, judge: Judge, world: World, request: Request) -> list[TunedTactic]:
    """The engine's built-in tiles on this GPU, each once, with the numbers of tokens it is taken for."""
    base = request.question or _TYPICAL
    place = Place(*engine.default_line())
    bare = engine.world(replace(world.device, name="no such device"), "0.0.0", {})
    out: list[TunedTactic] = []
    for dtype, block in _DEFAULTS:
        seen: set[str] = set()
        question = replace(base, dtype=dtype, block_shape=block, per_channel=dtype == "int8_w8a8")
        for tokens in sorted({*DEFAULT_TOKENS, *request.tokens}):
            answer = engine.moe(bare, question, tokens)
            label = dtype or "bf16"
            blocks = f",block_shape=[{block[0]},{block[1]}]" if block else ""
            name = f"default:dtype={label}{blocks}#{tokens}"
            if answer.tile is None:
                if answer.problem not in seen:
                    seen.add(answer.problem)
                    cause = answer.problem[:1].upper() + answer.problem[1:] + "."
                    out.append(_default(name, place, None, unsupported(name, cause, None), tokens))
                continue
            key = str(sorted(answer.tile.items()))
            if key in seen:
                continue
            seen.add(key)
            config, verdict = judge.judge(
                name, engine.spec.moe_kernel, dtype, block, answer.tile, world.device, question.per_channel
            )
            out.append(_default(name, place, config, verdict, tokens))
    return out + _linear_default(engine, judge, world, bare)


def _linear_default(engine: Engine, judge: Judge, world: World, bare: World) -> list[TunedTactic]:
    if engine.linear_file is None:
        return []
    name = "default:linear,dtype=fp8_w8a8,block_shape=[128,128]#64"
    place = Place(engine.linear_file, 1)
    answer = engine.linear_default(bare, 4096, 4096, (128, 128), 64)
    if answer.tile is None:
        return [_default(name, place, None, unsupported(name, answer.problem + ".", None), 64, "linear")]
    config, verdict = judge.judge(
        name, engine.spec.linear_kernel, "fp8_w8a8", (128, 128), answer.tile, world.device, False
    )
    return [_default(name, place, config, verdict, 64, "linear")]


def _default(
    name: str, place: Place, config: dict[str, Any] | None, verdict: TritonVerdict, tokens: int, op: Op = "moe"
) -> TunedTactic:
    return TunedTactic(
        name=name, source=place, config=config, verdict=verdict, op=op, tokens=tokens, device=None, read=True
    )
