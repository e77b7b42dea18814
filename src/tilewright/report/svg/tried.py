"""What experiments gave, from the journal: the change in percent with the spread of the measurement about it."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup

from tilewright.report.svg.element import FONT, WIDTH, Chart, joined, label, line, plain, rect, said, svg, tag
from tilewright.report.svg.frame import Box, x_axis
from tilewright.report.svg.scale import Linear

_ROW: Final = 50
_LEFT: Final = 10
MOST: Final = 20
"""Experiments that are drawn, the last ones; the table has all."""
LONGEST: Final = 90
_CLASS: Final = {"kept": "c2", "reverted": "c1", "inconclusive": "c7"}


def _short(text: object) -> str:
    line_ = plain(text)
    return line_ if len(line_) <= LONGEST else line_[: LONGEST - 1] + "…"


def tried_chart(rows: list[dict[str, Any]], ident: str) -> Chart | None:
    """The chart, or None where no experiment has a gain that can be told."""
    drawn = [row for row in rows if row["change_pct"] is not None][-MOST:]
    if not drawn:
        return None
    reach = [0.0] + [_for_better(row) + side * (row["spread_pct"] or 0.0) for row in drawn for side in (-1, 1)]
    room = max(1.0, (max(reach) - min(reach)) * 0.08)
    box = Box(_LEFT, 8, WIDTH - 90, 8 + _ROW * len(drawn))
    x = Linear(min(reach) - room, max(reach) + room, box.left, box.right)
    parts: list[Markup] = [x_axis(box, x, "change for the better, %")]
    parts.append(line(x(0), box.top, x(0), box.bottom, "axis"))
    for index, row in enumerate(drawn):
        parts += _row(row, box.top + index * _ROW, x)
    title = "Before and after: what was tried"
    description = "; ".join(f"{_told(row)}, {row['verdict']}" for row in drawn)
    table = tuple(
        (
            str(row["id"]), plain(row["change"]), plain(row["metric"]), f"{row['before']:,g}", f"{row['after']:,g}",
            row["gave"],
            "" if row["spread_pct"] is None else f"{row['spread_pct']:.1f} %", row["verdict"],
        )
        for row in rows
    )  # fmt: skip
    columns = ("#", "change", "metric", "before", "after", "gave", "spread", "verdict")
    drawing = svg(ident, title, description + ".", box.bottom + 2 * FONT + 20, joined(parts))
    return Chart(ident, title, description + ".", drawing, columns, table)


def _for_better(row: dict[str, Any]) -> float:
    """By how much the metric changed to the better: a latency that falls by 20 % by 20."""
    change: float = row["change_pct"]
    return change if row["better"] == "higher" else -change


def _told(row: dict[str, Any]) -> str:
    what = f"{row['before']:g} to {row['after']:g} {plain(row['metric'])}"
    return f"{plain(row['change'])}: {what}, {row['gave']}"


def _row(row: dict[str, Any], top: float, x: Linear) -> list[Markup]:
    gain, spread = _for_better(row), row["spread_pct"]
    left, right = sorted((x(0), x(gain)))
    middle = top + 34
    told = _told(row)
    out = [
        tag(
            "text",
            tag("tspan", _short(row["change"]), class_="strong"),
            tag("tspan", f"{row['before']:g} → {row['after']:g} {_short(row['metric'])}", dx=8),
            x=_LEFT + 4,
            y=float(top + 18),
            class_="halo",
        ),
        said(rect(left, middle - 8, max(right - left, 1.0), 16, f"part {_CLASS.get(row['verdict'], 'c7')}"), told),
    ]
    far = x(gain)
    if spread:
        low, high = x(gain - spread), x(gain + spread)
        out += [
            line(low, middle, high, middle, "whisker"),
            line(low, middle - 5, low, middle + 5, "whisker"),
            line(high, middle - 5, high, middle + 5, "whisker"),
        ]
        far = max(far, high)
    out.append(label(max(far, x(0)) + 8, middle + 5, f"{row['gave'].partition(':')[0]}, {row['verdict']}"))
    return out
