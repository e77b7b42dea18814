"""A figure with where it comes from: what every packaged data file is made of.

Kinds: `published` (somebody printed it), `measured` (somebody read it off a device or timed it), `derived` (arithmetic
on published figures; the note says which). A figure without a value is unknown, and is shown as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, Literal, cast

import msgspec

__all__ = ["UNKNOWN", "Figure", "FigureKind", "Rejected", "decode_figure", "decode_rejected", "read_packaged"]

FigureKind = Literal["published", "measured", "derived"]


@dataclass(frozen=True, slots=True)
class Rejected:
    """Another reading of the same figure that was not taken, and why."""

    value: Any
    source: str
    why: str


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure. `value` None means that nobody published it: unknown, never zero."""

    value: Any = None
    kind: FigureKind | None = None
    sources: tuple[str, ...] = ()
    note: str = ""
    rejected: tuple[Rejected, ...] = ()

    @property
    def known(self) -> bool:
        return self.value is not None

    @property
    def source(self) -> str:
        """The sources as one text, empty when the figure is unknown and nobody says why."""
        return "; ".join(self.sources)


UNKNOWN = Figure()


def decode_rejected(raw: list[dict[str, Any]], sources: list[str]) -> tuple[Rejected, ...]:
    """Rejected readings from their packaged form."""
    indices: list[int] = [item["source"] for item in raw]
    return tuple(Rejected(item["value"], sources[i], item["why"]) for item, i in zip(raw, indices, strict=True))


def decode_figure(raw: Mapping[str, Any], sources: list[str]) -> Figure:
    """A figure from its packaged form, in which sources are indices into `sources`."""
    indices = cast("list[int]", raw.get("sources", []))
    return Figure(
        value=raw.get("value"),
        kind=cast("FigureKind | None", raw.get("kind")),
        sources=tuple(sources[i] for i in indices),
        note=raw.get("note", ""),
        rejected=decode_rejected(raw.get("rejected", []), sources),
    )


def read_packaged(name: str) -> dict[str, Any]:
    """The packaged data file `name` as one JSON object. These files are ours: they hold what the builder wrote."""
    return cast("dict[str, Any]", msgspec.json.decode(files("tilewright.data").joinpath(name).read_bytes()))
