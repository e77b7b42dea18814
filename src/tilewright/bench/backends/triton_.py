"""Triton kernels of our own: a plain GEMM, a copy and a read, and the NVFP4 kernels of `tilewright.kernels`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from importlib import import_module
from typing import Any, Final

from tilewright.bench.backends.base import Backend, Capability, Prepared, answers_checked, needs, not_found, too_old
from tilewright.bench.backends.torch_ import words
from tilewright.bench.operands import copied, gemm_answer, gemm_operands, moe_answer, moe_operands
from tilewright.bench.problem import W4A4, CopyProblem, GemmProblem, MoeProblem, Problem, ReadProblem
from tilewright.bench.reference import Error
from tilewright.bench.timing import GraphClock

Tile = tuple[int, int, int, int, int]
"""block_m, block_n, block_k, warps, stages."""
SMALL: Final[tuple[Tile, ...]] = ((16, 32, 256, 4, 4), (16, 64, 128, 4, 5), (16, 128, 128, 4, 4))
MIDDLE: Final[tuple[Tile, ...]] = ((64, 64, 128, 4, 4), (64, 128, 64, 4, 4), (32, 64, 128, 4, 4))
LARGE: Final[tuple[Tile, ...]] = ((128, 128, 64, 8, 4), (128, 256, 64, 8, 3), (128, 128, 32, 4, 4))
_GROUP: Final = 8
_TRIES: Final = 5
_COPY_BLOCK: Final = 8192
_READ_BLOCK: Final = 4096
_READ_BLOCKS_AN_SM: Final = 8
_WARPS: Final = 8


def _kernels() -> Any:
    """The kernels, imported where Triton is."""
    return import_module("tilewright.bench.backends.triton_kernels")


def candidates(m: int) -> tuple[Tile, ...]:
    """The tiles that are tried for `m` rows."""
    return SMALL if m <= 16 else MIDDLE if m <= 64 else LARGE


def fastest(torch: Any, calls_of: Callable[[Tile], Sequence[Callable[[], Any]]], tiles: tuple[Tile, ...]) -> Tile:
    """The tile whose calls take least, timed as the figure will be (one graph, cold L2; best of a few); those that do
    not compile or fit are left out."""
    times: dict[Tile, float] = {}
    failure: Exception | None = None
    for tile in tiles:
        calls = calls_of(tile)
        try:
            calls[0]()
        except Exception as error:  # Triton raises its own kinds for what does not fit
            failure = error
            continue
        clock = GraphClock(torch, calls)
        times[tile] = min(clock.once() for _ in range(_TRIES))
    if not times:
        raise failure or RuntimeError("no tile was tried")
    return min(times, key=lambda tile: times[tile])


def _gemm(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    gemm_kernel = _kernels().gemm_kernel

    o = gemm_operands(torch, problem, "cuda")
    m, n, k = problem.m, problem.n, problem.k
    out = torch.full((m, n), float("nan"), dtype=torch.bfloat16, device="cuda")
    scale = 1.0 if o.x_scale is None else float(o.x_scale) * float(o.w_scale)

    def call(w: Any, tile: Tile) -> Any:
        block_m, block_n, block_k, warps, stages = tile
        grid = (-(-m // block_m) * -(-n // block_n),)
        gemm_kernel[grid](
            o.x, w, out, m, n, k, scale,
            block_m=block_m, block_n=block_n, block_k=block_k, group=_GROUP, whole_k=k % block_k == 0,
            num_warps=warps, num_stages=stages,
        )  # fmt: skip
        return out

    weights = copied(o.w, copies)

    def calls_of(tile: Tile) -> list[Callable[[], Any]]:
        return [partial(call, w, tile) for w in weights]

    tile = fastest(torch, calls_of, candidates(m))
    calls = calls_of(tile)
    names = ("block_m", "block_n", "block_k", "warps", "stages")
    return Prepared(
        calls,
        answers_checked(calls, lambda: gemm_answer(torch, o), torch),
        dict(zip(names, tile, strict=True)),
    )


def _copy(problem: CopyProblem, torch: Any, copies: int) -> Prepared:
    copy_kernel = _kernels().copy_kernel

    sources = words(torch, problem.bytes, copies)
    targets = [torch.zeros_like(source) for source in sources]
    count = problem.bytes // 4
    grid = (-(-count // _COPY_BLOCK),)

    def call(at: int) -> None:
        copy_kernel[grid](sources[at], targets[at], count, block=_COPY_BLOCK, num_warps=_WARPS)

    calls = [lambda at=at: call(at) for at in range(copies)]

    def check() -> Error:
        for each in calls:
            each()
        right = all(bool((target == source).all()) for target, source in zip(targets, sources, strict=True))
        return Error(0.0, 0.0) if right else Error(float("inf"), float("inf"))

    return Prepared(calls, check, {"block": _COPY_BLOCK, "warps": _WARPS})


def _read(problem: ReadProblem, torch: Any, copies: int) -> Prepared:
    read_kernel = _kernels().read_kernel

    sources = words(torch, problem.bytes, copies)
    count = problem.bytes // 4
    sms = int(torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count)
    programs = min(sms * _READ_BLOCKS_AN_SM, -(-count // _READ_BLOCK))
    sums = torch.zeros(programs, dtype=torch.int32, device="cuda")

    def call(source: Any) -> None:
        read_kernel[(programs,)](source, sums, count, block=_READ_BLOCK, num_warps=_WARPS)

    calls = [lambda source=source: call(source) for source in sources]

    def check() -> Error:
        for source, each in zip(sources, calls, strict=True):
            sums.zero_()
            each()
            # Sums of int32 wrap; equal modulo 2^32 means that every word was read once.
            if (int(sums.long().sum()) - int(source.long().sum())) % (1 << 32):
                return Error(float("inf"), float("inf"))
        return Error(0.0, 0.0)

    return Prepared(calls, check, {"block": _READ_BLOCK, "programs": programs, "warps": _WARPS})


def _weights(packed: Any, copies: int) -> list[Any]:
    """The packed weights and copies of them at other addresses."""
    pairs = zip(copied(packed.codes, copies), copied(packed.scales, copies), strict=True)
    return [replace(packed, codes=codes, scales=scales) for codes, scales in pairs]


def _nvfp4_gemm(problem: GemmProblem, torch: Any, copies: int) -> Prepared:
    """A grouped GEMM of one group; its routing is part of the call."""
    kernels = import_module("tilewright.kernels")
    o = gemm_operands(torch, problem, "cuda")
    packed = kernels.pack_triton(o.w.codes[None], o.w.scales[None], o.w.factor.reshape(1))
    ids = torch.zeros((problem.m, 1), dtype=torch.int32, device="cuda")
    calls = [partial(kernels.grouped_gemm_triton, o.x, weights, ids) for weights in _weights(packed, copies)]
    config = {"call": "grouped_gemm_triton", **asdict(kernels.tile_of(problem.m, 1, "bf16"))}
    return Prepared(calls, answers_checked(calls, lambda: gemm_answer(torch, o), torch), config)


def _nvfp4_moe(problem: MoeProblem, torch: Any, copies: int) -> Prepared:
    kernels = import_module("tilewright.kernels")
    activations = "nvfp4" if problem.dtype == W4A4 else "bf16"
    if activations == "nvfp4":
        needs(torch.cuda.get_device_capability(), (10, 0), "a block-scaled MMA")
    o = moe_operands(torch, problem, "cuda")
    w13 = kernels.pack_triton(o.w13.codes, o.w13.scales, o.w13.factor, gated=True)
    w2 = kernels.pack_triton(o.w2.codes, o.w2.scales, o.w2.factor)
    pairs = zip(_weights(w13, copies), _weights(w2, copies), strict=True)
    calls = [
        partial(kernels.fused_moe_triton, o.x, first, second, o.router, o.ids, activations=activations)
        for first, second in pairs
    ]
    tile = kernels.tile_of(problem.tokens * problem.topk, problem.experts, activations)
    config = {"call": "fused_moe_triton", "activations": activations, **asdict(tile)}
    return Prepared(calls, answers_checked(calls, lambda: moe_answer(torch, o), torch), config)


def prepare(problem: Problem, torch: Any, copies: int) -> Prepared:
    """The calls of `problem` on torch's current device."""
    if isinstance(problem, CopyProblem):
        return _copy(problem, torch, copies)
    if isinstance(problem, ReadProblem):
        return _read(problem, torch, copies)
    if isinstance(problem, MoeProblem):
        return _nvfp4_moe(problem, torch, copies)
    assert isinstance(problem, GemmProblem)
    if problem.dtype == "nvfp4":
        return _nvfp4_gemm(problem, torch, copies)
    if problem.dtype == "fp8":
        needs(torch.cuda.get_device_capability(), (8, 9), "FP8")
    return _gemm(problem, torch, copies)


def missing(capability: Capability) -> str | None:
    return not_found("torch", "torch") or not_found("triton", "triton") or too_old(capability, (7, 5), "Triton")


BACKEND = Backend(
    name="triton",
    formats={"copy": ("",), "read": ("",), "gemm": ("bf16", "fp8", "nvfp4"), "moe": ("nvfp4", W4A4)},
    missing=missing,
    prepare=prepare,
    package="triton",
)
