"""Rows that an expert gets against tokens in the batch: mean and band, beside the heights that a tile may have."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup

from tilewright.report.svg.element import WIDTH, Chart, joined, label, line, points, rect, said, svg, tag
from tilewright.report.svg.frame import Box, x_axis, y_axis
from tilewright.report.svg.scale import log_scale

_BOX: Final = Box(60, 40, WIDTH - 130, 270)
_TILES: Final = (128, 64, 32)
"""Rows of the tiles that CUTLASS has for grouped GEMMs; the plan says which of them a library compiles."""


def expert_rows_chart(series: list[dict[str, Any]], moe: dict[str, Any], ident: str) -> Chart | None:
    """The chart, or None where no GEMM of the series goes through experts."""
    banded = [
        (point["tokens"], point["band"])
        for item in series
        for point in item["points"]
        if point.get("band") and item["component"] == "experts_w13"
    ]
    means = [(row["tokens"], row["rows_per_expert"]) for row in moe["rows"] if row["rows_per_expert"] > 0]
    if len(banded) < 2 or len(means) < 2:
        return None
    box = _BOX
    x = log_scale([tokens for tokens, _ in means], box.left, box.right, 2)
    hit = [
        (row["tokens"], row["tokens"] * moe["topk"] / row["experts_hit"]) for row in moe["rows"] if row["experts_hit"]
    ]
    y = log_scale([1, *_TILES, *(rows for _, rows in hit)], box.bottom, box.top, 2, 1.1)
    parts: list[Markup] = [
        said(rect(box.left, y(64), box.right - box.left, y(16) - y(64), "band"), "16 to 64 tokens an expert"),
        x_axis(box, x, "tokens in the batch (logarithmic)"),
        y_axis(box, y, "rows of an expert that is hit"),
        label(box.left + 10, y(16) - 8, "16 to 64 tokens an expert", "name"),
    ]
    outline = [(x(tokens), y(band["high"])) for tokens, band in banded]
    outline += [(x(tokens), y(band["low"])) for tokens, band in reversed(banded)]
    parts.append(said(tag("polygon", points=points(outline), class_="spread f0"), "10th to 90th percentile"))
    for tile in _TILES:
        parts.append(line(box.left, y(tile), box.right, y(tile), "level"))
        parts.append(label(box.right + 8, y(tile) + 4, f"tile of {tile} rows", "tick"))
    curve = [(x(tokens), y(rows)) for tokens, rows in hit]
    parts.append(tag("polyline", points=points(curve), class_="curve l0"))
    used = {row["tokens"]: row["tile_used_pct"]["128"] for row in moe["rows"]}
    for tokens, rows in hit:
        dot = tag("circle", cx=x(tokens), cy=y(rows), r=3.5, class_="dot d0")
        parts.append(said(dot, f"{tokens:,} tokens: {rows:,.1f} rows an expert; {used[tokens]:g} % of a 128-row tile"))
    title = "Rows that an expert gets, and the tiles they have to fill"
    description = (
        f"{moe['experts']} experts on a GPU, top-{moe['topk']}, uniform routing. "
        + "; ".join(f"{tokens:,} tokens give {rows:,.1f} rows" for tokens, rows in hit)
        + "."
    )
    bands = {tokens: f"{band['low']:,.2f} to {band['high']:,.2f}" for tokens, band in banded}
    table = tuple((f"{tokens:,}", f"{rows:,.2f}", bands.get(tokens, ""), f"{used[tokens]:g} %") for tokens, rows in hit)
    columns = ("tokens", "rows of an expert that is hit", "10th to 90th percentile", "of a 128-row tile")
    return Chart(
        ident, title, description, svg(ident, title, description, box.bottom + 46, joined(parts)), columns, table
    )
