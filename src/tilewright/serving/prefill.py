"""Prefill: the time from a prompt to its first token when nothing else is queued."""

from __future__ import annotations

from tilewright.cost.estimate import Estimate
from tilewright.serving.coefficients import Coefficients, coefficients, spread
from tilewright.serving.decode import Step, estimate_of, too_full, widened
from tilewright.serving.defaults import chunk_tokens
from tilewright.serving.kernels import Basis
from tilewright.serving.profile import profile, stage_layers
from tilewright.serving.questions import PrefillQuestion
from tilewright.serving.scenario import Scenario, scenario_of
from tilewright.serving.step import Sum, add_head, add_layers

__all__ = ["chunk_of", "predict_prefill", "prefill_step"]


def chunk_of(scenario: Scenario) -> int:
    """Tokens that the engine takes at once by default."""
    return chunk_tokens(scenario.engine, scenario.gpu.memory_bytes or 0)


def prefill_step(
    scenario: Scenario, prompt_tokens: int, chunk: int | None = None, coefs: Coefficients | None = None,
    basis: Basis = "auto",
) -> Step:  # fmt: skip
    """One prompt of one request on one copy of the model, chunk by chunk.

    Pipeline stages work on chunks that follow each other: the last chunk is through after all stages' chunks and the
    passage of one chunk through the other stages.
    """
    coefs = coefs or coefficients()
    made = profile(scenario.model, scenario.checkpoint)
    pp = scenario.parallel.pp
    step = chunk or chunk_of(scenario)
    sums = Sum()
    # One request cannot be shared out over copies of the attention.
    done = 0
    last_other = 0.0
    while done < prompt_tokens:
        count = min(step, prompt_tokens - done)
        repeat = 1
        if done and count == step and prompt_tokens - done > 16 * step:
            # Chunks of a very long prompt differ in their context only: take sixteenths together at their middle.
            repeat = (prompt_tokens - done) // (16 * step)
        context = scenario.context + done + (repeat - 1) * step // 2
        stages: list[Sum] = []
        for layers in stage_layers(made, pp):
            part = Sum()
            add_layers(part, scenario, layers, 1, count, context, coefs, basis, prefill=True)
            if pp > 1:
                part.add("handoff", coefs.handoff(scenario.engine), bound="latency", low=0.3, high=2.0)
            stages.append(part)
        slowest = max(stages, key=lambda part: part.time_s)
        sums.merge(slowest, repeat)
        last_other = sum(part.time_s for part in stages) - slowest.time_s
        done += count * repeat
    kernels = sums.time_s
    sums.add("bubble", last_other, bound="latency", count=0)
    add_head(sums, scenario, made, 1, coefs, basis)
    sums.add("chunks", kernels * (1 / coefs.prefill_share - 1), bound="latency", low=0.5, high=1.5, count=0)
    sums.add("idle", coefs.gap_s, bound="latency", low=0.3, high=2.0, count=0)
    around = spread()
    time = sums.time_s
    # Two published tables are all that there is, and they disagree: one is half faster, the other half slower.
    low, high = min(time * around.low**2, sums.low_s), max(time * around.high**2, sums.high_s)
    low, high = widened(low, high, scenario)
    return Step(scenario, sums, 1.0, low, high)


def predict_prefill(question: PrefillQuestion, basis: Basis = "auto") -> Estimate:
    """`time_s` is the time to the first token, nothing else queued.

    Raises InputError and UnknownNameError naming the field for anything that cannot be.
    """
    scenario = scenario_of(question)
    step = prefill_step(scenario, question.prompt_tokens, question.chunk_tokens, basis=basis)
    chunk = question.chunk_tokens or chunk_of(scenario)
    what = (
        f"{question.prompt_tokens:,} tokens in chunks of {min(chunk, question.prompt_tokens):,}: "
        f"{question.prompt_tokens / step.time_s:,.0f} tokens a second"
    )
    full = too_full(scenario.at(1, scenario.context + question.prompt_tokens))
    return estimate_of(step, question.id, f"{what}; {full}" if full else what, None)
