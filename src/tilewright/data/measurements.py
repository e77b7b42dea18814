"""Published measurements: serving, kernels, collectives, power, each with its hardware, versions, date and source.

Rows keep the shape their source has: `table` with the meaning of its axes in `axes` and its unit in `unit`. A row's
`warning` says when it must not be taken at face value.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

from tilewright.data.figures import read_packaged
from tilewright.errors import UnknownNameError

__all__ = ["Measurement", "find_measurements", "measurement", "measurements"]


@dataclass(frozen=True, slots=True)
class Measurement:
    """One published measurement. `row` is all that the source gives, under the source's own keys."""

    id: str
    category: str
    source: str
    row: Mapping[str, Any]

    @property
    def unit(self) -> str:
        return str(self.row.get("unit", ""))

    @property
    def table(self) -> Any:
        return self.row.get("table")

    @property
    def date(self) -> str:
        return str(self.row.get("date", ""))

    @property
    def warning(self) -> str:
        """Why the row must not be taken at face value; empty when nothing speaks against it."""
        return str(self.row.get("warning") or self.row.get("caution") or "")

    def get(self, key: str, default: Any = None) -> Any:
        """Whatever else the row holds: model, gpu, n_gpu, engine, workload, ..."""
        return self.row.get(key, default)


@lru_cache(maxsize=1)
def measurements() -> tuple[Measurement, ...]:
    """All packaged measurements, in file order."""
    rows = cast("list[dict[str, Any]]", read_packaged("measurements.json")["measurements"])
    return tuple(Measurement(row["id"], row["category"], row["source"], row) for row in rows)


def measurement(name: str) -> Measurement:
    """The measurement with that id.

    Raises UnknownNameError when there is none.
    """
    for item in measurements():
        if item.id == name:
            return item
    raise UnknownNameError("measurement", name, [item.id for item in measurements()])


def find_measurements(
    *, model: str | None = None, gpu: str | None = None, category: str | None = None
) -> list[Measurement]:
    """Measurements whose model, GPU and category hold the given texts (case is ignored), in file order."""

    def holds(item: Measurement, key: str, wanted: str | None) -> bool:
        return wanted is None or wanted.lower() in str(item.row.get(key, "")).lower()

    return [
        item
        for item in measurements()
        if holds(item, "model", model) and holds(item, "gpu", gpu) and (category is None or item.category == category)
    ]
