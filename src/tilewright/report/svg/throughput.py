"""Throughput against the number of requests: yours and the best with their bounds, then every layout against yours."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup

from tilewright.report.svg.element import FONT, WIDTH, Chart, joined, label, points, said, svg, tag
from tilewright.report.svg.frame import COLOURS, Box, legend, x_axis, y_axis
from tilewright.report.svg.scale import Linear, Log, log_scale, spread

_UPPER: Final = Box(60, 36, WIDTH - 20, 300)
_LOWER: Final = Box(60, 410, WIDTH - 205, 640)
_GAP: Final = 16
"""Distance of the names at the ends of curves."""
_UNDER: Final = 28
"""Below the lower frame, for the axis' figures and name."""


def _curve(xs: list[float], ys: list[float], x: Log, y: Log | Linear, class_: str) -> Markup:
    return tag("polyline", points=points(zip(map(x, xs), map(y, ys), strict=True)), class_=class_)


def _spread(item: dict[str, Any], x: Log, y: Log, colour: int) -> Markup:
    upper = [(x(c), y(v)) for c, v in zip(item["concurrency"], item["high_tok_s"], strict=True)]
    lower = [(x(c), y(v)) for c, v in zip(item["concurrency"], item["low_tok_s"], strict=True)]
    return tag("polygon", points=points([*upper, *reversed(lower)]), class_=f"spread f{colour}")


def _limits(decode: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """(requests, tok/s that the hardware allows) of the plan's own layout."""
    return [(bar["concurrency"], bar["tok_s"] * bar["time_s"] / bar["limit_s"]) for bar in decode if bar.get("limit_s")]


def _dots(item: dict[str, Any], x: Log, y: Log, colour: int) -> list[Markup]:
    return [
        said(
            tag("circle", cx=x(count), cy=y(speed), r=3.5, class_=f"dot d{colour}"),
            f"{item['layout']}, {count:,} requests: {speed:,.0f} tok/s ({low:,.0f} to {high:,.0f})",
        )
        for count, speed, low, high in zip(
            item["concurrency"], item["tok_s"], item["low_tok_s"], item["high_tok_s"], strict=True
        )
    ]


def throughput_chart(series: list[dict[str, Any]], own: str, decode: list[dict[str, Any]], ident: str) -> Chart | None:
    """`own` names the plan's layout; where it is not among the series, the first one stands in for it."""
    shown = [item for item in series if item["concurrency"] and min(item["low_tok_s"]) > 0]
    if not shown:
        return None
    yours = next((item for item in shown if item["layout"] == own), shown[0])
    order = [yours, *(item for item in shown if item is not yours)]
    best = max(shown, key=lambda item: item["tok_s"][-1])
    limits = _limits(decode) if yours["layout"] == own else []
    x = log_scale(yours["concurrency"], _UPPER.left, _UPPER.right, 2)
    speeds = [value for item in (yours, best) for key in ("low_tok_s", "high_tok_s") for value in item[key]]
    y = log_scale([*speeds, *(value for _, value in limits)], _UPPER.bottom, _UPPER.top, room=1.1)
    parts = [
        x_axis(_UPPER, x, "requests at once (logarithmic)"),
        y_axis(_UPPER, y, "tok/s, all requests together (logarithmic)"),
    ]
    entries = [("k0", f"{yours['layout']}{', yours' if yours['layout'] == own else ''}: predicted, with its bounds")]
    if best is not yours:
        parts += [_spread(best, x, y, 1), _curve(best["concurrency"], best["tok_s"], x, y, "curve l1")]
        entries.append(("k1", f"{best['layout']}: best at {best['concurrency'][-1]:,}, with its bounds"))
    parts += [_spread(yours, x, y, 0), _curve(yours["concurrency"], yours["tok_s"], x, y, "curve l0")]
    if limits:
        parts.append(_curve([c for c, _ in limits], [v for _, v in limits], x, y, "curve dashed"))
        parts += [
            said(
                tag("circle", cx=x(c), cy=y(v), r=3, class_="dot ink"),
                f"{c:,} requests: the hardware allows {v:,.0f} tok/s",
            )
            for c, v in limits
        ]
        entries.append(("limit-swatch", "what the hardware allows in your layout"))
    if best is not yours:
        parts += _dots(best, x, y, 1)
    parts += _dots(yours, x, y, 0)
    key, _ = legend(entries, _UPPER.left, _UPPER.bottom + 48)
    parts.append(key)
    bottom = _UPPER.bottom + 90.0
    if len(order) > 1:
        parts += _ratios(order)
        bottom = _LOWER.bottom + _UNDER + FONT + 8
    title = "Throughput against requests, by layout"
    at = yours["concurrency"]
    description = (
        f"{yours['layout']}: "
        + ", ".join(f"{speed:,.0f} tok/s at {count:,}" for count, speed in zip(at, yours["tok_s"], strict=True))
        + (f"; best at {at[-1]:,}: {best['layout']} with {best['tok_s'][-1]:,.0f}." if best is not yours else ".")
    )
    rows = tuple(
        (item["layout"], f"{count:,}", f"{speed:,.1f}", f"{low:,.1f}", f"{high:,.1f}")
        for item in order
        for count, speed, low, high in zip(
            item["concurrency"], item["tok_s"], item["low_tok_s"], item["high_tok_s"], strict=True
        )
    )
    drawing = svg(ident, title, description, bottom, joined(parts))
    return Chart(ident, title, description, drawing, ("layout", "requests", "tok/s", "low", "high"), rows)


def _ratios(order: list[dict[str, Any]]) -> list[Markup]:
    """Every layout in percent of the first, at the numbers of requests that both have."""
    box, base = _LOWER, dict(zip(order[0]["concurrency"], order[0]["tok_s"], strict=True))
    curves: list[tuple[str, list[float], list[float]]] = []
    for item in order[:COLOURS]:
        pairs = [
            (count, speed / base[count] * 100)
            for count, speed in zip(item["concurrency"], item["tok_s"], strict=True)
            if count in base
        ]
        if pairs:
            curves.append((item["layout"], [count for count, _ in pairs], [share for _, share in pairs]))
    shares = [share for _, _, ys in curves for share in ys]
    x = log_scale(list(base), box.left, box.right, 2)
    low, high = min(shares), max(shares)
    room = max(2.0, (high - low) * 0.06)
    y = Linear(low - room, high + room, box.bottom, box.top)
    parts = [x_axis(box, x, "requests at once (logarithmic)"), y_axis(box, y, f"tok/s in % of {curves[0][0]}", " %")]
    ends = spread([y(ys[-1]) for _, _, ys in curves], _GAP, box.top - 8, box.bottom + 4)
    for index, (name, xs, ys) in enumerate(curves):
        parts.append(_curve(xs, ys, x, y, f"curve l{index}"))
        for count, share in zip(xs, ys, strict=True):
            dot = tag("circle", cx=x(count), cy=y(share), r=3, class_=f"dot d{index}")
            parts.append(said(dot, f"{name}, {count:,} requests: {share:,.1f} % of {curves[0][0]}"))
        parts.append(
            tag("line", x1=x(xs[-1]) + 4, y1=y(ys[-1]), x2=box.right + 20, y2=ends[index], class_=f"lead l{index}")
        )
        parts.append(label(box.right + 24, ends[index] + 4, name, f"t{index}"))
    return parts
