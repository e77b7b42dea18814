"""What a flag is for, whatever a version calls it: `data/flag_concepts.json`, resolved among a version's own flags."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from tilewright.data.figures import read_packaged
from tilewright.libraries.engine_flags.model import Flag, FlagSet

__all__ = ["Concept", "Rename", "concept", "concepts", "find", "name_of", "names", "renames", "value_for"]


class Concept(msgspec.Struct, frozen=True):
    """One purpose. `sglang` and `vllm` are its flags there, the newest name first; `values` spellings of a value."""

    id: str
    title: str
    sglang: tuple[str, ...] = ()
    vllm: tuple[str, ...] = ()
    values: dict[str, dict[str, tuple[str, ...]]] = {}


class Rename(msgspec.Struct, frozen=True):
    engine: str
    old: str
    new: str
    source: str


class _File(msgspec.Struct, frozen=True):
    concepts: tuple[Concept, ...]
    renames: tuple[Rename, ...]


@lru_cache(maxsize=1)
def _file() -> _File:
    return msgspec.convert(read_packaged("flag_concepts.json"), _File)


@lru_cache(maxsize=1)
def concepts() -> dict[str, Concept]:
    """Every concept by its id."""
    return {item.id: item for item in _file().concepts}


def renames() -> tuple[Rename, ...]:
    """Renamings that no release's own declaration tells."""
    return _file().renames


def concept(ident: str) -> Concept:
    return concepts()[ident]


def names(ident: str, engine: str) -> tuple[str, ...]:
    """What the concept's flag was ever called in an engine."""
    item = concept(ident)
    return item.sglang if engine == "sglang" else item.vllm if engine == "vllm" else ()


def name_of(flags: FlagSet, ident: str) -> str | None:
    """What this version calls the concept's flag: the newest name that it has and does not call deprecated."""
    for name in names(ident, flags.engine):
        flag = flags.get(name)
        if flag is not None and not flag.deprecated:
            return name
    return None


def find(flags: FlagSet, ident: str) -> Flag | None:
    """The flag that `name_of` names."""
    name = name_of(flags, ident)
    return None if name is None else flags.get(name)


def value_for(flags: FlagSet, ident: str, value: str) -> str | None:
    """How this version spells a value of the concept's flag; None where its choices have none of the spellings."""
    flag = find(flags, ident)
    if flag is None:
        return None
    spellings = concept(ident).values.get(flags.engine, {}).get(value, (value,))
    if flag.choices is None:
        return spellings[0]
    legal = {str(item) for item in flag.choices}
    return next((item for item in spellings if item in legal), None)
