"""The records of the collectives index: what is cached, and what `tilewright collectives --json` prints."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = [
    "BuilderRef",
    "Collective",
    "Index",
    "Policy",
    "RefusedBy",
    "Requirement",
    "ScheduleTag",
    "Suited",
    "TreeInfo",
]

Scaling = Literal["none", "block_scaled", "blockwise"]
"""`block_scaled`: the MMA instruction takes scale factors (OCP MX, NVFP4). `blockwise`: plain FP8 MMAs, scaled in
software. Never the same thing."""


class BuilderRef(msgspec.Struct, frozen=True):
    """A `CollectiveBuilder` specialisation that gives a collective. `schedules` are the tags with which it does."""

    file: str
    line: int
    archs: tuple[str, ...] = ()
    op_class: str = ""
    schedules: tuple[str, ...] = ()


class RefusedBy(msgspec.Struct, frozen=True):
    """A builder whose `enable_if` lets a tag through and whose static_assert at `line` then refuses it."""

    file: str
    line: int
    archs: tuple[str, ...]
    op_class: str
    message: str


class Requirement(msgspec.Struct, frozen=True):
    """Something that a static_assert demands: `what` is cluster, stages, layout, operands, tile_n, ..."""

    what: str
    value: str
    message: str
    file: str
    line: int


class Collective(msgspec.Struct, frozen=True, kw_only=True):
    """One `CollectiveMma` or `CollectiveEpilogue` specialisation."""

    name: str
    file: str
    line: int
    arch: str
    """The arch that its dispatch policy is for."""
    runs_on: tuple[str, ...] = ()
    """Archs whose builders give it: SM120 kernels use SM90's epilogues. Empty where no builder gives it."""
    operation: Literal["mma", "epilogue"]
    policy: str
    array: bool
    scaling: Scaling
    sparse: bool
    mixed_input: bool
    schedules: tuple[str, ...] = ()
    builders: tuple[BuilderRef, ...] = ()
    copies: tuple[str, ...] = ()
    op_classes: tuple[str, ...] = ()
    operands: tuple[str, ...] = ()
    """Operand formats that its builders take, where their static_asserts say so; empty: not restricted there."""
    requires: tuple[Requirement, ...] = ()
    note: str | None = None
    tree: int = 0
    """Index into `trees` of the answer."""


class ScheduleTag(msgspec.Struct, frozen=True, kw_only=True):
    """One schedule struct. `role`: `tag` is passed to a builder, `category` is a base that groups tags, `chosen` is
    what a builder puts into a dispatch policy by itself."""

    name: str
    file: str
    line: int
    operation: Literal["mma", "epilogue"]
    role: Literal["tag", "category", "chosen"] = "tag"
    bases: tuple[str, ...] = ()
    alias_of: str | None = None
    builders: tuple[BuilderRef, ...] = ()
    refused: tuple[RefusedBy, ...] = ()
    note: str | None = None
    tree: int = 0


class Policy(msgspec.Struct, frozen=True):
    """A dispatch policy that no collective in the tree is specialised for."""

    name: str
    file: str
    line: int
    note: str | None = None
    tree: int = 0


class Index(msgspec.Struct, frozen=True, kw_only=True):
    """What one CUTLASS tree can do. Files are relative to its include folder."""

    version: str
    fingerprint: str
    collectives: tuple[Collective, ...] = ()
    schedules: tuple[ScheduleTag, ...] = ()
    unused_policies: tuple[Policy, ...] = ()
    builders: int = 0
    """`CollectiveBuilder` specialisations read."""
    notes: tuple[str, ...] = ()


class TreeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One CUTLASS tree under the root of a question."""

    cutlass: str
    """Version, of the known tree with this content where there is one, else as it reports."""
    reported: str
    known: str | None
    """Name of the known tree with the same content; None for an unknown one."""
    ruleset: str | None = None
    """The release whose rules hold for this content; None for an unknown tree."""
    nearest: str | None = None
    """For an unknown tree: the nearest known one, and in how many files it differs."""
    fingerprint: str
    include: str
    library: str | None = None
    copies: tuple[str, ...] = ()
    collectives: int = 0
    builders: int = 0


class Suited(msgspec.Struct, frozen=True, kw_only=True):
    """Whether one collective could run the config, and with which schedule tags; or each reason why it could not."""

    name: str
    policy: str
    operation: Literal["mma", "epilogue"]
    file: str
    line: int
    can: bool
    schedules: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    tree: int = 0
