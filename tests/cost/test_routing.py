"""Experts hit and tiles filled, against simulation and against the figures that people quote."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tilewright.cost import expected_experts_hit, moe_tile_use, tile_use, tokens_for_rows
from tilewright.errors import InputError


def simulate(tokens: int, topk: int, experts: int, tile: int, rounds: int = 300) -> tuple[float, float]:
    """Experts hit and tiles filled on average, by drawing."""
    draw = random.Random(20261202)
    hit = tiles = 0
    for _ in range(rounds):
        rows = [0] * experts
        for _ in range(tokens):
            for expert in draw.sample(range(experts), topk):
                rows[expert] += 1
        hit += sum(count > 0 for count in rows)
        tiles += sum(-(-count // tile) for count in rows)
    return hit / rounds, tiles / rounds


@pytest.mark.parametrize(("tokens", "topk", "experts", "tile"), [(1, 8, 256, 16), (16, 8, 256, 8), (200, 4, 32, 64)])
def test_expectations_are_what_drawing_gives(tokens: int, topk: int, experts: int, tile: int) -> None:
    hit, tiles = simulate(tokens, topk, experts, tile)
    assert expected_experts_hit(tokens, topk, experts) == pytest.approx(hit, rel=0.02)
    assert moe_tile_use(tokens, topk, experts, tile).tiles == pytest.approx(tiles, rel=0.02)


def test_the_formula_is_the_exact_one() -> None:
    assert expected_experts_hit(1, 8, 256) == pytest.approx(8, abs=1e-9)
    assert expected_experts_hit(64, 8, 256) == pytest.approx(256 * (1 - (1 - 8 / 256) ** 64))
    assert expected_experts_hit(4096, 8, 256) == pytest.approx(256)
    assert expected_experts_hit(5, 4, 4) == 4
    assert expected_experts_hit(3, 8, 256, "balanced") == 24


@pytest.mark.parametrize(("tokens", "seen"), [(1, 8), (4, 31), (16, 103), (64, 227), (128, 252), (256, 256)])
def test_expected_hits_are_those_of_one_measured_draw(tokens: int, seen: int) -> None:
    # facts/h200_nvfp4_moe.md, TP8: experts hit by seeded uniform routing.
    assert expected_experts_hit(tokens, 8, 256) == pytest.approx(seen, abs=6)


def test_sixteen_rows_use_an_eighth_of_a_128_row_tile() -> None:
    assert tile_use(16, 128).used == 0.125
    assert tile_use(16, 16).used == 1
    assert tile_use(129, 128).tiles == 2


def test_sixteen_tokens_an_expert_are_512_tokens_of_glm5() -> None:
    assert tokens_for_rows(16, 8, 256) == 512
    assert tokens_for_rows(64, 8, 256) == 2048
    assert moe_tile_use(512, 8, 256, 128).used == pytest.approx(0.125, abs=1e-6)
    assert moe_tile_use(512, 8, 256, 64).used == pytest.approx(0.25, abs=1e-4)
    # Smaller tiles, which swapped operands allow, waste less; and random rows waste more than even ones.
    uniform, balanced = moe_tile_use(512, 8, 256, 16), moe_tile_use(512, 8, 256, 16, "balanced")
    assert uniform.used < balanced.used == 1


@settings(max_examples=60, deadline=None)
@given(
    tokens=st.integers(1, 5000),
    experts=st.integers(1, 512),
    data=st.data(),
    tile=st.sampled_from([8, 16, 32, 64, 128, 256]),
)
def test_hits_and_tiles_stay_within_what_is_possible(tokens: int, experts: int, data: st.DataObject, tile: int) -> None:
    topk = data.draw(st.integers(1, min(experts, 32)))
    hit = expected_experts_hit(tokens, topk, experts)
    assert topk - 1e-6 <= hit <= min(experts, tokens * topk) + 1e-6
    use = moe_tile_use(tokens, topk, experts, tile)
    assert hit - 1e-6 <= use.tiles <= tokens * topk / tile + hit + 1e-6
    assert 0 < use.used <= 1 + 1e-9


@pytest.mark.parametrize(("tokens", "topk", "experts"), [(0, 1, 1), (1, 2, 1), (-1, 1, 1), (True, 1, 1), (1, 0, 4)])
def test_counts_that_are_none_are_refused(tokens: int, topk: int, experts: int) -> None:
    with pytest.raises(InputError):
        expected_experts_hit(tokens, topk, experts)
