"""SVG elements as escaped text: what is not markup already is escaped, so no name can become an element."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH = 960
"""Width of every chart in user units; the page scales it, at most 1:1."""
FONT = 13
"""Height of the text, user units."""
_GLYPH = 0.56
"""Mean width of a glyph of a sans-serif font, in ems: enough to tell whether a label has room."""
CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]+")
"""What XML does not take, and what turns the direction of the text after it."""


@dataclass(frozen=True)
class Chart:
    """A drawing with what it shows in words and its figures as a table (for readers, printers and copying)."""

    id: str
    title: str
    description: str
    svg: Markup
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def plain(text: object) -> str:
    """`text` on one line, without what XML refuses and without marks that turn the direction of what follows."""
    return CONTROL.sub(" ", str(text)).strip()


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return plain(value)


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """`<name ...>children</name>`; `class_` and `font_size` become `class` and `font-size`, None is left out."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inner = "".join(str(escape(child if isinstance(child, Markup) else plain(child))) for child in children)
    return Markup(f"<{name}{given}>{inner}</{name}>" if inner else f"<{name}{given}/>")


def joined(parts: Iterable[Markup]) -> Markup:
    """Markup after markup."""
    return Markup("\n").join(parts)


def said(mark: Markup, text: str) -> Markup:
    """A group of a mark and what a pointer over it is told."""
    return tag("g", tag("title", text), mark)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=class_)


def rect(x: float, y: float, width: float, height: float, class_: str) -> Markup:
    return tag("rect", x=float(x), y=float(y), width=float(max(0.0, width)), height=float(height), class_=class_)


def label(x: float, y: float, text: object, class_: str = "", anchor: str = "start") -> Markup:
    """Text whose baseline is at `y`."""
    return tag("text", text, x=float(x), y=float(y), class_=class_ or None, text_anchor=anchor)


def points(pairs: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in pairs)


def text_width(text: str, size: float = FONT) -> float:
    """About how wide `text` is, user units."""
    return len(text) * _GLYPH * size


def svg(ident: str, title: str, description: str, height: float, *children: Markup) -> Markup:
    """The drawing, named for a screen reader."""
    return tag(
        "svg",
        tag("title", title, id=f"{ident}-title"),
        tag("desc", description, id=f"{ident}-desc"),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_labelledby=f"{ident}-title {ident}-desc",
        font_size=FONT,
    )
