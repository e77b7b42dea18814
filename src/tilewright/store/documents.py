"""What `tilewright results ... --json` prints."""

from __future__ import annotations

import msgspec

from tilewright.store.result import Stored


class ResultsDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/results/1"):
    """`results list`: what was found in the store, oldest first."""

    store: str
    results: list[Stored]


class ImportDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/results-import/1"):
    """`results import`: how many results the file held and how many the store did not have."""

    store: str
    read: int
    new: int
