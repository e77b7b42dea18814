"""The shared memory of a tile to scale, before and after each fix, with what lies past the limit in sight."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, cast

from markupsafe import Markup

from tilewright.report.svg.element import FONT, WIDTH, Chart, joined, label, line, said, svg, tag
from tilewright.report.svg.frame import legend
from tilewright.report.svg.scale import Linear
from tilewright.report.svg.stack import Part, hatch, names, stack

KINDS: Final = (
    ("operand A", "A", "c0"),
    ("operand B", "B", "c1"),
    ("scale factors and metadata", "scales", "c2"),
    ("epilogue tiles C and D", "C, D", "c3"),
    ("the fusion's vectors", "vectors", "c4"),
    ("barriers and scheduler", "barriers", "c5"),
    ("TMA descriptors", "descriptors", "c6"),
    ("alignment and rounding", "rounding", "c7"),
)
_END: Final = WIDTH - 84
"""Where the longest bar ends; its excess is written behind it."""
_BAR: Final = 26
_ROW: Final = 58
_ZOOM_WINDOW: Final = 4096
"""Bytes before the limit's end that the magnified strip shows at least."""
_ZOOM_BELOW: Final = 0.1
"""An excess above this share of the limit is seen without a magnifier."""


def kind(field: str) -> int:
    """Index into KINDS of a member of a kernel's SharedStorage."""
    if field == "padding":
        return 7
    if "tensormap" in field:
        return 6
    if field.startswith("mainloop.tensors"):
        return {"smem_A": 0, "smem_B": 1}.get(field.rpartition(".")[2], 2)
    if field.startswith("epilogue.tensors.collective"):
        return 3
    return 4 if field.startswith(("epilogue.tensors", "kernel.tensors.epilogue")) else 5


def _parts(state: dict[str, Any]) -> list[Part]:
    """Neighbours of one kind as one part, each told member by member."""
    out: list[Part] = []
    for item in state["segments"]:
        name, short, colour = KINDS[kind(item["field"])]
        told = f"{item['field']}: {item['bytes']:,} bytes at {item['offset']:,}"
        if out and out[-1].colour == colour:
            last = out[-1]
            size = last.size + item["bytes"]
            out[-1] = Part(f"{last.name}; {told}", f"{short} {size:,.0f}", last.start, size, colour)
        else:
            out.append(Part(f"{name}: {told}", f"{short} {item['bytes']:,}", item["offset"], item["bytes"], colour))
    return out


def _word(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(str, cast("list[Any]", value)))
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def change_text(change: dict[str, Any]) -> str:
    """`stages = 2`, as a fix is written."""
    return ", ".join(f"{key} = {_word(value)}" for key, value in change.items())


def _caption(state: dict[str, Any], limit: int) -> str:
    smem = state["smem_bytes"]
    room = f"{smem - limit:,} over" if smem > limit else f"{limit - smem:,} to spare"
    return f"{state['stages']} stages, {smem:,} bytes, {room}"


def _row(name: str, state: dict[str, Any], limit: int, scale: Linear, y: float, ident: str) -> list[Markup]:
    smem = state["smem_bytes"]
    over = smem > limit
    caption = tag("tspan", _caption(state, limit), dx=8)
    text = tag("text", tag("tspan", name, class_="strong"), caption, x=0, y=float(y - 7))
    parts = _parts(state)
    out = [text, stack(parts, scale, y, _BAR)]
    if over:
        left, right = scale(limit), scale(smem)
        mark = tag(
            "rect", x=float(left), y=float(y), width=float(right - left), height=_BAR, fill=f"url(#{ident}-hatch)",
            class_="over",
        )  # fmt: skip
        out.append(said(mark, f"{smem - limit:,} bytes past the limit of {limit:,}"))
        out.append(label(right + 6, y + _BAR / 2 + 5, f"+{smem - limit:,}", "bad strong"))
    return [*out, names(parts, scale, y, _BAR, over=limit)]


