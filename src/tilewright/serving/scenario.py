"""A question with its names resolved: the model as its checkpoint stores it, the GPU, the layout, the engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tilewright.errors import InputError, UnknownNameError, nearest, shown
from tilewright.hardware.gpu import Gpu
from tilewright.hardware.names import resolve_gpu
from tilewright.models.checkpoint import Checkpoint, uniform_checkpoint
from tilewright.models.kv import KV_LAYOUTS
from tilewright.models.legality import tp_verdict
from tilewright.models.memory import Parallel
from tilewright.models.names import resolve_model
from tilewright.models.records import Gqa, GroupedOutput, Mla, Model
from tilewright.serving.questions import (
    CheckpointSpec,
    DecodeQuestion,
    PrefillQuestion,
    ServingQuestion,
    check_serving_question,
)

__all__ = [
    "ENGINES",
    "KV_NAMES",
    "MOE_BACKENDS",
    "Scenario",
    "kv_layout_of",
    "moe_family",
    "scenario_of",
    "stored_model",
]

ENGINES: Final = ("sglang", "vllm", "trtllm")
MOE_BACKENDS: Final = ("cutlass", "b12x", "triton", "marlin", "trtllm")
"""Families of expert kernels that are told apart; an engine's own names are read as one of them."""
_BACKEND_WORDS: Final[tuple[tuple[str, str], ...]] = (
    ("b12x", "b12x"),
    ("cutedsl", "cutlass"),
    ("cutlass", "cutlass"),
    ("marlin", "marlin"),
    ("humming", "marlin"),
    ("triton", "triton"),
    ("deep_gemm", "triton"),
    ("trtllm", "trtllm"),
    ("mxfp4", "trtllm"),
)
KV_NAMES: Final[dict[str, str]] = {
    "auto": "", "bf16": "bf16", "bfloat16": "bf16", "f16": "f16", "fp16": "f16", "float16": "f16", "half": "f16",
    "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "fp8_ds_mla": "fp8_ds_mla", "nvfp4": "nvfp4",
}  # fmt: skip
"""Names of cache formats as engines and users write them -> the layout; empty: what the checkpoint asks for."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """What a step is asked about. `copies` of the model share `concurrency` requests out evenly.

    `moe_backend` is a family of MOE_BACKENDS, empty for the usual one. `sparse`: whether attention reads the tokens
    that an indexer picks only.
    """

    model: Model
    checkpoint: Checkpoint
    gpu: Gpu
    parallel: Parallel
    copies: int = 1
    engine: str = "sglang"
    engine_version: str | None = None
    sparse: bool = False
    kv_layout: str = "bf16"
    moe_backend: str = ""
    allreduce_backend: str | None = None
    cuda_graphs: bool = True
    concurrency: int = 1
    context: int = 0
    speculative_tokens: int = 0
    acceptance_length: float | None = None
    assumed: tuple[str, ...] = ()
    """What the question left open and was filled in, for `why`."""

    @property
    def gpus(self) -> int:
        return self.copies * self.parallel.gpus

    @property
    def requests(self) -> int:
        """Requests of the fullest copy of the model."""
        return -(-self.concurrency // self.copies)

    def at(self, concurrency: int, context: int | None = None) -> Scenario:
        return replace(self, concurrency=concurrency, context=self.context if context is None else context)


def kv_layout_of(model: Model, checkpoint: Checkpoint, engine: str, sparse: bool, name: str | None) -> str:
    """The cache layout that `name` means for this model in this engine; None or auto: what the checkpoint asks for.

    vLLM keeps FP8 of sparse MLA as fp8_ds_mla. Raises InputError for an unknown name.
    """
    text = (name or "auto").strip().lower()
    if text not in KV_NAMES:
        legal = list(KV_NAMES)
        near = ", ".join(nearest(text, legal) or legal)
        raise InputError("kv_dtype", f"No cache format is called {shown(name)}; the nearest are: {near}.")
    layout = KV_NAMES[text] or ("fp8" if checkpoint.kv_cache == "fp8" else "bf16")
    if layout == "fp8" and engine == "vllm" and sparse and isinstance(model.attention, Mla):
        layout = "fp8_ds_mla"
    if layout in ("nvfp4",) and isinstance(model.attention, Mla):
        raise InputError("kv_dtype", "No NVFP4 layout of a latent (MLA) cache is known; use fp8 or bf16.")
    if layout == "fp8_ds_mla" and not isinstance(model.attention, Mla):
        raise InputError("kv_dtype", "fp8_ds_mla is a layout of latent (MLA) caches; this model has KV heads: use fp8.")
    assert layout in KV_LAYOUTS
    return layout


def moe_family(name: str | None) -> str:
    """The family of an engine's backend name; empty for None and auto. Raises UnknownNameError."""
    text = (name or "auto").strip().lower()
    if text == "auto":
        return ""
    for word, family in _BACKEND_WORDS:
        if word in text:
            return family
    raise UnknownNameError(
        "moe_backend", str(name), list(dict.fromkeys([*MOE_BACKENDS, *(word for word, _ in _BACKEND_WORDS)]))
    )


