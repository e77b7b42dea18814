"""What changes between two states of a server: decode and prefill apart, for each number of requests."""

from __future__ import annotations

from typing import Final, Literal

from tilewright.serving.advice.answer import Effect
from tilewright.serving.advice.state import Load, State, first_token_s, outcome
from tilewright.serving.ratio import RATIO_ERROR

__all__ = ["effects", "gain_at"]

SEEN: Final = 0.005
"""A change below this share is no effect: it is a tenth of what the kernel models are wrong by."""


def _rate(phase: Literal["decode", "prefill"], metric: str, count: int | None, old: float, new: float) -> Effect:
    """An effect on a rate (prefill: on a time, of which less is better), with the error of a ratio of predictions."""
    ratio = new / old if phase == "decode" else old / new
    low, high = (round((ratio * (1 + sign * RATIO_ERROR) - 1) * 100, 1) for sign in (-1, 1))
    return Effect(
        phase, metric, "modelled", count, round(old, 4), round(new, 4), round((ratio - 1) * 100, 1), low, high
    )  # fmt: skip


def effects(before: State, after: State, load: Load) -> list[Effect]:
    """Every figure that differs. Empty: the flag changes nothing that is predicted."""
    out: list[Effect] = []
    for count in load.sweep:
        old, new = outcome(before, load, count), outcome(after, load, count)
        if old is None or new is None:
            continue
        if abs(new.step.tok_s / old.step.tok_s - 1) > SEEN:
            out.append(_rate("decode", "tok/s of all requests", count, old.step.tok_s, new.step.tok_s))
    old_s, new_s = first_token_s(before, load), first_token_s(after, load)
    if abs(old_s / new_s - 1) > SEEN:
        out.append(_rate("prefill", f"s to the first token of {load.prompt:,}", None, old_s, new_s))
    old_kv, new_kv = before.memory().kv_tokens, after.memory().kv_tokens
    if old_kv and abs(new_kv / old_kv - 1) > SEEN:
        gain = round((new_kv / old_kv - 1) * 100, 1)
        out.append(Effect("capacity", "KV tokens of a rank", "modelled", None, old_kv, new_kv, gain))
    return out


def gain_at(before: State, after: State, load: Load) -> float:
    """Ratio of decode rates at the load's own number of requests; 0 where nothing runs afterwards."""
    old, new = outcome(before, load, load.concurrency), outcome(after, load, load.concurrency)
    if new is None:
        return 0.0
    return new.step.tok_s / old.step.tok_s if old is not None else 2.0
