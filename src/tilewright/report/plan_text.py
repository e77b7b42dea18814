"""A plan as Markdown: `plan.md.j2` filled from a `Plan`. Numbers get their separators and units here, nothing else is
added: what is printed is in the plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright._version import __version__
from tilewright.plan.engines import TITLES
from tilewright.plan.target import article

if TYPE_CHECKING:
    from jinja2 import Environment

    from tilewright.plan.finding import Finding, Gain, Plan

FIRST = 3
"""Findings that the first screen shows."""
UNLIKELY = 0.2
"""Confidence below which a finding stands in the table, but is nothing to do first."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SPECIAL = re.compile(r"([\\`\[\]<>|])")


def clean(text: object) -> str:
    """`text` on one line, without control characters."""
    return _CONTROL.sub(" ", str(text)).strip()


def cell(text: object) -> str:
    """Our own text inside a table cell."""
    return clean(text).replace("|", "\\|")


def foreign(text: object) -> str:
    """Text from outside (names, log lines): nothing in it may act as Markdown or HTML."""
    return _SPECIAL.sub(r"\\\1", clean(text))


def code(text: object) -> str:
    """`text` as inline code, whatever is in it."""
    line = clean(text)
    longest = max((len(run) for run in re.findall(r"`+", line)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def number(value: object, digits: int | None = None) -> str:
    """A figure with thousands separators, `unknown` where there is none."""
    if value is None:
        return "unknown"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return clean(value)
    if digits is not None:
        return f"{value:,.{digits}f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,g}"


def gain(value: Gain) -> str:
    """`+1 % (0 to +6), published`, or the metric alone where no percentage is meant."""
    if value.expected is None:
        span = f"up to {value.high:+.0f} %, " if value.high is not None else ""
        return f"{span}{value.basis}"
    low = value.expected if value.low is None else value.low
    high = value.expected if value.high is None else value.high
    if low == high:
        return f"{value.expected:+.0f} %, {value.basis}"
    return f"{value.expected:+.0f} % ({low:+.0f} to {high:+.0f}), {value.basis}"


def metric(value: Gain) -> str:
    """What the gain is a gain in, without its unit."""
    return value.metric.removesuffix(", %")


def hours(value: float) -> str:
    return f"{value:g} h" if value >= 1 else f"{value * 60:.0f} min"


def tile_grid(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, str]]:
    """Tile -> variant -> `bytes (stages)`, overflows marked: one line a tile instead of one a tactic."""
    grid: dict[str, dict[str, str]] = {}
    for row in rows:
        variant = ("finalize" if row["fusion"] == "finalize" else "no fusion") + (", swap_ab" if row["swap_ab"] else "")
        if row["smem_bytes"] is None:
            text = row["status"]
        else:
            text = f"{row['smem_bytes']:,} ({row['stages']})"
            if row["status"] != "fits":
                text = f"**{text} {'over' if row['status'] == 'overflow' else row['status']}**"
        grid.setdefault(row["tile"], {})[variant] = text
    return grid


def variant_order(name: str) -> tuple[bool, bool]:
    """Sorts variants of a tile: without fusion first, then without swap."""
    return "finalize" in name, "swap" in name


def finalize_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows of the not-swapped finalize fusion: where the limit is met."""
    return [row for row in rows if row["fusion"] == "finalize" and not row["swap_ab"]]


def blocking(finding: Finding) -> bool:
    """Whether the server does not start without it."""
    return finding.gain.metric.startswith("the server starts") and "if it did not" not in finding.gain.metric


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    env = Environment(
        loader=PackageLoader("tilewright.report", "."),
        autoescape=False,  # Markdown: what comes from outside passes `foreign` or `code`
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    filters: dict[str, Callable[..., str]] = {
        "n": number,
        "cell": cell,
        "foreign": foreign,
        "code": code,
        "gain": gain,
        "metric": metric,
        "hours": hours,
        "clean": clean,
    }
    env.filters |= filters  # pyright: ignore[reportUnknownMemberType]
    return env


def markdown(plan: Plan) -> str:
    """The whole plan as Markdown."""
    base = plan.baseline
    tiles: list[dict[str, Any]] = base.get("tiles") or []
    grid = tile_grid(tiles)
    text = (
        _environment()
        .get_template("plan.md.j2")
        .render(
            version=__version__,
            plan=plan,
            target=plan.target,
            base=base,
            first=[item for item in plan.findings if item.confidence >= UNLIKELY][:FIRST],
            blocked=[item for item in plan.findings if blocking(item)],
            grid=grid,
            variants=sorted({name for line in grid.values() for name in line}, key=variant_order),
            finalize=finalize_rows(tiles),
            engine=TITLES[plan.target["engine"]],
            one_gpu=f"{article(plan.target['gpu_name'])} {plan.target['gpu_name']}",
            overflow=next((item for item in plan.findings if item.id == "tactics_overflow"), None),
        )
    )
    return re.sub(r"\n{3,}", "\n\n", text)
