"""Wrong claims that circulate, and who meets them: `data/claims.json`, its figures computed when the plan is made."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import msgspec

from tilewright.plan.finding import Claim, Evidence, Kind
from tilewright.triton_.tile import fused_moe_bytes
from tilewright.versions import within


class TritonTile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    block_m: int
    block_n: int
    block_k: int
    bytes: int
    stages: int


class Figure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one figure is computed: `fit` of a config and a key (or field) of its budget, a Triton tile, or a figure of
    a GPU ("target": the one that the plan is for). `per_stage` divides by the stages, `minus` subtracts other keys."""

    fit: dict[str, Any] | None = None
    key: str | None = None
    field: str | None = None
    per_stage: bool = False
    minus: list[str] = []
    triton: TritonTile | None = None
    gpu: str | None = None


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who meets a claim; every condition given must hold. `formats`: some large matrix of the model is stored in
    one of them; `experts`: its routed experts are. `pcie` true: no NVLink between the GPUs."""

    arch: list[str] | None = None
    formats: list[str] | None = None
    experts: list[str] | None = None
    moe: bool | None = None
    dense_quantised: bool | None = None
    library: str | None = None
    engine: str | None = None
    engine_versions: str | None = None
    gpus_min: int = 1
    pcie: bool | None = None
    smem_below: int | None = None


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: str
    claim: str
    refutation: str
    source: str
    figures: dict[str, Figure] = {}
    when: When = When()


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    claims: list[Entry]


@dataclass(frozen=True, kw_only=True)
class Reader:
    """What of a plan's target decides which claims its reader meets."""

    arch: str
    formats: frozenset[str]
    experts: str | None
    moe: bool
    dense_quantised: bool
    library: str | None
    engine: str | None
    engine_version: str | None
    gpus: int
    pcie: bool
    smem_optin: int | None
    smem_per_sm: int | None


@cache
def entries() -> list[Entry]:
    """Every claim, in file order."""
    raw = resources.files("tilewright.data").joinpath("claims.json").read_bytes()
    return msgspec.json.decode(raw, type=_File).claims


def meets(when: When, reader: Reader) -> bool:
    """Whether `reader` meets a claim with these conditions."""
    checks = (
        when.arch is None or reader.arch in when.arch,
        when.formats is None or bool(reader.formats.intersection(when.formats)),
        when.experts is None or reader.experts in when.experts,
        when.moe is None or reader.moe == when.moe,
        when.dense_quantised is None or reader.dense_quantised == when.dense_quantised,
        when.library is None or reader.library == when.library,
        when.engine is None or reader.engine == when.engine,
        within(reader.engine_version, when.engine_versions) is not False,
        reader.gpus >= when.gpus_min,
        when.pcie is None or reader.pcie == when.pcie,
        when.smem_below is None or (reader.smem_optin is not None and reader.smem_optin < when.smem_below),
    )
    return all(checks)


@lru_cache(maxsize=256)
def _budget(config: bytes) -> Any:
    from tilewright.cutlass.config import parse_config
    from tilewright.cutlass.fit import fit

    return fit(parse_config(msgspec.json.decode(config)))


def _of_budget(figure: Figure) -> int:
    budget = _budget(msgspec.json.encode(figure.fit))
    if figure.field is not None:
        value = next(item.bytes for item in budget.fields if item.path == figure.field)
    elif figure.key in ("epilogue_tile_m", "epilogue_tile_n"):
        value = budget.epilogue_tile[0 if figure.key.endswith("m") else 1]
    else:
        value = getattr(budget, figure.key or "")
    value -= sum(getattr(budget, name) for name in figure.minus)
    return value // budget.stages if figure.per_stage else value


def _of_gpu(figure: Figure, reader: Reader) -> int | None:
    if figure.gpu == "target":
        return reader.smem_optin if figure.key == "smem_optin" else reader.smem_per_sm
    from tilewright.hardware.names import resolve_gpu

    return resolve_gpu(figure.gpu or "").smem_optin_bytes


def figure_value(figure: Figure, reader: Reader) -> int | None:
    """The figure in bytes (or stages); None where the GPU's record does not have it."""
    if figure.triton is not None:
        tile = figure.triton
        return fused_moe_bytes(tile.block_m, tile.block_n, tile.block_k, tile.bytes, tile.stages)
    if figure.fit is not None:
        return _of_budget(figure)
    return _of_gpu(figure, reader)


def refute(entry: Entry, reader: Reader) -> Claim:
    """The claim with its refutation, every figure in it computed now."""
    values = {name: figure_value(figure, reader) for name, figure in entry.figures.items()}
    shown = {name: "an unknown number of" if value is None else f"{value:,}" for name, value in values.items()}
    exact = any(figure.fit or figure.triton for figure in entry.figures.values())
    kind: Kind = "exact" if exact else "published"
    text = entry.refutation.format(**shown)
    return Claim(id=entry.id, claim=entry.claim, refutation=text, evidence=[Evidence(kind, text, entry.source)])


def refuted(reader: Reader) -> list[Claim]:
    """The claims that `reader` meets, in file order."""
    return [refute(entry, reader) for entry in entries() if meets(entry.when, reader)]
