"""A plan as one HTML file: nothing is fetched, no script is needed or run, everything from outside is escaped.

The page says so itself: its Content-Security-Policy allows inline style and nothing else. Charts are drawn by
`tilewright.report.svg` from the series that the plan carries, so the page can be made from a kept plan.json too.
Static SVG instead of a chart library: it prints, reads with scripts off, and needs no policy that lets scripts run.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, Final

import msgspec
from markupsafe import Markup, escape

from tilewright._version import __version__
from tilewright.plan.engines import TITLES
from tilewright.plan.target import article
from tilewright.report.plan_text import (
    FIRST,
    UNLIKELY,
    blocking,
    finalize_rows,
    gain,
    hours,
    metric,
    number,
    tile_grid,
    variant_order,
)
from tilewright.report.svg.element import CONTROL, Chart, plain, tag
from tilewright.report.svg.scale import Linear

if TYPE_CHECKING:
    from jinja2 import Environment

    from tilewright.plan.finding import Finding, Gain, Plan

_CODE: Final = re.compile(r"(`+) ?(.+?) ?\1")
_STRONG: Final = re.compile(r"\*\*(.+?)\*\*")
_LINK: Final = re.compile(r"https://[A-Za-z0-9._~/?#@!$&'()*+;=%-]+[A-Za-z0-9_~/#=%-]")
_RANGE_WIDTH: Final = 168
_RANGE_HEIGHT: Final = 16


def prose(text: object) -> Markup:
    """A sentence of a plan: what stands in backticks as code, all else as it is."""
    escaped = str(escape(plain(text)))
    return Markup(_STRONG.sub(r"<strong>\1</strong>", _CODE.sub(r"<code>\2</code>", escaped)))


def source(text: object) -> Markup:
    """Where something was read, its web addresses as links."""
    line, out, place = plain(text), list[Markup](), 0
    for found in _LINK.finditer(line):
        out.append(escape(line[place : found.start()]))
        out.append(tag("a", found[0], href=found[0], rel="noreferrer"))
        place = found.end()
    return Markup("").join([*out, escape(line[place:])])


def shell(text: object) -> Markup:
    """A command whose words stay whole where a line ends, if they can; copied, it is the command."""
    return Markup(" ").join(tag("span", word, class_="w") if word else Markup("") for word in plain(text).split(" "))


def lines(text: object) -> str:
    """A text of several lines, each as `plain` has it but for its indentation."""
    return "\n".join(line[: len(line) - len(line.lstrip(" "))] + plain(line) for line in str(text).split("\n"))


def anchor(text: object) -> str:
    """A name for a link inside the page."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", plain(text))[:80]


def _charts(plan: Plan) -> Iterator[tuple[str, Chart | None]]:
    from tilewright.report.svg.budget import budget_chart
    from tilewright.report.svg.decode_step import decode_chart
    from tilewright.report.svg.expert_rows import expert_rows_chart
    from tilewright.report.svg.memory import memory_chart
    from tilewright.report.svg.roofline import roofline_chart
    from tilewright.report.svg.throughput import throughput_chart
    from tilewright.report.svg.tried import tried_chart

    base = plan.baseline
    series: dict[str, Any] = base.get("series") or {}
    moe: dict[str, Any] | None = base.get("moe_gemms")
    for index, tile in enumerate(base.get("tile_budgets") or []):
        yield f"budget-{index}", budget_chart(tile, f"budget-{index}")
    gemms: list[dict[str, Any]] = series.get("roofline") or []
    decode: list[dict[str, Any]] = series.get("decode_step") or []
    yield "roofline", roofline_chart(gemms, moe, "roofline")
    if moe:
        yield "expert_rows", expert_rows_chart(gemms, moe, "expert-rows")
    yield "decode_step", decode_chart(decode, "decode-step")
    yield "throughput", throughput_chart(series.get("throughput") or [], own_layout(plan), decode, "throughput")
    if base.get("memory"):
        yield "memory", memory_chart(base["memory"], "memory-of-a-gpu")
    yield "tried", tried_chart(base.get("tried") or [], "tried")


