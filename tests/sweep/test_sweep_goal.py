"""Goals: what parses, what does not, and what a bound means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.errors import InputError
from tilewright.sweep.goal import parse_goal
from tilewright.sweep.metrics import METRICS, RequestRecord, client_metrics


def test_a_goal_with_two_bounds() -> None:
    goal = parse_goal("max output_tok_s s.t. p95_ttft_s < 2 and error_rate <= 1e-2")
    assert (goal.direction, goal.metric) == ("max", "output_tok_s")
    assert goal.feasible({"output_tok_s": 1.0, "p95_ttft_s": 1.9, "error_rate": 0.01})
    assert not goal.feasible({"output_tok_s": 1.0, "p95_ttft_s": 2.0, "error_rate": 0.0})
    assert not goal.feasible({"output_tok_s": 1.0, "error_rate": 0.0}), "what was not measured is not kept"
    assert parse_goal(str(goal)) == goal


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("", "max or min"),
        ("best output_tok_s", "max or min"),
        ("max tokens", "output_tok_s"),
        ("max output_tok_s s.t.", "a constraint is"),
        ("max output_tok_s s.t. p95_ttft_s = 2", "'='"),
        ("max output_tok_s s.t. p95_ttft_s < 2s", "joined by and"),
        ("max output_tok_s s.t. p95_ttft_s < nan", "nan"),
        ("max output_tok_s s.t. nope < 2", "p95_ttft_s"),
        ("max output_tok_s p95_ttft_s < 2", "s.t."),
        ("max output_tok_s; rm -rf /", "';'"),
    ],
)
def test_what_is_no_goal_is_named(text: str, names: str) -> None:
    with pytest.raises(InputError, match="--goal") as caught:
        parse_goal(text)
    assert names in caught.value.msg


@given(st.text(max_size=300))
def test_no_text_breaks_the_parser(text: str) -> None:
    try:
        goal = parse_goal(text)
    except InputError:
        return
    assert goal.metric in METRICS


def test_metrics_of_three_requests_by_hand() -> None:
    records = [
        RequestRecord(start_s=0, end_s=2, ttft_s=0.5, input_tokens=10, output_tokens=16),
        RequestRecord(start_s=1, end_s=5, ttft_s=1.5, input_tokens=10, output_tokens=26),
        RequestRecord(start_s=1, end_s=9, error="HTTP 500"),
    ]
    found = client_metrics(records)
    assert found["output_tok_s"] == pytest.approx(42 / 5)
    assert found["total_tok_s"] == pytest.approx(62 / 5)
    assert found["error_rate"] == pytest.approx(1 / 3)
    assert found["mean_ttft_s"] == pytest.approx(1.0)
    assert found["max_tpot_s"] == pytest.approx(0.1)
    assert set(found) <= set(METRICS)
    assert client_metrics([]) == {"error_rate": 1.0}
