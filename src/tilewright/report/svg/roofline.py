"""The roofline of each GEMM, log-log: roofs by format, a strip a GEMM of where its batches fall, the experts' band."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup

from tilewright.report.svg.element import FONT, WIDTH, Chart, joined, label, line, plain, points, rect, said, svg, tag
from tilewright.report.svg.frame import COLOURS, Box, tick_text, x_axis, y_axis
from tilewright.report.svg.scale import Log, log_scale

_LEFT: Final = 232
_RIGHT: Final = WIDTH - 24
_TOP: Final = 46
_ROOF: Final = 270
"""Height of the upper frame."""
_STRIP: Final = 24
LONGEST: Final = 29
"""Letters of a GEMM's name that the margin holds."""
MOST: Final = 24
"""GEMMs that get a strip."""


def band_intensities(moe: dict[str, Any]) -> list[tuple[float, float]]:
    """(rows an expert, FLOP a byte) of the first MoE GEMM at the ends of the band of tokens per expert.

    Operations are 2 x tokens x topk x n x k; the bytes are the plan's.
    """
    w13: dict[str, Any] = moe["w13"]
    rows: list[dict[str, Any]] = moe.get("band") or []
    out: list[tuple[float, float]] = []
    for row in rows:
        flops = 2 * row["tokens"] * moe["topk"] * w13["n"] * w13["k"]
        if row["w13"]["mb"]:
            out.append((row["rows_per_expert"], flops / (row["w13"]["mb"] * 1e6)))
    return out


def _roofs(series: list[dict[str, Any]]) -> list[tuple[str, float, float]]:
    """(format, peak TFLOPS, GB/s), highest peak first; GEMMs whose rates are not known have none."""
    found = {
        (item["format"], item["peak_tflops"], item["bandwidth_gbs"])
        for item in series
        if item["peak_tflops"] and item["bandwidth_gbs"]
    }
    return sorted(found, key=lambda roof: (-roof[1], roof[0]))


def _known(item: dict[str, Any]) -> list[dict[str, Any]]:
    return [point for point in item["points"] if point["intensity"] > 0 and point["attainable_tflops"]]


def _colours(roofs: list[tuple[str, float, float]]) -> dict[str, int]:
    return {name: index % COLOURS for index, name in enumerate(dict.fromkeys(roof[0] for roof in roofs))}


def _upper(roofs: list[tuple[str, float, float]], colours: dict[str, int], x: Log, y: Log) -> list[Markup]:
    """The roofs with their names."""
    out: list[Markup] = []
    for name, peak, bandwidth in roofs:
        ridge = peak * 1e3 / bandwidth
        corners = [(x.low, x.low * bandwidth / 1e3), (min(ridge, x.high), min(peak, x.high * bandwidth / 1e3))]
        corners += [(x.high, peak)] if ridge < x.high else []
        shape = tag("polyline", points=points((x(a), y(b)) for a, b in corners), class_=f"curve l{colours[name]}")
        out.append(
            said(shape, f"{name}: {peak:,.0f} TFLOPS, {bandwidth:,.0f} GB/s, both meet at {ridge:,.0f} FLOP a byte")
        )
        if ridge < x.high:
            at = label(x(x.high) - 4, y(peak) - 7, f"{name} {peak:,.0f} TFLOPS", f"t{colours[name]}", "end")
            out.append(at)
    bandwidth = max(roof[2] for roof in roofs)
    mid = (x.low * (min(roof[1] for roof in roofs) * 1e3 / bandwidth)) ** 0.5
    out.append(label(x(mid) + 10, y(mid * bandwidth / 1e3) + 16, f"memory, {bandwidth:,.0f} GB/s", "tick"))
    return out


def _name(item: dict[str, Any]) -> str:
    """`shared experts gate_up_proj`, cut to what the margin holds."""
    component, own = plain(item["component"]).replace("_", " "), plain(item["name"])
    name = (
        component if component.endswith(own.replace("_", " ")) else f"{component} {own.removeprefix(component + '.')}"
    )
    return name if len(name) <= LONGEST else name[: LONGEST - 1] + "…"


def _strip(item: dict[str, Any], y: float, x: Log, colour: int) -> list[Markup]:
    """One GEMM: a dot a batch, the first and the last with their tokens."""
    known = _known(item)
    out = [label(_LEFT - 18, y + 4, _name(item), "tick", "end")]
    out.append(line(x(known[0]["intensity"]), y, x(known[-1]["intensity"]), y, f"thread l{colour}"))
    for point in known:
        dot = tag("circle", cx=x(point["intensity"]), cy=float(y), r=3.5, class_=f"dot d{colour}")
        band = point.get("band")
        rows = f", {band['mean']:,.1f} rows an expert ({band['low']:,.1f} to {band['high']:,.1f})" if band else ""
        out.append(
            said(
                dot,
                f"{item['name']} ({item['n']:,} x {item['k']:,}), {point['tokens']:,} tokens: "
                f"{point['intensity']:,.1f} FLOP a byte, at most {point['attainable_tflops']:,.1f} TFLOPS{rows}",
            )
        )
    first, last = known[0], known[-1]
    out.append(label(x(first["intensity"]) - 7, y + 4, f"{first['tokens']:,}", "tick", "end"))
    if x(last["intensity"]) - x(first["intensity"]) > 1:
        out.append(label(x(last["intensity"]) + 7, y + 4, f"{last['tokens']:,}", "tick"))
    return out


