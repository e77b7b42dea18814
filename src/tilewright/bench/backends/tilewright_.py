"""Our own NVFP4 kernels: bf16 activations, weights of a checkpoint repacked once."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from tilewright.bench.backends.base import Backend, Capability, Prepared, answers_checked, not_found, too_old
from tilewright.bench.operands import copied, gemm_answer, gemm_operands, moe_answer, moe_operands
from tilewright.bench.problem import GemmProblem, MoeProblem, Problem


def _kernels(name: str) -> Any:
    """A module of `tilewright.kernels`, imported when it runs: it needs torch and the CUDA bindings."""
    return import_module(f"tilewright.kernels.{name}")


def _copies(packed: Any, copies: int) -> list[Any]:
    """The packed weights at other addresses."""
    from dataclasses import replace

    return [packed, *(replace(packed, data=data) for data in copied(packed.data, copies)[1:])]


def _cut(rows_an_expert: float) -> Any:
    """How the GEMM is cut for so many routed rows of an expert on average."""
    columns = 1 if rows_an_expert <= 4 else 2 if rows_an_expert <= 16 else 4 if rows_an_expert <= 64 else 8
    return _kernels("config").GroupedConfig(columns=columns, stages=4 if columns < 4 else 3)


def _told(cut: Any) -> dict[str, Any]:
    return {name: getattr(cut, name) for name in ("columns", "blocks", "warps", "stages", "units", "resident")}


def _gemm(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    layout, launch = _kernels("layout"), _kernels("launch")
    o = gemm_operands(torch, problem, "cuda")
    packed = layout.pack(o.w.codes[None], o.w.scales[None], o.w.factor.reshape(1))
    cut = _cut(problem.m)
    routes = launch.route(torch.zeros((problem.m, 1), dtype=torch.int32, device="cuda"), 1, cut.block_rows)
    out = torch.full((problem.m, problem.n), float("nan"), dtype=torch.bfloat16, device="cuda")

    def call(weights: Any) -> Any:
        launch.grouped(o.x, weights, routes, out, cut)
        return out

    calls = [lambda w=w: call(w) for w in _copies(packed, copies)]
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), _told(cut))


def _moe(problem: MoeProblem, torch: Any, copies: int) -> Prepared:
    """Routing, gate and up with SiLU, down with the router's weights, sum over experts: four launches."""
    layout, launch = _kernels("layout"), _kernels("launch")
    o = moe_operands(torch, problem, "cuda")
    w13 = layout.pack(o.w13.codes, o.w13.scales, o.w13.factor, gated=True)
    w2 = layout.pack(o.w2.codes, o.w2.scales, o.w2.factor)
    rows, router = problem.tokens * problem.topk, o.router.reshape(-1).contiguous()
    hit = int(o.ids.unique().numel())
    cut = _cut(rows / hit)
    empty = {"dtype": torch.bfloat16, "device": "cuda"}
    middle, parts = torch.empty((rows, problem.inter), **empty), torch.empty((rows, problem.hidden), **empty)
    out = torch.full((problem.tokens, problem.hidden), float("nan"), **empty)

    def call(first: Any, second: Any) -> Any:
        routes = launch.route(o.ids, problem.experts, cut.block_rows)
        launch.grouped(o.x, first, routes, middle, cut, rows_per_token=problem.topk, mode=launch.SILU)
        launch.grouped(middle, second, routes, parts, cut, mode=launch.WEIGHTED, router=router)
        launch.sum_experts(parts, o.ids, out, problem.experts)
        return out

    pairs = zip(_copies(w13, copies), _copies(w2, copies), strict=True)
    calls = [lambda a=a, b=b: call(a, b) for a, b in pairs]
    return Prepared(calls, answers_checked(calls, lambda: moe_answer(torch, o), torch), _told(cut))


def prepare(problem: Problem, torch: Any, copies: int) -> Prepared:
    """The calls of `problem` on torch's current device."""
    if isinstance(problem, GemmProblem):
        return _gemm(problem, torch, copies)
    assert isinstance(problem, MoeProblem)
    return _moe(problem, torch, copies)


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
    prepare=prepare,
    package="tilewright",
)