@lru_cache(maxsize=256)
def stored_model(model: Model, spec: CheckpointSpec | str | None) -> tuple[Model, Checkpoint]:
    if spec is None:
        return model, model.checkpoint
    if isinstance(spec, CheckpointSpec):
        made = uniform_checkpoint(spec.format, spec.quantized, name=f"{model.name}, {spec.format}")
        return model, replace(made, has_mtp=model.checkpoint.has_mtp)
    for item in model.checkpoints:
        if spec in (item.name, item.name.rpartition("/")[2], *item.aliases):
            return model, item
    raise UnknownNameError("checkpoint", spec, [item.name for item in model.checkpoints])


@lru_cache(maxsize=256)
def _model(name: str) -> Model:
    model = resolve_model(name)
    if model.problems:
        raise InputError(
            "model",
            f"{model.name} contradicts itself, so no time or memory of it would be right: {model.problems[0]}; "
            "correct its config.json or give another checkpoint.",
        )
    return model


def _engine(name: str) -> str:
    text = name.strip().lower().replace("tensorrt-llm", "trtllm").replace("tensorrt_llm", "trtllm")
    if text not in ENGINES:
        raise UnknownNameError("engine", name, ENGINES)
    return text


def _parallel(question: ServingQuestion) -> tuple[Parallel, int]:
    tp = question.tp
    if tp is None:
        if question.gpus % question.pp:
            raise InputError("pp", f"pp must divide gpus ({question.gpus}), and {question.pp} does not.")
        tp = question.gpus // question.pp
    per_copy = tp * question.pp
    if question.gpus % per_copy:
        raise InputError(
            "gpus",
            f"gpus must be a multiple of tp x pp = {per_copy} (each copy of the model takes that many), and "
            f"{question.gpus} is none.",
        )
    return Parallel(
        tp=tp, ep=question.ep, pp=question.pp, dcp=question.dcp, attention_dp=question.attention_dp
    ), question.gpus // per_copy


@lru_cache(maxsize=1024)
def _refusal(model: Model, checkpoint: Checkpoint, parallel: Parallel) -> str:
    problems = tp_verdict(model, parallel, checkpoint).problems
    return problems[0] if problems else ""


@lru_cache(maxsize=64)
def _gpu(name: str) -> Gpu:
    return resolve_gpu(name)


def runs_sparse(model: Model, engine: str, gpu: Gpu) -> bool:
    """Whether the engine reads only the tokens that the model's indexer picks: the kernels of SGLang's DSA need SM90
    or SM100, on SM12x it runs dense MLA."""
    return model.indexer is not None and not (engine == "sglang" and gpu.arch in ("sm120", "sm121"))


def scenario_of(question: ServingQuestion) -> Scenario:
    """The question with its names resolved. Raises InputError or UnknownNameError naming the field."""
    check_serving_question(question)
    model, checkpoint = stored_model(_model(question.model), question.checkpoint)
    gpu = _gpu(question.gpu)
    engine = _engine(question.engine)
    parallel, copies = _parallel(question)
    refusal = _refusal(model, checkpoint, parallel)
    if refusal:
        raise InputError("tp", f"{model.name} cannot be cut this way: {refusal}; choose another tp, ep or checkpoint.")
    if parallel.pp > len(model.main_layers):
        raise InputError("pp", f"pp must not exceed the model's {len(model.main_layers):,} layers.")
    sparse = question.attention == "sparse"
    assumed: list[str] = []
    if question.attention == "sparse" and model.indexer is None:
        raise InputError("attention", f"{model.name} has no sparse attention; use dense or leave it out.")
    if question.attention is None and model.indexer is not None:
        sparse = runs_sparse(model, engine, gpu)
        assumed.append(f"{'sparse' if sparse else 'dense'} attention")
    kv_layout = kv_layout_of(model, checkpoint, engine, sparse, question.kv_dtype)
    if (
        parallel.dcp > 1
        and isinstance(model.attention, Gqa)
        and model.attention.kv_heads * parallel.dcp > (parallel.attention_tp)
    ):
        raise InputError(
            "dcp",
            f"dcp splits what ranks hold twice: with {model.attention.kv_heads} KV heads on {parallel.attention_tp} "
            f"ranks it can be at most {max(1, parallel.attention_tp // model.attention.kv_heads)}.",
        )
    if isinstance(model.attention, GroupedOutput):
        assumed.append("no KV reads: how DeepSeek V4 compresses its cache is not covered")
    longest = question.context + (question.prompt_tokens if isinstance(question, PrefillQuestion) else 0)
    if model.context and longest > model.context:
        assumed.append(f"a context beyond the {model.context:,} tokens that the model was made for")
    if question.speculative_tokens and not model.mtp_layers:
        assumed.append("a draft as long as one of the model's layers, since it has no prediction layers of its own")
    speculative = question.speculative_tokens if isinstance(question, DecodeQuestion) else 0
    return Scenario(
        model=model,
        checkpoint=checkpoint,
        gpu=gpu,
        parallel=parallel,
        copies=copies,
        engine=engine,
        engine_version=question.engine_version,
        sparse=sparse,
        kv_layout=kv_layout,
        moe_backend=moe_family(question.moe_backend),
        allreduce_backend=question.allreduce_backend,
        cuda_graphs=question.cuda_graphs,
        concurrency=question.concurrency,
        context=question.context,
        speculative_tokens=speculative,
        acceptance_length=question.acceptance_length if isinstance(question, DecodeQuestion) else None,
        assumed=tuple(assumed),
    )
