"""The GPU catalogue: packaged records, read once and only when somebody asks."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, cast

from tilewright.data.figures import decode_figure, read_packaged
from tilewright.hardware.gpu import Gpu

__all__ = ["catalogue"]


@lru_cache(maxsize=1)
def catalogue() -> tuple[Gpu, ...]:
    """Every GPU of the catalogue, in file order. Limits of the architecture are part of each record."""
    raw = read_packaged("gpus.json")
    sources = cast("list[str]", raw["sources"])
    limits = {
        cc: {key: decode_figure(entry, sources) for key, entry in cast("dict[str, Any]", table).items()}
        for cc, table in cast("dict[str, Any]", raw["architectures"]).items()
    }
    return tuple(
        Gpu(
            key=entry["key"],
            name=entry["name"],
            compute_capability=entry["compute_capability"],
            figures={
                **limits[entry["compute_capability"]],
                **{key: decode_figure(item, sources) for key, item in cast("dict[str, Any]", entry["figures"]).items()},
            },
            aliases=tuple(entry["aliases"]),
            words=frozenset(entry["words"]),
            needs=tuple(frozenset(words) for words in entry["needs"]),
        )
        for entry in cast("list[dict[str, Any]]", raw["gpus"])
    )