def _band(moe: dict[str, Any] | None, box: Box, x: Log, bottom: float) -> list[Markup]:
    """The shaded range of 16 to 64 tokens an expert, as far down as the strips go."""
    ends = band_intensities(moe) if moe else []
    if len(ends) < 2:
        return []
    (low_rows, low), (high_rows, high) = ends[0], ends[-1]
    left, right = x(low), x(high)
    rows = f"{low_rows:,.0f} to {high_rows:,.0f} tokens an expert"
    told = f"{rows}: {low:,.0f} to {high:,.0f} FLOP a byte of the first MoE GEMM"
    return [
        said(rect(left, box.top, right - left, bottom - box.top, "band"), told),
        label(
            (left + right) / 2, box.top - 7, f"{low_rows:,.0f} to {high_rows:,.0f} tokens an expert", "name", "middle"
        ),
    ]


def roofline_chart(series: list[dict[str, Any]], moe: dict[str, Any] | None, ident: str) -> Chart | None:
    """The chart, or None where no GEMM has known rates."""
    gemms = [item for item in series if _known(item)][:MOST]
    roofs = _roofs(gemms)
    if not roofs:
        return None
    ends = [intensity for _, intensity in (band_intensities(moe) if moe else [])]
    ridges = [peak * 1e3 / bandwidth for _, peak, bandwidth in roofs]
    places = [point["intensity"] for item in gemms for point in _known(item)]
    x = log_scale([*places, *ends, *ridges, max(ridges) * 2.5], _LEFT, _RIGHT, room=1.25)
    box = Box(_LEFT, _TOP, _RIGHT, _TOP + _ROOF)
    speeds = [x.low * max(roof[2] for roof in roofs) / 1e3, max(roof[1] for roof in roofs)]
    y = log_scale(speeds, box.bottom, box.top, room=1.35)
    colours = _colours(roofs)
    strips = box.bottom + 46
    bottom = strips + _STRIP * len(gemms)
    parts: list[Markup] = [*_band(moe, box, x, bottom - _STRIP / 2)]
    parts += [x_axis(box, x, "", texts=False), y_axis(box, y, "TFLOPS at most")]
    parts += _upper(roofs, colours, x, y)
    for item in gemms:
        for point in _known(item):
            colour = colours[item["format"]]
            parts.append(
                tag(
                    "circle", cx=x(point["intensity"]), cy=y(point["attainable_tflops"]), r=2.5, class_=f"dot d{colour}"
                )
            )
    lower = Box(_LEFT, strips - _STRIP / 2 - 4, _RIGHT, bottom - _STRIP / 2)
    parts.append(label(0, strips - _STRIP / 2 - 12, "each GEMM by tokens in the batch", "name"))
    parts.append(x_axis(lower, x, "operations a byte, FLOP (logarithmic)"))
    for index, item in enumerate(gemms):
        parts += _strip(item, strips + index * _STRIP + 4, x, colours[item["format"]])
    title = "What limits each GEMM: operations a byte against the roofs"
    named = "; ".join(f"{name} {peak:,.0f} TFLOPS at {bandwidth:,.0f} GB/s" for name, peak, bandwidth in roofs)
    tokens = [point["tokens"] for point in _known(gemms[0])]
    description = (
        f"Roofs: {named}. {len(gemms)} GEMMs at {tick_text(tokens[0])} to {tick_text(tokens[-1])} tokens; left of a "
        "roof's corner memory is the limit, right of it the tensor cores."
    )
    if ends:
        description += f" 16 to 64 tokens an expert lie at {ends[0]:,.0f} to {ends[-1]:,.0f} FLOP a byte."
    rows = tuple(
        (
            item["name"], item["format"], f"{item['n']:,} x {item['k']:,}", f"{point['tokens']:,}",
            f"{point['intensity']:,.2f}", f"{point['attainable_tflops']:,.2f}",
        )
        for item in gemms
        for point in _known(item)
    )  # fmt: skip
    columns = ("GEMM", "format", "N x K", "tokens", "FLOP a byte", "TFLOPS at most")
    drawing = svg(ident, title, description, bottom + 2 * FONT + 16, joined(parts))
    return Chart(ident, title, description, drawing, columns, rows)
