"""Decode: the time of a step of running requests, and the tokens a second that come out of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tilewright.cost.estimate import Basis as EstimateBasis
from tilewright.cost.estimate import Bound, Estimate, Term
from tilewright.hardware.gpu import Gpu
from tilewright.serving.attention import scans
from tilewright.serving.coefficients import Coefficients, coefficients, spread
from tilewright.serving.kernels import Basis
from tilewright.serving.memory import server_memory
from tilewright.serving.profile import LayerKind, Profile, profile, stage_layers
from tilewright.serving.questions import DecodeQuestion
from tilewright.serving.scenario import Scenario, scenario_of
from tilewright.serving.step import TERMS, Sum, add_head, add_layers

__all__ = ["Step", "acceptance_length", "decode_step", "estimate_of", "predict_decode", "too_full", "widened"]

_WHOLLY = 1 - 1e-9
"""Share of a term's time from which it counts as measured: all of it, but for rounding."""


@dataclass(frozen=True, slots=True)
class Step:
    """One decode step: every running request of one copy of the model gains `tokens_each` tokens in `time_s`.

    `idle_s` of it the GPU has nothing to do (scheduling, hand-overs, bubbles): kernels take the rest. `tok_s` counts
    all copies. `limit_s` is what the hardware allows for the kernels and collectives of the step.
    """

    scenario: Scenario
    sums: Sum
    tokens_each: float
    low_s: float
    high_s: float

    @property
    def time_s(self) -> float:
        return self.sums.time_s

    @property
    def limit_s(self) -> float | None:
        # Rates are nameplate and reached ones: where a kernel is predicted at the limit, rounding must not pass it.
        return min(self.sums.limit_s, self.time_s) if self.sums.limit_known else None

    @property
    def idle_s(self) -> float:
        return sum(self.sums.times.get(key, 0.0) for key in ("idle", "handoff", "bubble", "chunks"))

    @property
    def tok_s(self) -> float:
        """Output tokens a second of all running requests together."""
        return self.scenario.concurrency * self.tokens_each / self.time_s

    @property
    def request_tok_s(self) -> float:
        """Output tokens a second that one request sees."""
        return self.tokens_each / self.time_s

    @property
    def bound(self) -> Bound:
        return bound_of(self.sums)


def bound_of(sums: Sum) -> Bound:
    """What most of the time is spent on."""
    order: tuple[Bound, ...] = ("memory", "compute", "collective", "latency")
    return max(order, key=lambda name: sums.bounds.get(name, 0.0))


def acceptance_length(scenario: Scenario, coefs: Coefficients) -> float:
    """Tokens that a request gains in one step, on average: given, or from the published mean of acceptance."""
    drafts = scenario.speculative_tokens
    if not drafts:
        return 1.0
    if scenario.acceptance_length is not None:
        return scenario.acceptance_length
    return sum(coefs.acceptance**i for i in range(drafts + 1))


def _draft_layers(made: Profile) -> tuple[tuple[LayerKind, int], ...]:
    """The layers that draft a token: the prediction layers' own, else one layer of the commonest kind."""
    if made.mtp:
        # Modules beyond the first predict further tokens; a draft of one token passes one of them.
        return ((made.mtp[0], 1),)
    return ((max(made.kinds, key=lambda kind: kind.count), 1),)


def _drafting(scenario: Scenario, made: Profile, requests: int, coefs: Coefficients, basis: Basis) -> Sum:
    one = Sum()
    add_layers(one, scenario, _draft_layers(made), requests, 1, scenario.context, coefs, basis)
    add_head(one, scenario, made, requests, coefs, basis)
    out = Sum()
    out.merge(one, scenario.speculative_tokens)
    return out


@lru_cache(maxsize=4)
def _calibrated(gpu: Gpu) -> bool:
    return gpu.key.startswith("rtx-pro-6000")


def _bounds(sums: Sum, scenario: Scenario) -> tuple[float, float]:
    """Bounds: the wider of what held-out published cells showed and what the kernel estimates say of themselves."""
    around = spread()
    time = sums.time_s
    return widened(min(time * around.low, sums.low_s), max(time * around.high, sums.high_s), scenario)


def widened(low: float, high: float, scenario: Scenario) -> tuple[float, float]:
    """Bounds, wider where no published serving table of the GPU or the engine took part in the fit."""
    if not _calibrated(scenario.gpu) or scenario.engine == "trtllm":
        low, high = low / _UNFITTED, high * _UNFITTED
    return low, high


_UNFITTED = 1.3
"""How much wider bounds are where no serving table took part in the fit: the four cells of a B200 that are published
lie up to half below what is predicted."""


