"""The tests behind a verdict: against published values, against simulation, and in the words of an answer."""

from __future__ import annotations

import random

import pytest

from tilewright.sweep.document import Origin, Run
from tilewright.sweep.goal import parse_goal
from tilewright.sweep.outcome import Outcome, Repeat, Status
from tilewright.sweep.significance import compare, holm, p_value, quantile
from tilewright.sweep.verdict import judge


@pytest.mark.parametrize(
    ("p", "freedom", "t"),
    [(0.05, 1, 12.706), (0.05, 4, 2.776), (0.05, 10, 2.228), (0.01, 4, 4.604), (0.05, 120, 1.980)],
)
def test_t_as_printed_tables_have_it(p: float, freedom: float, t: float) -> None:
    assert quantile(p, freedom) == pytest.approx(t, abs=6e-4)
    assert p_value(t, freedom) == pytest.approx(p, rel=2e-3)


def test_noise_alone_is_called_different_about_one_time_in_twenty() -> None:
    draw = random.Random(1)

    def side(starts: int, spread: float) -> list[list[float]]:
        return [
            [100 + mean + draw.gauss(0, 1) for _ in range(3)] for mean in (draw.gauss(0, spread) for _ in range(starts))
        ]

    for spread in (0.0, 3.0):  # restarts that do not matter, and ones that matter more than repeats
        wrong = sum(compare(1, side(3, spread), side(3, spread)).significant for _ in range(400))
        assert wrong / 400 < 0.1, spread
    real = sum(
        compare(1, [[v + 10 for v in start] for start in side(3, 0)], side(3, 0)).significant for _ in range(100)
    )
    assert real > 90


def test_one_sample_shows_no_spread_and_holm_counts_how_many_were_looked_at() -> None:
    assert compare(1, [[5.0]], [[4.0, 4.1]]).p is None
    near = compare(1, [[10.0, 10.4, 10.2]], [[9.6, 9.9, 9.8]])
    assert near.significant
    assert sum(item.significant for item in holm([near] * 20)) == 0


def run(
    number: int, origin: Origin, value: int, rates: list[float], status: Status = "measured", ttft: float = 1
) -> Run:
    repeats = tuple(
        Repeat(metrics={"output_tok_s": r, "p95_ttft_s": ttft, "error_rate": 0.0}, requests=9, seconds=1) for r in rates
    )
    outcome = Outcome(status=status, started="", seconds=1, repeats=repeats, reason=None if repeats else "it died")
    return Run(number=number, origin=origin, assignment={"x": value}, outcome=outcome)


GOAL = parse_goal("max output_tok_s s.t. p95_ttft_s < 2")


def test_a_winner_is_named_only_when_it_is_one() -> None:
    base, slow = run(1, "baseline", 0, [100, 101, 99]), run(2, "search", 1, [90, 91, 89])
    _, clear = judge([base, slow, run(3, "search", 2, [130, 131, 128])], GOAL)
    assert clear.winner == clear.leader == 2
    assert clear.over_baseline is not None
    assert clear.over_baseline.significant
    assert "The winner is candidate 2" in clear.text
    _, even = judge([base, slow, run(3, "search", 2, [101, 100.5, 99.5])], GOAL)
    assert even.winner is None
    assert even.tied == [0]
    assert "No significant difference" in even.text
    assert "within the noise" in even.text


def test_limits_failures_and_errors_keep_a_candidate_from_winning() -> None:
    base = run(1, "baseline", 0, [100, 101, 99])
    late = run(2, "search", 1, [190, 191, 189], ttft=2.5)
    dead = run(3, "search", 2, [], status="died_starting")
    candidates, found = judge([base, late, dead], GOAL)
    assert found.leader == 0
    assert candidates[1].missed == ["p95_ttft_s < 2 (is 2.5)"]
    assert "change nothing" in found.text
    _, none = judge([late, dead], GOAL)
    assert none.leader is None
    assert "No candidate keeps the limits" in none.text
    once_dead = run(4, "confirm", 0, [], status="died_loaded")
    assert judge([base, once_dead], GOAL)[1].leader is None, "a server that died once is not recommended"
