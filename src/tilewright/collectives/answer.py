"""What `collectives` answers."""

from __future__ import annotations

from typing import Any

import msgspec

from tilewright.collectives.model import Collective, Policy, ScheduleTag, Suited, TreeInfo

__all__ = ["Answer", "FitSummary", "ForConfig"]


class FitSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict of `fit`, without its fields."""

    cutlass: str
    status: str
    stages: int | None
    smem_bytes: int | None
    limit_bytes: int | None
    excess_bytes: int | None
    rules: tuple[str, ...] = ()
    fixes: tuple[str, ...] = ()


class ForConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Which collectives could run a kernel config."""

    config: dict[str, Any]
    verdicts: tuple[Suited, ...]
    """Those that could, then those that look as if they could, each with its reasons; mainloops, then epilogues."""
    fit: FitSummary | None = None
    """What `fit` says about the config with the rules of the tree; None where some collective is missing."""
    first_release: str | None = None
    """Where no mainloop could: the first release with one that could, and its dispatch policy."""
    first_policy: str | None = None
    notes: tuple[str, ...] = ()


class Answer(msgspec.Struct, frozen=True, kw_only=True, tag_field="schema", tag="tilewright/collectives/1"):
    """The answer of `collectives` (DESIGN 4.4). `file`s are relative to `root`."""

    cutlass: str
    root: str
    trees: tuple[TreeInfo, ...]
    collectives: tuple[Collective, ...]
    references: tuple[Collective, ...] = ()
    """What to read beside the answer: the same scaling on the arch where it is documented best."""
    schedules: tuple[ScheduleTag, ...] = ()
    unused_policies: tuple[Policy, ...] = ()
    notes: tuple[str, ...] = ()
    for_config: ForConfig | None = msgspec.field(default=None, name="for")
