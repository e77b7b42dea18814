"""Published findings that rules may rest on, from `data/evidence.json`: each with its source and version windows."""

from __future__ import annotations

from functools import cache
from importlib import resources
from typing import Literal

import msgspec

from tilewright.plan.finding import Evidence
from tilewright.versions import within


class Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One published finding. `windows` maps an engine or library to the versions that it was read in or holds for."""

    id: str
    kind: Literal["exact", "measured", "published"]
    text: str
    source: str
    date: str
    windows: dict[str, str] = {}

    def holds(self, name: str, version: str | None) -> bool | None:
        """Whether it holds for `version` of the engine or library `name`; None where the version is not known."""
        return within(version, self.windows.get(name))

    def since(self, name: str) -> str:
        """The version of `name` that it was read in or holds from, empty where the window has no lower bound."""
        clauses = self.windows.get(name, "").split(",")
        return next((clause.removeprefix(">=").strip() for clause in clauses if clause.startswith(">=")), "")

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.kind, self.text, self.source)


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    about: str
    evidence: list[Entry]


@cache
def entries() -> dict[str, Entry]:
    """Every entry by its id."""
    raw = resources.files("tilewright.data").joinpath("evidence.json").read_bytes()
    return {entry.id: entry for entry in msgspec.json.decode(raw, type=_File).evidence}


def published(*ids: str) -> list[Evidence]:
    """The entries of those ids as evidence."""
    known = entries()
    return [known[name].evidence for name in ids]
