"""What charts have in common: a frame with ticks and names of its axes, and a legend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tilewright.report.svg.element import FONT, WIDTH, joined, label, line, rect, tag, text_width
from tilewright.report.svg.scale import Scale

SWATCH = 12
ROW = 20
COLOURS = 10
"""Colours that the page has (`--c0` ... `--c9`)."""


@dataclass(frozen=True)
class Box:
    """The inside of a frame, user units."""

    left: float
    top: float
    right: float
    bottom: float


def tick_text(value: float) -> str:
    """`2,048`, `0.5`, `25`: as short as it is right."""
    if value and abs(value) < 0.01:
        return f"{value:.1e}"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"


def x_axis(box: Box, scale: Scale, name: str, *, ticks: Sequence[float] | None = None, texts: bool = True) -> Markup:
    """Grid lines and figures along the bottom, its name under them."""
    parts: list[Markup] = []
    for value in scale.ticks() if ticks is None else ticks:
        x = scale(value)
        parts.append(line(x, box.top, x, box.bottom, "grid"))
        if texts:
            parts.append(label(x, box.bottom + FONT + 5, tick_text(value), "tick", "middle"))
    parts.append(line(box.left, box.bottom, box.right, box.bottom, "axis"))
    if name:
        parts.append(label((box.left + box.right) / 2, box.bottom + 2 * FONT + 13, name, "name", "middle"))
    return joined(parts)


def y_axis(box: Box, scale: Scale, name: str, suffix: str = "") -> Markup:
    """Grid lines and figures along the left, its name above them."""
    parts: list[Markup] = []
    for value in scale.ticks():
        y = scale(value)
        parts.append(line(box.left, y, box.right, y, "grid"))
        parts.append(label(box.left - 7, y + 4, tick_text(value) + suffix, "tick", "end"))
    parts.append(line(box.left, box.top, box.left, box.bottom, "axis"))
    parts.append(label(box.left - 7 if len(name) < 5 else 4, box.top - 12, name, "name"))
    return joined(parts)


def swatch(x: float, y: float, colour: str, name: str) -> Markup:
    """A square of a colour class with its name."""
    return joined([rect(x, y - SWATCH + 2, SWATCH, SWATCH, colour), label(x + SWATCH + 6, y + 1, name)])


def legend(
    entries: Sequence[tuple[str, str]], left: float, top: float, right: float = WIDTH - 8
) -> tuple[Markup, float]:
    """Swatches (class, name) in as many lines as they need; and the height of those."""
    parts: list[Markup] = []
    x, y = left, top + SWATCH
    for colour, name in entries:
        wide = SWATCH + 6 + text_width(name) + 22
        if x > left and x + wide > right:
            x, y = left, y + ROW
        parts.append(swatch(x, y, colour, name))
        x += wide
    return tag("g", *parts, class_="legend"), y + ROW - top - SWATCH
