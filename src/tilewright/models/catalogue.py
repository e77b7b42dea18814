"""The model catalogue: packaged configs and checkpoints, read once, each model built when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, cast

from tilewright.data.figures import Figure, decode_figure, decode_rejected, read_packaged
from tilewright.models.checkpoint import Checkpoint, uniform_checkpoint
from tilewright.models.config import parse_model_config
from tilewright.models.quantisation import parse_quantisation
from tilewright.models.records import Model

__all__ = ["Entry", "build_model", "entries"]

# The catalogue's configs leave the dtype out: all of them are BF16 where nothing is quantised.
_DTYPE = {"torch_dtype": "bfloat16"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One model of the packaged file, not yet built."""

    key: str
    names: tuple[str, ...]
    """Key, other names and Hugging Face ids."""
    checkpoints: tuple[str, ...]
    raw: dict[str, Any]


@lru_cache(maxsize=1)
def _document() -> dict[str, Any]:
    return read_packaged("models.json")


@lru_cache(maxsize=1)
def entries() -> tuple[Entry, ...]:
    """Every model of the catalogue, in file order."""
    return tuple(
        Entry(
            raw["key"],
            (raw["key"], *raw["aliases"], *raw["hf_ids"]),
            tuple(item["name"] for item in cast("list[dict[str, Any]]", raw["checkpoints"])),
            raw,
        )
        for raw in cast("list[dict[str, Any]]", _document()["models"])
    )


def _layer_numbers(ranges: str) -> Iterator[int]:
    """The numbers in "0-2,6,10"."""
    for part in ranges.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _unpacked(patterns: list[Any]) -> list[str]:
    """Patterns with their layer ranges written out: ["model.layers.N.mlp", "0-1"] -> two patterns."""
    out: list[str] = []
    for item in patterns:
        if isinstance(item, str):
            out.append(item)
        else:
            template, ranges = item
            head, _, tail = str(template).partition(".N")
            out += [f"{head}.{number}{tail}" for number in _layer_numbers(str(ranges))]
    return out


def _checkpoint(raw: dict[str, Any], sources: list[str]) -> Checkpoint:
    index: int = raw["source"]
    source = sources[index]
    if "uniform" in raw:
        uniform = raw["uniform"]
        made = uniform_checkpoint(uniform["format"], uniform["quantised"], name=raw["name"], source=source)
    else:
        config = dict(raw["quantization"])
        for key in ("ignore", "modules_to_not_convert"):
            if key in config:
                config[key] = _unpacked(config[key])
        made = replace(parse_quantisation(config, raw["name"]), name=raw["name"], source=source)
    size = raw.get("size_gb")
    return replace(
        made,
        stored_gb=Figure(size, "published", (source,)) if size else None,
        has_mtp=raw.get("has_mtp", True),
        experts=raw.get("experts", 0),
        notes=(*made.notes, *raw.get("notes", ())),
    )


@lru_cache(maxsize=64)
def build_model(key: str) -> Model:
    """The catalogue's model of that key, with its native checkpoint. The key must be one of `entries()`."""
    raw = next(entry.raw for entry in entries() if entry.key == key)
    sources = cast("list[str]", _document()["sources"])
    index: int = raw["config_source"]
    source = sources[index]
    model = parse_model_config({**raw["config"], **_DTYPE}, key, name=key)
    hf_ids = tuple(raw["hf_ids"])
    made = [_checkpoint(item, sources) for item in cast("list[dict[str, Any]]", raw["checkpoints"])]
    # The model's own repository: a checkpoint that the list names, or the config itself.
    native = next((item for item in made if item.name in hf_ids), None)
    if native is None:
        native = replace(model.checkpoint, name=hf_ids[0], source=source)
        made.insert(0, native)
    return replace(
        model,
        hf_ids=hf_ids,
        source=source,
        config_sources={name: sources[i] for name, i in cast("dict[str, int]", raw.get("config_sources", {})).items()},
        published_total_b=decode_figure(raw["total_b"], sources) if "total_b" in raw else None,
        published_active_b=decode_figure(raw["active_b"], sources) if "active_b" in raw else None,
        checkpoint=native,
        checkpoints=tuple(made),
        rejected=decode_rejected(raw.get("rejected", []), sources),
        notes=(*raw.get("notes", ()), *model.notes),
    )
