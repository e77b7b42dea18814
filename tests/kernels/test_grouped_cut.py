"""Which thread block of `nvfp4_grouped.cu` loads, multiplies, leaves and adds what: its arithmetic, run on the CPU.

Mirrors nvfp4_grouped.cu from the first line of the kernel to the last. The formulas are read out of that file and
evaluated, so that another formula there is another formula here; the statements around them (`load_next`, `finish`, the
loop) are written again below in the same order and have to be kept like them by hand.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from types import CodeType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

SOURCE = files("tilewright.kernels").joinpath("nvfp4_grouped.cu").read_text()
GROUP_BYTES = 4608
STATEMENTS = (
    "if (blocks_running > gridDim.x) blocks_running = gridDim.x;",
    "if (blockIdx.x >= blocks_running) {",
    "if (from_start && to_end) return store(block, row_tile);",
    "last_arrival = before == c1 - c0;",
    "for (int c = c0; c <= c1; ++c) {",
    "(p.partials + (u64)(c * 2 + (starts ? 1 : 0)) * BM * BT)",
    "if (++loading < end && at.step == 0) {",
    "if (at.row_tile == 0) enter(at);",
    "for (int i = 0; i < TW_STAGES - 1; ++i) load_next(i > 0);",
    "const bool to_end = ++step == p.k_steps;",
    "if (to_end || unit + 1 == end) {",
    "if (unit + 1 == end) break;",
    "if (++row_tile == p.row_tiles) {",
)
"""What is mirrored by hand and has to be there still."""


@cache
def formula(name: str) -> CodeType:
    """What the kernel first assigns to `name`, as Python."""
    found = re.search(rf"(?<![\w.]){re.escape(name)} \+?= (.+?)(?:;|, \w+ = )", SOURCE)
    assert found, f"{name} is not assigned any more"
    text = re.sub(r"\((?:int|u64|long long)\)", "", found[1]).replace("*p.block_count", "p.block_count")
    text = re.sub(r"\((\w+) \? (\w+) : (\w+)\)", r"(\2 if \1 else \3)", text)
    text = re.sub(r"^([^()]+) \? (.+?) : (.+)$", r"(\2) if \1 else (\3)", text)
    return compile(text.replace(" / ", " // "), f"nvfp4_grouped.cu, {name}", "eval")


def evaluated(name: str, values: Mapping[str, Any]) -> Any:
    return eval(formula(name), {"min": min}, dict(values))  # the project's own file


class Grid:
    """A launch: what its thread blocks share, and what they did."""

    def __init__(
        self, experts: list[int], row_tiles: int, k_steps: int, min_units: int, grid: int, groups: int
    ) -> None:
        self.experts, self.stored = experts, dict[int, list[int]]()
        self.arrivals = [0] * (len(experts) * row_tiles)
        self.partials: dict[int, tuple[int, list[int]]] = {}
        p = SimpleNamespace(
            block_count=len(experts), row_tiles=row_tiles, k_steps=k_steps, weights=0, groups=groups * row_tiles
        )
        whole = re.search(r"WHOLE_STEPS = (\d+)", SOURCE)
        assert whole
        self.names: dict[str, Any] = {
            "p": p, "TW_MIN_UNITS": min_units, "WHOLE_STEPS": int(whole[1]), "BM": 64 * groups,
            "GROUP_BYTES": GROUP_BYTES,
        }  # fmt: skip
        for name in ("tiles", "units", "grain", "grains", "blocks_running"):
            self.names[name] = evaluated(name, self.names)
        self.names["blocks_running"] = min(self.names["blocks_running"], grid)

    def run(self, index: int, stages: int) -> int:
        """Thread block `index`; how many units it took."""
        names, p = dict(self.names, blockIdx=SimpleNamespace(x=index)), self.names["p"]
        if index >= names["blocks_running"]:
            return 0
        names["first"], names["end"] = (evaluated(name, names) for name in ("first", "end"))
        first, end = names["first"], names["end"]
        names["tile"] = evaluated("const long long tile", names | {"block": 0, "row_tile": 0})
        at = SimpleNamespace(step=evaluated("at.step", names), block=evaluated("at.block", names), weights=0, x=-1)
        at.row_tile = evaluated("at.row_tile", names | {"at": at})

        def enter() -> None:
            at.weights = evaluated("c.weights", names | {"c": at, "expert": self.experts[at.block]})
            at.x = at.block

        enter()
        first_step, block, row_tile = at.step, at.block, at.row_tile
        weights_of: dict[int, int] = {}  # stage -> address
        tokens_of: dict[int, tuple[int, int]] = {}  # stage -> block of rows, step
        loading, load_stage, read_stage = first, 0, 0

        def load_weights(stage: int) -> None:
            weights_of[stage] = at.weights + at.step * GROUP_BYTES

        def load_next(weights: bool) -> None:
            nonlocal loading, load_stage
            if loading < end:
                if weights:
                    load_weights(load_stage)
                tokens_of[load_stage] = at.x, at.step
                at.step += 1
                if at.step == p.k_steps:
                    at.step = 0
                    at.row_tile += 1
                    if at.row_tile == p.row_tiles:
                        at.row_tile = 0
                        at.block += 1
                load_stage = (load_stage + 1) % stages
                loading += 1
                if loading < end and at.step == 0:
                    if at.row_tile == 0:
                        enter()
                    else:
                        at.weights += evaluated("at.weights", names)

        load_weights(0)
        for i in range(stages - 1):
            load_next(i > 0)
        step, from_start, kept, acc = first_step, first_step == 0, block, list[int]()
        for unit in range(first, end):
            load_next(True)
            expected = (self.experts[block] * p.groups + row_tile * names["BM"] // 64) * p.k_steps + step
            assert weights_of.pop(read_stage) == expected * GROUP_BYTES
            assert tokens_of.pop(read_stage) == (block, step)
            acc.append(step)
            read_stage = (read_stage + 1) % stages
            step += 1
            to_end = step == p.k_steps
            if to_end or unit + 1 == end:
                assert kept == block
                self.finish(index, block * p.row_tiles + row_tile, from_start, to_end, acc, names)
                if unit + 1 == end:
                    break
                acc, step, from_start = [], 0, True
                row_tile += 1
                if row_tile == p.row_tiles:
                    row_tile, block = 0, block + 1
                    assert block < p.block_count  # is looked up
                    kept = block
        assert not weights_of
        assert not tokens_of
        return end - first

    def finish(
        self, index: int, tile: int, from_start: bool, to_end: bool, acc: list[int], names: dict[str, Any]
    ) -> None:
        def store(steps: list[int]) -> None:
            assert tile not in self.stored
            self.stored[tile] = steps

        if from_start and to_end:
            store(acc)
            return
        names = names | {"tile": tile, "from_start": from_start}
        slot = evaluated("slot", names)
        assert slot not in self.partials  # a slot is written once
        assert slot // 2 == index
        self.partials[slot] = tile, acc
        c0, c1 = evaluated("c0", names), evaluated("c1", names)
        self.arrivals[tile] += 1
        if self.arrivals[tile] - 1 != c1 - c0:
            return
        self.arrivals[tile] = 0
        summed: list[int] = []
        for c in range(c0, c1 + 1):
            starts = evaluated("starts", names | {"c": c})
            of, steps = self.partials[c * 2 + (1 if starts else 0)]
            assert of == tile
            summed += steps
        store(summed)


@pytest.mark.parametrize("statement", STATEMENTS)
def test_the_mirror_shows_what_is_there(statement: str) -> None:
    assert statement in SOURCE


def check(experts: list[int], row_tiles: int, k_steps: int, min_units: int, grid: int, stages: int,
          order: Callable[[list[int]], list[int]] = list, groups: int = 1) -> list[int]:  # fmt: skip
    """Every step of every tile is multiplied once, added in order and stored once; units of each thread block."""
    launch = Grid(experts, row_tiles, k_steps, min_units, grid, groups)
    taken = [launch.run(index, stages) for index in order(list(range(grid)))]
    assert launch.stored == {tile: list(range(k_steps)) for tile in range(len(experts) * row_tiles)}
    assert not any(launch.arrivals)  # as the next launch wants them
    assert sum(taken) == len(experts) * row_tiles * k_steps
    return taken


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_every_step_of_every_tile_is_added_once(data: st.DataObject) -> None:
    """For any number of tiles, none included, thread blocks, steps, stages and order in which the blocks arrive."""
    draw = data.draw
    experts = sorted(draw(st.lists(st.integers(0, 6), max_size=8)))
    grid = draw(st.integers(1, 24))
    check(
        experts, draw(st.integers(1, 6)), draw(st.integers(1, 9)), draw(st.integers(1, 8)), grid,
        draw(st.integers(2, 6)), lambda blocks: draw(st.permutations(blocks)), draw(st.integers(1, 4)),
    )  # fmt: skip


@pytest.mark.parametrize("min_units", range(1, 9))
@pytest.mark.parametrize("k_steps", range(1, 7))
def test_the_corners(k_steps: int, min_units: int) -> None:
    """No tile, one, and one more or fewer than thread blocks."""
    for blocks in (0, 1, 2, 5, 6, 7):
        for row_tiles in (1, 2):
            for reverse in (False, True):
                check(
                    list(range(blocks)), row_tiles, k_steps, min_units, 6, 3,
                    lambda order, reverse=reverse: order[::-1] if reverse else order,
                )  # fmt: skip


@pytest.mark.parametrize(("k_steps", "whole"), [(1, True), (2, True), (4, True), (5, False), (16, False)])
def test_tiles_of_few_steps_stay_whole(k_steps: int, whole: bool) -> None:
    """103 tiles for 10 thread blocks, and nobody idle: shares differ by one tile, or else by one step."""
    taken = check([0], 103, k_steps, 1, 10, 4)
    assert all(units % k_steps == 0 for units in taken) == whole
    assert max(taken) - min(taken) == (k_steps if whole else min(1, 103 * k_steps % 10))
