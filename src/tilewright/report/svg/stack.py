"""A bar of parts that lie end to end, each as long as it is large: to scale, whatever the unit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tilewright.report.svg.element import FONT, label, rect, said, tag, text_width
from tilewright.report.svg.scale import Scale


@dataclass(frozen=True)
class Part:
    """One part: what a pointer is told, the short name that is written where there is room, and its colour class."""

    name: str
    short: str
    start: float
    size: float
    colour: str


def stack(parts: Sequence[Part], scale: Scale, y: float, height: float, low: float = float("-inf")) -> Markup:
    """The parts as far as they lie beyond `low`."""
    out = [
        said(rect(scale(start), y, scale(end) - scale(start), height, f"part {part.colour}"), part.name)
        for part, start, end in _seen(parts, low)
    ]
    return tag("g", *out)


def names(
    parts: Sequence[Part],
    scale: Scale,
    y: float,
    height: float,
    low: float = float("-inf"),
    over: float = float("inf"),
) -> Markup:
    """Short names inside the parts that have room for them; beyond `over`, where a pattern lies, with a halo."""
    out = [
        label(
            (scale(start) + scale(end)) / 2,
            y + height / 2 + 4,
            part.short,
            "inside halo" if end > over else "inside",
            "middle",
        )
        for part, start, end in _seen(parts, low)
        if part.short and text_width(part.short, FONT - 1) + 8 <= scale(end) - scale(start)
    ]
    return tag("g", *out)


def _seen(parts: Sequence[Part], low: float) -> list[tuple[Part, float, float]]:
    """Each part with what is to be seen of it: from where to where."""
    spans = [(part, max(part.start, low), part.start + part.size) for part in parts]
    return [span for span in spans if span[2] > span[1]]


def hatch(ident: str) -> Markup:
    """The pattern of what lies beyond a limit; used as `url(#ident)`."""
    stripe = tag("path", d="M0 8L8 0M-2 2L2 -2M6 10L10 6", class_="stripe")
    pattern = tag(
        "pattern",
        tag("rect", width=8, height=8, class_="stripe-ground"),
        stripe,
        id=ident,
        width=8,
        height=8,
        patternUnits="userSpaceOnUse",
    )
    return tag("defs", pattern)