def decode_step(scenario: Scenario, coefs: Coefficients | None = None, basis: Basis = "auto") -> Step:
    """One step of the scenario's running requests.

    With pipeline stages, requests run as up to `pp` groups that follow each other through the stages: a step is the
    round of a group, and lasts as long as the slowest stage needs for all groups.
    """
    coefs = coefs or coefficients()
    made = profile(scenario.model, scenario.checkpoint)
    pp = scenario.parallel.pp
    requests = scenario.requests
    groups = min(pp, requests)
    batch = -(-requests // groups)
    new = 1 + scenario.speculative_tokens
    sums = Sum()
    slowest = 0.0
    alike: dict[object, Sum] = {}
    for stage, layers in enumerate(stage_layers(made, pp)):
        shared = alike.get(layers)
        if shared is None:
            shared = alike[layers] = Sum()
            add_layers(shared, scenario, layers, batch, new, scenario.context, coefs, basis)
        part = Sum()
        part.merge(shared)
        if stage == pp - 1:
            add_head(part, scenario, made, batch * new, coefs, basis)
            if scenario.speculative_tokens:
                part.merge(_drafting(scenario, made, batch, coefs, basis))
        if not scenario.cuda_graphs:
            launches = part.kernels * coefs.launch_s
            part.add("launch", launches - part.time_s, bound="latency", low=0.5, high=1.5, count=0)
        if pp > 1:
            part.add("handoff", coefs.handoff(scenario.engine), bound="latency", low=0.3, high=2.0, count=1)
        slowest = max(slowest, part.time_s)
        sums.merge(part)
    sums.add("bubble", groups * slowest - sums.time_s, bound="latency", count=0)
    gap = coefs.gap_s + coefs.gap_request_s * requests
    if scenario.speculative_tokens:
        gap += coefs.draft_gap_s
    sums.add("idle", gap, bound="latency", low=0.3, high=2.0, count=0)
    low, high = _bounds(sums, scenario)
    return Step(scenario, sums, acceptance_length(scenario, coefs), low, high)


def _why(scenario: Scenario, sums: Sum, what: str) -> str:
    parts = [what]
    if scenario.assumed:
        parts.append("assumed: " + "; ".join(scenario.assumed))
    if not _calibrated(scenario.gpu):
        parts.append(f"no published serving table of the {scenario.gpu.name} took part in the fit: bounds are wider")
    elif scenario.engine == "trtllm":
        parts.append("no published serving table of TensorRT-LLM took part in the fit: bounds are wider")
    if scans(scenario) and scenario.context:
        parts.append(
            "drafts are verified by one block a sequence, as published for SGLang 0.5.9 and vLLM 0.17.1rc1: a version "
            "that splits the cache loses nothing with context"
        )
    if sums.times.get("shared") == 0.0:
        parts.append("the shared experts run beside the routed ones and add nothing")
    notes = sorted(note for note in sums.why if "no kernel table" in note or "b12x" in note)
    parts += notes[:2]
    return "; ".join(parts)


def estimate_of(step: Step, ident: str | None, what: str, tok_s: float | None) -> Estimate:
    """The step as an answer of `predict`."""
    sums = step.sums
    terms: list[Term] = []
    for key, name in TERMS.items():
        time = sums.times.get(key, 0.0)
        if time > 0:
            measured = sums.measured.get(key, 0.0) > time * _WHOLLY
            basis: EstimateBasis = "measured" if measured else "modelled"
            terms.append(Term(name, time, basis))
    return Estimate(
        id=ident,
        time_s=step.time_s,
        low_s=step.low_s,
        high_s=step.high_s,
        limit_s=step.limit_s,
        bound=step.bound,
        terms=tuple(terms),
        basis="modelled",
        why=_why(step.scenario, sums, what),
        tok_s=tok_s,
    )


def predict_decode(question: DecodeQuestion, basis: Basis = "auto") -> Estimate:
    """The time of a decode step, and all requests' output tokens a second in `tok_s`.

    Raises InputError and UnknownNameError naming the field for anything that cannot be.
    """
    scenario = scenario_of(question)
    step = decode_step(scenario, basis=basis)
    what = (
        f"a step of {step.scenario.requests:,} request{'s' if step.scenario.requests > 1 else ''}"
        + (f" a copy, {scenario.copies} copies" if scenario.copies > 1 else "")
        + f" at {scenario.context:,} tokens of context; idle {step.idle_s * 1e3:.2f} ms of it"
    )
    if scenario.speculative_tokens:
        source = "given" if scenario.acceptance_length is not None else "published mean"
        what += f"; {step.tokens_each:.2f} tokens a request and step ({source})"
    full = too_full(scenario)
    return estimate_of(step, question.id, f"{what}; {full}" if full else what, step.tok_s)


def too_full(scenario: Scenario) -> str:
    """What does not fit in memory with the engine's default flags; empty where all of it does, or nobody knows."""
    if scenario.gpu.memory_bytes is None:
        return ""
    memory = server_memory(scenario.at(1, 0))
    if not memory.fits:
        return f"it does not fit: {memory.short / (1 << 30):,.1f} GiB of weights too many a GPU"
    room = memory.requests(scenario.context) * scenario.parallel.attention_dp * scenario.copies
    if room < scenario.concurrency:
        return f"only {room:,} such requests fit in the cache at once"
    return ""
