"""NVFP4, the references and the operands, where torch is installed (a CPU is enough)."""

from __future__ import annotations

import itertools
import math

import pytest

torch = pytest.importorskip("torch")

from tilewright.bench.backends.torch_ import grouped_layer  # noqa: E402
from tilewright.bench.operands import gemm_answer, gemm_operands, moe_answer, moe_operands  # noqa: E402
from tilewright.bench.problem import GemmProblem, MoeProblem  # noqa: E402
from tilewright.bench.reference import E2M1, Error, dequantise, error, quantise  # noqa: E402


def test_every_value_of_the_format_survives() -> None:
    """6 * 448 makes the global scale 1; every code of both signs under scales 1 and 2 is itself again."""
    codes = [*E2M1, *(-value for value in E2M1)]
    most = [6 * 448.0] + [0.0] * 15
    values = torch.tensor([most + [value * scale for value in codes] for scale in (1.0, 2.0)])
    again = dequantise(torch, *quantise(torch, values))
    assert torch.equal(again, values)


def test_halves_go_to_the_even_code() -> None:
    row = [6 * 448.0] + [0.0] * 15 + [6.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0] + [0.0] * 8
    again = dequantise(torch, *quantise(torch, torch.tensor([row])))[0, 16:24]
    assert again.tolist() == [6.0, 0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0]


def test_zeros_stay_zeros_and_rounding_is_as_coarse_as_four_bits() -> None:
    assert float(dequantise(torch, *quantise(torch, torch.zeros(2, 32))).abs().max()) == 0
    values = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    assert 0.05 < error(dequantise(torch, *quantise(torch, values)), values).norm < 0.12


def test_nan_and_small_faults_are_found() -> None:
    want = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    assert error(want.bfloat16(), want).right("gemm")
    bad = want.clone()
    bad[3, 5] = float("nan")
    assert not error(bad, want).right("gemm")
    shifted = want.roll(1, dims=1)
    assert not error(shifted, want).right("moe")
    assert not Error(math.nan, math.nan).right("copy")


@pytest.mark.parametrize("dtype", ["bf16", "fp8", "nvfp4"])
def test_operands_are_the_same_on_every_run_and_answers_have_their_size(dtype: str) -> None:
    problem = GemmProblem(m=5, n=32, k=64, dtype=dtype)
    first, again = (gemm_answer(torch, gemm_operands(torch, problem, "cpu")) for _ in range(2))
    assert torch.equal(first, again)
    assert first.shape == (5, 32)
    assert 0.5 < float(first.std()) < 2


@pytest.mark.parametrize(("tokens", "experts", "topk"), [(9, 8, 2), (1, 4, 4), (3, 16, 1)])
def test_the_layer_around_a_grouped_product_is_the_reference(tokens: int, experts: int, topk: int) -> None:
    """The grouped product itself in plain torch, experts without rows included."""
    problem = MoeProblem(tokens=tokens, hidden=64, inter=32, experts=experts, topk=topk, dtype="bf16")
    o = moe_operands(torch, problem, "cpu")

    def by(weights: torch.Tensor):  # type: ignore[no-untyped-def]
        def run(rows: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
            starts = [0, *ends.tolist()]
            return torch.cat([rows[a:b] @ weights[i].T for i, (a, b) in enumerate(itertools.pairwise(starts))])

        return run

    assert error(grouped_layer(torch, by(o.w13), by(o.w2), o, experts), moe_answer(torch, o)).right("moe")
