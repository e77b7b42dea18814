"""Every way to spread a model over a number of GPUs that an engine has flags for, and which of them can be cut."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tilewright.models.legality import tp_verdict
from tilewright.models.memory import Parallel
from tilewright.models.records import Gqa, Model
from tilewright.serving.scenario import Scenario

__all__ = ["Split", "splits"]


@dataclass(frozen=True, slots=True)
class Split:
    """One layout: `copies` of the model, each spread as `parallel` says. `problem` says why it cannot be cut; `notes`
    what cutting it so costs."""

    parallel: Parallel
    copies: int
    problem: str = ""
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        return self.copies * self.parallel.gpus


def _divisors(number: int) -> list[int]:
    return [i for i in range(1, number + 1) if number % i == 0]


def _context_parallel(model: Model, ranks: int) -> list[int]:
    """Decode context parallel sizes that divide what ranks would hold twice."""
    if isinstance(model.attention, Gqa):
        most = max(1, ranks // model.attention.kv_heads)
        return [size for size in _divisors(ranks) if size <= most]
    return _divisors(ranks)


def splits(scenario: Scenario, gpus: int) -> Iterator[Split]:
    """Layouts over exactly `gpus` GPUs; those that cannot be cut carry the reason.

    vLLM: experts either stay sliced or are dealt out over all ranks, those of data parallelism (copies of the attention
    and whole dense layers) included, and decode context parallelism exists. SGLang: expert parallelism of any size
    that divides, attention copies inside tensor parallelism, no context parallelism. TensorRT-LLM likewise, attention
    copies only one a rank.
    """
    model, engine = scenario.model, scenario.engine
    layers = len(model.main_layers)
    moe = model.moe is not None
    for tp in reversed(_divisors(gpus)):
        for pp in _divisors(gpus // tp):
            if pp > layers:
                continue
            copies = gpus // (tp * pp)
            for ep in _expert_sizes(engine, tp, moe=moe):
                for attention_dp in _attention_copies(engine, tp, moe=moe):
                    ranks = tp // attention_dp
                    contexts = _context_parallel(model, ranks) if engine == "vllm" else [1]
                    for dcp in contexts:
                        parallel = Parallel(
                            tp=tp, ep=ep, pp=pp, dcp=dcp, attention_dp=attention_dp,
                            replicate_dense=engine == "vllm" and attention_dp > 1,
                        )  # fmt: skip
                        verdict = tp_verdict(model, parallel, scenario.checkpoint)
                        problem = verdict.problems[0] if verdict.problems else ""
                        yield Split(parallel, copies, problem, verdict.notes)


def _expert_sizes(engine: str, tp: int, *, moe: bool) -> list[int]:
    if not moe or tp == 1:
        return [1]
    return [1, tp] if engine == "vllm" else _divisors(tp)


def _attention_copies(engine: str, tp: int, *, moe: bool) -> list[int]:
    if tp == 1:
        return [1]
    if engine == "vllm":  # its data-parallel ranks share nothing but the experts (FusedMoEParallelConfig.make)
        return _divisors(tp) if moe else [1]
    if engine == "trtllm":
        return [1, tp]
    return _divisors(tp)
