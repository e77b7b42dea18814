"""What is written down of our own kernels is what they run."""

from __future__ import annotations

from dataclasses import asdict
from types import SimpleNamespace

import pytest

from tilewright.bench.backends.tilewright_ import build_of
from tilewright.kernels.choose import Gpu, chosen_build

H200 = Gpu(sms=132, wgmma=True, name="NVIDIA H200")
SMALLER = Gpu(sms=188, wgmma=False, name="NVIDIA RTX PRO 6000 Blackwell Server Edition")
W13 = SimpleNamespace(rows=512, k=6144, experts=256, steps=48)
W2 = SimpleNamespace(rows=6144, k=256, experts=256, steps=2)


@pytest.mark.parametrize("gpu", [H200, SMALLER])
@pytest.mark.parametrize("tokens", [1, 16, 64, 4096])
def test_the_build_is_the_layers_own_choice(gpu: Gpu, tokens: int) -> None:
    rows = tokens * 8
    said = build_of(W13, rows, gpu)
    kernel = said.pop("kernel")
    assert said == asdict(chosen_build(rows, W13.rows, W13.k, W13.experts, gpu))
    if tokens == 1:
        assert kernel == "decode"
    elif tokens == 4096:
        assert kernel == ("prefill" if gpu.wgmma else "grouped")


def test_a_layer_runs_both_matrices_with_the_build_that_suits_its_second() -> None:
    """256 tokens: 8 rows an expert, sorted because w2 has two steps of K; w13 alone takes wgmma."""
    assert build_of(W13, 256 * 8, H200)["kernel"] == "prefill"
    assert build_of(W13, 256 * 8, H200, W2)["kernel"] == "grouped"
    assert build_of(W13, 8, H200, W2)["kernel"] == "decode"


def test_a_layer_of_one_token_says_the_build_of_its_first_kernel() -> None:
    """Qwen3-235B at TP4: alone its w13 takes (1, 8, 1), in the layer (4, 16, 1)."""
    first = SimpleNamespace(rows=768, k=4096, experts=128, steps=32)
    second = SimpleNamespace(rows=4096, k=384, experts=128, steps=3)
    assert build_of(first, 8, H200)["warps"] == 8
    assert build_of(first, 8, H200, second) == {"kernel": "decode", "blocks": 4, "warps": 16, "stages": 1}
