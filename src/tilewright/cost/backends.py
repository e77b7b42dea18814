"""Which backends there are, of which family, and which one is meant: a registry kept as data.

A backend is called by the name of its kernel table, by the name of its family ("cutlass", "marlin"), or not at all:
then the one that engines take for that format on the reference GPU is meant.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import msgspec

from tilewright.data.figures import read_packaged
from tilewright.errors import UnknownNameError

__all__ = [
    "Backend",
    "Published",
    "backends",
    "families_of",
    "grouped_routing",
    "is_gated",
    "keeps_rows",
    "usual_backend",
]


class Published(msgspec.Struct, frozen=True):
    """Served tokens a second of a model with this backend and with its reference, at as many tokens a step."""

    tokens: list[int]
    tok_s: list[float]
    reference_tok_s: list[float]
    layers: int
    shape: dict[str, int]


class Backend(msgspec.Struct, frozen=True):
    """One backend. `relative_to`: it has no table of its own and is known only by the difference to another one."""

    name: str
    op: str
    family: str
    engine: str
    usual_for: list[str] = []
    gated: bool = True
    grouped_top_k: bool = False
    keeps_rows: bool = False
    """Whether it computes all of a batch's rows whatever the expert-parallel ways, as its table shows."""
    dtypes: list[str] = []
    relative_to: str | None = None
    relative_dtype: str | None = None
    published: Published | None = None
    spread: float = 2.0
    source: str = ""


@lru_cache(maxsize=1)
def _registry() -> tuple[dict[tuple[str, str], Backend], list[dict[str, int]], dict[str, str]]:
    raw = read_packaged("kernel_backends.json")
    found = msgspec.convert(raw["backends"], list[Backend])
    return {(item.op, item.name): item for item in found}, raw["grouped_top_k"], raw["aliases"]


def backends() -> dict[tuple[str, str], Backend]:
    """Every registered backend by (operation, name)."""
    return _registry()[0]


@lru_cache(maxsize=256)
def is_gated(backend: str) -> bool:
    """Whether the layer has a gate beside the up projection (SwiGLU): two thirds of its weights in the first GEMM."""
    found = backends().get(("moe", backend))
    return found.gated if found is not None else "nongated" not in backend


@lru_cache(maxsize=256)
def keeps_rows(backend: str) -> bool:
    """Whether a rank computes the rows of the others' experts too."""
    found = backends().get(("moe", backend))
    return found is not None and found.keeps_rows


@lru_cache(maxsize=4096)
def grouped_routing(backend: str, hidden: int, topk: int, experts: int) -> tuple[int, int] | None:
    """(groups, kept) when that backend was measured with the model's own grouped top-k router, else None."""
    found = backends().get(("moe", backend))
    if found is None or not found.grouped_top_k:
        return None
    for row in _registry()[1]:
        if row["hidden"] == hidden and row["topk"] == topk and row["experts"] == experts:
            return row["groups"], row["kept"]
    return None


def families_of(name: str) -> str | None:
    """The family that `name` means, or None."""
    return _registry()[2].get(name.lower())


_ENGINE_ORDER: Final = {"sglang": 0, "vllm": 1, "trtllm": 2}


def usual_backend(op: str, dtype: str, known: list[str], family: str | None = None) -> str:
    """Of the backends `known` for that format, the usual one (of `family`).

    Raises UnknownNameError when none is of that family."""
    registry = backends()
    rows = [(name, registry.get((op, name))) for name in known]
    if family is not None:
        rows = [(name, item) for name, item in rows if item is not None and item.family == family]
        if not rows:
            raise UnknownNameError("backend", family, known)

    def rank(row: tuple[str, Backend | None]) -> tuple[int, int, str]:
        name, item = row
        if item is None:
            return 2, 9, name
        return 0 if dtype in item.usual_for else 1, _ENGINE_ORDER.get(item.engine, 3), name

    return min(rows, key=rank)[0]
