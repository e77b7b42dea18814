"""A server as its flags make it, and what comes out of it at a load: what two sets of flags are compared by."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tilewright.libraries.engine_flags.model import FlagSet
from tilewright.serving.decode import Step, decode_step
from tilewright.serving.defaults import chunk_tokens, declared, graph_batch, memory_share
from tilewright.serving.memory import ServerMemory, server_memory
from tilewright.serving.prefill import prefill_step
from tilewright.serving.scenario import Scenario

__all__ = ["Load", "Outcome", "State", "default_requests", "default_state", "first_token", "outcome", "ranks_of"]

SGLANG_DRAFTING_CAP: Final = 48
"""SGLang's --max-running-requests when it drafts and none is given: 0.4.9.post6 srt/server_args.py:503, 0.5.9
srt/server_args.py:2363, 0.5.23 srt/arg_groups/speculative_hook.py:442."""
_SGLANG_REQUESTS: Final = 2048
"""Its lower bound otherwise (0.5.23 srt/mem_cache/kv_cache_configurator.py, resolve_max_num_reqs)."""
_VLLM_REQUESTS: Final = (1024, 256)
"""--max-num-seqs of `vllm serve` on cards of 70 GB and more, and below (0.33.0 engine/arg_utils.py,
get_batch_defaults)."""
_VLLM_LARGE: Final = 70 << 30


@dataclass(frozen=True, slots=True)
class Load:
    """`context` tokens that a request holds, `prompt` tokens of a prompt, `concurrency` requests at once; `sweep` the
    numbers of requests at which effects are shown."""

    concurrency: int
    context: int
    prompt: int
    sweep: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class State:
    """`graphs`: requests of one data-parallel rank for which decode graphs are captured, 0: none. `cap`: requests that
    run at once, over all ranks and copies; None: as many as the engine lets by itself. `chunk`: tokens that a rank's
    prefill step takes."""

    scenario: Scenario
    fraction: float
    chunk: int
    graphs: int
    cap: int | None = None

    def memory(self) -> ServerMemory:
        scenario = self.scenario if self.graphs else replace(self.scenario, cuda_graphs=False)
        return server_memory(scenario.at(1, 0), self.fraction, self.chunk, max(1, self.graphs))

    def limit(self) -> int:
        """Requests that the flags let run at once."""
        return self.cap if self.cap is not None else default_requests(self.scenario)


@dataclass(frozen=True, slots=True)
class Outcome:
    running: int
    step: Step
    graphs: bool


def ranks_of(scenario: Scenario) -> int:
    """Data-parallel ranks of the attention, over all copies of the model."""
    return scenario.parallel.attention_dp * scenario.copies


def default_requests(scenario: Scenario) -> int:
    """Requests that the engine lets run at once by itself, over all ranks."""
    if scenario.engine == "sglang":
        # The cap of a drafting server is one server's (over its attention ranks); otherwise each rank has its own.
        if scenario.speculative_tokens:
            return SGLANG_DRAFTING_CAP * scenario.copies
        return _SGLANG_REQUESTS * ranks_of(scenario)
    large = (scenario.gpu.memory_bytes or 0) >= _VLLM_LARGE
    return _VLLM_REQUESTS[0 if large else 1] * ranks_of(scenario)


def default_state(scenario: Scenario, flags: FlagSet | None = None) -> State:
    """The engine's own choices for a scenario: what the version's flags declare, else its rules as read."""
    total = scenario.gpu.memory_bytes or 0
    tp = scenario.parallel.tp
    own = declared(flags)
    fraction = own.share if own.share is not None else memory_share(scenario.engine, total, tp)[0]
    graphs = own.graphs
    if graphs is not None and scenario.engine == "vllm":
        graphs = max(1, graphs // (1 + scenario.speculative_tokens))
    cap = None
    if own.requests is not None:
        cap = own.requests * (ranks_of(scenario) if scenario.engine == "vllm" else scenario.copies)
    return State(
        scenario,
        fraction,
        own.chunk or chunk_tokens(scenario.engine, total),
        graphs or graph_batch(scenario.engine, total, tp),
        cap,
    )


@lru_cache(maxsize=1024)
def outcome(state: State, load: Load, concurrency: int) -> Outcome | None:
    """Decode at a number of requests; None where not one of the load's requests fits."""
    scenario, memory = state.scenario, state.memory()
    room = memory.requests(load.context) * ranks_of(scenario) if memory.fits else 0
    running = min(concurrency, room, state.limit())
    if running < 1:
        return None
    graphs = -(-running // ranks_of(scenario)) <= state.graphs
    at = replace(scenario, concurrency=running, context=load.context, cuda_graphs=graphs)
    return Outcome(running, decode_step(at), graphs)


@lru_cache(maxsize=256)
def first_token(state: State, load: Load) -> Step:
    """The load's prompt up to its first token, nothing else queued."""
    return prefill_step(state.scenario.at(1, 0), load.prompt, state.chunk)


def first_token_s(state: State, load: Load) -> float:
    """Seconds to the first token of the load's prompt, nothing else queued."""
    return first_token(state, load).time_s
