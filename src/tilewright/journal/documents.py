"""What `tilewright record` and `tilewright journal` print with --json."""

from __future__ import annotations

import msgspec

from tilewright.journal.experiment import Recorded
from tilewright.journal.judge import Judgement


class RecordDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/record/1"):
    """`record`: the entry as it was kept, and what its samples say."""

    store: str
    entry: Recorded
    judgement: Judgement


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry with what its samples say. `superseded_by` is the number of the entry that corrects it."""

    entry: Recorded
    judgement: Judgement
    superseded_by: int | None


class JournalDocument(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/journal/1"):
    """`journal`: every entry, oldest first."""

    store: str
    entries: list[Entry]