def own_layout(plan: Plan) -> str:
    """The plan's layout as the series name it."""
    layouts: dict[str, Any] = plan.baseline.get("layouts") or {}
    rows: list[dict[str, Any]] = layouts.get("rows") or []
    for row in rows:
        if row["yours"]:
            return str(row["name"])
    target = plan.target
    parts = [f"TP{target['tp']}"]
    parts += [f"{name.upper()}{target[name]}" for name in ("pp", "ep") if target[name] > 1]
    return " ".join(parts)


def gain_range(value: Gain, low: float, high: float) -> Markup:
    """The range of an expected gain as a bar between `low` and `high` percent; empty where no percentage is meant."""
    if value.expected is None:
        return Markup("")
    x = Linear(low, high, 4, _RANGE_WIDTH - 4)
    start = value.expected if value.low is None else value.low
    end = value.expected if value.high is None else value.high
    return tag(
        "svg",
        tag("line", x1=x(0), y1=0, x2=x(0), y2=_RANGE_HEIGHT, class_="axis"),
        tag("rect", x=x(start), y=4, width=max(1.0, x(end) - x(start)), height=8, class_="c0"),
        tag("circle", cx=x(value.expected), cy=8, r=4, class_="d0"),
        viewBox=f"0 0 {_RANGE_WIDTH} {_RANGE_HEIGHT}",
        aria_hidden="true",
    )


def _reach(findings: Iterable[Finding]) -> tuple[float, float]:
    """From the lowest to the highest gain that any finding has, 0 included."""
    ends = [
        value
        for item in findings
        for value in (item.gain.low, item.gain.expected, item.gain.high)
        if value is not None and item.gain.expected is not None
    ]
    low, high = min([0.0, *ends]), max([0.0, *ends])
    return (low, high) if high > low else (-1.0, 1.0)


def _clean(value: Any) -> Any:
    """Whatever an expression of the template gives, without what XML refuses."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return "\n".join(CONTROL.sub(" ", line) for line in value.split("\n"))
    return value


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    env = Environment(
        loader=PackageLoader("tilewright.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_clean,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Any] = {
        "n": number,
        "p": prose,
        "t": plain,
        "lines": lines,
        "shell": shell,
        "source": source,
        "anchor": anchor,
        "gain": gain,
        "metric": metric,
        "hours": hours,
    }
    env.filters |= filters  # pyright: ignore[reportUnknownMemberType]
    return env


def html(plan: Plan) -> str:
    """The whole plan as one HTML document, in UTF-8 (half a surrogate pair, as in odd file names, becomes `?`)."""
    # Rules put structs into the baseline; here it is what plan.json holds.
    plan = msgspec.structs.replace(plan, baseline=msgspec.to_builtins(plan.baseline))
    base = plan.baseline
    tiles: list[dict[str, Any]] = base.get("tiles") or []
    grid = tile_grid(tiles)
    low, high = _reach(plan.findings)
    name = plain(plan.target["gpu_name"])
    style = resources.files("tilewright.report").joinpath("plan.css").read_text(encoding="utf-8")
    charts = {key: chart for key, chart in _charts(plan) if chart is not None}
    page = (
        _environment()
        .get_template("plan.html.j2")
        .render(
            version=__version__,
            style=Markup(style),
            plan=plan,
            target=plan.target,
            base=base,
            charts=charts,
            budgets=[chart for key, chart in charts.items() if key.startswith("budget-")],
            ranges={item.rank: gain_range(item.gain, low, high) for item in plan.findings},
            first=[item for item in plan.findings if item.confidence >= UNLIKELY][:FIRST],
            blocked=[item for item in plan.findings if blocking(item)],
            grid=grid,
            variants=sorted({key for line in grid.values() for key in line}, key=variant_order),
            finalize=finalize_rows(tiles),
            engine=TITLES.get(plan.target["engine"], plan.target["engine"]),
            layout=own_layout(plan),
            one_gpu=f"{article(name or 'GPU')} {name}",
            overflow=next((item for item in plan.findings if item.id == "tactics_overflow"), None),
        )
    )
    return page.encode("utf-8", "replace").decode("utf-8")