def _zoom(state: dict[str, Any], limit: int, scale: Linear, y: float, ident: str) -> list[Markup]:
    """The last bytes of the bar above, larger: which members lie past the limit."""
    smem = state["smem_bytes"]
    excess = smem - limit
    low = max(0, limit - max(_ZOOM_WINDOW, 3 * excess))
    wide = Linear(low, smem, scale(0) + 120, _END)
    top = y + 34
    lead = tag(
        "polygon",
        points=f"{scale(low):.2f},{y} {scale(smem):.2f},{y} {wide(smem):.2f},{top} {wide(low):.2f},{top}",
        class_="lead",
    )
    at = wide(limit)
    over = tag(
        "rect", x=float(at), y=float(top), width=float(wide(smem) - at), height=_BAR, fill=f"url(#{ident}-hatch)",
        class_="over",
    )  # fmt: skip
    factor = (wide(smem) - wide(low)) / (scale(smem) - scale(low))
    return [
        lead,
        stack(_parts(state), wide, top, _BAR, low),
        said(over, f"{excess:,} bytes past the limit of {limit:,}"),
        names(_parts(state), wide, top, _BAR, low, limit),
        line(at, top - 6, at, top + _BAR + 6, "limit"),
        label(0, top + _BAR / 2 + 5, f"{factor:.0f}x larger"),
        label(at - 5, top + _BAR + FONT + 5, f"limit {limit:,}", "bad", "end"),
        label(wide(smem), top + _BAR + FONT + 5, f"{smem:,}", "", "end"),
    ]


def budget_chart(tile: dict[str, Any], ident: str) -> Chart:
    """The bars of one tile: as it is compiled, then after each fix that the model verified."""
    limit, before = tile["limit_bytes"], tile["before"]
    after: Sequence[dict[str, Any]] = tile["after"]
    excess = before["smem_bytes"] - limit
    over = excess > 0
    states = [("as compiled" if over else "as it is", before)]
    states += [(change_text(state["change"]), state) for state in after]
    scale = Linear(0, max(limit, *(state["smem_bytes"] for _, state in states)), 0, _END)
    y = 58.0
    first = y
    parts: list[Markup] = [hatch(f"{ident}-hatch")]
    for index, (name, state) in enumerate(states):
        parts += _row(name, state, limit, scale, y, ident)
        y += _ROW
        if index == 0 and 0 < excess < _ZOOM_BELOW * limit:
            parts += _zoom(state, limit, scale, y - _ROW + _BAR, ident)
            y += 84
    x = scale(limit)
    segments_end = [first + _BAR, *([first + _ROW + 84 - 24] if y > first + _ROW * len(states) else [])]
    parts.append(line(x, 20, x, segments_end[0] + 4, "limit"))
    if len(states) > 1:
        parts.append(
            line(x, segments_end[-1] if len(segments_end) > 1 else first + _BAR, x, y - _ROW + _BAR + 4, "limit")
        )
    parts.append(label(x - 6, 14, f"a block may have {limit:,} bytes", "bad", "end"))
    used = {part.colour for _, state in states for part in _parts(state)}
    key, height = legend([(colour, name) for name, _, colour in KINDS if colour in used], 0, y - _ROW + _BAR + 22)
    parts.append(key)
    bottom = y - _ROW + _BAR + 22 + height + FONT + 8
    what = f"overflows by {excess:,} bytes" if over else f"fits with {-excess:,} bytes to spare"
    title = f"Shared memory of {tile['tactic']}, to scale"
    description = f"{before['stages']} stages take {before['smem_bytes']:,} bytes of {limit:,}: it {what}."
    if after:
        description += " After a fix: " + "; ".join(
            f"{change_text(state['change'])} takes {state['smem_bytes']:,}" for state in after
        ) + "."  # fmt: skip
    columns = ("", "stages", *(name for name, _, _ in KINDS), "in all", "limit")
    rows = tuple(
        (name, str(state["stages"]), *(f"{size:,}" for size in _sums(state)), f"{state['smem_bytes']:,}", f"{limit:,}")
        for name, state in states
    )
    return Chart(ident, title, description, svg(ident, title, description, bottom, joined(parts)), columns, rows)


def _sums(state: dict[str, Any]) -> list[int]:
    sums = [0] * len(KINDS)
    for item in state["segments"]:
        sums[kind(item["field"])] += item["bytes"]
    return sums
