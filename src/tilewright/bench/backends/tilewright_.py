"""Our own NVFP4 kernels: bf16 activations, weights of a checkpoint repacked once."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from typing import Any

from tilewright.bench.backends.base import Backend, Capability, Prepared, answers_checked, by_kind, not_found, too_old
from tilewright.bench.operands import copied, gemm_answer, gemm_operands, moe_answer, moe_operands
from tilewright.bench.problem import GemmProblem, MoeProblem


def _kernels() -> Any:
    """`tilewright.kernels`, imported when it runs."""
    return import_module("tilewright.kernels")


def build_of(packed: Any, rows: int, gpu: Any, second: Any = None) -> dict[str, Any]:
    """Which of our kernels runs `rows` routed rows of these weights on `gpu` (`kernels.choose.Gpu`), and which build of
    it: what the layer itself chooses (`second`: its second matrix), with what `tune` found where that is read."""
    table = import_module("tilewright.kernels.choose")
    preferred = import_module("tilewright.kernels.tuned").preferred
    if second is None:
        build = table.chosen_build(rows, packed.rows, packed.k, packed.experts, gpu)
    else:
        build = table.layer_build(rows, packed.rows, packed.steps, second.steps, packed.experts, gpu)
    build = preferred(build, gpu.name, packed.experts, packed.rows, packed.k, rows)
    return {"kernel": type(build).__name__.removesuffix("Config").lower(), **asdict(build)}


def _gpu(torch: Any) -> Any:
    return import_module("tilewright.kernels.moe").gpu_of(torch.device("cuda", torch.cuda.current_device()))


def _copies(packed: Any, copies: int) -> list[Any]:
    """The packed weights at other addresses."""
    return [packed, *(replace(packed, data=data) for data in copied(packed.data, copies)[1:])]


def _gemm(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    """A grouped GEMM of one group; its routing is part of the call."""
    kernels = _kernels()
    o = gemm_operands(torch, problem, "cuda")
    packed = kernels.pack(o.w.codes[None], o.w.scales[None], o.w.factor.reshape(1))
    ids = torch.zeros((problem.m, 1), dtype=torch.int32, device="cuda")
    calls = [partial(kernels.grouped_gemm, o.x, weights, ids) for weights in _copies(packed, copies)]
    config = {"call": "grouped_gemm", **build_of(packed, problem.m, _gpu(torch))}
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), config)


def _moe(problem: MoeProblem, torch: Any, copies: int) -> Prepared:
    kernels = _kernels()
    o = moe_operands(torch, problem, "cuda")
    w13 = kernels.pack(o.w13.codes, o.w13.scales, o.w13.factor, gated=True)
    w2 = kernels.pack(o.w2.codes, o.w2.scales, o.w2.factor)
    pairs = zip(_copies(w13, copies), _copies(w2, copies), strict=True)
    calls = [partial(kernels.fused_moe, o.x, first, second, o.router, o.ids) for first, second in pairs]
    config = {"call": "fused_moe", **build_of(w13, problem.tokens * problem.topk, _gpu(torch), w2)}
    return Prepared(calls, answers_checked(calls, lambda: moe_answer(torch, o), torch), config)


def missing(capability: Capability) -> str | None:
    return (
        not_found("torch", "torch")
        or not_found("cuda.bindings.nvrtc", "cuda-bindings")
        or too_old(capability, (8, 0), "bf16 mma with cp.async")
    )


BACKEND = Backend(
    name="tilewright",
    formats={"gemm": ("nvfp4",), "moe": ("nvfp4",)},
    missing=missing,
    prepare=by_kind(_gemm, _moe),
    package="tilewright",
)
