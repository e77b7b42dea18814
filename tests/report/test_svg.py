"""Charts: their marks are where the series say, to scale, and scales, labels and elements do what they promise."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans import document, tile_budget

from tilewright.report.svg.budget import budget_chart
from tilewright.report.svg.decode_step import decode_chart
from tilewright.report.svg.element import plain, tag
from tilewright.report.svg.expert_rows import expert_rows_chart
from tilewright.report.svg.memory import memory_chart
from tilewright.report.svg.roofline import band_intensities, roofline_chart
from tilewright.report.svg.scale import Linear, Log, log_scale, spread
from tilewright.report.svg.throughput import throughput_chart
from tilewright.report.svg.tried import tried_chart

SVG = "{http://www.w3.org/2000/svg}"


def _marks(chart: Any, kind: str, class_: str) -> list[tuple[str, ET.Element]]:
    """(what a pointer is told, mark) of every mark of that kind and class."""
    out: list[tuple[str, ET.Element]] = []
    for group in ET.fromstring(str(chart.svg)).iter(f"{SVG}g"):
        title = group.find(f"{SVG}title")
        mark = group.find(f"{SVG}{kind}")
        if title is not None and mark is not None and class_ in (mark.get("class") or "").split():
            out.append((title.text or "", mark))
    return out


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _wide(mark: ET.Element) -> float:
    return float(mark.get("width") or 0)


def test_a_tile_is_drawn_to_scale_with_its_overflow_past_the_limit() -> None:
    tile = tile_budget()
    chart = budget_chart(tile, "b")
    assert chart is not None
    limit, smem = tile["limit_bytes"], tile["before"]["smem_bytes"]
    assert (limit, smem) == (101_376, 102_400)
    rows: dict[str, list[tuple[str, ET.Element]]] = {}
    for text, mark in _marks(chart, "rect", "part"):
        rows.setdefault(mark.get("y") or "", []).append((text, mark))
    first, *others = rows.values()
    per_byte = [
        _wide(mark) / sum(_number(size) for size in re.findall(r": ([\d,]+) bytes at", text)) for text, mark in first
    ]
    assert per_byte == pytest.approx([per_byte[0]] * len(per_byte), abs=1e-3)
    assert sum(_wide(mark) for _, mark in first) == pytest.approx(smem * per_byte[0], rel=1e-3)
    after = [sum(_wide(mark) for _, mark in row) for row in others[1:]]  # others[0] is the magnified strip
    assert after == pytest.approx([state["smem_bytes"] * per_byte[0] for state in tile["after"]], rel=1e-3)
    over = [mark for text, mark in _marks(chart, "rect", "over") if text == "1,024 bytes past the limit of 101,376"]
    assert len(over) == 2  # in the bar, and larger below it
    assert _wide(over[0]) == pytest.approx(1_024 * per_byte[0], abs=1e-3)
    assert float(over[0].get("x") or 0) == pytest.approx(limit * per_byte[0], abs=1e-2)
    assert _wide(over[1]) > 10 * _wide(over[0])


def test_a_tile_that_fits_has_no_overflow() -> None:
    tile = tile_budget()
    tile["before"] = tile["after"][0]
    chart = budget_chart({**tile, "after": []}, "b")
    assert chart is not None
    assert not _marks(chart, "rect", "over")
    assert "fits with 26,624 bytes to spare" in chart.description


def test_the_bars_of_a_step_are_as_high_as_its_terms() -> None:
    series = document()["baseline"]["series"]["decode_step"]
    chart = decode_chart(series, "d")
    assert chart is not None
    heights = {text: float(mark.get("height") or 0) for text, mark in _marks(chart, "rect", "part")}
    assert len(heights) == sum(len(bar["terms"]) for bar in series)
    scale = max(heights.values()) / max(term["time_s"] for bar in series for term in bar["terms"])
    for bar in series:
        for term in bar["terms"]:
            key = f"{bar['concurrency']:,} requests, {term['name']}: {term['time_s'] * 1e3:,.2f} ms"
            assert heights[key] == pytest.approx(term["time_s"] * scale, abs=2e-3)
    limits = _marks(chart, "line", "limit")
    assert len(limits) == len(series)


def test_throughput_is_where_the_series_says() -> None:
    base = document()["baseline"]
    series = base["series"]["throughput"]
    chart = throughput_chart(series, "TP8", base["series"]["decode_step"], "t")
    assert chart is not None
    own = next(item for item in series if item["layout"] == "TP8")
    dots = [mark for text, mark in _marks(chart, "circle", "d0") if text.startswith("TP8, ") and "tok/s" in text]
    places = [float(mark.get("cy") or 0) for mark in dots]
    logs = [math.log(value) for value in own["tok_s"]]
    slope = (places[-1] - places[0]) / (logs[-1] - logs[0])
    assert slope < 0
    assert places == pytest.approx([places[0] + slope * (value - logs[0]) for value in logs], abs=0.01)
    steps = [float(mark.get("cx") or 0) for mark in dots]
    assert [b - a for a, b in pairwise(steps)] == pytest.approx([steps[1] - steps[0]] * (len(steps) - 1), abs=0.01)
    limit = [text for text, _ in _marks(chart, "circle", "ink")]
    for row in base["ceiling"]["rows"]:
        assert f"{row['concurrency']:,} requests: the hardware allows {row['limit_tok_s']:,.0f} tok/s" in limit
    assert len(chart.rows) == sum(len(item["tok_s"]) for item in series)


def test_the_roofline_has_every_gemm_on_its_roof() -> None:
    base = document()["baseline"]
    series, moe = base["series"]["roofline"], base["moe_gemms"]
    chart = roofline_chart(series, moe, "r")
    assert chart is not None
    dots = {text: float(mark.get("cx") or 0) for text, mark in _marks(chart, "circle", "dot")}
    assert len(chart.rows) == sum(len(item["points"]) for item in series)
    pairs: list[tuple[float, float]] = []
    for item in series:
        for point in item["points"]:
            start = f"{item['name']} ({item['n']:,} x {item['k']:,}), {point['tokens']:,} tokens: "
            place = next(x for text, x in dots.items() if text.startswith(start))
            pairs.append((math.log(point["intensity"]), place))
            roof = min(item["peak_tflops"], point["intensity"] * item["bandwidth_gbs"] / 1e3)
            assert point["attainable_tflops"] == pytest.approx(roof, rel=1e-6)
    low, high = min(pairs), max(pairs)
    slope = (high[1] - low[1]) / (high[0] - low[0])
    assert [place for _, place in pairs] == pytest.approx([low[1] + slope * (x - low[0]) for x, _ in pairs], abs=0.01)
    (_, start), (_, end) = band_intensities(moe)
    ((text, band),) = _marks(chart, "rect", "band")
    assert text.startswith("16 to 64 tokens an expert")
    assert _wide(band) == pytest.approx(slope * math.log(end / start), abs=0.02)


def test_a_latency_that_falls_is_drawn_to_the_better_side() -> None:
    row = {**document()["baseline"]["tried"][0], "better": "lower", "gave": "-50.0 %, better: lower is better"}
    better, worse = (tried_chart([{**row, "change_pct": change}], "j") for change in (-50.0, 50.0))
    assert better is not None
    assert "-50.0 %, better, kept" in better.svg
    higher = tried_chart([{**row, "better": "higher", "change_pct": 50.0}], "j")

    def bars(chart: Any) -> list[dict[str, str]]:
        return [bar.attrib for _, bar in _marks(chart, "rect", "c2")]

    assert len(bars(better)) == 1
    assert bars(better) == bars(higher)
    assert bars(better) != bars(worse)


def test_charts_need_figures() -> None:
    base = document()["baseline"]
    unknown = [{**item, "peak_tflops": None} for item in base["series"]["roofline"]]
    assert roofline_chart(unknown, None, "r") is None
    assert decode_chart([], "d") is None
    assert throughput_chart([], "TP8", [], "t") is None
    assert tried_chart([{**base["tried"][0], "change_pct": None}], "j") is None
    dense = [{**item, "points": [{**p, "band": None} for p in item["points"]]} for item in base["series"]["roofline"]]
    assert expert_rows_chart(dense, base["moe_gemms"], "e") is None


def test_a_gpu_that_is_too_small_shows_what_is_too_much() -> None:
    memory = document()["baseline"]["memory"]
    memory["left_bytes"] = -(10 << 30)
    chart = memory_chart(memory, "m")
    ((text, over),) = _marks(chart, "rect", "over")
    assert text == "10.00 GiB too many"
    weights = [mark for _, mark in _marks(chart, "rect", "part")]
    per_byte = _wide(weights[0]) / memory["parts"][0]["bytes"]
    assert _wide(over) == pytest.approx((10 << 30) * per_byte, abs=0.01)


def test_every_chart_is_named_for_those_who_do_not_see_it() -> None:
    base = document()["baseline"]
    chart = memory_chart(base["memory"], "m")
    root = ET.fromstring(str(chart.svg))
    assert root.get("role") == "img"
    ids = (root.get("aria-labelledby") or "").split()
    assert [root.find(f".//*[@id='{name}']").text for name in ids] == [chart.title, chart.description]  # type: ignore[union-attr]


# --- the parts ---

SANE = st.floats(1e-6, 1e9)


@given(SANE, SANE)
def test_linear_ticks_are_few_round_and_inside(one: float, other: float) -> None:
    low, high = min(one, other), max(one, other)
    ticks = Linear(low, high, 0, 100).ticks()
    assert 1 <= len(ticks) <= 14
    if high > low * 1.001:
        assert all(low - 1e-6 * high <= tick <= high + 1e-6 * high for tick in ticks)


@given(SANE, st.floats(1.01, 1e6), st.sampled_from([2, 10]))
def test_log_ticks_are_inside_and_at_even_steps(low: float, factor: float, base: int) -> None:
    scale = Log(low, low * factor, 0, 100, base)
    for tick in scale.ticks():
        assert -1e-3 <= scale(tick) <= 100 + 1e-3
    assert scale(low) == pytest.approx(0)


@given(st.lists(SANE, min_size=1, max_size=5))
def test_a_log_scale_holds_its_values(values: list[float]) -> None:
    scale = log_scale(values, 0, 100)
    assert all(-1e-6 <= scale(value) <= 100 + 1e-6 for value in values)


@given(st.lists(st.floats(0, 300), min_size=1, max_size=12))
def test_labels_keep_apart_and_inside(places: list[float]) -> None:
    moved = sorted(spread(places, 16, 0, 300))
    assert moved[0] >= -1e-6
    assert moved[-1] <= 300 + 1e-6
    assert all(b - a >= 16 - 1e-6 for a, b in pairwise(moved))


@given(st.text(), st.text())
def test_any_text_is_an_attribute_and_a_text(name: str, inner: str) -> None:
    element = ET.fromstring(str(tag("text", inner, class_=name, font_size=13)))
    assert element.get("font-size") == "13"
    assert " ".join((element.text or "").split()) == " ".join(plain(inner).split())
    assert " ".join((element.get("class") or "").split()) == " ".join(plain(name).split())
