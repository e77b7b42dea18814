"""One GPU's memory to scale: its weights by part, what is left for cache and graphs, what the engine does not use."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup

from tilewright.report.svg.element import FONT, WIDTH, Chart, joined, label, line, said, svg, tag
from tilewright.report.svg.frame import COLOURS, legend
from tilewright.report.svg.scale import Linear
from tilewright.report.svg.stack import Part, hatch, names, stack

_END: Final = WIDTH - 4
_BAR: Final = 40
_SMALL: Final = 0.01
"""Parts below this share of the memory are drawn as one."""
GIB: Final = 1 << 30


def memory_chart(memory: dict[str, Any], ident: str) -> Chart:
    """The weights end to end, the line up to which the engine fills the GPU, and what lies past it."""
    total, usable = memory["total_bytes"], memory["weights_bytes"] + memory["left_bytes"]
    parts_in = [row for row in memory["parts"] if row["bytes"] > 0]
    large = [row for row in parts_in if row["bytes"] >= _SMALL * total][: COLOURS - 2]
    small = [row for row in parts_in if row not in large]
    entries = [(str(row["part"]), row["bytes"], str(row["format"] or "")) for row in large]
    if small:
        said_small = ", ".join(str(row["part"]) for row in small)
        entries.append(
            (said_small if len(small) < 4 else f"{len(small)} smaller parts", sum(r["bytes"] for r in small), "")
        )
    scale = Linear(0, max(total, memory["weights_bytes"]), 0, _END)
    drawn: list[Part] = []
    place = 0
    for index, (name, size, fmt) in enumerate(entries):
        told = f"{name}{f' ({fmt})' if fmt else ''}: {size / GIB:,.2f} GiB"
        drawn.append(Part(told, f"{size / GIB:,.1f} GiB", place, size, f"c{index % COLOURS}"))
        place += size
    left = memory["left_bytes"]
    if left > 0:
        drawn.append(
            Part(
                f"left for cache and graphs: {left / GIB:,.2f} GiB", f"{left / GIB:,.1f} GiB left", place, left, "free"
            )
        )
    edge = max(place + max(left, 0), usable)
    if total > edge:
        drawn.append(
            Part(
                f"not used by the engine: {(total - edge) / GIB:,.2f} GiB",
                f"{(total - edge) / GIB:,.1f}",
                edge,
                total - edge,
                "c7",
            )
        )
    top = 34
    over = memory["weights_bytes"] - usable
    marks: list[Markup] = [hatch(f"{ident}-hatch"), stack(drawn, scale, top, _BAR)]
    if over > 0:
        x = scale(usable)
        mark = tag(
            "rect",
            x=float(x),
            y=top,
            width=float(scale(memory["weights_bytes"]) - x),
            height=_BAR,
            fill=f"url(#{ident}-hatch)",
            class_="over",
        )
        marks.append(said(mark, f"{over / GIB:,.2f} GiB too many"))
    x = scale(usable)
    marks += [
        names(drawn, scale, top, _BAR, over=usable if over > 0 else float("inf")),
        line(x, top - 8, x, top + _BAR + 8, "limit"),
        label(
            x - 6 if x > WIDTH / 3 else x + 6,
            top - 14,
            f"the engine uses {usable / GIB:,.2f} of {total / GIB:,.2f} GiB",
            "bad" if over > 0 else "",
            "end" if x > WIDTH / 3 else "start",
        ),
    ]
    entries_drawn = [(part.colour, part.name.rpartition(":")[0]) for part in drawn]
    key, height = legend(entries_drawn, 0, top + _BAR + 18)
    marks.append(key)
    title = f"Memory of one GPU in {memory['layout']}, to scale"
    description = (
        f"{memory['weights_bytes'] / GIB:,.2f} GiB of weights of {usable / GIB:,.2f} that the engine uses: "
        + (f"{over / GIB:,.2f} GiB too many." if over > 0 else f"{left / GIB:,.2f} GiB left for cache and graphs.")
    )
    rows = tuple((name, fmt, f"{size:,}") for name, size, fmt in entries)
    return Chart(
        ident, title, description, svg(ident, title, description, top + _BAR + 18 + height + FONT + 8, joined(marks)),
        ("part", "format", "bytes"), (*rows, ("left for cache and graphs", "", f"{left:,}")),
    )  # fmt: skip
