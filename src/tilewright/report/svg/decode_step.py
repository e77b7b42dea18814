"""A decode step broken into its terms, one stacked bar for each number of requests, with what the hardware allows."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup

from tilewright.report.svg.element import FONT, WIDTH, Chart, joined, label, line, rect, said, svg, tag
from tilewright.report.svg.frame import COLOURS, Box, legend, y_axis
from tilewright.report.svg.scale import Linear

_BOX: Final = Box(60, 40, WIDTH - 10, 370)
_SMALL: Final = 0.03
"""A term that is below this share of every bar is drawn with the other small ones."""


def _kept(series: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """(key, name) of the terms that get a colour, largest first."""
    share: dict[str, float] = {}
    names: dict[str, str] = {}
    for bar in series:
        for term in bar["terms"]:
            names[term["key"]] = term["name"]
            share[term["key"]] = max(
                share.get(term["key"], 0.0), term["time_s"] / bar["time_s"] if bar["time_s"] else 0.0
            )
    large = sorted((key for key, value in share.items() if value >= _SMALL), key=lambda key: -share[key])
    return [(key, names[key]) for key in large[: COLOURS - 1]]


def decode_chart(series: list[dict[str, Any]], ident: str) -> Chart | None:
    """The chart, or None without a bar."""
    bars = [bar for bar in series if bar["time_s"] > 0]
    if not bars:
        return None
    kept = _kept(bars)
    colours = {key: index for index, (key, _) in enumerate(kept)}
    others = dict.fromkeys(term["name"] for bar in bars for term in bar["terms"] if term["key"] not in colours)
    box = _BOX
    y = Linear(0, max(bar["time_s"] for bar in bars) * 1e3 * 1.06, box.bottom, box.top)
    step = (box.right - box.left) / len(bars)
    wide = min(70.0, step * 0.62)
    parts: list[Markup] = [y_axis(box, y, "ms a step")]
    for index, bar in enumerate(bars):
        middle = box.left + (index + 0.5) * step
        parts += _bar(bar, middle, wide, y, colours)
        parts.append(label(middle, box.bottom + FONT + 5, f"{bar['concurrency']:,}", "tick", "middle"))
    parts.append(line(box.left, box.bottom, box.right, box.bottom, "axis"))
    parts.append(label((box.left + box.right) / 2, box.bottom + 2 * FONT + 13, "requests at once", "name", "middle"))
    entries = [(f"c{colours[key]}", name) for key, name in kept]
    if others:
        entries.append((f"c{COLOURS - 1}", ", ".join(others)))
    if any(bar["limit_s"] for bar in bars):
        entries.append(("limit-swatch", "what the hardware allows"))
    key, height = legend(entries, box.left, box.bottom + 54)
    parts.append(key)
    title = "One decode step by its terms"
    description = "; ".join(
        f"{bar['concurrency']:,} requests: {bar['time_s'] * 1e3:,.1f} ms, most of it {_largest(bar)}" for bar in bars
    )
    names = dict.fromkeys(term["name"] for bar in bars for term in bar["terms"])
    rows = tuple(
        (
            f"{bar['concurrency']:,}",
            *(f"{_times(bar).get(name, 0.0) * 1e3:,.2f}" for name in names),
            f"{bar['time_s'] * 1e3:,.2f}",
            f"{bar['limit_s'] * 1e3:,.2f}" if bar["limit_s"] else "",
        )
        for bar in bars
    )
    columns = ("requests", *(f"{name}, ms" for name in names), "step, ms", "hardware limit, ms")
    drawing = svg(ident, title, description + ".", box.bottom + 54 + height + FONT + 10, joined(parts))
    return Chart(ident, title, description + ".", drawing, columns, rows)


def _times(bar: dict[str, Any]) -> dict[str, float]:
    return {term["name"]: term["time_s"] for term in bar["terms"]}


def _largest(bar: dict[str, Any]) -> str:
    return max(bar["terms"], key=lambda term: term["time_s"])["name"] if bar["terms"] else "unknown"


def _bar(bar: dict[str, Any], middle: float, wide: float, y: Linear, colours: dict[str, int]) -> list[Markup]:
    order = sorted(bar["terms"], key=lambda term: colours.get(term["key"], COLOURS))
    out: list[Markup] = []
    base = 0.0
    for term in order:
        ms = term["time_s"] * 1e3
        colour = colours.get(term["key"], COLOURS - 1)
        mark = rect(middle - wide / 2, y(base + ms), wide, y(base) - y(base + ms), f"part c{colour}")
        out.append(said(mark, f"{bar['concurrency']:,} requests, {term['name']}: {ms:,.2f} ms"))
        base += ms
    total = bar["time_s"] * 1e3
    out.append(label(middle, y(total) - 6, f"{total:,.1f}", "strong", "middle"))
    if bar["limit_s"]:
        limit = bar["limit_s"] * 1e3
        mark = line(middle - wide / 2 - 6, y(limit), middle + wide / 2 + 6, y(limit), "limit")
        out.append(said(mark, f"{bar['concurrency']:,} requests: the hardware allows {limit:,.2f} ms"))
    return [tag("g", *out)]
