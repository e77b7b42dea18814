"""The search, held against exhaustive tables that were measured on an H200."""

from __future__ import annotations

from typing import Any

import pytest
from tune_fakes import recorded_tables  # noqa: F401 - a fixture

from tilewright.hardware.names import resolve_gpu
from tilewright.store.result import key_of
from tilewright.tune.layer import Problem, problem_of
from tilewright.tune.order import blocks_of, machine_of, ordered
from tilewright.tune.replay import ReplayFleet
from tilewright.tune.run import Outcome, Run
from tilewright.tune.search import Plan, neighbours, plan_of, search, spread
from tilewright.tune.space import Config, axes_of, prune
from tilewright.tune.trials import Trial

MACHINE = machine_of(resolve_gpu("h200-sxm"))


class Counting:
    """Counts what is measured."""

    def __init__(self) -> None:
        self.trials: list[Trial] = []

    def trial(self, problem: Problem, trial: Trial, reused: bool) -> None:
        self.trials.append(trial)

    def outcome(self, outcome: Outcome) -> None:
        """Not needed."""


def table_of(entry: dict[str, Any]) -> tuple[Problem, list[Config], dict[str, tuple[float, float]]]:
    """(problem, configs, their two times in seconds) of one recorded table."""
    axes = {name: list(values) for name, values in entry["axes"].items()}
    configs = [{name: axes[name][at] for name, at in zip(axes, places, strict=True)} for places in entry["configs"]]
    times = {
        key_of(config): (up * 1e-8, down * 1e-8)
        for config, up, down in zip(configs, entry["up"], entry["down"], strict=True)
    }
    return problem_of(entry["problem"]), configs, times


def found_ratio(entry: dict[str, Any], plan: Plan | None = None) -> tuple[float, int, int]:
    """(time of what the search finds over the exhaustive best, trials asked for, size of the table)."""
    problem, configs, times = table_of(entry)
    fleet = ReplayFleet({key_of(problem): times})
    run = Run(fleet, None, None, Counting())  # type: ignore[arg-type]
    chosen = plan or plan_of(len(configs))
    [outcome] = run.tune([problem], lambda item: search(item, configs, MACHINE, chosen), resume=False)
    assert outcome.best is not None
    best = min(up + down for up, down in times.values())
    return sum(times[key_of(outcome.best.config)]) / best, fleet.asked, len(configs)


def test_the_search_is_within_three_percent_of_exhaustive_with_five_percent_of_its_trials(
    tables: list[dict[str, Any]],
) -> None:
    """On at least 90 % of the recorded problems; finalists' further samples are counted."""
    assert len(tables) >= 12
    good = 0
    for entry in tables:
        ratio, asked, size = found_ratio(entry)
        assert asked <= 0.05 * size
        good += ratio <= 1.03
    assert good >= 0.9 * len(tables)


def test_the_model_alone_does_not_suffice(tables: list[dict[str, Any]]) -> None:
    """Its first choice is further from the best than what the search finds: the trials are not for nothing."""
    first: list[float] = []
    for entry in tables:
        problem, configs, times = table_of(entry)
        top = ordered(problem, configs, MACHINE)[0]
        first.append(sum(times[key_of(top)]) / min(up + down for up, down in times.values()))
    assert sorted(first)[len(first) // 2] > 1.03


def test_tables_are_the_whole_space(tables: list[dict[str, Any]]) -> None:
    """Every config that arithmetic leaves on an H200 was measured and has a time."""
    for entry in tables:
        problem, configs, _ = table_of(entry)
        kept = prune(problem.kernel, problem.layer, 90, 232_448, clamp=True).kept
        assert configs == kept
        assert min(entry["up"]) > 0


def test_a_lucky_look_does_not_win(tables: list[dict[str, Any]]) -> None:
    """A config whose first look is 20 % too fast is put right when it is measured again."""
    problem, configs, times = table_of(tables[0])
    slow = key_of(ordered(problem, configs, MACHINE)[0])

    class Lucky(ReplayFleet):
        def give(self, requests: Any, *, together: bool = False) -> None:
            for request in requests:
                true = times[slow]
                lucky = key_of(request.config) == slow and request.rung == "look"
                self._tables = {key_of(problem): {**times, slow: (true[0] * 0.5, true[1] * 0.5) if lucky else true}}
                super().give([request], together=together)

    run = Run(Lucky({}), None, None, Counting())  # type: ignore[arg-type]
    [outcome] = run.tune([problem], lambda item: search(item, configs, MACHINE, plan_of(len(configs))), resume=False)
    assert outcome.best is not None
    assert key_of(outcome.best.config) != slow


def test_hopeless_configs_are_looked_at_once(tables: list[dict[str, Any]]) -> None:
    """Beyond one and a half times the best, one look ends a trial."""
    problem, configs, times = table_of(tables[0])
    watching = Counting()
    run = Run(ReplayFleet({key_of(problem): times}), None, None, watching)  # type: ignore[arg-type]
    run.tune([problem], lambda item: search(item, configs, MACHINE, Plan(trials=300)), resume=False)
    best = min(up + down for up, down in times.values())
    late = watching.trials[20:]
    assert all(trial.samples == 1 for trial in late if (trial.time_s or 0) > 2 * best)
    assert any(trial.stopped for trial in late)


@pytest.mark.parametrize("kernel", ["ours", "vllm-fused-moe"])
def test_neighbours_are_one_or_two_steps_away(kernel: str) -> None:
    """All inside the axes, none the config itself."""
    axes = axes_of(kernel)
    middle = {name: values[len(values) // 2] for name, values in axes.items()}
    found = list(neighbours(middle, axes))
    assert middle not in found
    for config in found:
        steps = [abs(axes[name].index(config[name]) - axes[name].index(middle[name])) for name in axes]
        assert sum(steps) in (1, 2)
        assert max(steps) == 1


def test_the_start_is_spread() -> None:
    """Of configs in order of promise no two neighbours are taken while there is another."""
    axes = {"a": (1, 2, 4, 8), "b": (1, 2)}
    configs = [{"a": a, "b": b} for a in axes["a"] for b in axes["b"]]
    chosen = spread(configs, 3, axes)
    assert chosen[0] == {"a": 1, "b": 1}
    assert {"a": 1, "b": 2} not in chosen


def test_row_blocks_are_those_of_random_routing(tables: list[dict[str, Any]]) -> None:
    """Expected blocks: every routed row its own at one row a block; at least the experts that are hit."""
    layer = table_of(tables[0])[0].layer
    for tokens in (1, 16, 300):
        assert blocks_of(layer, tokens, 1) == pytest.approx(tokens * layer.topk, rel=1e-3)
    hit = layer.experts * (1 - (1 - layer.topk / layer.experts) ** 16)
    assert blocks_of(layer, 16, 256) == pytest.approx(hit, rel=1e-3)
    assert blocks_of(layer, 4096, 64) > layer.experts
