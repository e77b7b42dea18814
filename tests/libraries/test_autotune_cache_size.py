"""An autotuner cache of any size and with any key is read in bounded time."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.libraries.flashinfer.autotune_cache import Entry, parse_cache
from tilewright.libraries.flashinfer.cache_report import Coverage, _coverage  # pyright: ignore[reportPrivateUsage]

COUNT = 60_000


def entry_of(key: str) -> Entry | None:
    entries = parse_cache(json.dumps({"_metadata": {}, key: ["R", 3]}).encode(), "x").entries
    return entries[0] if entries else None


@pytest.mark.parametrize(
    ("key", "op", "shapes", "extras"),
    [
        ("('a::b', 'R', ((16, 3072), (256,)), ('x', 2))", "a::b", [[16, 3072], [256]], "('x', 2)"),
        ("('a', 'R', ((16, 64),), ())", "a", [[16, 64]], "()"),
        ("('a', 'R', (), ())", "a", [], "()"),
        ("('a', 'R', ((16,),))", "a", [[16]], ""),
        ("('a', 'R', ((16,), (-1,)), (1, 2), None, 'b,c')", "a", [[16], [-1]], "(1, 2), None, 'b,c'"),
        ("(\"it's\", 'R', ((007, 5),), ())", "it's", [[7, 5]], "()"),
        ("('a, b', 'R', ((16, 5),), (<class 'x'>, {'k': (1,)}))", "a, b", [[16, 5]], "(<class 'x'>, {'k': (1,)})"),
        ("('a', 'R', ((1234567890123, 5),), ())", "a", [[123456789012, 3, 5]], "()"),
        ("('a', 'R', (16, 5), ())", "a", [[16], [5]], "()"),
        ("('a', 'R', unknown, 'open)", "a", [], "'open"),
    ],
)
def test_a_key_is_taken_apart(key: str, op: str, shapes: list[list[int]], extras: str) -> None:
    entry = entry_of(key)
    assert entry is not None
    assert (entry.op, entry.shapes, entry.extras) == (op, shapes, extras)


@given(st.text(alphabet="(),'\"\\ab1-0 []<>", max_size=60))
def test_any_key_is_an_entry_or_unread(text: str) -> None:
    cache = parse_cache(json.dumps({"_metadata": {}, f"({text})": ["R", 3]}).encode(), "x")
    assert len(cache.entries) + len(cache.unread) == 1


def test_a_file_of_many_operations_takes_a_second_or_two() -> None:
    table = {f"('op{n}', 'R', (({n % 64 + 1}, {n}), (256,)), ())": ["R", n % 60] for n in range(COUNT)}
    data = json.dumps({"_metadata": {}, **table}).encode()
    start = time.process_time()
    cache = parse_cache(data, "x")
    covered = _coverage(cache.entries, [1, 8, 64, 8192], hybrid=True)
    assert time.process_time() - start < 4
    assert len(cache.entries) == len(covered) == COUNT
    assert covered[7] == Coverage(op="op7", runner="R", shape=[[7]], buckets=[8], missing={"1": 1, "64": 8, "8192": 8})


def test_keys_that_never_close_take_no_time() -> None:
    start = time.process_time()
    for text in (
        "(" * 9_000,
        "'" * 9_001,
        "\\'" * 4_000,
        "('a', 'R', (" + "(1), " * 3_000,
        "('a', 'R', " + "((" * 4_000,
    ):
        entry_of(f"({text})")
    assert time.process_time() - start < 2
