"""What is measured. Field names are those of the questions that `predict` answers (DESIGN 4.5)."""

from __future__ import annotations

import random
from typing import Any, Final

import msgspec

from tilewright.errors import InputError, shown

W4A4: Final = "nvfp4_w4a4"
"""NVFP4 activations as well as weights; plain nvfp4 is that of the weights alone (W4A16)."""
GEMM_DTYPES: Final = ("bf16", "fp8", "nvfp4", W4A4)
MOE_DTYPES: Final = ("bf16", "nvfp4", W4A4)
SCALED: Final = 16
"""Values of K that share a scale (NVFP4)."""
MAX_EXTENT: Final = 1 << 20
MAX_BYTES: Final = 1 << 40
DISTRIBUTIONS: Final = ("uniform", "one_expert")
"""How tokens choose experts: at random, or all of them the same ones (the worst case of a hot expert)."""


class CopyProblem(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes` read once and written once."""

    bytes: int


class ReadProblem(msgspec.Struct, frozen=True, kw_only=True):
    """`bytes` read once: the limit of whatever has to read so many bytes of weights."""

    bytes: int


class AllreduceProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A sum over `gpus` GPUs of a bf16 message of `bytes` on each."""

    bytes: int
    gpus: int


class GemmProblem(msgspec.Struct, frozen=True, kw_only=True):
    """out[m, n] = x[m, k] @ w[n, k]^T, bf16 out. `dtype`: of both operands, activations quantised beforehand; nvfp4:
    of the weights, activations bf16 (W4A16); nvfp4_w4a4: of both."""

    m: int
    n: int
    k: int
    dtype: str = "bf16"


class MoeProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU's shard of a MoE layer: gate and up [2 inter, hidden], SiLU(gate) * up, down [hidden, inter], for the
    `experts` that it holds; each of `tokens` goes to `topk` of them. `inter` is the shard's. nvfp4_w4a4: bf16 in, and
    both products' inputs are quantised as part of the layer."""

    tokens: int
    hidden: int
    inter: int
    experts: int
    topk: int
    dtype: str = "nvfp4"
    distribution: str = "uniform"


Problem = CopyProblem | ReadProblem | AllreduceProblem | GemmProblem | MoeProblem
KINDS: Final[dict[type, str]] = {
    CopyProblem: "copy", ReadProblem: "read", AllreduceProblem: "allreduce", GemmProblem: "gemm", MoeProblem: "moe",
}  # fmt: skip
WORD: Final = 16
"""Bytes that one load of a thread takes: messages and copies are whole numbers of them."""


def problem_of(kind: str, fields: dict[str, Any]) -> Problem:
    """The problem that `as_dict` and `kind_of` described. Raises msgspec.ValidationError for fields of another kind."""
    wanted: Any = next(item for item, name in KINDS.items() if name == kind)
    made: Problem = msgspec.convert(fields, wanted)
    return made


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
        InputError: an extent is out of range or no whole number of NVFP4 blocks, a format is not one of those, or topk
            exceeds the experts.
    """
    if isinstance(problem, CopyProblem | ReadProblem | AllreduceProblem):
        _extent("bytes", problem.bytes, MAX_BYTES)
        if problem.bytes % WORD:
            raise InputError("bytes", f"--bytes must be a multiple of {WORD}, not {problem.bytes:,}.")
        if isinstance(problem, AllreduceProblem) and problem.gpus < 2:
            raise InputError("gpus", f"An all-reduce takes at least 2 GPUs, not --gpus {problem.gpus}.")
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
    if problem.dtype in ("nvfp4", W4A4):
        for name in ("k",) if isinstance(problem, GemmProblem) else ("hidden", "inter"):
            if getattr(problem, name) % SCALED:
                extent = getattr(problem, name)
                msg = f"--{name} {extent} is no multiple of {SCALED}, the values that share an NVFP4 scale."
                raise InputError(name, msg)
    return problem


BITS: Final[dict[str, float]] = {"bf16": 16, "fp8": 8, "nvfp4": 4.5, W4A4: 4.5}
"""Bits a weight takes with its share of block scales (nvfp4: 4 + 8 / 16)."""


def weight_bytes(problem: Problem) -> int:
    """Bytes of all weights, once."""
    if isinstance(problem, CopyProblem | ReadProblem | AllreduceProblem):
        return problem.bytes
    if isinstance(problem, GemmProblem):
        return round(problem.n * problem.k * BITS[problem.dtype] / 8)
    return round(3 * problem.experts * problem.hidden * problem.inter * BITS[problem.dtype] / 8)


def memory_bytes(problem: Problem, copies: int) -> int:
    """Memory that a measurement takes, bytes: weights in `copies`, their bf16 reference, activations.

    An estimate from above that decides before anything is allocated.
    """
    if isinstance(problem, CopyProblem | ReadProblem | AllreduceProblem):
        return (2 - isinstance(problem, ReadProblem)) * problem.bytes * copies
    weights = weight_bytes(problem) * copies
    if isinstance(problem, GemmProblem):
        return weights + 8 * problem.n * problem.k + 8 * problem.m * (problem.n + problem.k)
    rows = problem.tokens * problem.topk
    reference = 4 * 3 * problem.hidden * problem.inter  # one expert at a time, FP32
    return weights + reference + 8 * rows * (problem.hidden + 3 * problem.inter) + 8 * problem.tokens * problem.hidden


def routing(problem: MoeProblem) -> list[list[int]]:
    """The experts of each token, the same on every run: `topk` distinct ones drawn at random, or the first ones."""
    if problem.distribution == "one_expert":
        return [list(range(problem.topk))] * problem.tokens
    draw = random.Random(f"{problem.tokens} {problem.experts} {problem.topk}")
    return [draw.sample(range(problem.experts), problem.topk) for _ in range(problem.tokens)]


def touched_bytes(problem: Problem) -> int:
    """Bytes of weights that one call has to read: all of them, or those of the experts that a token goes to."""
    if not isinstance(problem, MoeProblem):
        return weight_bytes(problem)
    hit = len({expert for experts in routing(problem) for expert in experts})
    return weight_bytes(problem) * hit // problem.experts


def moved_bytes(problem: Problem) -> int:
    """Bytes that have to cross the memory bus once: weights touched, activations in (of a GEMM in its format) and out
    (bf16)."""
    if isinstance(problem, CopyProblem):
        return 2 * problem.bytes
    if isinstance(problem, GemmProblem):
        into = BITS["bf16" if problem.dtype == "nvfp4" else problem.dtype] / 8
        return touched_bytes(problem) + round(problem.m * (into * problem.k + 2 * problem.n))
    if isinstance(problem, MoeProblem):
        return touched_bytes(problem) + 4 * problem.tokens * problem.hidden
    return problem.bytes


def flops(problem: Problem) -> int:
    """Multiplications and additions of the products; 0 where there are none to speak of."""
    if isinstance(problem, GemmProblem):
        return 2 * problem.m * problem.n * problem.k
    if isinstance(problem, MoeProblem):
        return 6 * problem.tokens * problem.topk * problem.hidden * problem.inter
    return 0
