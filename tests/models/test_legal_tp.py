"""Which tensor-parallel sizes a checkpoint can be cut into (cases C63, C66)."""

from __future__ import annotations

import pytest

from tilewright.errors import InputError
from tilewright.models import Parallel, resolve_model
from tilewright.models.legality import legal_tp, tp_verdict


def legal(name: str, **more: bool) -> list[int]:
    return [item.tp for item in legal_tp(resolve_model(name), **more) if item.legal]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("MiniMax-M2.5", [1, 2, 4]),
        ("Qwen3-235B-A22B-FP8", [1, 2, 4]),
        ("Qwen3-30B-A3B-FP8", [1, 2]),
        ("DeepSeek-V3", [1, 2, 4, 8, 16]),
        ("GLM-5-NVFP4", [1, 2, 4, 8, 16, 32, 64]),
        ("Qwen3-235B-A22B", [1, 2, 4, 8, 16, 32, 64]),
    ],
)
def test_blocks_of_128_decide_what_fp8_can_be_cut_into(name: str, sizes: list[int]) -> None:
    assert legal(name) == sizes


@pytest.mark.parametrize(
    ("name", "tp", "says"),
    [
        ("MiniMax-M2.5", 8, "1,536 / 8 = 192 is no multiple of block_n = 128"),
        ("Qwen3-235B-A22B-FP8", 8, "1,536 / 8 = 192 is no multiple of block_n = 128"),
        ("Qwen3-30B-A3B-FP8", 4, "768 / 4 = 192 is no multiple of block_n = 128"),
        ("DeepSeek-V3", 32, "18,432 / 32 = 576 is no multiple of block_n = 128"),
        ("Qwen3-235B-A22B-NVFP4", 64, "1,536 / 64 = 24 is no multiple of the 16 values"),
        ("GLM-4.5-Air", 64, "96 attention heads do not divide over 64 ranks"),
    ],
)
def test_the_reason_names_the_numbers(name: str, tp: int, says: str) -> None:
    verdict = tp_verdict(resolve_model(name), Parallel(tp=tp))
    assert not verdict.legal
    assert any(says in problem for problem in verdict.problems)


def test_expert_parallelism_keeps_experts_whole() -> None:
    assert 8 in legal("MiniMax-M2.5", expert_parallel=True)
    verdict = tp_verdict(resolve_model("MiniMax-M2.5"), Parallel(tp=24, ep=24))
    assert any("256 experts do not divide over 24" in problem for problem in verdict.problems)


def test_what_works_at_a_price_is_a_note() -> None:
    padded = tp_verdict(resolve_model("gpt-oss-120b"), Parallel(tp=1))
    assert padded.legal
    assert any("90 scale columns, padded to 92" in note for note in padded.notes)
    repeated = tp_verdict(resolve_model("Qwen3-235B-A22B"), Parallel(tp=8))
    assert any("each is held by 2 ranks" in note for note in repeated.notes)


def test_sizes_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="tp must be a whole number"):
        legal_tp(resolve_model("GLM-5"), sizes=[0])
