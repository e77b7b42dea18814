"""One grouped GEMM of compare_nvfp4: its shape, its operands and right answer, and how a call of it is timed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from tilewright.bench.reference import error
from tilewright.bench.shapes import moe_shard
from tilewright.kernels import reference
from tilewright.kernels.layout import PackedWeights
from tilewright.models.names import resolve_model

CALLS, MANY_TOKENS = (8, 40), 1024
REPLAYS, FEW_REPLAYS = 9, 5
Call = Callable[[int], Any]


@dataclass(frozen=True)
class Problem:
    """One grouped GEMM: rows of `x` are tokens (w13) or already routed (w2)."""

    layer: str
    matrix: str
    experts: int
    n: int
    k: int
    topk: int
    tokens: int

    @property
    def rows(self) -> int:
        return self.tokens * self.topk

    @property
    def per_token(self) -> int:
        """Routed rows that share a row of x."""
        return self.topk if self.matrix == "w13" else 1

    @property
    def expert_bytes(self) -> int:
        return self.n * self.k * 9 // 16


def problems(layer: str, tokens: list[int]) -> Iterator[list[Problem]]:
    """The two GEMMs of `layer`, MODEL:tpN or MODEL:epN, for each number of tokens."""
    name, _, split = layer.partition(":")
    kind, ways = split[:2], split[2:]
    if kind not in ("tp", "ep") or not ways.isdecimal():
        msg = f"--layers: {layer!r} is no MODEL:tpN or MODEL:epN, as in GLM-5:tp8."
        raise ValueError(msg)
    tp, ep = (int(ways) if kind == each else 1 for each in ("tp", "ep"))
    shards, _ = moe_shard(resolve_model(name), tokens, tp=tp, ep=ep, dtype="nvfp4")
    for matrix in ("w13", "w2"):
        group: list[Problem] = []
        for it in shards:
            n, k = (2 * it.inter, it.hidden) if matrix == "w13" else (it.hidden, it.inter)
            group.append(Problem(layer, matrix, it.experts, n, k, it.topk, it.tokens))
        yield group


def seconds(call: Call, calls: int, replays: int) -> float:
    """Median over replays of one graph of `calls` calls."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call(0)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            for i in range(calls):
                call(i)
        graph.replay()
        torch.cuda.synchronize()
        times: list[float] = []
        for _ in range(replays):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            times.append(start.elapsed_time(end) / 1e3 / calls)
    return statistics.median(times)


@dataclass(frozen=True)
class Run:
    """What is checked and timed: `call` of a turn. It fills the case's `out` or returns its answer."""

    call: Call
    answer: Callable[[Any], Any] = lambda out: out
    """Rows in routed order of what the call gives."""
    want: Any = None
    """The right answer, where the weights are not the case's."""
    expert_bytes: int | None = None
    """Bytes of an expert's weights, where they are of another format."""


class Case:
    """The operands of one problem: the packed weights twice, routings that take turns, the plain answer of one."""

    def __init__(self, problem: Problem, tensors: tuple[Any, Any, Any], packs: list[PackedWeights]) -> None:
        p, self.problem, self.packs = problem, problem, packs
        generator = torch.Generator().manual_seed(1000 + p.tokens)
        first = torch.rand(p.tokens, p.experts, generator=generator).topk(p.topk, 1).indices.int().cuda()
        self.hit = int(first.unique().numel())
        self.touched = self.hit * p.expert_bytes
        # Few experts are hit: the next call takes others, until all of the weights have been read.
        self.sets = max(1, min(20, p.experts * p.expert_bytes // self.touched)) if self.hit < p.experts else 1
        shape = (-1, p.topk) if p.per_token > 1 or p.topk == 1 else (-1, 1)
        self.ids = [((first + i * self.hit) % p.experts).int().reshape(shape).contiguous() for i in range(self.sets)]
        rows = p.tokens if p.per_token > 1 else p.rows
        self.x = torch.randn(rows, p.k, device="cuda", dtype=torch.bfloat16)
        self.out = torch.empty(p.rows, p.n, device="cuda", dtype=torch.bfloat16)
        self.order = self.ids[0].view(-1).argsort(stable=True)
        self.want = self.product(
            lambda expert: reference.dequantise(*(tensor[expert : expert + 1] for tensor in tensors))[0]
        )
        self.replays = REPLAYS if p.tokens < MANY_TOKENS else FEW_REPLAYS
        self.calls = max(CALLS[0], min(CALLS[1], 2 * self.sets))

    def turn(self, i: int) -> tuple[PackedWeights, int]:
        """(weights, index of the routing) of call `i`: other bytes than the call before."""
        return self.packs[(i // self.sets) % 2], i % self.sets

    def product(self, weight_of: Callable[[int], Any]) -> Any:
        """float32 [rows, n]: the right answer of set 0 in routed order. `weight_of(expert)`: its float32 [n, k]."""
        p, ids = self.problem, self.ids[0].view(-1)
        routed = self.x.repeat_interleave(p.per_token, 0)
        want = torch.empty(p.rows, p.n, device=self.x.device)
        for expert in ids.unique().tolist():
            mine = ids == expert
            want[mine] = routed[mine].float() @ weight_of(expert).T
        return want

    def timed(self, run: Run) -> dict[str, Any]:
        """`run` of set 0 checked, then timed over all sets."""
        self.out.fill_(float("nan"))
        got = run.call(0)
        torch.cuda.synchronize()
        apart = error(run.answer(self.out if got is None else got), self.want if run.want is None else run.want)
        if not apart.right("gemm"):
            msg = f"wrong answer: largest deviation {apart.largest:.3g}, norm {apart.norm:.3g}"
            raise ValueError(msg)
        time_s = seconds(run.call, self.calls, self.replays)
        p = self.problem
        touched = self.touched if run.expert_bytes is None else self.hit * run.expert_bytes
        return {
            "time_s": time_s,
            "bytes": touched,
            "bytes_per_s": touched / time_s,
            "flop_per_s": 2 * p.rows * p.n * p.k / time_s,
            "error_max": apart.largest,
            "error_norm": apart.norm,
        }
