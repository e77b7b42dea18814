"""What is measured. Field names are those of the questions that `predict` answers (DESIGN 4.5)."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from tilewright.errors import InputError, shown

GEMM_DTYPES: Final = ("bf16", "fp8", "nvfp4")
MOE_DTYPES: Final = ("bf16", "nvfp4")
MAX_EXTENT: Final = 1 << 20
MAX_BYTES: Final = 1 << 40
DISTRIBUTIONS: Final = ("uniform", "one_expert")
"""How tokens choose experts: at random, or all of them the same ones (the worst case of a hot expert)."""


class CopyProblem(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes` read once and written once."""

    bytes: int


class GemmProblem(msgspec.Struct, frozen=True, kw_only=True):
    """out[m, n] = x[m, k] @ w[n, k]^T, bf16 out. `dtype`: of both operands, activations quantised beforehand; nvfp4:
    of the weights, activations bf16 (W4A16)."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"


class MoeProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU's shard of a MoE layer: gate and up [2 inter, hidden], SiLU(gate) * up, down [hidden, inter], for the
    `experts` that it holds; each of `tokens` goes to `topk` of them. `inter` is the shard's."""

    tokens: int
    hidden: int
    inter: int
    experts: int
    topk: int
    dtype: str = "nvfp4"
    distribution: str = "uniform"


Problem = CopyProblem | GemmProblem | MoeProblem
KINDS: Final[dict[type, str]] = {CopyProblem: "copy", GemmProblem: "gemm", MoeProblem: "moe"}


def kind_of(problem: Problem) -> str:
    return KINDS[type(problem)]


def as_dict(problem: Problem) -> dict[str, Any]:
    """The problem as the result store keeps it."""
    return dict(msgspec.structs.asdict(problem))


def _extent(name: str, value: int, most: int) -> None:
    if isinstance(value, bool) or not 1 <= value <= most:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(name, f"--{name} must be a whole number from 1 to {most:,}, not {shown(value)}.")


def check(problem: Problem) -> Problem:
    """`problem`, if it can be.

    Raises:
        InputError: an extent is out of range, a format is not one of those, or topk exceeds the experts.
    """
    if isinstance(problem, CopyProblem):
        _extent("bytes", problem.bytes, MAX_BYTES)
        return problem
    names = ("m", "n", "k") if isinstance(problem, GemmProblem) else ("tokens", "hidden", "inter", "experts", "topk")
    for name in names:
        _extent(name, getattr(problem, name), MAX_EXTENT)
    legal = GEMM_DTYPES if isinstance(problem, GemmProblem) else MOE_DTYPES
    if problem.dtype not in legal:
        raise InputError("dtype", f"--dtype {shown(problem.dtype)} is none; the formats are {', '.join(legal)}.")
    if isinstance(problem, MoeProblem):
        if problem.topk > problem.experts:
            msg = f"--topk {problem.topk} is more than --experts {problem.experts}; a token goes to each at most once."
            raise InputError("topk", msg)
        if problem.distribution not in DISTRIBUTIONS:
            known = ", ".join(DISTRIBUTIONS)
            raise InputError(
                "distribution", f"--distribution {shown(problem.distribution)} is none; there are {known}."
            )
    return problem


BITS: Final[dict[str, float]] = {"bf16": 16, "fp8": 8, "nvfp4": 4.5}
"""Bits a weight takes with its share of block scales (nvfp4: 4 + 8 / 16)."""


def weight_bytes(problem: Problem) -> int:
    """Bytes of all weights, once."""
    if isinstance(problem, CopyProblem):
        return problem.bytes
    if isinstance(problem, GemmProblem):
        return round(problem.n * problem.k * BITS[problem.dtype] / 8)
    return round(3 * problem.experts * problem.hidden * problem.inter * BITS[problem.dtype] / 8)


def memory_bytes(problem: Problem, copies: int) -> int:
    """Memory that a measurement takes, bytes: weights in `copies`, their bf16 reference, activations.

    An estimate from above that decides before anything is allocated.
    """
    if isinstance(problem, CopyProblem):
        return 2 * problem.bytes * copies
    weights = weight_bytes(problem) * copies
    if isinstance(problem, GemmProblem):
        return weights + 8 * problem.n * problem.k + 8 * problem.m * (problem.n + problem.k)
    rows = problem.tokens * problem.topk
    reference = 4 * 3 * problem.hidden * problem.inter  # one expert at a time, FP32
    return weights + reference + 8 * rows * (problem.hidden + 3 * problem.inter) + 8 * problem.tokens * problem.hidden
