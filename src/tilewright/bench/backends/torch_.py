"""PyTorch as everybody has it: F.linear (cuBLAS), grouped_mm with routing around it, copy_."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from tilewright.bench.backends.base import (
    Backend,
    Capability,
    Prepared,
    UnsupportedError,
    answers_checked,
    not_found,
)
from tilewright.bench.operands import MoeOperands, copied, gemm_answer, gemm_operands, moe_answer, moe_operands
from tilewright.bench.problem import CopyProblem, GemmProblem, MoeProblem, Problem, ReadProblem
from tilewright.bench.reference import Error

_SEED = 1


def words(torch: Any, size: int, copies: int) -> list[Any]:
    """`copies` buffers of `size` bytes of random int32."""
    generator = torch.Generator(device="cuda").manual_seed(_SEED)
    made = torch.empty(size // 4, dtype=torch.int32, device="cuda")
    return copied(made.random_(-(2**31), 2**31 - 1, generator=generator), copies)


def _copy(problem: CopyProblem, torch: Any, copies: int) -> Prepared:
    sources = words(torch, problem.bytes, copies)
    targets = [torch.zeros_like(source) for source in sources]
    calls = [lambda i=i: targets[i].copy_(sources[i]) for i in range(copies)]

    def check() -> Error:
        for call in calls:
            call()
        right = all(bool((target == source).all()) for target, source in zip(targets, sources, strict=True))
        return Error(0.0, 0.0) if right else Error(float("inf"), float("inf"))

    # In a graph a copy_ becomes a memcpy node, which is far slower than the kernel that copy_ runs outside of one.
    return Prepared(calls, check, {"call": "copy_"}, graph=False)


def _read(problem: ReadProblem, torch: Any, copies: int) -> Prepared:
    sources = [source.view(torch.float32) for source in words(torch, problem.bytes, copies)]
    for source in sources:
        source.normal_()
    calls = [source.sum for source in sources]

    def check() -> Error:
        apart = [abs(float(source.sum()) - float(source.double().sum())) for source in sources]
        scale = float(sources[0].double().abs().sum())
        return Error(0.0, 0.0) if max(apart) <= 1e-5 * scale else Error(max(apart) / scale, max(apart) / scale)

    return Prepared(calls, check, {"call": "sum"})


def _gemm(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    operands = gemm_operands(torch, problem, "cuda")
    linear = torch.nn.functional.linear
    calls = [lambda w=w: linear(operands.x, w) for w in copied(operands.w, copies)]
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, operands), torch), {"call": "F.linear"})


def _grouped_mm(torch: Any) -> Any:
    """Public from PyTorch 2.10 on, private before."""
    return getattr(torch.nn.functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


AROUND: Final = "sorting, SiLU and sum by torch, a kernel each"
"""Of a layer that is put together around grouped GEMMs: at few tokens most of its time is that."""
Grouped = Callable[[Any, Any], Any]
"""rows sorted by expert, and for each expert the number of rows up to its last one (int32) -> its product."""


def grouped_layer(torch: Any, first: Grouped, second: Grouped, operands: MoeOperands, experts: int) -> Any:
    """The MoE layer around two grouped GEMMs: sort rows by expert, both GEMMs, rows back and summed. No step waits for
    the host, so that it can be captured. bf16 [tokens, hidden]."""
    ids, router = operands.ids, operands.router
    tokens, topk = ids.shape
    ordered, order = ids.reshape(-1).sort(stable=True)
    ends = torch.searchsorted(
        ordered, torch.arange(experts, device=ids.device, dtype=ids.dtype), right=True, out_int32=True
    )
    gate, up = first(operands.x[order // topk], ends).chunk(2, dim=1)
    part = second(torch.nn.functional.silu(gate) * up, ends)
    part = (part * router.reshape(-1)[order, None]).to(torch.bfloat16)
    back = torch.empty_like(order).scatter_(0, order, torch.arange(order.shape[0], device=order.device))
    return part[back].reshape(tokens, topk, -1).sum(1)


def _moe(problem: MoeProblem, torch: Any, copies: int) -> Prepared:
    grouped_mm = _grouped_mm(torch)
    if grouped_mm is None:
        msg = "this PyTorch has no grouped_mm"
        raise UnsupportedError(msg)
    o = moe_operands(torch, problem, "cuda")

    def by(weights: Any) -> Grouped:
        return lambda rows, ends: grouped_mm(rows, weights.transpose(1, 2), offs=ends)

    pairs = zip(copied(o.w13, copies), copied(o.w2, copies), strict=True)
    calls = [partial(grouped_layer, torch, by(w13), by(w2), o, problem.experts) for w13, w2 in pairs]
    check = answers_checked(calls, lambda: moe_answer(torch, o), torch)
    return Prepared(calls, check, {"call": "grouped_mm"}, remark=AROUND)


def prepare(problem: Problem, torch: Any, copies: int) -> Prepared:
    """The calls of `problem` on torch's current device."""
    if isinstance(problem, CopyProblem):
        return _copy(problem, torch, copies)
    if isinstance(problem, ReadProblem):
        return _read(problem, torch, copies)
    if isinstance(problem, GemmProblem):
        return _gemm(problem, torch, copies)
    assert isinstance(problem, MoeProblem)
    return _moe(problem, torch, copies)


def missing(_: Capability) -> str | None:
    return not_found("torch", "torch")


BACKEND = Backend(
    name="torch",
    formats={"copy": ("",), "read": ("",), "gemm": ("bf16",), "moe": ("bf16",)},
    missing=missing,
    prepare=prepare,
    package="torch",
)
