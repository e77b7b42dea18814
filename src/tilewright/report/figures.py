"""How figures with sources are shown: a table with numbered sources, then notes and the readings not taken."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tilewright.data.figures import Figure
from tilewright.report.output import Output

__all__ = ["SourceList", "figure_json", "figure_rows", "print_notes"]


class SourceList:
    """Sources numbered in the order they are first used."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, sources: Iterable[str]) -> str:
        return "".join(f"[{self._numbers.setdefault(source, len(self._numbers) + 1)}]" for source in sources)

    def print(self, out: Output) -> None:
        if self._numbers:
            out.line()
            out.heading("Sources")
            for source, number in self._numbers.items():
                out.line(f"  [{number}] {source}")


def figure_json(figure: Figure, unit: str = "") -> dict[str, Any]:
    """One figure for a JSON document. An unknown figure has the value null and no kind."""
    out: dict[str, Any] = {"value": figure.value, "kind": figure.kind, "sources": list(figure.sources)}
    if unit:
        out["unit"] = unit
    if figure.note:
        out["note"] = figure.note
    if figure.rejected:
        out["rejected"] = [{"value": item.value, "source": item.source, "why": item.why} for item in figure.rejected]
    return out


def figure_rows(
    figures: Mapping[str, Figure],
    label: Callable[[str], str],
    shown: Callable[[str, object], str],
    sources: SourceList,
) -> list[list[str]]:
    """Rows of label, value, kind and source numbers."""
    return [
        [label(key), shown(key, figure.value), figure.kind or "", sources.mark(figure.sources) if figure.known else ""]
        for key, figure in figures.items()
    ]


def print_notes(
    out: Output,
    figures: Mapping[str, Figure],
    label: Callable[[str], str],
    shown: Callable[[str, object], str],
    sources: SourceList,
) -> None:
    """What is said about the figures, and the readings of them that were not taken."""
    noted = {key: figure for key, figure in figures.items() if figure.note}
    if noted:
        out.line()
        out.heading("Notes")
        for key, figure in noted.items():
            out.line(f"  {label(key)}: {figure.note}")
    rejected = [(key, item) for key, figure in figures.items() for item in figure.rejected]
    if rejected:
        out.line()
        out.heading("Readings not taken")
        for key, item in rejected:
            out.line(f"  {label(key)}: {shown(key, item.value)} {sources.mark([item.source])}: {item.why}")
